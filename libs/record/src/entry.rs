//! Entries: the events of a control plane that a record has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One event in the history of a control plane. Times are those of its clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// A version of an object, or its deletion.
    Version(Box<Version>),
    /// A request that was answered.
    Request(Box<Request>),
    /// A step of the test clock.
    ClockStep(ClockStep),
    /// A pass of a controller over one key.
    Pass(Box<Pass>),
    /// A fault that was injected.
    Fault(Box<Fault>),
    /// The revision of the objects that were there when the recording of a control plane began.
    /// They are versions, too.
    Base {
        /// The revision.
        revision: u64,
    },
    /// The beginning of a fork. It has the versions of its parent up to a revision.
    Fork(Box<Fork>),
    /// Entries that are missing here.
    Gap(Gap),
    /// The end of recording before the end of the control plane.
    Stopped {
        /// The reason.
        reason: StopReason,
    },
    /// The end of a record that was finished.
    End {
        /// The entries that were not recorded, those in gaps and those after `Stopped` included.
        dropped: u64,
    },
}

/// A version of an object as stored, or the deletion of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The fork that it is of; empty for the original control plane.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fork: Arc<str>,
    /// The revision of the store.
    pub revision: u64,
    /// The time of the write.
    pub time: Timestamp,
    /// The resource's keyspace, such as `deployments.apps`.
    pub bucket: Arc<str>,
    /// The name within the bucket, such as `shop/web-0`.
    pub key: Arc<str>,
    /// The author of the write, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The JSON of the object as stored; `None` for a deletion.
    #[serde(skip)]
    pub object: Option<Bytes>,
}

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Author {
    /// The name of the user.
    pub user: Arc<str>,
    /// The User-Agent of the client.
    pub user_agent: Arc<str>,
    /// The verb of the request, such as `patch`.
    pub verb: Arc<str>,
    /// The subresource of the request.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub subresource: Arc<str>,
}

/// A request and its response. Fields that do not apply are empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The fork that it is of; empty for the original control plane.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fork: Arc<str>,
    /// The time at which the response began.
    pub time: Timestamp,
    /// The duration until the response began.
    pub duration: Duration,
    /// The name of the user.
    pub user: Arc<str>,
    /// The User-Agent of the client.
    pub user_agent: Arc<str>,
    /// Whether the client is a part of the control plane.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    /// The verb: of resources such as `deletecollection`, otherwise the HTTP method in lower case.
    pub verb: Arc<str>,
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub group: Arc<str>,
    /// The resource in plural, such as `pods`; empty for a path that is not a resource's.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub resource: Arc<str>,
    /// The subresource.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub subresource: Arc<str>,
    /// The namespace.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    /// The name of the object.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// The path and query, from which a write can be sent again.
    pub path: Arc<str>,
    /// The HTTP status code of the response.
    pub code: u16,
    /// The reason of the `Status` in the response, such as `Conflict`.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Arc<str>,
    /// The message of the `Status` in the response.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub message: Arc<str>,
    /// The Content-Type of the body.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub content_type: Arc<str>,
    /// The body of a write.
    #[serde(skip)]
    pub body: Option<Bytes>,
}

/// The beginning of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// The name, which no other fork of the record has.
    pub name: Arc<str>,
    /// The fork that it was made of; empty for the original control plane.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub parent: Arc<str>,
    /// The revision of the parent that it begins with.
    pub revision: u64,
    /// The time.
    pub time: Timestamp,
}

/// A step of the test clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockStep {
    /// The fork that it is of; empty for the original control plane.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fork: Arc<str>,
    /// The time before the step.
    pub from: Timestamp,
    /// The time after the step.
    pub to: Timestamp,
}

/// A pass of a controller over one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// The fork that it is of; empty for the original control plane.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fork: Arc<str>,
    /// The name of the controller.
    pub controller: Arc<str>,
    /// The key of its queue, such as `shop/web`.
    pub key: Arc<str>,
    /// The time of the start.
    pub started: Timestamp,
    /// The duration.
    pub duration: Duration,
    /// The outcome.
    pub outcome: PassOutcome,
}

/// The outcome of a controller's pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PassOutcome {
    /// Nothing is left to do for the key.
    Done,
    /// The key is due again.
    Requeued {
        /// The delay until then.
        after: Duration,
    },
    /// The pass failed and is tried again.
    Failed {
        /// The error.
        error: Arc<str>,
    },
}

/// A fault that was injected into a request or a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// The time of the injection.
    pub time: Timestamp,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The effect, such as `status 409` or `drop`.
    pub effect: Arc<str>,
    /// The User-Agent of the client.
    pub user_agent: Arc<str>,
    /// The verb of the request.
    pub verb: Arc<str>,
    /// The path and query of the request.
    pub path: Arc<str>,
}

/// Entries that are missing at this place of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The reason. If there are several, that of the first missing entry.
    pub reason: GapReason,
    /// The number of missing entries.
    pub entries: u64,
    /// The time of the first missing entry that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// The time of the last missing entry that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
}

/// The reason of a [`Gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GapReason {
    /// The queue was full for longer than [`Options::patience`](crate::Options::patience).
    QueueFull,
    /// The entry is larger than an entry may be.
    TooLarge,
}

/// The reason for the end of recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The file has reached [`Options::max_bytes`](crate::Options::max_bytes), or another limit of
    /// its format.
    MaxBytes,
    /// A write to the file failed, for example because the disk is full.
    WriteFailed {
        /// The error of the operating system.
        error: Arc<str>,
    },
}

impl Entry {
    /// Returns the time of the entry; `None` for `Base`, `Stopped`, `End` and a gap without times.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Entry::Version(version) => Some(version.time),
            Entry::Request(request) => Some(request.time),
            Entry::ClockStep(step) => Some(step.to),
            Entry::Pass(pass) => Some(pass.started),
            Entry::Fault(fault) => Some(fault.time),
            Entry::Fork(fork) => Some(fork.time),
            Entry::Gap(gap) => gap.from,
            Entry::Base { .. } | Entry::Stopped { .. } | Entry::End { .. } => None,
        }
    }

    /// Returns the revision of a version; `None` for other entries.
    pub fn revision(&self) -> Option<u64> {
        match self {
            Entry::Version(version) => Some(version.revision),
            _ => None,
        }
    }

    /// Returns the bytes that follow the JSON of the entry.
    pub(crate) fn payload(&self) -> Option<&Bytes> {
        match self {
            Entry::Version(version) => version.object.as_ref(),
            Entry::Request(request) => request.body.as_ref(),
            _ => None,
        }
    }

    /// Sets the bytes that follow the JSON of the entry. Returns false if it has no place for them.
    pub(crate) fn set_payload(&mut self, payload: Bytes) -> bool {
        match self {
            Entry::Version(version) => version.object = Some(payload),
            Entry::Request(request) => request.body = Some(payload),
            _ => return false,
        }
        true
    }

    /// Returns the approximate size in memory and in a block, in bytes.
    pub(crate) fn size(&self) -> usize {
        /// Fields of a fixed size, and the names of all fields.
        const FIXED: usize = 256;
        let texts: usize = match self {
            Entry::Version(version) => {
                let author = version
                    .author
                    .as_ref()
                    .map(|a| a.user.len() + a.user_agent.len() + a.verb.len() + a.subresource.len());
                version.bucket.len() + version.key.len() + author.unwrap_or_default()
            }
            Entry::Request(request) => request.texts().iter().map(|text| text.len()).sum(),
            Entry::Pass(pass) => {
                let error = match &pass.outcome {
                    PassOutcome::Failed { error } => error.len(),
                    PassOutcome::Done | PassOutcome::Requeued { .. } => 0,
                };
                pass.controller.len() + pass.key.len() + error
            }
            Entry::Fault(fault) => {
                let texts = [&fault.rule, &fault.effect, &fault.user_agent, &fault.verb, &fault.path];
                texts.iter().map(|text| text.len()).sum()
            }
            Entry::Fork(fork) => fork.name.len() + fork.parent.len(),
            Entry::ClockStep(_)
            | Entry::Base { .. }
            | Entry::Gap(_)
            | Entry::Stopped { .. }
            | Entry::End { .. } => 0,
        };
        FIXED + texts + self.payload().map_or(0, Bytes::len)
    }
}

impl Request {
    fn texts(&self) -> [&Arc<str>; 12] {
        let Request { user, user_agent, verb, group, resource, subresource, namespace, name, .. } = self;
        let Request { path, reason, message, content_type, .. } = self;
        [
            user,
            user_agent,
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
            path,
            reason,
            message,
            content_type,
        ]
    }
}
