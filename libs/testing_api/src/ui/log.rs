//! The log of the page: the versions of an object, or the newest changes of all objects, from history.

use std::sync::Arc;

use coracle_apimachinery::Result;
use coracle_apimachinery::request::options::Query;
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::{Event, Store};
use coracle_why::Version;
use serde::Serialize;
use serde_json::Value;

use super::newest_time;
use crate::diff::{self, FieldDiff};
use crate::why::{ObjectName, StoredObjects};
use crate::{Testing, read};

/// The most entries of an answer, and the default.
const MOST_ENTRIES: usize = 2000;
const DEFAULT_ENTRIES: usize = 200;
/// The bytes of objects that an answer reads.
const MOST_BYTES: usize = 16 << 20;
/// The resources whose changes are no entries of the log of all objects.
const LEFT_OUT: [&str; 4] =
    ["events", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io", "endpoints"];

/// The answer of `GET log`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    entries: Vec<Entry>,
    oldest: String,
    is_truncated: bool,
}

/// A write.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    revision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    verb: &'static str,
    is_deletion: bool,
    fields: Vec<FieldDiff>,
}

impl Testing {
    /// Reads the versions of an object with the fields that differ, or the newest changes of all objects.
    ///
    /// # Errors
    /// 404 for an unknown resource, 422 for a limit that is none.
    pub(super) async fn log_of_page(&self, query: &Query) -> Result<Log> {
        let limit = query.first("limit").filter(|text| !text.is_empty()).map(str::parse).transpose();
        let limit: usize =
            limit.map_err(|_| read::invalid("limit", "it is no number"))?.unwrap_or(DEFAULT_ENTRIES);
        let limit = limit.min(MOST_ENTRIES);
        let object = query.first("resource").is_some().then(|| ObjectName::read(query)).transpose()?;
        let store = self.0.store.clone();
        self.read_at(None, move |objects| {
            let (entries, is_truncated) = match &object {
                Some(object) => versions(objects, object, limit)?,
                None => changes(&store, objects, limit),
            };
            Ok(Log { entries, oldest: objects.oldest().to_string(), is_truncated })
        })
        .await
    }
}

/// The versions of an object, newest first.
fn versions(objects: &StoredObjects, object: &ObjectName, limit: usize) -> Result<(Vec<Entry>, bool)> {
    let (resource, namespace, versions) = objects.versions(object)?;
    let entry = |(index, version): (usize, &Version)| {
        let earlier = versions.get(index.saturating_add(1)).filter(|earlier| !earlier.is_deletion);
        let fields = match earlier {
            Some(earlier) if !version.is_deletion => diff::fields(&earlier.object, &version.object),
            _ => Vec::new(),
        };
        let text = |member: &str| version.object["metadata"][member].as_str().unwrap_or_default().to_owned();
        Entry {
            revision: version.revision.to_string(),
            time: time_of(&version.object, version.is_deletion),
            resource: resource.clone(),
            namespace: namespace.clone(),
            name: text("name"),
            uid: text("uid"),
            verb: match (version.is_deletion, earlier) {
                (true, _) => "delete",
                // Older versions may be forgotten.
                (false, None) if version.object["metadata"]["generation"].as_i64().unwrap_or(1) == 1 => {
                    "create"
                }
                (false, _) => "update",
            },
            is_deletion: version.is_deletion,
            fields,
        }
    };
    let entries = versions.iter().enumerate().take(limit).map(entry).collect();
    Ok((entries, versions.len() > limit))
}

/// The newest changes of all objects, newest first.
fn changes(store: &Store<ObjectIndex>, objects: &StoredObjects, limit: usize) -> (Vec<Entry>, bool) {
    let snapshot = store.snapshot();
    let mut events: Vec<Arc<Event<ObjectIndex>>> = Vec::new();
    for (bucket, _) in snapshot.buckets().filter(|(name, _)| !LEFT_OUT.contains(&&***name)) {
        let Ok(mut history) = store.watch(bucket, snapshot.compact_revision(bucket).revision()) else {
            continue;
        };
        while let Ok(batch) = history.try_next() {
            let is_over = batch.last().is_none_or(|last| last.revision > objects.revision());
            events.extend(batch.iter().cloned());
            if is_over {
                break;
            }
        }
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.revision));
    let mut left = MOST_BYTES;
    let mut entries = Vec::new();
    for event in &events {
        let Some(version) = event.after.as_ref().or(event.before.as_ref()) else { continue };
        let rest = left.checked_sub(version.bytes.len()).filter(|_| entries.len() < limit);
        let Some(rest) = rest else { break };
        left = rest;
        let object: Value = serde_json::from_slice(version.bytes.as_ref()).unwrap_or_default();
        let is_deletion = event.after.is_none();
        let (namespace, name) = event.key.name().split_once('/').unwrap_or(("", event.key.name()));
        entries.push(Entry {
            revision: event.revision.to_string(),
            time: time_of(&object, is_deletion),
            resource: event.key.bucket().to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            verb: match (&event.before, &event.after) {
                (_, None) => "delete",
                (None, _) => "create",
                _ => "update",
            },
            is_deletion,
            fields: Vec::new(),
        });
    }
    let is_truncated = entries.len() < events.len();
    (entries, is_truncated)
}

/// The time of a write, as far as the object says; that of a removal is not in the object.
fn time_of(object: &Value, is_deletion: bool) -> Option<String> {
    newest_time(object).filter(|_| !is_deletion).map(str::to_owned)
}
