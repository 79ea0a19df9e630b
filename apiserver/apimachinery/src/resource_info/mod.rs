//! The complete description of a resource.
//!
//! Routing, the generic verbs, printing, discovery and OpenAPI all use a [`ResourceInfo`], of a
//! built-in kind or of a custom one. The whole set is a [`ResourceTable`], which is replaced as
//! one, so that a table has consistent names, types, columns and discovery.
//!
//! | file | owns |
//! | --- | --- |
//! | `conversion.rs` | conversion between versions |
//! | `custom.rs` | the resources defined by a CustomResourceDefinition |
//! | `extension.rs` | groups that are served only while objects provide them |
//! | `retirement.rs` | the end of watches of custom resources |
//! | `subresource.rs` | subresources |
//! | `table.rs` | all resources at one time, by path, by kind, and in discovery's order |

mod conversion;
mod custom;
mod extension;
mod retirement;
mod subresource;
mod table;

use std::sync::Arc;

pub use conversion::{Conversion, Converter, LocalConverter, Shown};
pub use custom::{CustomKind, CustomVersion, storage_version_hash};
pub use extension::ExtensionGroup;
pub use retirement::{DefinitionLifetime, Retirement};
pub use subresource::{Connection, Endpoint, Subresource};

pub use crate::strategy::Part;
pub use table::{Group, ResourceTable, SharedResourceTable, Version, precedence};

use crate::names::{GroupKind, GroupResource, Text};
use crate::render::table::Printer;
use crate::schema::{TypeRef, schema};
use crate::strategy::{Behavior, FieldPath};

/// A resource in one version.
#[derive(Clone)]
pub struct ResourceInfo {
    /// The group; empty for the core group.
    pub group: Text,
    /// The version.
    pub version: Text,
    /// The kind.
    pub kind: Text,
    /// The kind of its lists.
    pub list_kind: Text,
    /// The plural name, used in paths.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The short names.
    pub short_names: Vec<Text>,
    /// The categories, such as `all`.
    pub categories: Vec<Text>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// The verbs, in the order of discovery.
    pub verbs: Vec<Text>,
    /// The subresources, in the order of discovery.
    pub subresources: Vec<Subresource>,
    /// The hash that shows clients a change of the storage version; empty for resources that are
    /// not stored.
    pub storage_version_hash: Text,
    /// The type of objects in this version.
    pub type_ref: TypeRef,
    /// The storage of the objects.
    pub storage: Storage,
    /// All versions in which the kind is served: `apiVersion` and type.
    pub versions: Arc<[(String, TypeRef)]>,
    /// The conversion between versions.
    pub conversion: Conversion,
    /// Signals the end of watches of a custom resource.
    pub retirement: Option<Retirement>,
    /// The behavior of the kind in the generic pipeline.
    pub behavior: Behavior,
    /// Group and plural, as messages name the resource.
    pub group_resource: GroupResource,
    /// The kind as the server thinks of it: events are one kind, whichever group shows them.
    pub group_kind: GroupKind,
    /// The `apiVersion` of objects in this version.
    pub api_version: String,
}

/// The storage of the objects of all versions of a resource.
#[derive(Clone)]
pub struct Storage {
    /// The version.
    pub api_version: String,
    /// The type in that version.
    pub type_ref: TypeRef,
    /// The bucket of the store.
    pub bucket: Arc<str>,
    /// The first bytes of every stored object, which list items leave out; None where they do not.
    pub type_prefix: Option<String>,
}

impl ResourceInfo {
    /// Returns `true` for a custom resource. Its paths have a handler of their own, with fewer
    /// methods and media types.
    pub fn is_custom(&self) -> bool {
        matches!(self.type_ref, TypeRef::Structural(_))
    }

    /// Returns `true` if a PUT to an endpoint creates a missing object.
    pub fn creates_on_update(&self, part: Part) -> bool {
        // The strategy of a Service's status inherits AllowCreateOnUpdate; no other kind has both.
        matches!(part, Part::Main | Part::Status) && self.behavior.create_on_update
    }

    /// Returns `true` if this version of the resource is its storage version.
    pub fn is_storage_version(&self) -> bool {
        self.api_version == self.storage.api_version
    }

    /// Returns `true` if the resource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Iterates over the verbs in discovery: what no more objects can be created of is read and
    /// deleted only.
    pub fn offered_verbs(&self) -> impl Iterator<Item = &str> {
        let is_ending = self.behavior.create_refusal.is_some();
        let is_offered = move |verb: &&str| !is_ending || !["create", "patch", "update"].contains(verb);
        self.verbs.iter().map(|verb| &**verb).filter(is_offered)
    }

    /// Returns the subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns `true` if the status has an endpoint of its own.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Returns the fields that a write to an endpoint does not change, in `api_version` of the
    /// kind. The main endpoint of a custom resource has such fields in its own version only.
    pub fn reset_fields(&self, subresource: &str, api_version: &str) -> &'static [FieldPath] {
        if self.is_custom() && subresource.is_empty() && api_version != self.api_version {
            return &[];
        }
        self.behavior.reset_fields.of(subresource, self.has_status())
    }

    /// Returns the key that an object would have in kube-apiserver's store. Some messages contain
    /// it.
    pub fn registry_key(&self, namespace: &str, name: &str) -> String {
        format!("/registry/{}/{}", self.registry_path(), self.storage_name(namespace, name))
    }

    /// Returns the path of the objects in kube-apiserver's store, below its prefix.
    pub fn registry_path(&self) -> String {
        match self.behavior.key_prefix {
            Some(path) => path.to_owned(),
            None if self.is_custom() => format!("{}/{}", self.group, self.plural),
            None => self.plural.to_string(),
        }
    }

    /// Returns the columns of an object of a type: that of the resource or of a subresource.
    pub fn printer(&self, type_ref: &TypeRef) -> &Printer {
        let own = &self.behavior.printer;
        if *type_ref == self.type_ref {
            return own;
        }
        let subresource = self.subresources.iter().find(|one| one.type_ref == *type_ref);
        subresource.and_then(|subresource| subresource.printer.as_ref()).unwrap_or(own)
    }

    /// Returns kube-apiserver's internal Go type, which messages about responses contain.
    pub fn internal_type(&self) -> String {
        if self.is_custom() {
            return "*unstructured.Unstructured".to_owned();
        }
        let package = match self.group_kind.group.split('.').next() {
            None | Some("") => "core",
            Some(first) => first,
        };
        format!("*{package}.{}", self.group_kind.kind)
    }

    /// Returns the type of the resource's lists. A list of custom resources is encoded with the
    /// type of its items.
    pub fn list_type(&self) -> Option<TypeRef> {
        match &self.type_ref {
            TypeRef::Struct(_) => {
                schema().kind(&self.group, &self.version, &self.list_kind).map(TypeRef::Struct)
            }
            structural @ TypeRef::Structural(_) => Some(structural.clone()),
        }
    }

    /// Returns the name under which an object is stored in its bucket.
    pub fn storage_name(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// Returns the `apiVersion` of a group and version.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Returns the JSON text with which a stored built-in object begins: its kind and `apiVersion`.
pub fn type_prefix(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// Two descriptions of a resource are equal if they are equal for clients.
impl PartialEq for ResourceInfo {
    fn eq(&self, other: &ResourceInfo) -> bool {
        let names = |info: &ResourceInfo| {
            [
                &info.group,
                &info.version,
                &info.kind,
                &info.list_kind,
                &info.plural,
                &info.singular,
                &info.storage_version_hash,
            ]
            .map(Text::clone)
        };
        names(self) == names(other)
            && (self.namespaced, &self.short_names, &self.categories, &self.verbs, &self.subresources)
                == (
                    other.namespaced,
                    &other.short_names,
                    &other.categories,
                    &other.verbs,
                    &other.subresources,
                )
            && self.type_ref == other.type_ref
    }
}

impl std::fmt::Debug for ResourceInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.group_resource, self.version)
    }
}
