//! A stored CustomResourceDefinition, as far as it matters to others.

use std::cmp::Ordering;
use std::sync::Arc;

use coracle_storage::Revision;
use serde_json::Value;

use crate::names::CLEANUP;
use crate::object_meta::ObjectMeta;
use crate::resource_info::{
    Conversion, CustomKind, CustomVersion, DefinitionLifetime, ResourceInfo, precedence,
};
use crate::strategy::ScalePaths;

/// The names under which a resource is served: `spec.names` and `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

/// A definition.
#[derive(Clone)]
pub(super) struct Definition {
    pub name: String,
    pub group: String,
    /// Other than the strategy `None`.
    conversion: Option<Conversion>,
    /// `spec.conversion.webhook`, if that is the strategy.
    webhook: Option<Arc<Value>>,
    pub created: Revision,
    pub revision: Revision,
    /// The names that it wants.
    pub names: Names,
    /// The names that it has.
    pub accepted: Names,
    pub established: bool,
    pub terminating: bool,
    finalizers: Vec<String>,
    /// `status` as it is stored.
    pub status: Arc<Value>,
    /// `metadata.annotations`, for the approval of protected groups.
    pub annotations: Arc<Value>,
    /// `spec`, from which the resources are made, as text: parsed schemas take ten times as much
    /// memory.
    spec: Arc<str>,
    /// Ends the watches of the resources when the definition gets another spec or other names, or
    /// is deleted.
    lifetime: DefinitionLifetime,
    /// The resources in each version that is served; a version without a structural schema has
    /// none.
    pub resources: Vec<Arc<ResourceInfo>>,
}

impl Names {
    pub fn read(names: &Value) -> Names {
        let text = |member: &str| names.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
        let texts = |member: &str| -> Vec<String> {
            let list = names.get(member).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Names {
            plural: text("plural"),
            singular: text("singular"),
            short_names: texts("shortNames"),
            kind: text("kind"),
            list_kind: text("listKind"),
            categories: texts("categories"),
        }
    }

    pub fn to_value(&self) -> Value {
        let mut names = serde_json::json!({"plural": self.plural, "kind": self.kind});
        for (member, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names[member] = text.as_str().into();
            }
        }
        for (member, texts) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !texts.is_empty() {
                names[member] = texts.clone().into();
            }
        }
        names
    }
}

impl Definition {
    /// Reads a stored definition. What `previous`, its last state, has in common with it is not
    /// made again.
    ///
    /// - `converter`: makes the conversion by a webhook
    pub fn read(
        object: &Value,
        converter: impl Fn(&Value) -> Conversion,
        created: Revision,
        revision: Revision,
        previous: Option<&Definition>,
    ) -> Definition {
        let conversion = &object["spec"]["conversion"];
        let webhook = (conversion["strategy"] == "Webhook").then(|| Arc::new(conversion["webhook"].clone()));
        let status = object.get("status").cloned().unwrap_or_default();
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let mut definition = Definition {
            name: object.name().to_owned(),
            group: text("/spec/group").to_owned(),
            conversion: webhook.as_ref().map(|webhook| converter(webhook)),
            webhook,
            created,
            revision,
            names: Names::read(&object["spec"]["names"]),
            accepted: Names::default(),
            established: false,
            terminating: object.is_terminating(),
            finalizers: object.finalizers().into_iter().map(str::to_owned).collect(),
            status: Arc::default(),
            annotations: Arc::new(object.meta("annotations").cloned().unwrap_or_default()),
            spec: object["spec"].to_string().into(),
            lifetime: DefinitionLifetime::begin(),
            resources: Vec::new(),
        };
        let same = previous.filter(|previous| previous.spec == definition.spec);
        if let Some(previous) =
            same.filter(|previous| previous.accepted == Names::read(&status["acceptedNames"]))
        {
            definition.lifetime = previous.lifetime.clone();
        }
        match previous.filter(|previous| definition.has_resources_of(previous, &status)) {
            Some(previous) => {
                definition.spec = previous.spec.clone();
                definition.resources = previous.resources.clone();
                definition.note(&status);
            }
            None => definition.adopt(&status),
        }
        definition
    }

    /// Copies the definition for another control plane, with a new lifetime; the processed schemas
    /// are shared.
    ///
    /// - `converter`: makes the conversion by a webhook
    pub fn elsewhere(&self, converter: impl Fn(&Value) -> Conversion) -> Definition {
        let lifetime = DefinitionLifetime::begin();
        let conversion = self.webhook.as_ref().map(|webhook| converter(webhook));
        let here = |info: &Arc<ResourceInfo>| {
            let mut info = ResourceInfo::clone(info);
            info.retirement = Some(lifetime.retirement());
            if let Some(conversion) = &conversion {
                info.conversion = conversion.clone();
            }
            Arc::new(info)
        };
        let resources = self.resources.iter().map(here).collect();
        Definition { conversion, lifetime, resources, ..self.clone() }
    }

    /// Takes a status on, and what follows from it.
    pub fn adopt(&mut self, status: &Value) {
        self.note(status);
        self.resources = if self.established { self.resources() } else { Vec::new() };
    }

    fn note(&mut self, status: &Value) {
        self.accepted = Names::read(&status["acceptedNames"]);
        self.established = is_true(status, "Established");
        self.status = Arc::new(status.clone());
    }

    /// Returns `true` if the definition has the same resources as in its previous state.
    fn has_resources_of(&self, previous: &Definition, status: &Value) -> bool {
        previous.established == is_true(status, "Established")
            && previous.accepted == Names::read(&status["acceptedNames"])
            && previous.terminating == self.terminating
            && previous.spec == self.spec
    }

    /// Returns `true` if the definition is terminating, and its objects must be deleted before it.
    pub fn is_to_be_cleaned_up(&self) -> bool {
        self.terminating && self.finalizers.iter().any(|finalizer| finalizer == CLEANUP)
    }

    fn resources(&self) -> Vec<Arc<ResourceInfo>> {
        let names = &self.accepted;
        let spec: Value = serde_json::from_str(&self.spec).unwrap_or_default();
        let mut kind = CustomKind {
            list_kind: names.list_kind.clone(),
            singular: names.singular.clone(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            terminating: self.terminating,
            ..CustomKind::new(&self.group, &names.kind, &names.plural, spec["scope"] == "Namespaced")
        };
        kind.retirement = Some(self.lifetime.retirement());
        if let Some(conversion) = &self.conversion {
            kind.conversion = conversion.clone();
        }
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let custom = versions.iter().map(|version| self.version(version, versions)).collect();
        match kind.resources(custom) {
            Ok(resources) => resources.into_iter().map(Arc::new).collect(),
            Err(error) => {
                tracing::warn!(name = %self.name, %error, "a CustomResourceDefinition is not served");
                Vec::new()
            }
        }
    }

    fn version(&self, version: &Value, all: &[Value]) -> CustomVersion {
        let flag = |pointer: &str| version.pointer(pointer) == Some(&Value::Bool(true));
        let there = |pointer: &str| version.pointer(pointer).is_some_and(|value| !value.is_null());
        let name = version["name"].as_str().unwrap_or_default();
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        CustomVersion {
            served: flag("/served"),
            storage: flag("/storage"),
            schema: version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default(),
            status: there("/subresources/status"),
            scale: version.pointer("/subresources/scale").and_then(ScalePaths::read),
            columns: version.get("additionalPrinterColumns").cloned(),
            selectable_fields: fields
                .filter_map(|field| field["jsonPath"].as_str().map(str::to_owned))
                .collect(),
            deprecation: flag("/deprecated").then(|| self.deprecation(version, all)),
            ..CustomVersion::new(name)
        }
    }

    /// Returns the warning about a deprecated version: the version's own, or one that names the
    /// version to use instead.
    fn deprecation(&self, version: &Value, all: &[Value]) -> String {
        if let Some(warning) = version["deprecationWarning"].as_str() {
            return warning.to_owned();
        }
        let name = |version: &'_ Value| version["name"].as_str().unwrap_or_default().to_owned();
        let (group, kind, old) = (&self.group, &self.accepted.kind, name(version));
        let newer = all
            .iter()
            .filter(|other| other["served"] == true && other["deprecated"] != true)
            .map(name)
            .filter(|other| precedence(other, &old) == Ordering::Less)
            .min_by(|a, b| precedence(a, b));
        match newer {
            Some(newer) => format!("{group}/{old} {kind} is deprecated; use {group}/{newer} {kind}"),
            None => format!("{group}/{old} {kind} is deprecated"),
        }
    }
}

/// Returns `true` if a status has a condition of that type with the status `True`.
pub(super) fn is_true(status: &Value, condition_type: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == condition_type && c["status"] == "True")
}
