//! Names of the API: groups, versions, kinds and resources.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/schema`.

use std::borrow::Cow;
use std::fmt;

/// The finalizer that holds a CustomResourceDefinition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A name of a built-in or custom resource.
pub type Text = Cow<'static, str>;

/// A group and a plural, printed `deployments.apps`; the core group has no suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural in lower case, with `/SUBRESOURCE` for a subresource.
    pub resource: String,
}

impl GroupResource {
    /// Creates a reference to a resource from its group and plural.
    pub fn new(group: &str, resource: &str) -> GroupResource {
        GroupResource { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Returns a subresource of this resource, such as `pods/binding`.
    pub fn sub(&self, subresource: &str) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: format!("{}/{subresource}", self.resource) }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

/// A group and a kind, printed `Deployment.apps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind in camel case, such as `ReplicaSet`.
    pub kind: String,
}

impl GroupKind {
    /// Creates a reference to a kind from its group and name.
    pub fn new(group: &str, kind: &str) -> GroupKind {
        GroupKind { group: group.to_owned(), kind: kind.to_owned() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if group.is_empty() { Ok(()) } else { write!(f, ".{group}") }
}

/// A group and a version, written `apps/v1`, or `v1` in the core group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1beta1`.
    pub version: String,
}

impl GroupVersion {
    /// Creates a group version from its group and version.
    pub fn new(group: &str, version: &str) -> GroupVersion {
        GroupVersion { group: group.to_owned(), version: version.to_owned() }
    }

    /// Parses an `apiVersion`; None if it has more than one slash.
    pub fn parse(api_version: &str) -> Option<GroupVersion> {
        match api_version.split_once('/') {
            None => Some(GroupVersion::new("", api_version)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(GroupVersion::new(group, version)),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}
