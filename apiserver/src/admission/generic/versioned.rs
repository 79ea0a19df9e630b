//! The objects of a request in the version in which a configuration sees them.
//!
//! The pipeline works in one version of an object, which need not be that of the request, let alone that which a rule matched.
//! Conversion may ask a webhook, so it takes time and may fail. The object of a subresource of another kind, such as a Scale, has
//! one version only.

use std::sync::Arc;

use serde_json::Value;

use super::Invocation;
use crate::admission::AdmissionAttributes;
use crate::codec::{Decoded, json, structural};
use crate::names::Text;
use crate::resource_info::{Endpoint, ResourceInfo, api_version};
use crate::schema::TypeRef;
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
    /// Those of the conversion.
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
    /// Those of the conversion.
    pub async fn update(&mut self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        self.object = match &*attributes.object {
            Value::Null => None,
            object => Some(self.convert(object).await?),
        };
        Ok(())
    }

    /// `apiVersion` of the objects.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// An object of this version as JSON, with Go's order and zero values.
    pub fn to_json(&self, object: &Value) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        json::write(object, &self.type_ref, &mut bytes);
        bytes
    }

    /// A changed object as one of its kind, with defaults, in this version.
    ///
    /// # Errors
    /// The text of what is malformed.
    pub fn decode(&self, changed: Value) -> Result<Value, String> {
        let decoded = match &self.type_ref {
            TypeRef::Struct(id) => json::normalize(&changed, *id),
            TypeRef::Structural(schema) => {
                structural::conform(Decoded { value: changed, strict: Vec::new() }, schema)
            }
        };
        let mut object = decoded.map_err(|error| error.to_string())?.value;
        if self.is_resource {
            let strategy = &self.info.behaviour.strategy;
            strategy.default(&mut object);
            if let Some(error) = strategy.conversion_error(&object) {
                return Err(error);
            }
        }
        Ok(object)
    }

    /// An object of this version in that in which the pipeline works for a request in the version of `requested`.
    ///
    /// # Errors
    /// Those of the conversion.
    pub async fn to_internal(&self, requested: &ResourceInfo, object: Value) -> Result<Value> {
        if self.is_resource { requested.load(object).await } else { Ok(object) }
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
