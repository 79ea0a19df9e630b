//! The log of a control plane: the versions of objects with their authors, and the requests that
//! were refused.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_apimachinery::request::options::Query;
use coracle_apiserver::registry::{Author, AuthorRequest, ObjectIndex};
use coracle_apiserver::serve;
use coracle_pattern::glob;
use coracle_storage::Event;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::diff::{FieldDiff, fields_of, read};
use crate::history::{events, oldest, verb};
use crate::read::{duration, invalid};
use crate::why::{ObjectName, StoredObjects, parsed};

/// The maximum number of entries of an answer.
const MAX_ENTRIES: usize = 1000;
/// The entries of an answer, if the request does not limit them.
const DEFAULT_ENTRIES: usize = 200;
/// The longest time back that can be asked for.
const MAX_AGE: Duration = Duration::from_secs(366 * 24 * 3600);
/// The bytes of objects that are read.
const MAX_BYTES: usize = 16 << 20;
/// The bucket of the leases, of which nodes and controllers write one every few seconds.
const LEASES: &str = "leases.coordination.k8s.io";

/// The answer of `GET log`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// The versions and the refused requests, newest first.
    pub entries: Vec<LogEntry>,
    /// The oldest revision that history has of all resources.
    pub oldest: String,
    /// Whether there are more entries, or more fields of one.
    pub is_truncated: bool,
}

/// A version of an object, or a request that was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// The revision of the version; None of a refused request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The time in RFC 3339; None if another process wrote the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The resource, such as `deployments.apps`.
    pub resource: String,
    /// The namespace; "" for an object without one.
    pub namespace: String,
    /// The name; "" if the refused request was for a collection.
    pub name: String,
    /// The uid of the object; "" of a refused request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The verb of the request: `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The subresource; "" for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The name of the user; "" if another process wrote the version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The user agent; "" if there was none, or another process wrote the version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// Whether the object was removed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_deletion: bool,
    /// The fields that changed, if the request asks for them: at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDiff>,
    /// The status code of the response that refused the request; None of a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The reason of that response, such as `Conflict`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of that response.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of equal refusals.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A request for the log.
#[derive(Clone, Debug, Default)]
pub struct LogRequest {
    /// The object, or the objects if the name is empty; all if the resource is, too.
    object: ObjectName,
    since: Option<Duration>,
    /// A pattern with `*`.
    user_agent: Option<String>,
    with_fields: bool,
    limit: usize,
}

impl LogRequest {
    /// Reads `resource`, `namespace`, `name`, `since`, `userAgent`, `diff` and `limit` of a query.
    ///
    /// # Errors
    /// 422 for values that are out of range, and for a name without a resource.
    pub fn read(query: &Query) -> Result<LogRequest> {
        let text = |member: &str| query.first(member).filter(|text| !text.is_empty());
        let object = ObjectName::of(query);
        if object.resource.is_empty() && !object.name.is_empty() {
            return Err(invalid("resource", "the name of a resource, such as pods or statefulsets.apps"));
        }
        let limit = match text("limit").map(str::parse) {
            None => DEFAULT_ENTRIES,
            Some(Ok(limit)) if (1..=MAX_ENTRIES).contains(&limit) => limit,
            Some(_) => return Err(invalid("limit", &format!("a number from 1 to {MAX_ENTRIES}"))),
        };
        Ok(LogRequest {
            object,
            since: text("since").map(|text| duration("since", text, MAX_AGE)).transpose()?,
            user_agent: text("userAgent").map(str::to_owned),
            with_fields: query.flag("diff") == Some(true),
            limit,
        })
    }

    fn is_by(&self, user_agent: &str) -> bool {
        self.user_agent.as_deref().is_none_or(|pattern| glob::matches(pattern, user_agent))
    }
}

/// An entry before it is described.
enum Found {
    Version(Arc<Event<ObjectIndex>>),
    Refusal(Box<serve::Refusal>),
}

impl Found {
    /// Returns the sort key of the entry. A refusal comes after earlier writes.
    fn order(&self) -> (u64, bool, Option<Timestamp>) {
        match self {
            Found::Version(event) => (event.revision.0, false, None),
            Found::Refusal(refusal) => (refusal.revision, true, Some(refusal.time)),
        }
    }
}

impl StoredObjects {
    /// Reads the log, newest first.
    ///
    /// # Errors
    /// 404 if there is no such resource.
    pub fn log(&self, request: &LogRequest, now: Timestamp) -> Result<Log> {
        let LogRequest { object, since, .. } = request;
        let after = since.and_then(|since| now.checked_sub(since).ok());
        let is_recent =
            |time: Option<Timestamp>| after.is_none_or(|after| time.is_some_and(|time| time >= after));
        let mut found: Vec<Found> = Vec::new();
        let selection = match object.resource.is_empty() {
            true => None,
            false => Some(self.place(object)?),
        };
        let buckets: Vec<Arc<str>> = match &selection {
            Some((info, _)) => vec![info.storage.bucket.clone()],
            None => self
                .snapshot
                .buckets()
                .map(|(name, _)| name.clone())
                .filter(|name| **name != *LEASES)
                .collect(),
        };
        let namespace = match &selection {
            Some((info, _)) if !info.namespaced => "",
            // One object is in the default namespace, unless the request says another one.
            Some((_, namespace)) if !object.name.is_empty() => namespace,
            _ => &object.namespace,
        };
        let is_selected = |in_namespace: &str, name: &str| {
            (namespace.is_empty() || in_namespace == namespace)
                && (object.name.is_empty() || name == object.name)
        };
        for bucket in &buckets {
            let is_wanted = |event: &Arc<Event<ObjectIndex>>| {
                let (in_namespace, name) = split(event.key.name());
                let agent = event.author.as_ref().map_or("", |author| &author.request.user_agent);
                is_selected(in_namespace, name)
                    && request.is_by(agent)
                    && is_recent(event.author.as_ref().map(|author| author.time))
            };
            let events = events(&self.store, bucket, self.snapshot.revision()).filter(is_wanted);
            found.extend(events.map(Found::Version));
        }
        let refusals = self.traffic.refusals().select(|refusal| {
            let is_resource = selection.as_ref().is_none_or(|(info, _)| {
                info.group_resource.resource == refusal.resource && info.group_resource.group == refusal.group
            });
            is_resource
                && is_selected(&refusal.namespace, &refusal.name)
                && request.is_by(&refusal.request.user_agent)
                && is_recent(Some(refusal.time))
        });
        found.extend(refusals.into_iter().map(Box::new).map(Found::Refusal));
        found.sort_by_key(|found| Reverse(found.order()));
        let mut log = Log {
            oldest: oldest(&self.snapshot).to_string(),
            is_truncated: found.len() > request.limit,
            ..Log::default()
        };
        let mut left = MAX_BYTES;
        for found in found.into_iter().take(request.limit) {
            let entry = match found {
                Found::Refusal(refusal) => of_refusal(*refusal),
                Found::Version(event) => {
                    let mut entry = of_version(&event, &mut left);
                    if request.with_fields {
                        match fields(&event, &mut left) {
                            Some(fields) => entry.fields = fields,
                            None => log.is_truncated = true,
                        }
                    }
                    entry
                }
            };
            log.entries.push(entry);
        }
        Ok(log)
    }
}

/// Splits the name in a bucket into the namespace and the name.
fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

/// Describes a version.
///
/// - `left`: the bytes that may still be read
fn of_version(event: &Event<ObjectIndex>, left: &mut usize) -> LogEntry {
    let (namespace, name) = split(event.key.name());
    let object = event.after.as_ref().or(event.before.as_ref());
    let uid = object.and_then(|object| {
        *left = left.checked_sub(object.bytes.len())?;
        parsed(object)["metadata"]["uid"].as_str().map(str::to_owned)
    });
    let mut entry = LogEntry {
        revision: Some(event.revision.to_string()),
        resource: event.key.bucket().to_string(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.unwrap_or_default(),
        verb: verb(event).to_owned(),
        is_deletion: event.after.is_none(),
        ..LogEntry::default()
    };
    if let Some(Author { request, time }) = &event.author {
        entry.time = Some(time.to_string());
        entry = with_request(entry, request);
    }
    entry
}

fn of_refusal(refusal: serve::Refusal) -> LogEntry {
    let serve::Refusal {
        time, count, request, group, resource, namespace, name, code, reason, message, ..
    } = refusal;
    let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
    let verb = request.verb.as_str().to_owned();
    let (time, code) = (Some(time.to_string()), Some(code));
    let entry = LogEntry {
        time,
        resource,
        namespace,
        name,
        verb,
        code,
        reason,
        message,
        count,
        ..LogEntry::default()
    };
    with_request(entry, &request)
}

fn with_request(entry: LogEntry, request: &AuthorRequest) -> LogEntry {
    let AuthorRequest { user, user_agent, subresource, .. } = request;
    let [user, user_agent, subresource] = [user, user_agent, subresource].map(|text| text.to_string());
    LogEntry { user, user_agent, subresource, ..entry }
}

/// Returns the fields that a change of an object touched; None once too much was compared.
fn fields(event: &Event<ObjectIndex>, left: &mut usize) -> Option<Vec<FieldDiff>> {
    let (Some(before), Some(after)) = (&event.before, &event.after) else { return Some(Vec::new()) };
    *left = left.checked_sub(before.bytes.len() + after.bytes.len())?;
    Some(fields_of(event.key.bucket(), &read(before), &read(after)))
}
