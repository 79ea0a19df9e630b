//! Admission: the chain of plugins between a decoded object and its validation.
//!
//! First every plugin may change the object (`admit`), then, after defaulting and preparation, every plugin may refuse it
//! (`validate`). The order of the chain is kube-apiserver's.

use serde_json::Value;

use crate::Result;
use crate::names::{GroupKind, GroupResource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// One request as admission sees it.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub resource: &'a GroupResource,
    pub kind: &'a GroupKind,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Empty for a create with generateName.
    pub name: &'a str,
    /// The object to be written, in its storage version's form; null on delete.
    pub object: &'a mut Value,
    pub old: Option<&'a Value>,
    pub user: &'a str,
    pub groups: &'a [String],
    pub dry_run: bool,
    /// Texts for `Warning` headers.
    pub warnings: &'a mut Vec<String>,
}

/// What plugins may look up: the objects as they are now, in their storage version's form.
pub trait Cluster: Sync {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Value>;
    /// All of a kind, in one namespace or (`""`) everywhere.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Value>;
}

pub trait Plugin: Send + Sync {
    /// kube-apiserver's name of the plugin.
    fn name(&self) -> &'static str;

    fn admit(&self, attributes: &mut Attributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }
}
