//! endpointslice-controller: maintains the EndpointSlices of Services with a selector.
//!
//! A Service is reconciled when it changes, when a pod that it selects changes in a way that
//! affects an endpoint, when one of its slices is changed by another client, and, if it has hints
//! by zone, when nodes change:
//! 1. the endpoint and the ports of each pod are computed (`endpoint.rs`);
//! 2. endpoints are placed in slices of at most 100, so that few slices are written
//!    (`placement.rs`, `plan/`);
//! 3. hints are added, by traffic distribution (`hints.rs`) or by the CPUs of zones
//!    (`topology.rs`);
//! 4. slices are created, updated and deleted (`service_endpoints::slices`).
//!
//! The writes of a Service with many endpoints are limited (`service_endpoints::rate_limit`):
//! changes in the meantime are written together.

mod endpoint;
mod hints;
mod metrics;
mod placement;
mod plan;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::{EventType, Recorder};
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use parking_lot::{Mutex, MutexGuard};

use crate::service_endpoints::LAST_CHANGE_TRIGGER_TIME;
use crate::service_endpoints::rate_limit::RateLimit;
use crate::service_endpoints::selection::{pods_of, selector, services_of};
use crate::service_endpoints::slices::{SliceChanges, SliceWriter, foreign_changes, slices_of};
use crate::service_endpoints::trigger_time::{TriggerTimeTracker, format};
use crate::settings::{Context, Settings};
use crate::timers::{ENDPOINTS_RATE, FOREIGN_ENDPOINT_SLICE};
use hints::TrafficDistribution;
use metrics::Metrics;
use plan::{Observed, Plan, plan};
use topology::{Hinter, PopulatedHints};

/// The value of the label of the slices of this controller.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The delay before a slice that another client changed is reconciled.
const FOREIGN_CHANGE_DELAY: Duration = Duration::from_secs(1);

pub struct EndpointSliceController {
    recorder: Recorder,
    writer: SliceWriter,
    metrics: Metrics,
    trigger_times: TriggerTimeTracker,
    rate_limit: RateLimit,
    populated_hints: Mutex<PopulatedHints>,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
}

impl Initialize<Settings> for EndpointSliceController {
    fn new(context: &Context) -> EndpointSliceController {
        let metrics = Metrics::new(&context.metrics);
        EndpointSliceController {
            recorder: context.recorder("endpoint-slice-controller"),
            writer: SliceWriter { slices: context.cache(), changes: metrics.changes.clone() },
            metrics,
            trigger_times: TriggerTimeTracker::default(),
            rate_limit: RateLimit::new(context.clock.clone()),
            populated_hints: Mutex::default(),
            services: context.cache(),
            pods: context.cache(),
            nodes: context.cache(),
        }
    }
}

impl Controller for EndpointSliceController {
    const NAME: &'static str = "endpointslice-controller";
    const QUEUE_NAME: &'static str = "endpoint_slice";
    const FIRST_RETRY: Duration = Duration::from_secs(1);
    const MAX_RETRIES: u32 = 15;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (services, all) = (self.services.clone(), self.services.clone());
        sources
            .on_each(&self.services)
            .on(&self.pods, move |change, queue| {
                services_of(change, &services).into_iter().for_each(|service| queue.add(service));
            })
            .on(&self.writer.slices, |change, queue| {
                for service in foreign_changes(change, MANAGER) {
                    queue.add_after(service, FOREIGN_ENDPOINT_SLICE.after(FOREIGN_CHANGE_DELAY));
                }
            })
            .on(&self.nodes, move |change, queue| {
                if change.changed(topology_of_node) {
                    let services = all.all();
                    let hinted = services.iter().filter(|service| topology::is_enabled(service));
                    hinted.for_each(|service| queue.add(NamespacedName::of(service.as_ref())));
                }
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(service) = self.services.get(name) else {
            // The garbage collector deletes the slices.
            self.trigger_times.forget(name);
            self.rate_limit.forget(name);
            self.metrics.gauges.set(name, None);
            self.populated_hints().retain(|(service, _), _| service != name);
            return Ok(Action::AwaitChange);
        };
        if selector(&service).is_none() {
            return Ok(Action::AwaitChange);
        }
        if let Some(delay) = self.rate_limit.delay(name) {
            return Ok(Action::Requeue(ENDPOINTS_RATE.after(delay)));
        }
        let synced = self.reconcile_service(name, &service, ctx).await;
        self.metrics.synced(synced.is_ok());
        if let Err(error) = &synced {
            let message = format!("Error updating Endpoint Slices for Service {name}: {}", error.message());
            self.recorder.warning(service.as_ref(), "FailedToUpdateEndpointSlices", message);
        }
        synced.map(|()| Action::AwaitChange)
    }
}

impl EndpointSliceController {
    async fn reconcile_service(
        &self,
        name: &NamespacedName,
        service: &Service,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let pods = pods_of(service, &self.pods);
        let trigger_time = self.trigger_times.observe(name, service, &pods);
        let Plan { changes, mut errors, added, removed, counts } = self.plan(name, service, &pods);
        let writes: usize = changes.iter().map(SliceChanges::len).sum();
        self.metrics.planned(added, removed);
        self.metrics.gauges.set(name, Some(counts));
        if writes > 0 {
            let distribution = TrafficDistribution::of(service);
            self.metrics.changed(topology::is_enabled(service), distribution, writes);
        }
        self.rate_limit.spend(name, writes);
        let annotations = BTreeMap::from([(LAST_CHANGE_TRIGGER_TIME, trigger_time.map(format))]);
        for changes in changes {
            let applied = self.writer.apply(service, changes, &annotations, ctx).await;
            errors.extend(applied.err().map(|error| error.message()));
        }
        match errors.as_slice() {
            [] => Ok(()),
            [one] => Err(Error::Unfinished(one.clone())),
            several => Err(Error::Unfinished(format!("[{}]", several.join(", ")))),
        }
    }

    fn plan(&self, name: &NamespacedName, service: &Service, pods: &[Arc<Pod>]) -> Plan {
        let slices = slices_of(name, MANAGER, &self.writer.slices);
        let node = |name: &str| self.nodes.get(&NamespacedName::new("", name));
        let nodes = || self.nodes.all();
        let mut populated = self.populated_hints();
        let mut hinter = Hinter { nodes: &nodes, populated: &mut populated, events: Vec::new() };
        let plan = plan(Observed { service, pods, slices, node }, &mut hinter);
        for event in hinter.events {
            match event.r#type {
                EventType::Normal => self.recorder.normal(service, event.reason, event.message),
                EventType::Warning => self.recorder.warning(service, event.reason, event.message),
            }
        }
        plan
    }

    fn populated_hints(&self) -> MutexGuard<'_, PopulatedHints> {
        self.populated_hints.lock()
    }
}

/// Returns the properties of a node that affect hints: its zone and its readiness.
fn topology_of_node(node: &Node) -> impl PartialEq + use<> {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    (label(endpoint::ZONE), ready.map(|condition| condition.status.clone()))
}
