//! Who manages the fields that a write changes.

use serde_json::Value;

use super::Writing;
use crate::fields::manage;
use crate::object_meta::ObjectMeta;
use crate::registry::deletion::rfc3339;
use crate::registry::{Caller, Registry};
use crate::resource_info::ResourceInfo;

impl Registry {
    /// Updates the managers of fields. Comes before anything that the server itself decides, which nobody manages.
    pub(in crate::registry) fn track(&self, writing: &Writing<'_>, old: Option<&Value>, new: &mut Value) {
        let Some(field_manager) = writing.field_manager else { return };
        let info = &*writing.target.info;
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, writing.caller.user_agent),
            api_version: &info.api_version,
            subresource: writing.part.name(),
            now: &rfc3339(self.now()),
        };
        track(info, writer, old, new);
    }

    /// Records who manages the fields of an object that is not stored.
    pub fn track_new(&self, info: &ResourceInfo, field_manager: &str, caller: Caller<'_>, new: &mut Value) {
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, caller.user_agent),
            api_version: &info.api_version,
            subresource: "",
            now: &rfc3339(self.now()),
        };
        track(info, writer, None, new);
    }
}

/// Gives the fields that a write changes to who writes; both objects are in the internal version.
pub(in crate::registry) fn track(
    info: &ResourceInfo,
    writer: manage::FieldManager<'_>,
    old: Option<&Value>,
    new: &mut Value,
) {
    let view = info.behaviour.strategy.managed_view(new);
    let managed = view.as_ref().unwrap_or(&*new);
    let entries = if info.internal_version() == info.api_version {
        manage::update(info, writer, old, managed)
    } else {
        let shown = |object: &Value| info.from_internal(object.clone());
        manage::update(info, writer, old.map(shown).as_ref(), &shown(managed))
    };
    new.set_meta("managedFields", entries);
}
