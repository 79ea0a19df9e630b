//! The resources defined by a CustomResourceDefinition.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Conversion, Endpoint, Part, ResourceInfo, Retirement, Storage, Subresource, api_version};
use crate::names::{GroupKind, GroupResource, Text};
use crate::render::columns;
use crate::render::table::Printer;
use crate::schema::{StructId, StructuralError, StructuralSchema, TypeRef, schema};
use crate::selector::SelectableFields;
use crate::strategy::custom_resource::CustomResourceStrategy;
use crate::strategy::{Behavior, ResetFields, ScalePaths};
use crate::validation::metadata::MetadataValidation;

/// The names of a custom kind: `spec.group`, `spec.names` and `spec.scope`.
#[derive(Clone)]
pub struct CustomKind {
    /// The group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// The plural name.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The short names.
    pub short_names: Vec<String>,
    /// The categories.
    pub categories: Vec<String>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// Whether the CustomResourceDefinition is terminating, so that no more objects can be created.
    pub terminating: bool,
    /// The conversion between versions.
    pub conversion: Conversion,
    /// Signals the end of watches; None if they are never ended.
    pub retirement: Option<Retirement>,
}

/// A version of a custom kind: one of `spec.versions`.
#[derive(Clone, Debug, Default)]
pub struct CustomVersion {
    /// The name.
    pub name: String,
    /// Whether clients can access the version.
    pub served: bool,
    /// Whether objects are stored in this version; true for exactly one version.
    pub storage: bool,
    /// `schema.openAPIV3Schema`; null for any object.
    pub schema: Value,
    /// Whether the status has an endpoint of its own.
    pub status: bool,
    /// The paths of the replicas for `/scale`; None if there is no such subresource.
    pub scale: Option<ScalePaths>,
    /// `additionalPrinterColumns`.
    pub columns: Option<Value>,
    /// `selectableFields`, as JSON paths such as `.spec.color`.
    pub selectable_fields: Vec<String>,
    /// The `Warning` of a deprecated version.
    pub deprecation: Option<String>,
}

impl CustomKind {
    /// Returns a kind with the other names derived from the kind and the plural.
    pub fn new(group: &str, kind: &str, plural: &str, namespaced: bool) -> CustomKind {
        CustomKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            terminating: false,
            conversion: Conversion::Local(super::conversion::rename),
            retirement: None,
        }
    }

    /// Returns the resources of the versions that are served, in their order.
    ///
    /// # Errors
    /// [`StructuralError`] for a schema that is not structural.
    pub fn resources(&self, versions: Vec<CustomVersion>) -> Result<Vec<ResourceInfo>, StructuralError> {
        let types = versions.iter().map(|version| {
            let schema = match &version.schema {
                Value::Null => {
                    serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
                }
                schema => schema.clone(),
            };
            Ok((api_version(&self.group, &version.name), Arc::new(StructuralSchema::read(schema)?)))
        });
        let types = types.collect::<Result<Vec<_>, StructuralError>>()?;
        let all: Arc<[(String, TypeRef)]> = types
            .iter()
            .map(|(version, schema)| (version.clone(), TypeRef::Structural(schema.clone())))
            .collect();
        let stored = versions.iter().position(|version| version.storage).unwrap_or_default();
        let infos = versions.into_iter().zip(types).filter(|(version, _)| version.served);
        Ok(infos.map(|(version, (_, schema))| self.resource(version, schema, &all, stored)).collect())
    }

    fn resource(
        &self,
        version: CustomVersion,
        schema: Arc<StructuralSchema>,
        all: &Arc<[(String, TypeRef)]>,
        stored: usize,
    ) -> ResourceInfo {
        let (storage_api_version, storage_type) = all[stored].clone();
        let storage_version = storage_api_version.rsplit('/').next().unwrap_or_default();
        let type_ref = TypeRef::Structural(schema.clone());
        let selectable = version.selectable_fields.iter().filter_map(|path| {
            let names = path.strip_prefix('.')?;
            let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let pointer = names.split('.').map(|name| format!("/{}", escape(name)));
            Some((names.to_owned(), pointer.collect()))
        });
        let selectable = SelectableFields::of_custom_resource(selectable.collect(), self.namespaced);
        let scale_paths = version.scale.map(Arc::new);
        let mut behavior = Behavior::of(CustomResourceStrategy {
            kind: self.kind.clone(),
            api_version: api_version(&self.group, &version.name),
            schema,
            has_status: version.status,
            rules: OnceLock::new(),
            scale: scale_paths.clone(),
        })
        .metadata(MetadataValidation::GENERIC)
        .generation()
        .conditional_update()
        .reset_fields(ResetFields::STATUS_ALONE)
        .selectable_fields(selectable)
        .printer(Printer::of_custom_resource(version.columns.as_ref()));
        behavior.create_refusal =
            self.terminating.then_some("create not allowed while custom resource definition is terminating");
        behavior.deprecation = version.deprecation.map(Text::from);
        behavior.scale = scale_paths;
        let status = Subresource {
            name: "status".into(),
            group: self.group.clone().into(),
            version: version.name.clone().into(),
            kind: self.kind.clone().into(),
            verbs: ["get", "patch", "update"].map(Text::from).into(),
            type_ref: type_ref.clone(),
            endpoint: Endpoint::Part(Part::Status),
            printer: Some(behavior.printer.clone()),
        };
        let scale = schema_of_scale().filter(|_| behavior.scale.is_some()).map(|type_id| Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: ["get", "patch", "update"].map(Text::from).into(),
            type_ref: type_id.into(),
            endpoint: Endpoint::Scale,
            printer: Some(Printer::of_columns(columns::SCALE)),
        });
        ResourceInfo {
            group: self.group.clone().into(),
            version: version.name.clone().into(),
            kind: self.kind.clone().into(),
            list_kind: self.list_kind.clone().into(),
            plural: self.plural.clone().into(),
            singular: self.singular.clone().into(),
            short_names: texts(&self.short_names),
            categories: texts(&self.categories),
            namespaced: self.namespaced,
            verbs: VERBS.map(Text::from).into(),
            subresources: version.status.then_some(status).into_iter().chain(scale).collect(),
            storage_version_hash: storage_version_hash(&self.group, storage_version, &self.kind).into(),
            storage: Storage {
                type_ref: storage_type,
                bucket: GroupResource::new(&self.group, &self.plural).to_string().into(),
                // Members are sorted, so objects have no common prefix.
                type_prefix: None,
                api_version: storage_api_version,
            },
            versions: all.clone(),
            conversion: self.conversion.clone(),
            retirement: self.retirement.clone(),
            behavior,
            group_resource: GroupResource::new(&self.group, &self.plural),
            group_kind: GroupKind::new(&self.group, &self.kind),
            api_version: api_version(&self.group, &version.name),
            type_ref,
        }
    }
}

/// The verbs of every custom resource, in discovery's order.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

impl CustomVersion {
    /// Returns a served version that accepts objects with any fields.
    pub fn new(name: &str) -> CustomVersion {
        CustomVersion { name: name.to_owned(), served: true, ..CustomVersion::default() }
    }

    /// Returns the version, marked as the storage version.
    pub fn stored(self) -> CustomVersion {
        CustomVersion { storage: true, ..self }
    }
}

fn schema_of_scale() -> Option<StructId> {
    schema().kind("autoscaling", "v1", "Scale")
}

fn texts(list: &[String]) -> Vec<Text> {
    list.iter().map(|text| Text::from(text.clone())).collect()
}

/// Returns the `storageVersionHash` of discovery, which changes whenever the storage version of a
/// kind changes.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    use base64::Engine;
    let hashed = format!("{group}/{version}/{kind}");
    let digest = ring::digest::digest(&ring::digest::SHA256, hashed.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_hashes_match_the_real_servers() {
        let stored = schema().resources().iter().filter(|r| !r.storage_version_hash.is_empty());
        for resource in stored {
            let (group, mut version) = resource.storage_version;
            let kind = resource.kind;
            // kube-apiserver still hashes the version in which it once stored them.
            if kind == "CustomResourceDefinition" {
                version = "v1beta1";
            }
            let want = resource.storage_version_hash;
            assert_eq!(storage_version_hash(group, version, kind), want, "{group}/{version}/{kind}");
        }
        assert_eq!(storage_version_hash("stable.discovery.example.com", "v1", "Widget"), "f+X3NPQ7fio=");
    }
}
