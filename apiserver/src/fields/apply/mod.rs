//! Server-side apply: merges a manager's configuration into an object, and makes the manager the
//! owner of those fields.
//!
//! Fields that the manager applied last time and no longer applies are removed, unless another
//! manager owns them. A field that changes and has another owner is a conflict, unless the manager
//! forces it.
//!
//! Source: KEP-555.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::FieldPathSet;
use super::conflict::{self, Conflict, Conflicts};
use super::entry::{Entry, Operation};
use super::last_applied;
use super::manage::{self, FieldManager};
use super::merge::merge;
use super::remove::{remove, with_named_fields};
use super::typed::{self, Duplicates};
use super::versions::{Unconvertible, Versions};
use super::walk::{self, Comparison, fields};
use crate::codec::zero;
use crate::object_meta::ObjectMeta;
use crate::schema::{Type, TypeRef};
use crate::strategy::FieldPath;
use crate::{Error, Result};

/// The manager that becomes the owner of the existing fields when an object without managed fields
/// is applied to for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The target of an apply: a kind in the version of the request.
pub struct ApplyTo<'a> {
    /// The type in that version.
    pub type_ref: &'a TypeRef,
    /// The kind.
    pub kind: &'a str,
    /// The versions of the kind; None if there is only one, and the endpoint resets no fields.
    pub versions: Option<&'a Versions<'a>>,
}

/// The result of an apply.
pub struct Applied {
    /// The object, in the version of the request, not decoded yet: it may have nulls that were
    /// applied.
    pub object: Value,
    /// The new entries of `metadata.managedFields`.
    pub entries: Vec<Entry>,
    /// Whether apply changed the object.
    pub changed: bool,
}

impl ApplyTo<'_> {
    /// Applies a configuration to an object with these entries.
    ///
    /// - `live`: the object in the version of the request, without managed fields; empty if it does
    ///   not exist yet.
    ///
    /// # Errors
    /// 400 and 500 for a configuration that is not of this kind, 409 for conflicts.
    pub fn apply(
        &self,
        live: &Value,
        entries: &[Entry],
        configuration: &Value,
        applier: FieldManager<'_>,
        force: bool,
    ) -> Result<Applied> {
        self.check(live, configuration, applier, !entries.is_empty())?;
        let merge = |force| self.merge(live, entries.to_vec(), configuration, applier, force);
        let is_kubectl = applier.manager == last_applied::KUBECTL;
        let applied = match merge(force) {
            Err(Refusal::Conflicts(conflicts)) if is_kubectl => {
                match last_applied::remaining(&conflicts, live, self.type_ref) {
                    Some(remaining) if remaining.is_empty() => merge(true),
                    Some(remaining) => Err(Refusal::Conflicts(remaining)),
                    None => Err(Refusal::Conflicts(conflicts)),
                }
            }
            applied => applied,
        };
        let mut applied = applied.map_err(Refusal::into_error)?;
        if is_kubectl {
            applied.changed |= last_applied::update(&mut applied.object, configuration);
        }
        Ok(applied)
    }

    fn merge(
        &self,
        live: &Value,
        mut entries: Vec<Entry>,
        configuration: &Value,
        applier: FieldManager<'_>,
        force: bool,
    ) -> std::result::Result<Applied, Refusal> {
        let subresource = applier.subresource;
        if let Some(versions) = self.versions {
            manage::reconcile_entries(versions, &mut entries, Some(live))?;
        }
        if entries.is_empty() {
            let empty = Value::Object(Default::default());
            let comparison = self.compare(self.type_ref, subresource, &empty, live);
            let first = FieldManager { manager: BEFORE_FIRST_APPLY, ..applier };
            let mut written = comparison.written;
            manage::ignore(&mut written, &[]);
            manage::add_fields(&mut entries, first, written);
        }
        // Names have no owner, but are applied all the same: they keep metadata from being pruned.
        let mut applied = fields(configuration, self.type_ref);
        self.reset_fields(subresource, applier.api_version).iter().for_each(|path| applied.prune(path));
        let mut mine = Entry {
            manager: applier.manager.to_owned(),
            operation: Operation::Apply,
            api_version: applier.api_version.to_owned(),
            subresource: subresource.to_owned(),
            time: String::new(),
            fields: applied,
        };
        let place = entries.iter().position(|entry| entry.is_same_manager(&mine));
        let last = place.map(|place| entries.remove(place));
        let merged = merge(live, configuration, self.type_ref);
        let object = match &last {
            Some(last) if !keeps_all(last, &mine, &entries) => self
                .prune(merged, last, &mine, &entries)
                .map_err(|error| error.of("failed to prune fields"))?,
            _ => merged,
        };
        self.take_over(&mut entries, live, &object, applier, force)?;
        let changed = self.differs(live, &object, configuration);
        let time = match last {
            _ if changed => applier.now.to_owned(),
            last => last.map_or_else(String::new, |last| last.time),
        };
        manage::ignore(&mut mine.fields, &[]);
        if !mine.fields.is_empty() {
            entries.push(Entry { time, ..mine });
        }
        Ok(Applied { object: if changed { object } else { live.clone() }, entries, changed })
    }

    /// Returns `true` if the merged object is not the live one. A null that is applied to a member
    /// that Go prints as null anyway changes nothing.
    fn differs(&self, live: &Value, merged: &Value, configuration: &Value) -> bool {
        if live == merged {
            return false;
        }
        let Some(id) = self.type_ref.built_in().filter(|_| has_null(configuration)) else { return true };
        let printed = |object: &Value| {
            let mut printed = object.clone();
            zero::add_nulls(&mut printed, &Type::Struct(id));
            printed
        };
        printed(live) != printed(merged)
    }

    /// Checks that the configuration may be applied at all. `is_tracked`: whether the live object
    /// has managers.
    fn check(
        &self,
        live: &Value,
        configuration: &Value,
        applier: FieldManager<'_>,
        is_tracked: bool,
    ) -> Result<()> {
        let text = |member: &str| configuration.get(member).and_then(Value::as_str).unwrap_or_default();
        if (text("apiVersion"), text("kind")) != (applier.api_version, self.kind) {
            let kind = group_version_kind(text("apiVersion"), text("kind"));
            return Err(Error::bad_request(format!("invalid object type: {kind}")));
        }
        if configuration.meta("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Error::bad_request("metadata.managedFields must be nil"));
        }
        let typed = |what: &str, object: &Value, duplicates: Duplicates| {
            typed::check(object, self.type_ref, duplicates).map_err(|error| {
                Error::Unclassified(format!(
                    "failed to create typed {what} object ({}): {error}",
                    describe(object)
                ))
            })
        };
        if let TypeRef::Structural(_) = self.type_ref
            && !is_tracked
        {
            typed::check(live, self.type_ref, Duplicates::Allowed).map_err(|error| {
                let what = describe(live);
                Error::Unclassified(format!(
                    "failed to create manager for existing fields: failed to convert new object ({what}) to smd typed: {error}"
                ))
            })?;
        }
        typed("patch", configuration, Duplicates::Refused)?;
        match self.type_ref {
            TypeRef::Struct(_) => Ok(()),
            // The schema may have changed since it was stored.
            TypeRef::Structural(_) => typed("live", live, Duplicates::Allowed),
        }
    }

    /// Returns the fields that a write to the endpoint does not change, in a version.
    fn reset_fields(&self, subresource: &str, api_version: &str) -> &'static [FieldPath] {
        self.versions.map_or(&[], |versions| versions.info().reset_fields(subresource, api_version))
    }

    fn compare(&self, type_ref: &TypeRef, subresource: &str, old: &Value, new: &Value) -> Comparison {
        let version = new.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let reset_fields = self.reset_fields(subresource, version);
        let mut comparison = walk::compare(Some(old), new, type_ref);
        comparison.each(|set| reset_fields.iter().for_each(|path| set.prune(path)));
        comparison
    }

    /// Removes the changed fields from the entries of the other managers, or reports conflicts. A
    /// list in another order counts as unchanged.
    fn take_over(
        &self,
        others: &mut Vec<Entry>,
        live: &Value,
        new: &Value,
        applier: FieldManager<'_>,
        force: bool,
    ) -> std::result::Result<(), Refusal> {
        let comparison = self.compare(self.type_ref, applier.subresource, live, new);
        let mut comparisons = BTreeMap::from([(applier.api_version.to_owned(), Some(comparison))]);
        for entry in &*others {
            if !comparisons.contains_key(&entry.api_version) {
                let comparison = self.compare_in(&entry.api_version, applier.subresource, live, new)?;
                comparisons.insert(entry.api_version.clone(), comparison);
            }
        }
        let comparison_of = |version: &str| comparisons.get(version)?.as_ref();
        let conflicts: Conflicts = others
            .iter()
            .filter_map(|entry| {
                let fields = entry.fields.intersection(&comparison_of(&entry.api_version)?.written);
                (!fields.is_empty()).then(|| Conflict { fields, ..Conflict::with(entry) })
            })
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(Refusal::Conflicts(conflicts));
        }
        manage::remove_fields(others, comparison_of);
        Ok(())
    }

    /// Returns the changes, compared in another version; None if the kind has no such version.
    fn compare_in(
        &self,
        version: &str,
        subresource: &str,
        live: &Value,
        new: &Value,
    ) -> std::result::Result<Option<Comparison>, Refusal> {
        let convert = |object, what: &str| {
            known(self.convert(object, version))
                .map_err(|error| error.of(&format!("failed to convert {what} object")))
        };
        let (Some((live, type_ref)), Some((new, _))) = (convert(live, "old")?, convert(new, "new")?) else {
            return Ok(None);
        };
        Ok(Some(self.compare(type_ref, subresource, &live, &new)))
    }

    fn convert<'v>(&'v self, object: &'v Value, to: &str) -> Converted<'v> {
        match self.versions {
            _ if object.get("apiVersion").and_then(Value::as_str) == Some(to) => {
                let type_ref =
                    self.versions.and_then(|versions| versions.type_of(to)).unwrap_or(self.type_ref);
                Ok((Cow::Borrowed(object), type_ref))
            }
            Some(versions) => versions.convert(object, to),
            None => Err(Unconvertible::NoVersion),
        }
    }

    /// Removes from a merged object the fields that the manager applied last time and that have no
    /// owner any more.
    fn prune(
        &self,
        merged: Value,
        last: &Entry,
        mine: &Entry,
        others: &[Entry],
    ) -> std::result::Result<Value, Unconvertible> {
        let then = known(self.convert(&merged, &last.api_version))
            .map_err(|error| error.of("failed to convert merged object to last applied version"))?;
        let Some((merged_then, last_type)) = then else { return Ok(merged) };
        let last_fields = with_named_fields(&last.fields, last_type);
        let pruned = remove(&merged_then, last_type, &last_fields);
        let pruned = self
            .add_back_owned(&merged_then, pruned, last, mine, others)
            .map_err(|error| error.of("failed add back owned items"))?;
        // Fields that the manager never applied stay, even without an owner.
        let converted = known(self.convert(&pruned, &last.api_version)).map_err(|error| {
            let what = "failed to convert pruned object to last applied version";
            error.of(what).of("failed add back dangling items")
        })?;
        let Some((pruned, _)) = converted else { return Ok(merged) };
        let mut dropped = with_named_fields(&fields(&merged_then, last_type), last_type);
        dropped.difference_with(&with_named_fields(&fields(&pruned, last_type), last_type));
        let pruned = remove(&merged_then, last_type, &dropped.intersection(&last_fields));
        Ok(self.convert(&pruned, &mine.api_version)?.0.into_owned())
    }

    /// Adds back to a pruned object the fields that have an owner, first in the version of the last
    /// apply: its fields may not convert without those of other owners.
    fn add_back_owned(
        &self,
        merged: &Value,
        mut pruned: Value,
        last: &Entry,
        mine: &Entry,
        others: &[Entry],
    ) -> std::result::Result<Value, Unconvertible> {
        let mut managed: BTreeMap<&str, FieldPathSet> = BTreeMap::new();
        for entry in others.iter().chain([mine]) {
            managed.entry(&entry.api_version).or_default().union_with(entry.fields.clone());
        }
        let mut merged = merged.clone();
        let first = managed.remove_entry(last.api_version.as_str());
        for (version, owned) in first.into_iter().chain(managed) {
            let convert = |object, what: &str| {
                let text = || format!("failed to convert {what} object at version {version}");
                known(self.convert(object, version)).map_err(|error| error.of(&text()))
            };
            let both = (convert(&merged, "merged")?, convert(&pruned, "pruned")?);
            let (Some((here, type_ref)), Some((left, _))) = both else { continue };
            let mut kept = with_named_fields(&fields(&left, type_ref), type_ref);
            kept.union_with(with_named_fields(&owned, type_ref));
            let mut unowned = with_named_fields(&fields(&here, type_ref), type_ref);
            unowned.difference_with(&kept);
            let left = remove(&here, type_ref, &unowned);
            let here = here.into_owned();
            (merged, pruned) = (here, left);
        }
        Ok(pruned)
    }
}

/// Returns `true` if a manager drops no field of its last apply, so that nothing is pruned. An entry
/// of another version may still fail to be converted, which pruning reports.
fn keeps_all(last: &Entry, mine: &Entry, others: &[Entry]) -> bool {
    let mut versions = others.iter().chain([last]).map(|entry| &entry.api_version);
    let keeps_all = || mine.fields.is_superset(&last.fields);
    last.fields.is_empty() || versions.all(|version| *version == mine.api_version) && keeps_all()
}

/// Returns `true` if there is a null in a value.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

type Converted<'v> = std::result::Result<(Cow<'v, Value>, &'v TypeRef), Unconvertible>;

/// Returns the converted object; None if the kind does not have that version.
fn known(converted: Converted<'_>) -> std::result::Result<Option<(Cow<'_, Value>, &TypeRef)>, Unconvertible> {
    match converted {
        Ok(converted) => Ok(Some(converted)),
        Err(Unconvertible::NoVersion) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The reason why a configuration is not applied.
enum Refusal {
    Conflicts(Conflicts),
    Unconvertible(Unconvertible),
}

impl From<Unconvertible> for Refusal {
    fn from(error: Unconvertible) -> Refusal {
        Refusal::Unconvertible(error)
    }
}

impl Refusal {
    fn into_error(self) -> Error {
        match self {
            Refusal::Conflicts(conflicts) => conflict::error(&conflicts),
            Refusal::Unconvertible(error) => Error::Unclassified(error.to_string()),
        }
    }
}

/// Returns an object as Go prints its names: `a/b; apps/v1, Kind=Deployment`.
pub fn describe(object: &Value) -> String {
    format!("{}/{}; {}", object.namespace(), object.name(), kind_of(object))
}

/// Returns the version and kind of an object as Go prints them: `apps/v1, Kind=Deployment`.
pub fn kind_of(object: &Value) -> String {
    let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default();
    group_version_kind(text("apiVersion"), text("kind"))
}

/// Formats it as Go does: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
fn group_version_kind(api_version: &str, kind: &str) -> String {
    let (group, version) = match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(split) => split,
        None => ("", api_version),
    };
    format!("{group}/{version}, Kind={kind}")
}

#[cfg(test)]
mod tests;
