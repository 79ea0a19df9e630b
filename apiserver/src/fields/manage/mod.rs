//! Updates of `metadata.managedFields` by a write.
//!
//! A plain write (create, update, patch: operation `Update`) adds the changed fields to the entry
//! of its manager and removes them from all others; removed fields have no owner. It never
//! conflicts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::FieldPathSet;
use super::entry::{self, Entry, Operation};
use super::reconcile::reconcile;
use super::typed::{self, Duplicates};
use super::versions::{Unconvertible, Versions};
use super::walk::{self, Comparison};
use crate::object_meta::ObjectMeta;
use crate::resource_info::ResourceInfo;
use crate::schema::TypeRef;
use crate::strategy::FieldPath;

/// The maximum number of entries of update managers.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager that gets the fields of the oldest update managers beyond the maximum.
const ANCIENT_CHANGES: &str = "ancient-changes";
/// The maximum length of a manager's name that is taken from a User-Agent, in bytes.
const MANAGER_LENGTH: usize = 128;
const REPLICAS: &[&str] = &["f:spec", "f:replicas"];
/// The version of a Scale.
const SCALE_VERSION: &str = "autoscaling/v1";

/// The manager of a write, and the endpoint it writes through.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The manager's name.
    pub manager: &'a str,
    /// The version of the request.
    pub api_version: &'a str,
    /// "" for the main endpoint.
    pub subresource: &'a str,
    /// RFC 3339, whole seconds.
    pub now: &'a str,
}

/// Returns the manager of a request: `fieldManager`, or without one the product in the User-Agent.
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

/// Returns the entries after a plain write, in the form of `metadata.managedFields`; null if there
/// are none.
///
/// - `live`, `new`: the object before (None on create) and as sent by the client, in the version of
///   the request. `new` must not contain fields that the server sets.
///
/// # Errors
/// The errors of a conversion. A caller that stores the object nevertheless removes the managed
/// fields.
pub fn update(
    versions: &Versions<'_>,
    writer: FieldManager<'_>,
    live: Option<&Value>,
    new: &Value,
) -> Result<Value, Unconvertible> {
    let info = versions.info();
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
        // A plain write does not start tracking an untracked object.
        return Ok(Value::Null);
    }
    if let TypeRef::Structural(_) = info.type_ref {
        for object in live.into_iter().chain([new]) {
            typed::check(object, &info.type_ref, Duplicates::Allowed).map_err(Unconvertible::Failed)?;
        }
    }
    let reconciled = reconcile_entries(versions, &mut entries, live)?;
    let comparison = compare(info, &info.type_ref, writer, live, new);
    if comparison.is_malformed {
        // An object without fields has no managers.
        return Ok(Value::Null);
    }
    if comparison.is_empty() && entries.iter().all(|entry| entry.api_version == writer.api_version) {
        if !reconciled && (sent.is_null() || sent == kept) {
            return Ok(kept.clone());
        }
        entries.retain(|entry| !entry.fields.is_empty());
        return Ok(entry::write(entries));
    }
    let mut comparisons = BTreeMap::from([(writer.api_version.to_owned(), Some(comparison))]);
    for entry in &entries {
        if !comparisons.contains_key(&entry.api_version) {
            let comparison = compare_in(&entry.api_version, versions, writer, live, new)?;
            if comparison.as_ref().is_some_and(|comparison| comparison.is_malformed) {
                return Ok(Value::Null);
            }
            comparisons.insert(entry.api_version.clone(), comparison);
        }
    }
    remove_fields(&mut entries, |version| comparisons.get(version)?.as_ref());
    let comparison = comparisons.remove(writer.api_version).flatten().unwrap_or_default();
    add_fields(&mut entries, writer, comparison.written);
    cap_update_managers(&mut entries);
    Ok(entry::write(entries))
}

/// Adapts the entries of a custom resource to the current schemas. Returns whether any entry
/// changed. Entries of built-in kinds always match the schema table.
///
/// # Errors
/// The errors of the conversion of the live object to the version of an entry.
pub(super) fn reconcile_entries(
    versions: &Versions<'_>,
    entries: &mut [Entry],
    live: Option<&Value>,
) -> Result<bool, Unconvertible> {
    if !versions.info().is_custom() {
        return Ok(false);
    }
    let mut changed = false;
    for entry in entries {
        let empty = json!({"apiVersion": versions.info().api_version, "kind": &*versions.info().kind});
        let (_, type_ref) = versions.convert(live.unwrap_or(&empty), &entry.api_version)?;
        changed |= reconcile(&mut entry.fields, type_ref);
    }
    Ok(changed)
}

/// Returns the entries of an object that is created through a subresource and is not stored.
pub fn of_new(type_ref: &TypeRef, writer: FieldManager<'_>, new: &Value) -> Value {
    let mut comparison = walk::compare(None, new, type_ref);
    if comparison.is_malformed {
        return Value::Null;
    }
    ignore(&mut comparison.written, &[]);
    let mut entries = Vec::new();
    add_fields(&mut entries, writer, comparison.written);
    entry::write(entries)
}

/// Returns the entries after a write to `/scale` set the replicas of `live`. The new entry has no
/// time.
pub fn scale(writer: FieldManager<'_>, live: &Value, replicas: i64) -> Value {
    let kept = managed_fields(live);
    let old = live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let Some(mut entries) = entry::read(kept) else { return kept.clone() };
    if !entries.iter().any(|entry| entry.fields.contains(REPLICAS)) {
        return entry::write(entries);
    }
    if old == replicas {
        let owners = of_scale(&entries, SCALE_VERSION);
        return entry::write(from_scale(entries, owners, writer.api_version));
    }
    // Scale omits a zero, so scaling to zero removes the field.
    let mut comparison = Comparison::default();
    let changed = if replicas == 0 { &mut comparison.removed } else { &mut comparison.written };
    *changed = FieldPathSet::of(REPLICAS);
    remove_fields(&mut entries, |_| Some(&comparison));
    add_fields(&mut entries, FieldManager { now: "", ..writer }, comparison.written.clone());
    entry::write(entries)
}

/// Returns the entries of a Scale: the entries of its object that own the replicas, limited to the
/// replicas.
pub fn of_scale(parents: &[Entry], api_version: &str) -> Vec<Entry> {
    let owners = parents.iter().filter(|entry| entry.fields.contains(REPLICAS));
    owners
        .map(|entry| Entry {
            api_version: api_version.to_owned(),
            fields: FieldPathSet::of(REPLICAS),
            ..entry.clone()
        })
        .collect()
}

/// Returns the entries of an object (`parents` before) after a write has changed those of its Scale
/// to `scale`. New entries have no time.
///
/// As in kube-apiserver an owner by updates loses the replicas to a new entry of its own, since its
/// identity has a version, and the Scale has another one. Of the two only the one with its other
/// fields counts when they are read.
///
/// Source: `ToParent` in apimachinery's `managedfields/scalehandler.go`.
pub fn from_scale(mut parents: Vec<Entry>, mut scale: Vec<Entry>, api_version: &str) -> Vec<Entry> {
    scale.retain(|entry| entry.fields.contains(REPLICAS));
    let replicas = FieldPathSet::of(REPLICAS);
    parents.retain_mut(|parent| {
        if !parent.fields.contains(REPLICAS) {
            return true;
        }
        let owner = |entry: &Entry| parent.operation == Operation::Apply && parent.is_same_manager(entry);
        match scale.iter().position(owner) {
            Some(place) => _ = scale.remove(place),
            None => parent.fields.difference_with(&replicas),
        }
        !parent.fields.is_empty()
    });
    parents.extend(scale.into_iter().map(|entry| Entry {
        api_version: api_version.to_owned(),
        fields: replicas.clone(),
        time: String::new(),
        ..entry
    }));
    parents
}

/// Restores the old timestamps if they are all that a write changes.
pub fn ignore_managed_fields_timestamps(new: &mut Value, old: &Value) {
    // Most writes end here.
    if differs_outside_metadata(new, old) {
        return;
    }
    let (Value::Array(changed), Value::Array(kept)) = (managed_fields(new), managed_fields(old)) else {
        return;
    };
    let alike = |(changed, kept): (&Value, &Value)| timeless(changed).eq(timeless(kept));
    if changed.len() != kept.len() || changed == kept || !changed.iter().zip(kept).all(alike) {
        return;
    }
    let kept = Value::Array(kept.clone());
    let changed = std::mem::replace(&mut new["metadata"]["managedFields"], kept);
    if new != old {
        new["metadata"]["managedFields"] = changed;
    }
}

fn differs_outside_metadata(new: &Value, old: &Value) -> bool {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return new != old };
    new.len() != old.len()
        || new.iter().any(|(name, value)| name != "metadata" && old.get(name) != Some(value))
}

/// Iterates over the members of an entry other than its timestamp.
fn timeless(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
    entry.as_object().into_iter().flatten().filter(|(member, _)| *member != "time")
}

fn managed_fields(object: &Value) -> &Value {
    object.meta("managedFields").unwrap_or(&Value::Null)
}

/// Returns whether the client resets managedFields, with one empty entry (or an empty list, which
/// the codec converts to that).
fn is_reset(sent: &Value) -> bool {
    let list = sent.as_array().map(Vec::as_slice);
    matches!(list, Some([Value::Object(entry)]) if entry.is_empty())
}

/// Returns the fields that a write changes through its endpoint.
fn compare(
    info: &ResourceInfo,
    type_ref: &TypeRef,
    writer: FieldManager<'_>,
    live: Option<&Value>,
    new: &Value,
) -> Comparison {
    let api_version = new.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let reset_fields = info.reset_fields(writer.subresource, api_version);
    let mut comparison = walk::compare(live, new, type_ref);
    comparison.each(|set| ignore(set, reset_fields));
    comparison
}

/// Removes the fields that an endpoint resets, and those that are never tracked.
pub(super) fn ignore(fields: &mut FieldPathSet, reset_fields: &[FieldPath]) {
    reset_fields.iter().for_each(|path| fields.prune(path));
    fields.difference_with(&UNTRACKED);
}

/// Returns the fields that a write changes, compared in another version; None if the kind has no
/// such version.
fn compare_in(
    api_version: &str,
    versions: &Versions<'_>,
    writer: FieldManager<'_>,
    live: Option<&Value>,
    new: &Value,
) -> Result<Option<Comparison>, Unconvertible> {
    let converted = live.map(|live| versions.convert(live, api_version)).transpose();
    let both = converted.and_then(|live| Ok((live, versions.convert(new, api_version)?)));
    match both {
        Ok((live, (new, type_ref))) => {
            let live = live.as_ref().map(|(live, _)| &**live);
            Ok(Some(compare(versions.info(), type_ref, writer, live, &new)))
        }
        Err(Unconvertible::NoVersion) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The fields that are never tracked: those that identify an object, and those that only the server
/// writes.
static UNTRACKED: LazyLock<FieldPathSet> = LazyLock::new(|| {
    let mut untracked = FieldPathSet::of(&["f:apiVersion"]);
    untracked.union_with(FieldPathSet::of(&["f:kind"]));
    untracked.union_with(FieldPathSet::of(&["f:metadata"]));
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
        untracked.union_with(FieldPathSet::of(&["f:metadata", member]));
    }
    untracked
});

/// Removes changed and removed fields from every manager. Drops entries of unknown versions, and
/// empty ones.
pub(super) fn remove_fields<'d>(
    entries: &mut Vec<Entry>,
    mut comparison: impl FnMut(&str) -> Option<&'d Comparison>,
) {
    entries.retain_mut(|entry| {
        let Some(comparison) = comparison(&entry.api_version) else { return false };
        entry.fields.difference_with(&comparison.written);
        entry.fields.difference_with(&comparison.removed);
        !entry.fields.is_empty()
    });
}

/// Adds fields to the writer's entry.
pub(super) fn add_fields(entries: &mut Vec<Entry>, writer: FieldManager<'_>, fields: FieldPathSet) {
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
    merge_entry(entries, new);
}

/// Adds an entry, or its fields to the entry of the same manager.
fn merge_entry(entries: &mut Vec<Entry>, new: Entry) {
    match entries.iter_mut().find(|entry| entry.is_same_manager(&new)) {
        Some(entry) => {
            entry.time = new.time.max(std::mem::take(&mut entry.time));
            entry.fields.union_with(new.fields);
        }
        None => entries.push(new),
    }
}

/// Caps the number of update managers: the oldest are merged, one entry for each version.
fn cap_update_managers(entries: &mut Vec<Entry>) {
    let is_updater = |entry: &Entry| entry.operation == Operation::Update;
    let mut excess = entries.iter().filter(|e| is_updater(e)).count().saturating_sub(MAX_UPDATE_MANAGERS);
    if excess == 0 {
        return;
    }
    let (mut updaters, mut rest): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(is_updater);
    updaters.sort_by(Entry::order);
    // The oldest entry of each version is kept until a second one is merged into it.
    let mut folded: Vec<Entry> = Vec::new();
    for updater in updaters {
        let oldest = folded.iter_mut().find(|first| first.api_version == updater.api_version);
        match oldest {
            Some(oldest) if excess > 0 => {
                oldest.manager = ANCIENT_CHANGES.to_owned();
                oldest.subresource = String::new();
                oldest.time = updater.time;
                oldest.fields.union_with(updater.fields);
                excess -= 1;
            }
            None if excess > 0 => folded.push(updater),
            _ => rest.push(updater),
        }
    }
    for entry in folded {
        merge_entry(&mut rest, entry);
    }
    *entries = rest;
}

#[cfg(test)]
mod tests;
