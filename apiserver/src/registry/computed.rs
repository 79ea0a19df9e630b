//! Reads of computed objects, which are not stored.

use serde_json::{Value, json};

use super::deletion::rfc3339;
use super::read::Filter;
use super::{Payload, Registry, Target};
use crate::Result;
use crate::object_meta::ObjectMeta;
use crate::resource_info::ResourceInfo;
use crate::strategy::Computed;

impl Registry {
    /// Returns the object with a name.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub fn get_computed(&self, computed: &dyn Computed, target: &Target) -> Result<Payload> {
        let found = computed.get(self, &target.namespace, &target.name, &rfc3339(self.now()))?;
        let value = found.ok_or_else(|| computed.not_found(&target.namespace, &target.name))?;
        Ok(Payload::Object { value, type_ref: target.info.type_ref.clone() })
    }

    /// Returns the objects that a filter selects. They are never split into pages.
    ///
    /// # Errors
    /// The errors of reading the objects that they are computed from.
    pub fn list_computed(
        &self,
        computed: &dyn Computed,
        info: &ResourceInfo,
        filter: &Filter,
    ) -> Result<Payload> {
        let mut items = computed.list(self, &filter.namespace, &rfc3339(self.now()))?;
        items.retain(|object| filter.selects_value(info, object));
        Ok(Payload::Objects { items, metadata: json!({}) })
    }
}

impl Filter {
    fn selects_value(&self, info: &ResourceInfo, object: &Value) -> bool {
        let values = info.behavior.selectable_fields.values(object);
        self.labels.matches_map(object.meta("labels"))
            && self.fields.matches(object.namespace(), object.name(), |position| {
                values.get(position).map(|value| &**value)
            })
    }
}
