//! The statuses that the server writes by itself, with the managers of their fields.

use serde_json::Value;

use super::managed_fields;
use crate::Result;
use crate::fields::apply::ApplyTo;
use crate::fields::entry;
use crate::fields::manage::FieldManager;
use crate::fields::versions::Versions;
use crate::object_meta::ObjectMeta;
use crate::registry::deletion::rfc3339;
use crate::registry::{Registry, Target};
use crate::resource_info::ResourceInfo;

/// The manager of what the server writes by itself.
const MANAGER: &str = "kube-apiserver";

impl Registry {
    /// Changes the status of an object of a built-in kind as [`rewrite`](Self::rewrite) does, with
    /// the server as the manager of what it changes.
    ///
    /// # Errors
    /// As of [`rewrite`](Self::rewrite).
    pub async fn rewrite_status(
        &self,
        target: &Target,
        dry_run: bool,
        mut edit: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<()> {
        self.rewrite(target, dry_run, |current| {
            let mut changed = edit(current)?;
            if changed != *current {
                self.track_status(&target.info, current, &mut changed);
            }
            Ok(changed)
        })
        .await
    }

    /// Applies a configuration to the status of an object of a built-in kind, by force.
    ///
    /// - `status`: the configuration
    ///
    /// # Errors
    /// As of [`rewrite`](Self::rewrite).
    pub async fn apply_status(&self, target: &Target, manager: &str, status: &Value) -> Result<()> {
        let info = &*target.info;
        let configuration = serde_json::json!({
            "apiVersion": &info.api_version, "kind": &*info.kind,
            "metadata": {"name": &*target.name}, "status": status,
        });
        let (versions, now) = (Versions::of(info), rfc3339(self.now()));
        let to = ApplyTo { type_ref: &info.type_ref, kind: &info.kind, versions: Some(&versions) };
        let applier =
            FieldManager { manager, api_version: &info.api_version, subresource: "status", now: &now };
        self.rewrite(target, false, |current| {
            let mut live = current.clone();
            live.set_meta("managedFields", Value::Null);
            let applied = to.apply(&live, &entry::entries_of(current), &configuration, applier, true)?;
            let mut object = applied.object;
            object.set_meta("managedFields", entry::write(applied.entries));
            Ok(object)
        })
        .await
    }

    /// Records the server as the manager of the fields that it changes in the status of an object
    /// of a built-in kind.
    pub(in crate::registry) fn track_status(&self, info: &ResourceInfo, old: &Value, new: &mut Value) {
        let writer = FieldManager {
            manager: MANAGER,
            api_version: &info.api_version,
            subresource: "status",
            now: &rfc3339(self.now()),
        };
        // Nothing of a built-in kind is converted elsewhere.
        let entries = managed_fields::updated(&Versions::of(info), writer, Some(old), new);
        new.set_meta("managedFields", entries.unwrap_or_default());
    }
}
