//! What a write does to `metadata.managedFields`.
//!
//! A plain write (create, update, patch: operation `Update`) gives its manager the fields that it changed and takes them from
//! all others; fields that it removed are nobody's. It never conflicts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::Set;
use super::entry::{self, Entry, Operation};
use super::reset::reset;
use super::walk::{self, Delta};
use crate::names::{GroupKind, GroupVersion};
use crate::resources;
use crate::schema::{StructId, schema};

/// How many managers that update are kept apart.
const MAX_UPDATERS: usize = 10;
/// The manager to whom the fields of the others go.
const ANCIENT: &str = "ancient-changes";
/// How many bytes of a User-Agent make a manager.
const MANAGER_LENGTH: usize = 128;
const REPLICAS: &[&str] = &["f:spec", "f:replicas"];

/// Who writes, and through which endpoint.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// The version in which the write was asked for.
    pub api_version: &'a str,
    /// "" for the main endpoint.
    pub subresource: &'a str,
    /// RFC 3339, whole seconds.
    pub now: &'a str,
}

/// What kind of object is written.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    pub name: &'a GroupKind,
    /// The type in the version of the request.
    pub type_id: StructId,
    /// It has an endpoint for its status.
    pub has_status: bool,
}

/// The manager of a request that names none: the product in its User-Agent.
pub fn manager(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or("");
    let mut manager = String::new();
    for c in product.chars().filter(|c| !c.is_control()) {
        if manager.len() + c.len_utf8() > MANAGER_LENGTH {
            break;
        }
        manager.push(c);
    }
    if manager.is_empty() { "unknown".to_owned() } else { manager }
}

/// The entries after a plain write, as `metadata.managedFields` holds them; null for none.
///
/// - `live`, `new`: the object before (None on create) and as the client wants it, in the version of the request. Nothing
///   that the server itself decides may be in `new` yet.
pub fn update(kind: Kind<'_>, writer: Writer<'_>, live: Option<&Value>, new: &Value) -> Value {
    let kept = live.map_or(&Value::Null, managed_fields);
    let sent = if writer.subresource.is_empty() { managed_fields(new) } else { &Value::Null };
    let mut entries = match sent {
        sent if is_reset(sent) => Vec::new(),
        sent => entry::read(sent)
            .filter(|entries| !entries.is_empty())
            .or_else(|| entry::read(kept))
            .unwrap_or_default(),
    };
    if entries.is_empty() && live.is_some() {
        // What nobody tracks is not tracked by a plain write either.
        return Value::Null;
    }
    let own = compare(kind, writer, live, new);
    if own.is_empty() && entries.iter().all(|entry| entry.api_version == writer.api_version) {
        if sent.is_null() || sent == kept {
            return kept.clone();
        }
        entries.retain(|entry| !entry.fields.is_empty());
        return entry::write(entries);
    }
    let mut deltas = BTreeMap::from([(writer.api_version.to_owned(), Some(own))]);
    for entry in &entries {
        if !deltas.contains_key(&entry.api_version) {
            let delta = compare_in(&entry.api_version, kind, writer, live, new);
            deltas.insert(entry.api_version.clone(), delta);
        }
    }
    disown(&mut entries, |version| deltas.get(version)?.as_ref());
    let own = deltas.remove(writer.api_version).flatten().unwrap_or_default();
    give(&mut entries, writer, own.written);
    fold_old_updaters(&mut entries);
    entry::write(entries)
}

/// The entries after a write to `/scale` changed the replicas of `live`. Who owns them by that has no time.
pub fn scale(writer: Writer<'_>, live: &Value, replicas: i64) -> Value {
    let kept = managed_fields(live);
    let old = live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let mut entries = entry::read(kept).unwrap_or_default();
    if old == replicas || !entries.iter().any(|entry| entry.fields.contains(REPLICAS)) {
        return kept.clone();
    }
    // A scale does not print a zero: to scale to nothing is to remove the number.
    let mut delta = Delta::default();
    let changed = if replicas == 0 { &mut delta.removed } else { &mut delta.written };
    *changed = Set::of(REPLICAS);
    disown(&mut entries, |_| Some(&delta));
    give(&mut entries, Writer { now: "", ..writer }, delta.written.clone());
    entry::write(entries)
}

/// Takes back new times, where they would be all that a write changes.
pub fn keep_times(new: &mut Value, old: &Value) {
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        entry.as_object_mut().map(|members| members.remove("time"));
        entry
    };
    let (Value::Array(changed), Value::Array(kept)) = (managed_fields(new), managed_fields(old)) else {
        return;
    };
    if changed == kept || !changed.iter().map(timeless).eq(kept.iter().map(timeless)) {
        return;
    }
    let kept = Value::Array(kept.clone());
    let Some(place) = new.pointer_mut("/metadata/managedFields") else { return };
    let changed = std::mem::replace(place, kept);
    if new != old {
        new["metadata"]["managedFields"] = changed;
    }
}

fn managed_fields(object: &Value) -> &Value {
    object.pointer("/metadata/managedFields").unwrap_or(&Value::Null)
}

/// Clients stop the tracking by one empty entry (or by an empty list, which the codec turns into that).
fn is_reset(sent: &Value) -> bool {
    let list = sent.as_array().map(Vec::as_slice);
    matches!(list, Some([Value::Object(entry)]) if entry.is_empty())
}

/// What a write changes through its endpoint.
fn compare(kind: Kind<'_>, writer: Writer<'_>, live: Option<&Value>, new: &Value) -> Delta {
    let mut delta = walk::compare(live, new, kind.type_id);
    reset(kind.name, writer.subresource, kind.has_status, &mut delta);
    delta.each(|set| set.subtract(&UNTRACKED));
    delta
}

/// The same, seen in another version; None if the kind has no such version.
fn compare_in(
    api_version: &str,
    kind: Kind<'_>,
    writer: Writer<'_>,
    live: Option<&Value>,
    new: &Value,
) -> Option<Delta> {
    let version = GroupVersion::parse(api_version)?;
    let type_id = schema().kind(&version.group, &version.version, &kind.name.kind)?;
    let convert = |object: &Value| resources::convert(kind.name, api_version, object.clone());
    Some(compare(Kind { type_id, ..kind }, writer, live.map(convert).as_ref(), &convert(new)))
}

/// What is never tracked: that which names an object, and that which the server alone writes.
static UNTRACKED: LazyLock<Set> = LazyLock::new(|| {
    let mut untracked = Set::of(&["f:apiVersion"]);
    untracked.absorb(Set::of(&["f:kind"]));
    untracked.absorb(Set::of(&["f:metadata"]));
    for member in [
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:clusterName",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
    ] {
        untracked.absorb(Set::of(&["f:metadata", member]));
    }
    untracked
});

/// Takes from every manager what was changed or removed. Entries of unknown versions, and those left empty, go.
fn disown<'d>(entries: &mut Vec<Entry>, mut delta: impl FnMut(&str) -> Option<&'d Delta>) {
    entries.retain_mut(|entry| {
        let Some(delta) = delta(&entry.api_version) else { return false };
        entry.fields.subtract(&delta.written);
        entry.fields.subtract(&delta.removed);
        !entry.fields.is_empty()
    });
}

/// Gives fields to the writer.
fn give(entries: &mut Vec<Entry>, writer: Writer<'_>, fields: Set) {
    if fields.is_empty() {
        return;
    }
    let new = Entry {
        manager: writer.manager.to_owned(),
        operation: Operation::Update,
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
        time: writer.now.to_owned(),
        fields,
    };
    put(entries, new);
}

/// Adds an entry, or its fields to that of the same manager.
fn put(entries: &mut Vec<Entry>, new: Entry) {
    match entries.iter_mut().find(|entry| entry.is_same_manager(&new)) {
        Some(entry) => {
            entry.time = new.time.max(std::mem::take(&mut entry.time));
            entry.fields.absorb(new.fields);
        }
        None => entries.push(new),
    }
}

/// Keeps the managers that update few: the oldest become one, a version each.
fn fold_old_updaters(entries: &mut Vec<Entry>) {
    let is_updater = |entry: &Entry| entry.operation == Operation::Update;
    let mut excess = entries.iter().filter(|e| is_updater(e)).count().saturating_sub(MAX_UPDATERS);
    if excess == 0 {
        return;
    }
    let (mut updaters, mut rest): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(is_updater);
    updaters.sort_by(Entry::order);
    // The oldest of each version waits for a second one, with which it is put together.
    let mut folded: Vec<Entry> = Vec::new();
    for updater in updaters {
        let oldest = folded.iter_mut().find(|first| first.api_version == updater.api_version);
        match oldest {
            Some(oldest) if excess > 0 => {
                oldest.manager = ANCIENT.to_owned();
                oldest.subresource = String::new();
                oldest.time = updater.time;
                oldest.fields.absorb(updater.fields);
                excess -= 1;
            }
            None if excess > 0 => folded.push(updater),
            _ => rest.push(updater),
        }
    }
    for entry in folded {
        put(&mut rest, entry);
    }
    *entries = rest;
}

#[cfg(test)]
mod tests;
