//! The log of a simulated container: what an annotation of the pod says, or one line, written when the container starts.
//!
//! A container's log can be followed (`follow.rs`) while it runs: what is appended to the annotation meanwhile is appended to the log.

mod follow;

use coracle_apimachinery::field::quote;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use follow::{Follower, follow};

/// The annotation with the log of each container of a pod.
const LOG: &str = "sim.coracle.dev/log";

/// What a client wants of a log: the PodLogOptions of its request.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The container; "" is the only one.
    container: String,
    previous: bool,
    follow: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
    since: Option<Timestamp>,
}

impl LogOptions {
    /// The options of a request.
    ///
    /// # Errors
    /// 400 for numbers and times that are none.
    pub fn parse(query: &Query, now: Timestamp) -> Result<LogOptions> {
        let count = |name: &str| -> Result<Option<usize>> {
            Ok(query.int(name)?.map(|count| usize::try_from(count).unwrap_or(0)))
        };
        let since = match (query.first("sinceTime"), query.int("sinceSeconds")?) {
            (Some(time), _) => Some(time.parse().map_err(|_| {
                Error::bad_request(format!("parsing time {} as RFC 3339 failed", quote(time)))
            })?),
            (None, Some(seconds)) => {
                Some(now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN))
            }
            (None, None) => None,
        };
        Ok(LogOptions {
            container: query.first("container").unwrap_or_default().to_owned(),
            previous: query.flag("previous") == Some(true),
            follow: query.flag("follow") == Some(true),
            timestamps: query.flag("timestamps") == Some(true),
            tail_lines: count("tailLines")?,
            limit_bytes: count("limitBytes")?,
            since,
        })
    }

    /// Lines that were written at a time, as they are sent. `left`: how many bytes may still be sent.
    fn render<'a>(&self, lines: impl Iterator<Item = &'a str>, at: &str, left: &mut Option<usize>) -> String {
        // As kubelets print it, whose clocks are finer.
        let stamp = match at.strip_suffix('Z') {
            Some(seconds) if self.timestamps => format!("{seconds}.000000000Z "),
            _ => String::new(),
        };
        let mut text: String = lines.flat_map(|line| [stamp.as_str(), line, "\n"]).collect();
        if let Some(left) = left {
            // No half of a character.
            let end = (0..=text.len().min(*left)).rev().find(|end| text.is_char_boundary(*end));
            let is_cut = text.len() > *left;
            text.truncate(end.unwrap_or(0));
            *left = if is_cut { 0 } else { *left - text.len() };
        }
        text
    }
}

/// The log of a container that has started.
#[derive(Debug)]
pub struct ContainerLog {
    /// What is sent of it now.
    pub text: String,
    /// What follows it is sent too: how the container is known again, and what was read.
    following: Option<Following>,
}

#[derive(Debug)]
struct Following {
    container: String,
    /// When the container started; a restarted one has a log of its own.
    started_at: String,
    /// The whole log, sent or not.
    read: String,
    left: Option<usize>,
}

/// What a kubelet would send of a container's log. None where no kubelet has reported the pod, so there is none to ask.
///
/// # Errors
/// The kubelet's, about containers that have no log yet.
pub fn of(pod: &Value, options: &LogOptions) -> Result<Option<ContainerLog>> {
    const LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    if LISTS.iter().all(|list| pod["status"][list].as_array().is_none_or(Vec::is_empty)) {
        return Ok(None);
    }
    let only = pod.pointer("/spec/containers/0/name").and_then(Value::as_str).unwrap_or_default();
    let name = if options.container.is_empty() { only } else { options.container.as_str() };
    let (container, pod_name) = (quote(name), quote(pod.name()));
    let Some(status) = status(pod, name) else {
        let message = format!("container {container} in pod {pod_name} is not available");
        return Err(Error::bad_request(message));
    };
    let (now, before) = (started(status, "state"), started(status, "lastState"));
    if options.previous && before.is_none() {
        let message = format!("previous terminated container {container} in pod {pod_name} not found");
        return Err(Error::bad_request(message));
    }
    let wanted = if options.previous { before } else { now.or(before) };
    let Some(started_at) = wanted else {
        let reason = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        let message = format!("container {container} in pod {pod_name} is waiting to start: {reason}");
        return Err(Error::bad_request(message));
    };
    let read = text(pod, name);
    // All lines were written when the container started.
    let is_recent =
        options.since.is_none_or(|since| started_at.parse().is_ok_and(|at: Timestamp| at >= since));
    let lines: Vec<&str> = read.lines().filter(|_| is_recent).collect();
    let first = lines.len().saturating_sub(options.tail_lines.unwrap_or(lines.len()));
    let mut left = options.limit_bytes;
    let sent = options.render(lines.into_iter().skip(first), started_at, &mut left);
    let follows = options.follow && !options.previous && is_running(status);
    let following = follows.then(|| Following {
        container: name.to_owned(),
        started_at: started_at.to_owned(),
        read,
        left,
    });
    Ok(Some(ContainerLog { text: sent, following }))
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    statuses.into_iter().find(|status| status["name"] == container)
}

fn is_running(status: &Value) -> bool {
    status["state"]["running"].is_object()
}

/// When the container of a state started.
fn started<'a>(status: &'a Value, state: &str) -> Option<&'a str> {
    ["running", "terminated"].iter().find_map(|kind| status[state][kind]["startedAt"].as_str())
}

/// The whole log of a container.
fn text(pod: &Value, container: &str) -> String {
    match pod["metadata"]["annotations"][LOG].as_str() {
        Some(text) => text.to_owned(),
        None => format!("container {container} is simulated: it does nothing, and has nothing to say"),
    }
}

#[cfg(test)]
mod tests;
