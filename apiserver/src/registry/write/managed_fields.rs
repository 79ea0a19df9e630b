//! Managed fields: records the manager of the fields that a write changes.

use serde_json::Value;

use super::Writing;
use crate::fields::manage;
use crate::fields::versions::{Unconvertible, Versions};
use crate::object_meta::ObjectMeta;
use crate::registry::deletion::rfc3339;
use crate::registry::{Caller, Registry};
use crate::resource_info::ResourceInfo;
use crate::{Error, Result};

impl Registry {
    /// Updates the managers of fields. Called before the server sets fields of its own, which have
    /// no manager.
    ///
    /// # Errors
    /// [`Error::Internal`] for more conversions than a write may take.
    pub(in crate::registry) async fn track(
        &self,
        writing: &Writing<'_>,
        versions: &Versions<'_>,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<()> {
        let Some(field_manager) = writing.field_manager else { return Ok(()) };
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, writing.caller.user_agent),
            api_version: &writing.target.info.api_version,
            subresource: writing.part.name(),
            now: &rfc3339(self.now()),
        };
        let entries = versions.resolve(|| updated(versions, writer, old, new)).await?;
        new.set_meta("managedFields", entries);
        Ok(())
    }

    /// Records the manager of an object that is not stored.
    pub fn track_new(&self, info: &ResourceInfo, field_manager: &str, caller: Caller<'_>, new: &mut Value) {
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, caller.user_agent),
            api_version: &info.api_version,
            subresource: "",
            now: &rfc3339(self.now()),
        };
        let entries = tracked(info, writer, new);
        new.set_meta("managedFields", entries);
    }
}

/// Returns the managed fields of a new object of a built-in kind, in the internal version, of which
/// the writer manages all fields.
pub(in crate::registry) fn tracked(
    info: &ResourceInfo,
    writer: manage::FieldManager<'_>,
    new: &Value,
) -> Value {
    updated(&Versions::of(info), writer, None, new).unwrap_or_default()
}

/// Returns the managed fields after a write, in which the writer owns the changed fields. Both
/// objects are in the internal version. The result is empty if an object cannot be converted to the
/// version of an entry.
pub(super) fn updated(
    versions: &Versions<'_>,
    writer: manage::FieldManager<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<Value> {
    let info = versions.info();
    let view = info.behavior.strategy.managed_view(new);
    let managed = view.as_ref().unwrap_or(new);
    let entries = if info.internal_version() == info.api_version {
        manage::update(versions, writer, old, managed)
    } else {
        let shown = |object: &Value| info.from_internal(object.clone());
        manage::update(versions, writer, old.map(shown).as_ref(), &shown(managed))
    };
    match entries {
        Err(error @ Unconvertible::Pending) => Err(Error::Internal(error.to_string())),
        entries => Ok(entries.unwrap_or_default()),
    }
}
