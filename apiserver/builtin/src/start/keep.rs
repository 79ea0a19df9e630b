//! Restores the server's own objects while it runs: the default namespaces, the objects of flow
//! control, the default ServiceCIDR, `default/kubernetes` with its Endpoints, and the ConfigMap by
//! which extension API servers authenticate users.
//!
//! One periodic check costs some lookups, as long as nothing has changed. kube-apiserver has a
//! controller for each of these, with periods of 10 s to a minute.
//!
//! Source: `systemnamespaces`, `defaultservicecidr`, `kubernetesservice` and
//! `clusterauthenticationtrust` in `pkg/controlplane/controller`, and
//! `pkg/registry/flowcontrol/ensurer`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::bootstrap::Identity;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::{BootstrapStrategy, ReconcileAction, Registry};
use coracle_storage::Key;
use futures::future::BoxFuture;
use serde_json::Value;

use super::strategy::{StartStrategy, autoupdate};
use super::{initial_objects, publish_authentication, publish_endpoints};
use crate::timers::SERVER_OBJECTS;

/// The interval of the checks.
const INTERVAL: Duration = Duration::from_secs(10);

const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const FLOW_SCHEMA: &str = "FlowSchema";
const PRIORITY_LEVEL: &str = "PriorityLevelConfiguration";
const FLOW_CONTROL_RESOURCES: [(&str, &str); 2] =
    [(FLOW_CONTROL, "flowschemas"), (FLOW_CONTROL, "prioritylevelconfigurations")];
/// The resources of `default/kubernetes`.
const ENDPOINTS_RESOURCES: [(&str, &str); 3] =
    [("", "services"), ("", "endpoints"), ("discovery.k8s.io", "endpointslices")];
/// Group, version, resource, namespace and name of the objects that are created anew if they are
/// missing, except those of flow control.
const REQUIRED: &[[&str; 5]] = &[
    ["", "v1", "namespaces", "", "default"],
    ["", "v1", "namespaces", "", "kube-node-lease"],
    ["", "v1", "namespaces", "", "kube-public"],
    ["", "v1", "namespaces", "", "kube-system"],
    ["networking.k8s.io", "v1", "servicecidrs", "", "kubernetes"],
    ["", "v1", "services", "default", "kubernetes"],
];

/// The objects of `default/kubernetes` that have the address of the server.
const ENDPOINTS: &[[&str; 5]] = &[
    ["", "v1", "endpoints", "default", "kubernetes"],
    ["discovery.k8s.io", "v1", "endpointslices", "default", "kubernetes"],
];

/// The ConfigMap by which extension API servers authenticate users.
const AUTHENTICATION: [&str; 5] =
    ["", "v1", "configmaps", "kube-system", "extension-apiserver-authentication"];

/// The parameters of the server's own objects.
pub struct ServerObjectsConfig {
    /// The registry in which they are stored.
    pub registry: Arc<Registry>,
    /// The address in the Endpoints of `default/kubernetes`; None without a network.
    pub advertised: Option<IpAddr>,
    /// The port on which the API is served.
    pub port: u16,
    /// The block of cluster IPs.
    pub service_cidr: Cidr,
    /// The PEM text of the authorities of client certificates.
    pub client_ca: String,
    /// The PEM text of the authority of the front proxy's certificate.
    pub front_proxy_ca: String,
    /// Whether a controller runs, by its name.
    pub is_selected: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The server's own objects, as they were when the server started or were restored last.
pub struct ServerObjects {
    config: ServerObjectsConfig,
    seen: Seen,
}

/// The revisions of the last changes of the resources with objects that are compared; None for
/// those that must be compared.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    flow_control: Option<[u64; 2]>,
    endpoints: Option<[u64; 3]>,
    authentication: Option<[u64; 1]>,
}

impl Seen {
    fn now(registry: &Registry) -> Seen {
        Seen {
            flow_control: last_changes(registry, FLOW_CONTROL_RESOURCES),
            endpoints: last_changes(registry, ENDPOINTS_RESOURCES),
            authentication: last_changes(registry, [("", "configmaps")]),
        }
    }
}

impl ServerObjects {
    /// Takes the objects as they are now: the server that starts has written them. It only tries
    /// to write the Endpoints, so these are compared at the first check.
    pub fn new(config: ServerObjectsConfig) -> ServerObjects {
        let seen = Seen { endpoints: None, ..Seen::now(&config.registry) };
        ServerObjects { config, seen }
    }

    /// Restores the objects until the future is dropped. What fails is tried again with the next
    /// check.
    pub fn keep(mut self) -> BoxFuture<'static, ()> {
        let mut checks = self.config.registry.clock().interval(SERVER_OBJECTS.after(INTERVAL), "");
        Box::pin(async move {
            loop {
                checks.tick().await;
                if let Err(error) = self.restore().await {
                    tracing::warn!(%error, "the server's own objects are not restored");
                }
            }
        })
    }

    /// Restores the objects once.
    ///
    /// # Errors
    /// The errors of the store. Everything is compared at the next call then.
    pub async fn restore(&mut self) -> Result<()> {
        // Taken before the comparison, so that a change during it leads to another one.
        let now = Seen::now(&self.config.registry);
        let before = std::mem::take(&mut self.seen);
        self.config.restore(&before, &now).await?;
        self.seen = now;
        Ok(())
    }
}

impl ServerObjectsConfig {
    async fn restore(&self, before: &Seen, now: &Seen) -> Result<()> {
        // Servers that share a store have addresses and authorities of their own: each would undo
        // what the others write, so there only objects that are missing are created.
        let is_alone = !self.registry.store.has_other_writers();
        let is_changed = now.flow_control.is_none() || now.flow_control != before.flow_control;
        let missing: Vec<&[&str; 5]> = REQUIRED.iter().filter(|required| self.is_missing(required)).collect();
        let created = match is_changed || !missing.is_empty() {
            true => self.create(is_changed, &missing).await,
            false => Ok(()),
        };
        let has_endpoints_changed = now.endpoints.is_none() || now.endpoints != before.endpoints;
        let are_missing = || ENDPOINTS.iter().any(|required| self.is_missing(required));
        let endpoints = match has_endpoints_changed || !missing.is_empty() {
            true if is_alone || are_missing() => {
                publish_endpoints(&self.registry, self.advertised, self.port).await
            }
            _ => Ok(()),
        };
        let has_changed = now.authentication.is_none() || now.authentication != before.authentication;
        let authentication = match has_changed && (is_alone || self.is_missing(&AUTHENTICATION)) {
            true => publish_authentication(&self.registry, &self.client_ca, &self.front_proxy_ca).await,
            false => Ok(()),
        };
        // What fails holds nothing else up.
        created.and(endpoints).and(authentication)
    }

    /// Creates the objects that are missing, and restores those of flow control if these may have
    /// changed.
    async fn create(&self, restores_flow_control: bool, missing: &[&[&str; 5]]) -> Result<()> {
        let parameters = (self.registry.now(), self.port, self.service_cidr, self.is_selected.clone());
        let make = move || {
            let (now, secure_port, service_cidr, is_selected) = parameters;
            initial_objects(now, secure_port, service_cidr, None, &*is_selected)
        };
        let objects = tokio::task::spawn_blocking(make).await;
        let objects = objects.map_err(|error| Error::Internal(error.to_string()))?;
        let is_service_missing = missing.iter().any(|required| required[2] == "services");
        let (mut needed, mut of_flow_control) = (Vec::new(), HashSet::new());
        let mut taken = None;
        for object in objects {
            let identity = object.identity()?;
            let is_of_flow_control = matches!(identity.kind, FLOW_SCHEMA | PRIORITY_LEVEL);
            if is_of_flow_control {
                of_flow_control.insert((identity.kind.to_owned(), identity.name.to_owned()));
            }
            // The address of the Service is created before it.
            let is_address = identity.kind == "IPAddress" && is_service_missing;
            if is_address && self.has_another_owner(&*object.object()?)? {
                taken = Some(identity.name.to_owned());
                continue;
            }
            if taken.is_some() && identity.kind == "Service" {
                continue;
            }
            let is_missing = missing.iter().any(|required| is_object(required, &identity));
            if is_address || is_missing || is_of_flow_control && restores_flow_control {
                needed.push(object);
            }
        }
        self.registry.bootstrap(&needed, &KeepStrategy).await?;
        if restores_flow_control {
            self.delete_unwanted(&of_flow_control).await?;
        }
        match taken {
            None => Ok(()),
            Some(address) => Err(Error::Internal(format!("the address {address} has another Service"))),
        }
    }

    /// Deletes the objects of flow control that are marked as the server's own, and are not: those
    /// of earlier versions.
    ///
    /// - `wanted`: kinds and names of the server's own
    async fn delete_unwanted(&self, wanted: &HashSet<(String, String)>) -> Result<()> {
        for ((group, plural), kind) in FLOW_CONTROL_RESOURCES.into_iter().zip([FLOW_SCHEMA, PRIORITY_LEVEL]) {
            let Some(info) = self.registry.find(group, "v1", plural) else { continue };
            for stored in Cluster::list(&*self.registry, &GroupResource::new(group, plural), "")? {
                let is_wanted = wanted.contains(&(kind.to_owned(), stored.name().to_owned()));
                if !is_wanted && autoupdate(&stored) == Some(true) {
                    self.registry.delete_as_server(&info, "", stored.name()).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the address of `default/kubernetes` is that of another Service by now.
    fn has_another_owner(&self, address: &Value) -> Result<bool> {
        let resource = GroupResource::new("networking.k8s.io", "ipaddresses");
        let stored = Cluster::get(&*self.registry, &resource, "", address.name())?;
        Ok(stored.is_some_and(|stored| stored["spec"]["parentRef"] != address["spec"]["parentRef"]))
    }

    fn is_missing(&self, &[group, version, resource, namespace, name]: &[&str; 5]) -> bool {
        self.registry.find(group, version, resource).is_some_and(|info| {
            let key = Key::new(info.storage.bucket.clone(), info.storage_name(namespace, name));
            self.registry.store.get(&key).is_none()
        })
    }
}

/// Returns the revisions of the last changes of these resources; None if one is not known.
fn last_changes<const N: usize>(registry: &Registry, resources: [(&str, &str); N]) -> Option<[u64; N]> {
    let mut changes = [0; N];
    for (change, (group, resource)) in changes.iter_mut().zip(resources) {
        *change = registry.last_change(&GroupResource::new(group, resource))?;
    }
    Some(changes)
}

/// Returns whether an object is the required one.
fn is_object(&[_, _, resource, namespace, name]: &[&str; 5], object: &Identity<'_>) -> bool {
    let plural = match object.kind {
        "Namespace" => "namespaces",
        "ServiceCIDR" => "servicecidrs",
        "Service" => "services",
        _ => return false,
    };
    (plural, object.namespace, object.name) == (resource, namespace, name)
}

/// The strategy for the objects that are restored while the server runs: of stored ones, only those
/// of flow control are changed.
struct KeepStrategy;

impl BootstrapStrategy for KeepStrategy {
    fn field_manager(&self, group: &str) -> &'static str {
        StartStrategy.field_manager(group)
    }

    fn managed<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        StartStrategy.managed(object)
    }

    fn reconcile(&self, wanted: &Value, stored: &Value) -> ReconcileAction {
        match wanted["kind"].as_str() {
            Some(FLOW_SCHEMA | PRIORITY_LEVEL) => StartStrategy.reconcile(wanted, stored),
            _ => ReconcileAction::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_apimachinery::bootstrap::InitialObject;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn of_stored_objects_those_of_flow_control_alone_are_changed() {
        let object = |kind: &str, precedence: i64| {
            let metadata = json!({"name": "o", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
            json!({"kind": kind, "metadata": metadata, "spec": {"matchingPrecedence": precedence}})
        };
        for (kind, is_kept) in
            [("FlowSchema", false), ("PriorityLevelConfiguration", false), ("Service", true)]
        {
            let action = KeepStrategy.reconcile(&object(kind, 1), &object(kind, 7));
            assert_eq!(action == ReconcileAction::Keep, is_kept, "{kind}");
        }
    }

    #[test]
    fn every_required_object_is_one_of_the_start() {
        let cidr = Cidr::parse("10.0.0.0/24").expect("a block");
        let objects = initial_objects(Timestamp::UNIX_EPOCH, 6443, cidr, None, &|_| true);
        for required in REQUIRED {
            let is_required =
                |object: &&InitialObject| is_object(required, &object.identity().expect("as it is stored"));
            assert_eq!(objects.iter().filter(is_required).count(), 1, "{required:?}");
        }
    }
}
