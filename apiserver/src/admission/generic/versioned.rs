//! The objects of a request in the version in which a configuration sees them.
//!
//! The pipeline works in one version of an object, which need not be that of the request, let alone
//! that which a rule matched. Conversion may ask a webhook, so it takes time and may fail. The
//! object of a subresource of another kind, such as a Scale, has one version only.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Invocation;
use crate::admission::AdmissionAttributes;
use crate::codec::{self, Decoded, TypeMeta, structural};
use crate::field::quote;
use crate::names::{GroupVersion, Text};
use crate::object_meta::ObjectMeta;
use crate::resource_info::{Endpoint, ResourceInfo, api_version};
use crate::schema::structural::object_meta;
use crate::schema::{StructId, TypeRef};
use crate::{Error, Result};

/// The new and the old object of a request, in one version.
pub struct VersionedObjects {
    /// The resource that was matched.
    pub info: Arc<ResourceInfo>,
    /// Group, version and kind of the objects.
    pub group: Text,
    /// The version of the kind.
    pub version: Text,
    /// The kind.
    pub kind: Text,
    /// The type of the objects.
    pub type_ref: TypeRef,
    /// Whether they are objects of the resource, and not the body of a subresource.
    is_resource: bool,
    /// The new object; None for a deletion.
    pub object: Option<Value>,
    /// The old object; None for a create.
    pub old_object: Option<Value>,
}

impl VersionedObjects {
    /// Converts the objects of a request to the version of a match.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn new(
        invocation: &Invocation,
        attributes: &AdmissionAttributes<'_>,
    ) -> Result<VersionedObjects> {
        let info = invocation.info.clone();
        let body =
            info.subresource(attributes.subresource).filter(|sub| !matches!(sub.endpoint, Endpoint::Part(_)));
        let (group, version, kind, type_ref) = match body {
            Some(sub) => (sub.group.clone(), sub.version.clone(), sub.kind.clone(), sub.type_ref.clone()),
            None => (info.group.clone(), info.version.clone(), info.kind.clone(), info.type_ref.clone()),
        };
        let mut objects = VersionedObjects {
            is_resource: body.is_none(),
            info,
            group,
            version,
            kind,
            type_ref,
            object: None,
            old_object: None,
        };
        objects.update(attributes).await?;
        if let Some(old) = attributes.old_object {
            objects.old_object = Some(objects.convert(old).await?);
        }
        Ok(objects)
    }

    /// Takes over the new object of the request again, after a change.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn update(&mut self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        self.object = match &*attributes.object {
            Value::Null => None,
            object => Some(self.convert(object).await?),
        };
        Ok(())
    }

    /// Returns the `apiVersion` of the objects.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Encodes an object of this version as JSON, with Go's order and zero values.
    pub fn to_json(&self, object: &Value) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        codec::json::write(object, &self.type_ref, &mut bytes);
        bytes
    }

    /// Decodes a changed object as one of its kind, with defaults, in this version.
    ///
    /// # Errors
    /// 500 with the text of the malformed part.
    pub fn decode(&self, mut changed: Value) -> Result<Value> {
        // Neither an empty list nor one with an empty entry resets the managers here.
        if changed.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            changed.set_meta("managedFields", Value::Null);
        }
        let mut object = match &self.type_ref {
            TypeRef::Struct(id) => self.decode_typed(&changed, *id).map_err(Error::Internal)?,
            // Unknown fields and nulls are validated, and not kept.
            TypeRef::Structural(_) => {
                self.check_identity(&changed)?;
                self.coerce_metadata(&mut changed)?;
                let mut decoded = Decoded { value: changed, strict: Vec::new() };
                structural::coerce_root(&mut decoded).map_err(|error| Error::Internal(error.to_string()))?;
                decoded.value
            }
        };
        if self.is_resource {
            let strategy = &self.info.behavior.strategy;
            strategy.default(&mut object);
            if let Some(error) = strategy.conversion_error(&object) {
                return Err(Error::Internal(error));
            }
        }
        Ok(object)
    }

    /// Decodes a changed object as one of its kind, with defaults, in this version, if it has no
    /// unknown fields.
    ///
    /// # Errors
    /// 500 with the text of the malformed or unknown part.
    pub fn decode_strictly(&self, changed: Value) -> Result<Value> {
        if let TypeRef::Struct(id) = self.type_ref {
            let unknown = self.unknown_fields(&changed, id).map_err(Error::Internal)?;
            if !unknown.is_empty() {
                return Err(Error::Internal(format!("strict decoding error: {}", unknown.join(", "))));
            }
        }
        self.decode(changed)
    }

    /// Returns the unknown fields of a changed object, independent of the kind in it.
    fn unknown_fields(&self, changed: &Value, id: StructId) -> Result<Vec<String>, String> {
        let now = TypeMeta::of(changed);
        let decoded = match now.struct_id() {
            // In the order of the fields that it had.
            Some(other) if other != id => codec::json::decode(&self.to_json(changed), other),
            _ => codec::json::normalize(changed, id),
        };
        decoded.map(|decoded| decoded.strict).map_err(|error| error.to_string())
    }

    /// Decodes a changed object of a built-in type. A change may omit kind and version, but not
    /// name others that do not convert to these.
    fn decode_typed(&self, changed: &Value, id: StructId) -> Result<Value, String> {
        let own = TypeMeta::of(&json!({"kind": &*self.kind, "apiVersion": self.api_version()}));
        if changed.get("apiVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
            own.check(changed)?;
        }
        let mut object = codec::json::normalize(changed, id).map_err(|error| error.to_string())?.value;
        // Managers of fields were determined before admission.
        codec::zero::drop_empty_lists(&mut object, id);
        own.restore(&mut object);
        Ok(object)
    }

    /// Checks the version of a changed custom resource. It may come in another version of its kind,
    /// and is converted; validation checks the kind.
    fn check_identity(&self, changed: &Value) -> Result<()> {
        let text = |member: &str| changed.get(member).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() {
            return Err(Error::Internal(format!("Object 'Kind' is missing in '{changed}'")));
        }
        if self.info.versions.iter().any(|(known, _)| known == api_version) {
            return Ok(());
        }
        let version = GroupVersion::parse(api_version).unwrap_or_else(|| GroupVersion::new("", ""));
        Err(Error::Unclassified(match version.group == *self.info.group {
            true => format!("request to convert CR from an invalid group/version: {api_version}"),
            false => format!(
                "{}/{}, Kind={kind} is unstructured and is not suitable for converting to {}",
                version.group,
                version.version,
                quote(&self.info.api_version)
            ),
        }))
    }

    /// Leaves out of the metadata of a custom resource what has not its type. kube-apiserver does
    /// so when it reads what it has stored, and fails where it must convert before.
    fn coerce_metadata(&self, changed: &mut Value) -> Result<()> {
        let Some(Value::Object(metadata)) = changed.get_mut("metadata") else {
            if self.old_object.is_none() {
                return Err(Error::Internal("system metadata was not initialized".to_owned()));
            }
            changed["metadata"] = json!({});
            return Ok(());
        };
        let mistake = codec::json::normalize(&Value::Object(metadata.clone()), object_meta()).err();
        let Some(mistake) = mistake else { return Ok(()) };
        if !self.info.is_storage_version() {
            return Err(Error::Unclassified(mistake.to_string()));
        }
        metadata.retain(|name, value| codec::json::normalize(&json!({name: value}), object_meta()).is_ok());
        Ok(())
    }

    /// Converts an object of this version to the one in which the pipeline works for a request in
    /// the version of `requested`.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn to_internal(&self, requested: &ResourceInfo, mut object: Value) -> Result<Value> {
        match &self.type_ref {
            _ if !self.is_resource => Ok(object),
            // What is loaded from the store has no null where none is permitted; this has to be
            // validated. A change may have given it another version.
            TypeRef::Structural(_) if object["apiVersion"] == *requested.api_version => {
                if let TypeRef::Structural(schema) = &requested.type_ref {
                    structural::prune_unknown(&mut object, schema);
                }
                Ok(object)
            }
            _ => requested.load(object).await,
        }
    }

    async fn convert(&self, object: &Value) -> Result<Value> {
        let mut object = object.clone();
        if !object.is_object() {
            return Err(Error::Internal("admission of what is no object".to_owned()));
        }
        if self.is_resource {
            object = self.info.show_one(object).await?;
        }
        object["kind"] = self.kind.as_ref().into();
        object["apiVersion"] = self.api_version().into();
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_info::{CustomKind, CustomVersion};

    fn objects(info: Arc<ResourceInfo>) -> VersionedObjects {
        VersionedObjects {
            is_resource: true,
            group: info.group.clone(),
            version: info.version.clone(),
            kind: info.kind.clone(),
            type_ref: info.type_ref.clone(),
            info,
            object: None,
            old_object: None,
        }
    }

    #[test]
    fn a_change_does_not_make_an_object_of_another_kind() {
        let table = coracle_resources::built_in();
        let config_maps = objects(table.find("", "v1", "configmaps").expect("built in").clone());
        let versions = vec![CustomVersion::new("v1").stored(), CustomVersion::new("v2")];
        let widgets = CustomKind::new("g", "Widget", "widgets", true).resources(versions).expect("resources");
        let widgets = objects(Arc::new(widgets.into_iter().next().expect("v1")));
        let of_scheme = "is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"";
        for (objects, api_version, kind, want) in [
            (&config_maps, "v1", "ConfigMap", Ok(("v1", "ConfigMap"))),
            (&config_maps, "", "", Ok(("v1", "ConfigMap"))),
            (
                &config_maps,
                "v1",
                "Secret",
                Err("Internal error occurred: converting (v1.Secret) to (core.ConfigMap): unknown conversion"
                    .to_owned()),
            ),
            (&config_maps, "v1", "Nope", Err(format!("Internal error occurred: no kind \"Nope\" {of_scheme}"))),
            (&widgets, "g/v2", "Widget", Ok(("g/v2", "Widget"))),
            // Validation refuses it.
            (&widgets, "g/v1", "Gadget", Ok(("g/v1", "Gadget"))),
            (
                &widgets,
                "g/v9",
                "Widget",
                Err("request to convert CR from an invalid group/version: g/v9".to_owned()),
            ),
            (
                &widgets,
                "v1",
                "Widget",
                Err("/v1, Kind=Widget is unstructured and is not suitable for converting to \"g/v1\"".to_owned()),
            ),
            (
                &widgets,
                "g/v1",
                "",
                Err("Internal error occurred: Object 'Kind' is missing in '{\"apiVersion\":\"g/v1\",\"kind\":\"\",\"metadata\":{\"name\":\"a\"}}'".to_owned()),
            ),
        ] {
            let changed = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
            let decoded = objects.decode(changed);
            let said = decoded.as_ref().map(|object| {
                let text = |member: &str| object[member].as_str().unwrap_or_default();
                (text("apiVersion"), text("kind"))
            });
            assert_eq!(said.map_err(ToString::to_string), want, "{api_version} {kind}");
        }
    }

    #[tokio::test]
    async fn a_changed_version_is_converted_to_that_of_the_request() {
        let versions = vec![CustomVersion::new("v1").stored(), CustomVersion::new("v2")];
        let widgets = CustomKind::new("g", "Widget", "widgets", true).resources(versions).expect("resources");
        let [v1, v2] =
            widgets.into_iter().map(Arc::new).collect::<Vec<_>>().try_into().expect("two versions");
        for (own, requested, changed) in [
            (&v1, &v1, "g/v1"),
            (&v1, &v1, "g/v2"),
            (&v2, &v2, "g/v1"),
            (&v1, &v2, "g/v1"),
            (&v1, &v2, "g/v2"),
        ] {
            let object = json!({"apiVersion": changed, "kind": "Widget", "metadata": {"name": "a"}});
            let objects = objects(own.clone());
            let object = objects.decode(object).expect(changed);
            let internal = objects.to_internal(requested, object).await.expect(changed);
            assert_eq!(internal["apiVersion"], *requested.api_version, "{changed} by {}", own.api_version);
        }
    }
}
