//! Server-side apply: an object becomes what a manager's configuration says of it, and the manager owns those fields.
//!
//! The configuration is merged into the object. What the manager applied the last time, applies no longer and shares with
//! nobody is removed. A field that changes and has another owner is a conflict, unless the manager insists.
//!
//! Source: KEP-555.

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
use super::walk::{self, Comparison, fields};
use crate::object_meta::ObjectMeta;
use crate::resource_info::ResourceInfo;
use crate::schema::TypeRef;
use crate::strategy::FieldPath;
use crate::{Error, Result};

/// The manager that gets what an object without managed fields has when it is applied to for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What is applied to: a kind in the version of the request.
pub struct ApplyTo<'a> {
    /// The type in that version.
    pub type_ref: &'a TypeRef,
    /// The kind.
    pub kind: &'a str,
    /// The fields that the endpoint does not write.
    pub reset_fields: &'a [FieldPath],
    /// By what an object is converted to other versions; None where there is just one.
    pub info: Option<&'a ResourceInfo>,
}

/// What came of an apply.
pub struct Applied {
    /// The object, in the version of the request, not decoded yet: a member that was emptied is null.
    pub object: Value,
    /// The new entries of `metadata.managedFields`.
    pub entries: Vec<Entry>,
    /// Whether the object is another than before.
    pub changed: bool,
}

/// Why a configuration cannot be merged into an object.
enum Refusal {
    Conflicts(Conflicts),
    /// The object does not have the type of another version in which it has owners.
    Unconvertible(String),
}

impl ApplyTo<'_> {
    /// Applies a configuration to an object that has these entries.
    ///
    /// - `live`: the object in the version of the request, without managed fields; empty if there is none yet.
    ///
    /// # Errors
    /// 400 and 500 for a configuration that is none of this kind, 409 for conflicts.
    pub fn apply(
        &self,
        live: &Value,
        entries: &[Entry],
        configuration: &Value,
        applier: FieldManager<'_>,
        force: bool,
    ) -> Result<Applied> {
        self.check(live, configuration, applier)?;
        let merge = |force| self.merge(live, entries.to_vec(), configuration, applier, force);
        let is_kubectl = applier.manager == last_applied::KUBECTL;
        let applied = match merge(force) {
            Err(Refusal::Conflicts(conflicts)) if is_kubectl => {
                match last_applied::remaining(&conflicts, self, live) {
                    Some(remaining) if remaining.is_empty() => merge(true),
                    Some(remaining) => Err(Refusal::Conflicts(remaining)),
                    None => Err(Refusal::Conflicts(conflicts)),
                }
            }
            applied => applied,
        };
        let mut applied = applied.map_err(|refusal| match refusal {
            Refusal::Conflicts(conflicts) => conflict::error(&conflicts),
            Refusal::Unconvertible(text) => Error::Unclassified(text),
        })?;
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
        if entries.is_empty() {
            let comparison = self.compare(self.type_ref, &Value::Object(Default::default()), live);
            let first = FieldManager { manager: BEFORE_FIRST_APPLY, ..applier };
            let mut written = comparison.written;
            manage::ignore(&mut written, &[]);
            manage::add_fields(&mut entries, first, written);
        }
        // Names are no one's, but applied all the same: they keep metadata from being pruned.
        let mut applied = fields(configuration, self.type_ref);
        self.reset_fields.iter().for_each(|path| applied.prune(path));
        let mut mine = Entry {
            manager: applier.manager.to_owned(),
            operation: Operation::Apply,
            api_version: applier.api_version.to_owned(),
            subresource: applier.subresource.to_owned(),
            time: String::new(),
            fields: applied,
        };
        let place = entries.iter().position(|entry| entry.is_same_manager(&mine));
        let last = place.map(|place| entries.remove(place));
        let merged = merge(live, configuration, self.type_ref);
        let object = match &last {
            Some(last) if !last.fields.is_empty() => self
                .prune(merged, last, &mine, &entries)
                .map_err(|text| Refusal::Unconvertible(format!("failed to prune fields: {text}")))?,
            _ => merged,
        };
        let changed = self.take_over(&mut entries, live, &object, applier.api_version, force)?;
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

    /// Whether the configuration may be applied at all.
    fn check(&self, live: &Value, configuration: &Value, applier: FieldManager<'_>) -> Result<()> {
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
        typed("patch", configuration, Duplicates::Refused)?;
        match self.type_ref {
            TypeRef::Struct(_) => Ok(()),
            // The schema may have changed since it was stored.
            TypeRef::Structural(_) => typed("live", live, Duplicates::Allowed),
        }
    }

    fn compare(&self, type_ref: &TypeRef, old: &Value, new: &Value) -> Comparison {
        let mut comparison = walk::compare(Some(old), new, type_ref);
        comparison.each(|set| self.reset_fields.iter().for_each(|path| set.prune(path)));
        comparison
    }

    /// Takes the changed fields from the other managers. Whether there are any: a list in another order is the same.
    fn take_over(
        &self,
        others: &mut Vec<Entry>,
        live: &Value,
        new: &Value,
        api_version: &str,
        force: bool,
    ) -> std::result::Result<bool, Refusal> {
        let comparison = self.compare(self.type_ref, live, new);
        let is_changed = !comparison.is_empty();
        let mut comparisons = BTreeMap::from([(api_version.to_owned(), Some(comparison))]);
        for entry in &*others {
            if !comparisons.contains_key(&entry.api_version) {
                let convert = |what: &str, object| {
                    let failed = |error| format!("failed to convert {what} object: {error}");
                    let converted = self.in_version(&entry.api_version, object).map_err(failed);
                    converted.map_err(Refusal::Unconvertible)
                };
                let comparison = match (convert("old", live)?, convert("new", new)?) {
                    (Some((live, type_ref)), Some((new, _))) => Some(self.compare(type_ref, &live, &new)),
                    _ => None,
                };
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
        Ok(is_changed)
    }

    /// The object in another version; None if there is no such version.
    ///
    /// # Errors
    /// The text about a custom resource that does not have the type of that version.
    fn in_version<'s>(
        &'s self,
        api_version: &str,
        object: &Value,
    ) -> std::result::Result<Option<(Value, &'s TypeRef)>, String> {
        match self.info {
            Some(info) => manage::in_version(info, api_version, object),
            None => Ok(None),
        }
    }

    /// Removes from a merged object what the manager applied the last time, and nobody owns any more.
    fn prune(
        &self,
        merged: Value,
        last: &Entry,
        mine: &Entry,
        others: &[Entry],
    ) -> std::result::Result<Value, String> {
        let convert = |what: &str, object: &Value, from: &str, to: &str| match from == to {
            true => Ok(Some(object.clone())),
            false => match self.in_version(to, object) {
                Ok(converted) => Ok(converted.map(|(object, _)| object)),
                Err(error) => Err(format!("failed to convert {what}: {error}")),
            },
        };
        let failed = |error: String| format!("failed add back owned items: {error}");
        let type_of = |version: &str| match self.info {
            _ if version == mine.api_version => Some(self.type_ref),
            Some(info) => {
                info.versions.iter().find(|(known, _)| known == version).map(|(_, type_ref)| type_ref)
            }
            None => None,
        };
        let Some(last_type) = type_of(&last.api_version) else { return Ok(merged) };
        let then = "merged object to last applied version";
        let Some(merged_then) = convert(then, &merged, &mine.api_version, &last.api_version)? else {
            return Ok(merged);
        };
        let mut managed: BTreeMap<&str, FieldPathSet> = BTreeMap::new();
        for entry in others.iter().chain([mine]) {
            managed.entry(&entry.api_version).or_default().union_with(entry.fields.clone());
        }
        let last_fields = with_named_fields(&last.fields, last_type);
        let mut pruned = remove(&merged_then, last_type, &last_fields);
        // In the version of the last apply first: what it had may not convert without what others own.
        let first = managed.remove_entry(last.api_version.as_str());
        for (version, owned) in first.into_iter().chain(managed) {
            let Some(type_ref) = type_of(version) else { continue };
            let at = |what: &str| format!("{what} object at version {version}");
            let merged = convert(&at("merged"), &merged, &mine.api_version, version).map_err(failed)?;
            let here = convert(&at("pruned"), &pruned, &last.api_version, version).map_err(failed)?;
            let (Some(merged), Some(here)) = (merged, here) else { continue };
            let mut kept = with_named_fields(&fields(&here, type_ref), type_ref);
            kept.union_with(with_named_fields(&owned, type_ref));
            let mut unowned = with_named_fields(&fields(&merged, type_ref), type_ref);
            unowned.difference_with(&kept);
            let kept = remove(&merged, type_ref, &unowned);
            let then = "pruned object to last applied version";
            if let Some(here) = convert(then, &kept, version, &last.api_version).map_err(failed)? {
                pruned = here;
            }
        }
        // What the manager never applied stays, though nobody owns it.
        let mut dropped = with_named_fields(&fields(&merged_then, last_type), last_type);
        dropped.difference_with(&with_named_fields(&fields(&pruned, last_type), last_type));
        let pruned = remove(&merged_then, last_type, &dropped.intersection(&last_fields));
        let pruned = convert("pruned object", &pruned, &last.api_version, &mine.api_version)?;
        Ok(pruned.unwrap_or(merged))
    }
}

/// An object as Go prints its names: `a/b; apps/v1, Kind=Deployment`.
pub fn describe(object: &Value) -> String {
    format!("{}/{}; {}", object.namespace(), object.name(), kind_of(object))
}

/// The version and kind of an object as Go prints them: `apps/v1, Kind=Deployment`.
pub fn kind_of(object: &Value) -> String {
    let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default();
    group_version_kind(text("apiVersion"), text("kind"))
}

/// As Go prints it: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
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
