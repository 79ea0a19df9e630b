//! The log of a simulated container, as it would be there once the container has run: what an annotation of the pod says, or one line.
//! All of it is written when the container starts, so there is nothing to follow.

use serde_json::Value;

use crate::field::quote;
use crate::object_meta::ObjectMeta;
use crate::request::options::Query;
use crate::{Error, Result};

/// The annotation with the log of each container of a pod.
const LOG: &str = "sim.coracle.dev/log";

/// What a kubelet would send of a container's log; without a name of that of the only container. None where no kubelet has reported
/// the pod, so there is none to ask.
///
/// # Errors
/// The kubelet's, about containers that have no log yet.
pub fn of(pod: &Value, container: &str, query: &Query) -> Result<Option<String>> {
    const LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let lists = LISTS.map(|list| pod.pointer(&format!("/status/{list}")).and_then(Value::as_array));
    let mut statuses = lists.into_iter().flatten().flatten().peekable();
    if statuses.peek().is_none() {
        return Ok(None);
    }
    let only = pod.pointer("/spec/containers/0/name").and_then(Value::as_str).unwrap_or_default();
    let name = if container.is_empty() { only } else { container };
    let (container, pod_name) = (quote(name), quote(pod.name()));
    let Some(status) = statuses.find(|status| status["name"] == name) else {
        let message = format!("container {container} in pod {pod_name} is not available");
        return Err(Error::bad_request(message));
    };
    let started = |state: &str| {
        let times = ["running", "terminated"].map(|kind| format!("/{state}/{kind}/startedAt"));
        times.iter().find_map(|pointer| status.pointer(pointer)?.as_str())
    };
    let (now, before) = (started("state"), started("lastState"));
    if query.flag("previous") == Some(true) && before.is_none() {
        let message = format!("previous terminated container {container} in pod {pod_name} not found");
        return Err(Error::bad_request(message));
    }
    let wanted = if query.flag("previous") == Some(true) { before } else { now.or(before) };
    let Some(since) = wanted else {
        let reason = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        let message = format!("container {container} in pod {pod_name} is waiting to start: {reason}");
        return Err(Error::bad_request(message));
    };
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let log = match annotations.and_then(|annotations| annotations.get(LOG)?.as_str()) {
        Some(text) => text.to_owned(),
        None => format!("container {name} is simulated: it does nothing, and has nothing to say"),
    };
    let lines: Vec<&str> = log.lines().collect();
    let tail = query.int("tailLines")?.map_or(lines.len(), |tail| usize::try_from(tail).unwrap_or(0));
    let stamp = if query.flag("timestamps") == Some(true) { format!("{since} ") } else { String::new() };
    let kept = lines.get(lines.len().saturating_sub(tail)..).unwrap_or_default();
    let mut text: String = kept.iter().flat_map(|line| [stamp.as_str(), line, "\n"]).collect();
    if let Some(limit) = query.int("limitBytes")? {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(text.len());
        // No half of a character.
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn logs() {
        let pod = |state: Value, last: Value| {
            json!({
                "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
                "status": {"containerStatuses": [{"name": "c", "state": state, "lastState": last}]},
            })
        };
        let running = pod(json!({"running": {"startedAt": "T"}}), json!({}));
        let waiting = pod(json!({"waiting": {"reason": "ContainerCreating"}}), json!({}));
        let restarting = pod(
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            json!({"terminated": {"startedAt": "S"}}),
        );
        let line = "container c is simulated: it does nothing, and has nothing to say\n";
        for (case, pod, query, want) in [
            ("running", &running, "", line.to_owned()),
            ("with its time", &running, "timestamps=true", format!("T {line}")),
            ("nothing of it", &running, "tailLines=0", String::new()),
            ("a part of it", &running, "limitBytes=9", "container".to_owned()),
            (
                "before",
                &running,
                "previous=true",
                r#"previous terminated container "c" in pod "p" not found"#.to_owned(),
            ),
            ("the last one", &restarting, "timestamps=1", format!("S {line}")),
            (
                "not started",
                &waiting,
                "",
                r#"container "c" in pod "p" is waiting to start: ContainerCreating"#.to_owned(),
            ),
        ] {
            let got = of(pod, "", &Query::parse(query));
            assert_eq!(got.map(Option::unwrap).unwrap_or_else(|error| error.to_string()), want, "{case}");
        }
        let mut scripted = running.clone();
        scripted["metadata"]["annotations"] = json!({LOG: "one\ntwö\nthree"});
        for (query, want) in [
            ("", "one\ntwö\nthree\n"),
            ("follow=true", "one\ntwö\nthree\n"),
            ("tailLines=2", "twö\nthree\n"),
            ("tailLines=9", "one\ntwö\nthree\n"),
            ("tailLines=1&timestamps=true", "T three\n"),
            ("limitBytes=7", "one\ntw"),
        ] {
            assert_eq!(of(&scripted, "", &Query::parse(query)).unwrap().as_deref(), Some(want), "{query}");
        }
        let error = of(&running, "i", &Query::parse("")).unwrap_err().to_string();
        assert_eq!(error, r#"container "i" in pod "p" is not available"#);
        assert!(of(&json!({"spec": {}}), "", &Query::parse("")).unwrap().is_none());
    }
}
