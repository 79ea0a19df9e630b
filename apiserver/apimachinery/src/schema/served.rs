//! The groups and resources that are served.

use super::types::StructId;

/// An API group.
#[derive(Debug)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: &'static str,
    /// The preferred one first.
    pub versions: Vec<&'static str>,
    /// It is served only while something provides it.
    pub is_extension: bool,
}

/// A resource in one version, as it is served.
#[derive(Debug)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The kind of its lists.
    pub list_kind: String,
    /// The plural name, which stands in paths.
    pub plural: &'static str,
    /// The singular name.
    pub singular: String,
    /// The short names.
    pub short_names: Vec<&'static str>,
    /// The categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// The verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// The subresources, sorted by name.
    pub subresources: Vec<Subresource>,
    /// The group and version in which the storage keeps it.
    pub storage_version: (&'static str, &'static str),
    /// Empty if objects are not stored.
    pub storage_version_hash: &'static str,
    /// The type of its objects.
    pub type_id: StructId,
}

/// A subresource.
#[derive(Debug)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: &'static str,
    /// The group of its kind.
    pub group: &'static str,
    /// The version of its kind.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// The type of what is sent and answered.
    pub type_id: StructId,
}
