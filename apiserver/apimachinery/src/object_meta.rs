//! The metadata of an object, read and written on the JSON value.

use serde_json::{Map, Value};

/// Access to the members of `metadata` that the generic verbs need.
pub trait ObjectMeta {
    /// Returns a member of `metadata`; None if it is missing, or if the object has no metadata.
    fn meta(&self, member: &str) -> Option<&Value>;
    /// Sets a member; null removes it.
    fn set_meta(&mut self, member: &str, value: impl Into<Value>);

    /// Returns a string member; "" if it is missing.
    fn meta_str(&self, member: &str) -> &str {
        self.meta(member).and_then(Value::as_str).unwrap_or("")
    }
    /// Returns `metadata.name`; `""` if it is missing.
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    /// Returns `metadata.namespace`; `""` if it is missing, as in cluster-scoped objects.
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    /// Returns `metadata.uid`; `""` if it is missing.
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    /// Returns `metadata.resourceVersion`; `""` if it is missing.
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    /// Returns `metadata.generation`; 0 if it is missing.
    fn generation(&self) -> i64 {
        self.meta("generation").and_then(Value::as_i64).unwrap_or(0)
    }
    /// Returns `true` if `metadata.deletionTimestamp` is set.
    fn is_terminating(&self) -> bool {
        self.meta("deletionTimestamp").is_some()
    }
    /// Returns `metadata.deletionGracePeriodSeconds`; None if it is not set.
    fn grace_period(&self) -> Option<i64> {
        self.meta("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }
    /// Returns `metadata.finalizers`, in their order. Items that are not strings are omitted.
    fn finalizers(&self) -> Vec<&str> {
        let list = self.meta("finalizers").and_then(Value::as_array);
        list.map_or(vec![], |l| l.iter().filter_map(Value::as_str).collect())
    }
    /// Replaces `metadata.finalizers`; an empty list removes the member.
    fn set_finalizers(&mut self, finalizers: Vec<String>) {
        let value = if finalizers.is_empty() { Value::Null } else { finalizers.into() };
        self.set_meta("finalizers", value);
    }
    /// Increments `metadata.generation` for a change of the desired state, unless the object has
    /// none.
    fn bump_generation(&mut self) {
        let generation = self.generation();
        if generation > 0 {
            self.set_meta("generation", generation + 1);
        }
    }
}

impl ObjectMeta for Value {
    fn meta(&self, member: &str) -> Option<&Value> {
        self.get("metadata")?.get(member)
    }

    fn set_meta(&mut self, member: &str, value: impl Into<Value>) {
        let value = value.into();
        let Some(object) = self.as_object_mut() else { return };
        if !object.get("metadata").is_some_and(Value::is_object) {
            object.insert("metadata".to_owned(), Value::Object(Map::new()));
        }
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        match metadata.get_mut(member) {
            _ if value.is_null() => drop(metadata.remove(member)),
            Some(place) => *place = value,
            None => drop(metadata.insert(member.to_owned(), value)),
        }
    }
}
