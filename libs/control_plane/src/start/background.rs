//! The work of an API server besides requests: it keeps objects up to date by itself.

use std::sync::Arc;

use coracle_apiserver::aggregator::{
    AvailabilityController, OpenApiController, RemoteDocuments, RemoteGroups, serve_when_provided,
};
use coracle_apiserver::flow_schema_status::FlowSchemaStatus;
use coracle_apiserver::policy_status::PolicyStatus;
use coracle_apiserver::registry::Registry;
use coracle_builtin::start::{IdentityLease, ServerObjects};
use tokio::task::JoinSet;

use crate::etcd::EVENTS;
use crate::kinds::Kinds;
use crate::options::Options;

/// The controller that reports the type checking of ValidatingAdmissionPolicies.
const POLICY_STATUS_CONTROLLER: &str = "validatingadmissionpolicy-status-controller";

/// The part of discovery and OpenAPI that other servers provide.
#[derive(Clone, Default)]
pub struct RemoteApis {
    pub groups: Arc<RemoteGroups>,
    pub documents: Arc<RemoteDocuments>,
}

impl RemoteApis {
    /// Returns the part that a fork begins with.
    pub fn fork(&self) -> RemoteApis {
        RemoteApis { groups: Arc::new(self.groups.fork()), documents: Arc::new(self.documents.fork()) }
    }
}

/// Starts the tasks, which end when the returned set is dropped.
pub fn spawn(
    options: &Options,
    kinds: Kinds,
    registry: &Arc<Registry>,
    (identity_lease, server_objects): (Option<IdentityLease>, Option<ServerObjects>),
    remote: RemoteApis,
    is_selected: &dyn Fn(&str) -> bool,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // In etcd they have leases.
    if options.etcd.is_none() {
        tasks.spawn(registry.clone().expire_objects(EVENTS, options.event_ttl));
    }
    if let Some(lease) = identity_lease {
        tasks.spawn(lease.keep());
    }
    if let Some(objects) = server_objects {
        tasks.spawn(objects.keep());
    }
    tasks.spawn(FlowSchemaStatus::new(registry.clone()).run());
    // It needs the types that are served, so it is no client as the other controllers are; it is
    // selected as they are.
    if is_selected(POLICY_STATUS_CONTROLLER) {
        tasks.spawn(PolicyStatus::new(registry.clone()).run());
    }
    let availability = AvailabilityController::new(registry.clone(), remote.groups);
    availability.publish_stored();
    tasks.spawn(availability.run());
    tasks.spawn(OpenApiController::new(registry.clone(), remote.documents).run());
    if let Some(extension) = (kinds.extension)(options.simulation_profile) {
        tasks.spawn(serve_when_provided(registry.clone(), extension));
    }
    tasks
}
