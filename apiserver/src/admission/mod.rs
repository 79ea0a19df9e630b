//! Admission: the chain of plugins between a decoded object and its validation.
//!
//! First every plugin may change the object (`admit`); then, when the object is prepared, named and has passed its own
//! validation, every plugin may refuse it (`validate`). The order of the chain is kube-apiserver's, and so are the
//! plugins' names and texts; each is a small module here. Plugins look the cluster up through [`Cluster`] and know neither store nor HTTP. They run on every write:
//! each looks at the resource first, and none lists anything for a resource that is not its own.
//!
//! Start at [`Chain::new`].

mod certificates;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
mod persistent_volume_claim_resize;
mod pod;
mod pod_resize_validator;
mod pod_security;
mod pod_topology_labels;
mod priority;
pub mod resource_quota;
mod runtime_class;
mod selection;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use selection::{PluginError, PluginSelection};

use crate::access::UserInfo;
use crate::access::authorize::Authorizer;
use crate::access::escalation::EscalationCheck;
use crate::features::FeatureGates;
use crate::names::{GroupKind, GroupResource};
use crate::request::Warnings;
use crate::{Error, Result};

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
    /// Empty for a create with generateName, even when the object has got its name already.
    pub name: &'a str,
    /// The object to be written, in its storage version's form; null on delete.
    pub object: &'a mut Value,
    pub old: Option<&'a Value>,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    /// Texts for `Warning` headers.
    pub warnings: &'a Warnings,
}

impl Attributes<'_> {
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

/// Where a namespace is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    Active,
    Terminating,
}

impl NamespacePhase {
    pub fn of(namespace: &Value) -> NamespacePhase {
        match namespace["status"]["phase"].as_str() {
            Some("Terminating") => NamespacePhase::Terminating,
            _ => NamespacePhase::Active,
        }
    }
}

/// What plugins may look up: the objects as they are now, in their storage version's form.
pub trait Cluster: Sync {
    /// The object, if there is one.
    ///
    /// # Errors
    /// [`Error::Internal`] if it is there but cannot be read.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>>;

    /// All of a kind, in one namespace or (`""`) everywhere.
    ///
    /// # Errors
    /// [`Error::Internal`] if any cannot be read.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>>;

    /// Whether a namespace exists, and how it is. Asked on every write of a namespaced object: implementations that can
    /// tell without parsing the object should.
    ///
    /// # Errors
    /// As [`Cluster::get`].
    fn namespace(&self, name: &str) -> Result<Option<NamespacePhase>> {
        let namespace = self.get(&GroupResource::new("", "namespaces"), "", name)?;
        Ok(namespace.as_ref().map(NamespacePhase::of))
    }
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

/// An object that someone else is about to create, worth a moment's wait before the chain runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub resource: GroupResource,
    pub namespace: String,
    pub name: String,
}

const SERVICE_ACCOUNT: &str = "ServiceAccount";
const RESOURCE_QUOTA: &str = "ResourceQuota";

/// Whether the gate of a plugin is on, for those that have one.
fn is_featured(plugin: &str, features: &FeatureGates) -> bool {
    plugin != "PodTopologyLabels" || features.is_enabled("PodTopologyLabelsAdmission")
}

/// The plugins, in order.
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    waits_for_accounts: bool,
    charges_quotas: bool,
}

impl Chain {
    /// kube-apiserver's default plugins, with its default features.
    pub fn standard(authorizer: &Arc<Authorizer>) -> Chain {
        Chain::new(&PluginSelection::default(), &FeatureGates::DEFAULT, authorizer)
    }

    /// The plugins that are on, and what kube-apiserver's RBAC storage checks between the two passes.
    pub fn new(selection: &PluginSelection, features: &FeatureGates, authorizer: &Arc<Authorizer>) -> Chain {
        let authorizer = || Arc::clone(authorizer);
        let mut plugins: Vec<Box<dyn Plugin>> = vec![
            Box::new(namespace_lifecycle::NamespaceLifecycle),
            Box::new(limit_ranger::LimitRanger),
            Box::new(service_account::ServiceAccount::default()),
            Box::new(taint_nodes_by_condition::TaintNodesByCondition),
            Box::new(pod_security::PodSecurity),
            Box::new(priority::Priority),
            Box::new(default_toleration_seconds::DefaultTolerationSeconds),
            Box::new(default_storage_class::DefaultStorageClass),
            Box::new(storage_object_in_use_protection::StorageObjectInUseProtection),
            Box::new(persistent_volume_claim_resize::PersistentVolumeClaimResize),
            Box::new(runtime_class::RuntimeClass),
            Box::new(certificates::CertificateApproval { authorizer: authorizer() }),
            Box::new(certificates::CertificateSigning { authorizer: authorizer() }),
            Box::new(certificates::CertificateSubjectRestriction),
            Box::new(default_ingress_class::DefaultIngressClass),
            Box::new(pod_topology_labels::PodTopologyLabels),
            Box::new(pod_resize_validator::PodResizeValidator),
        ];
        let implemented: Vec<&str> =
            plugins.iter().map(|plugin| plugin.name()).chain([RESOURCE_QUOTA]).collect();
        for missing in selection.missing(&implemented) {
            tracing::warn!(plugin = missing, "this admission plugin is not implemented and does nothing");
        }
        plugins.retain(|plugin| selection.is_enabled(plugin.name()) && is_featured(plugin.name(), features));
        plugins.push(Box::new(EscalationCheck { authorizer: authorizer() }));
        Chain {
            plugins,
            waits_for_accounts: selection.is_enabled(SERVICE_ACCOUNT),
            charges_quotas: selection.is_enabled(RESOURCE_QUOTA),
        }
    }

    /// What should be waited for, shortly, before [`Chain::admit`]: kube-apiserver gives the service account controller
    /// up to two seconds to make the `default` account of a new namespace.
    pub fn awaits(&self, attributes: &Attributes<'_>, cluster: &dyn Cluster) -> Option<Awaited> {
        self.waits_for_accounts.then(|| service_account::awaits(attributes, cluster)).flatten()
    }

    /// Whether what is stored is charged to quotas, which the registry does in the same commit.
    pub fn charges_quotas(&self) -> bool {
        self.charges_quotas
    }

    /// The part of the first pass that concerns a create whose object is not stored: an eviction, a binding, a token request.
    ///
    /// # Errors
    /// 404 if there is no such namespace, 403 if it is terminating.
    pub fn admit_to_namespace(&self, attributes: &mut Attributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        namespace_lifecycle::NamespaceLifecycle.admit(attributes, cluster)
    }

    pub fn admit(&self, attributes: &mut Attributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.admit(attributes, cluster))
    }

    pub fn validate(&self, attributes: &Attributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.validate(attributes, cluster))
    }
}

/// The member of an object that is itself an object; made if it is missing.
fn object_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let member = value.as_object_mut()?.entry(name).or_insert_with(|| Map::new().into());
    member.is_object().then_some(member)
}

/// The member of an object that is a list; made if it is missing.
fn list_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Vec<Value>> {
    value.as_object_mut()?.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

/// The elements of a list; none if there is no list.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The string, or `""`.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The newest object that an annotation makes the default, among several the first by name.
fn newest_default(objects: Vec<Value>, annotations: &[&str]) -> Option<Value> {
    let is_default =
        |object: &Value| annotations.iter().any(|a| text(&object["metadata"]["annotations"][a]) == "true");
    let age = |object: &Value, field: &str| text(&object["metadata"][field]).to_owned();
    objects.into_iter().filter(is_default).min_by(|a, b| {
        age(b, "creationTimestamp")
            .cmp(&age(a, "creationTimestamp"))
            .then_with(|| age(a, "name").cmp(&age(b, "name")))
    })
}
