//! The log of a simulated container: one line, as it would be there once the container has run.

use serde_json::Value;

use crate::field::quote;
use crate::object_meta::ObjectMeta;
use crate::request::options::Query;
use crate::{Error, Result};

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
    let line = format!("container {name} is simulated: it does nothing, and has nothing to say\n");
    let stamp = if query.flag("timestamps") == Some(true) { format!("{since} ") } else { String::new() };
    let mut text = if query.first("tailLines") == Some("0") { String::new() } else { stamp + &line };
    if let Some(limit) = query.int("limitBytes")? {
        // The line is ASCII, as the names of containers are.
        text.truncate(usize::try_from(limit).unwrap_or(usize::MAX).min(text.len()));
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
        let error = of(&running, "i", &Query::parse("")).unwrap_err().to_string();
        assert_eq!(error, r#"container "i" in pod "p" is not available"#);
        assert!(of(&json!({"spec": {}}), "", &Query::parse("")).unwrap().is_none());
    }
}
