//! What admission knows of a request.
//!
//! Source: `k8s.io/apiserver/pkg/admission`, `Attributes`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::Error;
use crate::access::UserInfo;
use crate::names::{GroupKind, GroupResource};
use crate::request::Warnings;
use crate::request::options::{DeleteOptions, WriteOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The options of the request: CreateOptions, UpdateOptions and PatchOptions are one type here.
#[derive(Clone, Copy, Debug)]
pub enum OperationOptions<'a> {
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

/// One request as admission sees it.
pub struct AdmissionAttributes<'a> {
    pub operation: Operation,
    pub resource: &'a GroupResource,
    pub kind: &'a GroupKind,
    /// The version of the request, of its resource and of its kind.
    pub version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Empty for a create with generateName, even when the object has got its name already.
    pub name: &'a str,
    /// The object to be written, in its storage version's form; null on delete.
    pub object: &'a mut Value,
    /// The stored object, in the same form; None on create.
    pub old_object: Option<&'a Value>,
    pub options: OperationOptions<'a>,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    /// Texts for `Warning` headers.
    pub warnings: &'a Warnings,
    /// What plugins add to the audit event of the request.
    pub audit_annotations: &'a AuditAnnotations,
}

/// The annotations that plugins give the audit event of one request, under names such as
/// `pod-security.kubernetes.io/enforce-policy`.
///
/// Source: `Attributes.AddAnnotation` of kube-apiserver's admission.
#[derive(Debug, Default)]
pub struct AuditAnnotations(Mutex<BTreeMap<String, String>>);

impl AuditAnnotations {
    /// Adds an annotation. The first value of a key stays, as in kube-apiserver.
    pub fn add(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        annotations.entry(key.into()).or_insert_with(|| value.into());
    }

    /// All annotations, by key.
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmissionAttributes<'_> {
    /// Whether this is about objects of a resource themselves, not about a subresource of theirs.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_any(group, resource)
    }

    /// Whether this is about a resource or any of its subresources.
    pub fn is_any(&self, group: &str, resource: &str) -> bool {
        self.resource.resource == resource && self.resource.group == group
    }

    /// The name to show: of a create with generateName the name that was made, or before that its base.
    pub fn shown_name(&self) -> &str {
        let metadata = &self.object["metadata"];
        let of_object = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
        match self.name {
            "" => of_object("name").or_else(|| of_object("generateName")).unwrap_or("Unknown"),
            name => name,
        }
    }

    pub fn forbidden(&self, detail: impl Into<String>) -> Error {
        Error::forbidden(self.resource, self.shown_name(), detail)
    }

    pub fn warn(&self, text: String) {
        self.warnings.add(text);
    }
}
