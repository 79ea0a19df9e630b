//! Metadata, which all kinds have: names, annotations, finalizers, labels and owners.
#![warn(missing_docs)]

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};

/// The namespace and the name of an object, printed as `namespace/name`, or `name` for objects of
/// the cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamespacedName {
    /// Empty for objects of the cluster.
    pub namespace: String,
    /// The name within the namespace.
    pub name: String,
}

impl NamespacedName {
    /// Creates a name from a namespace, which is empty for cluster-scoped objects, and a name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> NamespacedName {
        NamespacedName { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the name of an object.
    pub fn of(object: &impl Resource) -> NamespacedName {
        NamespacedName::of_meta(object.meta())
    }

    /// Returns the name of an object with this metadata.
    pub fn of_meta(meta: &ObjectMeta) -> NamespacedName {
        NamespacedName::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

/// Returns the value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Sets an annotation.
pub fn set_annotation(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// Removes an annotation, and the map with the last one. Returns whether it was there.
pub fn remove_annotation(meta: &mut ObjectMeta, name: &str) -> bool {
    let Some(annotations) = &mut meta.annotations else { return false };
    let was_there = annotations.remove(name).is_some();
    if annotations.is_empty() {
        meta.annotations = None;
    }
    was_there
}

/// Adds or removes a finalizer. Returns whether that changed anything.
///
/// - `wanted`: whether the finalizer is to be there
pub fn set_finalizer(meta: &mut ObjectMeta, finalizer: &str, wanted: bool) -> bool {
    let finalizers = meta.finalizers.get_or_insert_default();
    let has = finalizers.iter().any(|f| f == finalizer);
    match (has, wanted) {
        (false, true) => finalizers.push(finalizer.to_owned()),
        (true, false) => finalizers.retain(|f| f != finalizer),
        _ => {}
    }
    if finalizers.is_empty() {
        meta.finalizers = None;
    }
    has != wanted
}

/// Returns `true` if an object has a finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// Builds the owner reference by which `owner` controls an object; without a uid if the owner does
/// not exist yet.
pub fn controller_ref<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns the reference to the controller of an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Returns `true` if an object is controlled by `owner`, by its uid.
pub fn is_controlled_by(meta: &ObjectMeta, owner: &impl Resource) -> bool {
    let mut references = meta.owner_references.iter().flatten();
    references.any(|reference| {
        reference.controller == Some(true) && Some(&reference.uid) == owner.meta().uid.as_ref()
    })
}

/// Returns `true` if a label selector matches the labels of an object.
pub fn selector_matches(selector: &Selector, meta: &ObjectMeta) -> bool {
    match &meta.labels {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&Default::default()),
    }
}
