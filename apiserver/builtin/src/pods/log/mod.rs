//! The log of a simulated container: the text of an annotation, the output that its command
//! declares, or one line.
//!
//! A container's log can be followed (`follow.rs`) while it runs: its output is sent when it is
//! due, and text appended to the annotation is appended to the log.

mod follow;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::object_meta::ObjectMeta as _;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_behavior::command::Line;
use coracle_behavior::inheritance::Overrides;
use coracle_behavior::{PodBehavior, Profile};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

use super::behavior::inherited_overrides;

pub use follow::{Follower, follow};

/// The options of a request for a log (PodLogOptions).
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
    /// Returns the options of a request.
    ///
    /// # Errors
    /// 400 for an invalid number or time.
    pub fn parse(query: &Query, now: Timestamp) -> Result<LogOptions> {
        let count = |name: &str| -> Result<Option<usize>> {
            Ok(query.int(name)?.map(|count| usize::try_from(count).unwrap_or(0)))
        };
        let since_time = query.first("sinceTime").filter(|time| !time.is_empty());
        let since = match (since_time, query.int("sinceSeconds")?) {
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

    /// Returns the options for following a container's output from now on.
    pub fn from_now_on(container: &str) -> LogOptions {
        let container = container.to_owned();
        LogOptions { container, follow: true, tail_lines: Some(0), ..LogOptions::default() }
    }

    /// Formats lines for the response. `left`: the number of bytes that may still be sent.
    fn render<'a>(&self, lines: impl Iterator<Item = &'a LogLine>, left: &mut Option<usize>) -> String {
        let mut sent = String::new();
        for LogLine { time, text } in lines {
            if self.timestamps {
                sent.push_str(&time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
            }
            sent.push_str(text);
        }
        if let Some(left) = left {
            // No half of a character.
            let end = (0..=sent.len().min(*left)).rev().find(|end| sent.is_char_boundary(*end));
            let is_cut = sent.len() > *left;
            sent.truncate(end.unwrap_or(0));
            *left = if is_cut { 0 } else { *left - sent.len() };
        }
        sent
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogLine {
    /// The time at which it is written, which may be yet to come.
    time: Timestamp,
    /// The text, with its line feed if it has one.
    text: String,
}

/// The log of a container that has started.
#[derive(Debug)]
pub struct ContainerLog {
    /// The text to send now.
    pub text: String,
    /// The state for following the log: the container run, and the text that was read. None if the
    /// log is not followed.
    following: Option<Following>,
}

#[derive(Debug)]
struct Following {
    writer: Writer,
    container: String,
    /// The start time of the container; a restarted one has another log.
    started_at: String,
    /// The whole log.
    lines: Vec<LogLine>,
    /// The number of lines that were sent, or left out.
    passed: usize,
    left: Option<usize>,
}

/// Writes the logs of a pod's containers, with the settings that are not in the pod. It does not
/// change while a log is followed.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The behavior of pods without a specific one.
    pub profile: Profile,
    /// The overrides of owners and of the namespace.
    pub inherited: Vec<Overrides>,
}

impl Writer {
    /// Returns the writer of a pod's logs.
    ///
    /// # Errors
    /// The pod's namespace cannot be read.
    pub fn of(cluster: &dyn Cluster, pod: &Value, profile: Profile) -> Result<Writer> {
        Ok(Writer { profile, inherited: inherited_overrides(cluster, pod)? })
    }

    /// Returns all lines that a container writes if it starts at `started` and nothing stops it.
    fn lines(&self, pod: &Value, container: &str, started: Timestamp) -> Vec<LogLine> {
        let Ok(pod) = Pod::deserialize(pod) else { return Vec::new() };
        let (behavior, _) = PodBehavior::of(&pod, &self.inherited, self.profile);
        let mut containers = coracle_kinds::pods::containers(&pod);
        let Some((role, spec)) = containers.find(|(_, spec)| spec.name == container) else {
            return Vec::new();
        };
        let lines = behavior.log(&pod, role, &spec, started).into_iter().map(|Line { at, text, .. }| {
            let passed = SignedDuration::try_from(at).unwrap_or(SignedDuration::MAX);
            LogLine { time: started.saturating_add(passed).unwrap_or(Timestamp::MAX), text }
        });
        lines.collect()
    }
}

/// A run of a container, by its status.
#[derive(Clone, Copy, Debug)]
struct ContainerRun<'a> {
    started_at: &'a str,
    started: Timestamp,
    /// The time at which it ended; None while it is running.
    finished: Option<Timestamp>,
}

impl ContainerRun<'_> {
    /// Returns the run that a container status has under `state` (`state` or `lastState`); None if
    /// the container did not start.
    fn of<'a>(status: &'a Value, state: &str) -> Option<ContainerRun<'a>> {
        let state = ["running", "terminated"].iter().map(|kind| &status[state][kind]);
        let state = state.into_iter().find(|state| state["startedAt"].is_string())?;
        let started_at = state["startedAt"].as_str()?;
        let finished = state["finishedAt"].as_str().and_then(|time| time.parse().ok());
        Some(ContainerRun { started_at, started: started_at.parse().ok()?, finished })
    }

    /// Returns whether a line was written by now. The end of the run is known only to the second.
    fn has_written(&self, line: &LogLine, now: Timestamp) -> bool {
        match self.finished {
            None => line.time <= now,
            Some(finished) => line.time < finished.saturating_add(SECOND).unwrap_or(Timestamp::MAX),
        }
    }
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Returns the container's log as a kubelet would send it; None if no kubelet has reported the pod
/// yet.
///
/// # Errors
/// The kubelet's error for a container that has no log yet.
pub fn of(pod: &Value, options: &LogOptions, writer: Writer, now: Timestamp) -> Result<Option<ContainerLog>> {
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
    let (last, before) = (ContainerRun::of(status, "state"), ContainerRun::of(status, "lastState"));
    if options.previous && before.is_none() {
        let message = format!("previous terminated container {container} in pod {pod_name} not found");
        return Err(Error::bad_request(message));
    }
    let wanted = if options.previous { before } else { last.or(before) };
    let Some(run) = wanted else {
        let reason = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        // The kubelet's texts.
        let reason = match reason {
            "ErrImagePull" => "image can't be pulled",
            "ImagePullBackOff" => "trying and failing to pull image",
            reason => reason,
        };
        let message = format!("container {container} in pod {pod_name} is waiting to start: {reason}");
        return Err(Error::bad_request(message));
    };
    let lines = writer.lines(pod, name, run.started);
    let passed = lines.iter().take_while(|line| run.has_written(line, now)).count();
    let is_recent = |line: &&LogLine| options.since.is_none_or(|since| line.time >= since);
    let recent: Vec<&LogLine> = lines[..passed].iter().filter(is_recent).collect();
    let first = recent.len().saturating_sub(options.tail_lines.unwrap_or(recent.len()));
    let mut left = options.limit_bytes;
    let text = options.render(recent.into_iter().skip(first), &mut left);
    let follows = options.follow && !options.previous && is_running(status);
    let (container, started_at) = (name.to_owned(), run.started_at.to_owned());
    let following = follows.then_some(Following { writer, container, started_at, lines, passed, left });
    Ok(Some(ContainerLog { text, following }))
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    statuses.into_iter().find(|status| status["name"] == container)
}

fn is_running(status: &Value) -> bool {
    status["state"]["running"].is_object()
}

#[cfg(test)]
mod tests;
