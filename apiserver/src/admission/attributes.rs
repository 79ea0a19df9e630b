//! The attributes of a request that admission decides on.
//!
//! Source: `k8s.io/apiserver/pkg/admission`, `Attributes`.

use serde_json::Value;

use super::generic::ReinvocationContext;
use crate::Error;
use crate::access::UserInfo;
use crate::audit::AuditContext;
use crate::fields::entry;
use crate::names::{GroupKind, GroupResource};
use crate::object_meta::ObjectMeta;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::request::{Verb, Warnings};

/// The operation of a request, as distinguished by plugins and webhook rules.
///
/// Source: `k8s.io/apiserver/pkg/admission`, `Operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A create, also of a subresource: an eviction, a binding, a token request.
    Create,
    /// An update or a patch.
    Update,
    /// A delete of one object. A deletecollection is one for each object.
    Delete,
    /// A request that opens a connection to a pod: exec, attach, port-forward, proxy.
    Connect,
}

/// The options of the request: CreateOptions, UpdateOptions and PatchOptions are one type here.
#[derive(Clone, Copy, Debug)]
pub enum OperationOptions<'a> {
    /// CreateOptions, UpdateOptions or PatchOptions.
    Write(&'a WriteOptions),
    /// DeleteOptions.
    Delete(&'a DeleteOptions),
    /// A connection has none.
    None,
}

impl OperationOptions<'_> {
    /// Returns `true` if the request is a dry run (`dryRun=All`), which stores nothing.
    pub fn dry_run(self) -> bool {
        match self {
            OperationOptions::Write(options) => options.dry_run,
            OperationOptions::Delete(options) => options.dry_run,
            OperationOptions::None => false,
        }
    }
}

/// The attributes of one request for admission.
pub struct AdmissionAttributes<'a> {
    /// The operation of the request.
    pub operation: Operation,
    /// The verb of the request; a patch is an update for the operation, or a create.
    pub verb: Verb,
    /// The resource of the request, without the subresource.
    pub resource: &'a GroupResource,
    /// The kind of the object: of the resource, or of the subresource's body, such as an Eviction.
    pub kind: GroupVersionKind<'a>,
    /// The version of the resource in the request.
    pub version: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace of the path; empty for a resource of the cluster.
    pub namespace: &'a str,
    /// The name; empty for a create with generateName, even after the object's name has been
    /// generated.
    pub name: &'a str,
    /// The new object, in the storage version; null on delete.
    pub object: &'a mut Value,
    /// The stored object, in the storage version; None on create.
    pub old_object: Option<&'a Value>,
    /// The options of the request.
    pub options: OperationOptions<'a>,
    /// The user who sent the request; after impersonation the impersonated user.
    pub user: &'a UserInfo,
    /// Texts for `Warning` headers.
    pub warnings: &'a Warnings,
    /// The audit event of the request.
    pub audit: &'a AuditContext,
    /// Whether the mutating pass must be repeated, and for which webhooks and policies.
    pub reinvocation: ReinvocationContext,
}

/// A group, a version and a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupVersionKind<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl GroupVersionKind<'_> {
    /// Returns the kind without its version.
    pub fn group_kind(self) -> GroupKind {
        GroupKind::new(self.group, self.kind)
    }
}

impl AdmissionAttributes<'_> {
    /// Returns whether the request is for this resource, and not for one of its subresources.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_any(group, resource)
    }

    /// Returns whether the request is for this resource or for one of its subresources.
    pub fn is_any(&self, group: &str, resource: &str) -> bool {
        self.resource.resource == resource && self.resource.group == group
    }

    /// Returns the namespace of the request. A request for a Namespace counts as a request in that
    /// namespace.
    pub fn request_namespace(&self) -> &str {
        match self.namespace {
            "" if self.is_any("", "namespaces") => self.name,
            namespace => namespace,
        }
    }

    /// Returns the name of the object for messages. For a create with `generateName` it is the
    /// generated name, or the prefix if no name has been generated yet.
    pub fn shown_name(&self) -> &str {
        let metadata = &self.object["metadata"];
        let of_object = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
        match self.name {
            "" => of_object("name").or_else(|| of_object("generateName")).unwrap_or("Unknown"),
            name => name,
        }
    }

    /// Returns a plugin's 403 error for the request, about the resource and the shown name.
    pub fn forbidden(&self, detail: impl Into<String>) -> Error {
        Error::forbidden(self.resource, self.shown_name(), detail)
    }

    /// Replaces the object by the result of a webhook or a policy. Managed fields that cannot be
    /// decoded remain unchanged, with a warning.
    pub fn replace_object(&mut self, mut object: Value) {
        let managed_fields = object.meta("managedFields").unwrap_or(&Value::Null);
        if let Err(error) = entry::parse(managed_fields) {
            self.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {error}"
            ));
            let kept = self.object.meta("managedFields").cloned().unwrap_or_default();
            object.set_meta("managedFields", kept);
        }
        *self.object = object;
    }

    /// Adds a text for a `Warning` header of the response (KEP-1693).
    pub fn warn(&self, text: String) {
        self.warnings.add(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_is_read_from_the_options_of_the_operation() {
        for dry_run in [false, true] {
            let write = WriteOptions { dry_run, ..WriteOptions::default() };
            let delete = DeleteOptions { dry_run, ..DeleteOptions::default() };
            assert_eq!(OperationOptions::Write(&write).dry_run(), dry_run);
            assert_eq!(OperationOptions::Delete(&delete).dry_run(), dry_run);
        }
    }
}
