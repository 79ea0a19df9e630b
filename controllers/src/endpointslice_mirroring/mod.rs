//! endpointslice-mirroring-controller: EndpointSlices for the Endpoints that users write for
//! Services without a selector.
//!
//! Endpoints are reconciled when they change, when their Service is created, deleted, or gains or
//! loses its selector, and when one of their slices is changed by another client. Endpoints that
//! are not to be mirrored have no slices.

mod metrics;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Endpoints, Service};

use crate::service_endpoints::LEADER;
use crate::service_endpoints::slices::{SliceWriter, foreign_changes, slices_of};
use crate::settings::{Context, Settings};
use crate::timers::FOREIGN_ENDPOINT_SLICE;
use metrics::Metrics;
use plan::{Plan, plan};

/// The value of the label of the slices of this controller.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Endpoints with this label are not mirrored.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// The delay before a slice that another client changed is reconciled.
const FOREIGN_CHANGE_DELAY: Duration = Duration::from_secs(1);

pub struct EndpointSliceMirroringController {
    clock: Clock,
    recorder: Recorder,
    writer: SliceWriter,
    metrics: Metrics,
    services: Arc<Cache<Service>>,
    endpoints: Arc<Cache<Endpoints>>,
}

impl Initialize<Settings> for EndpointSliceMirroringController {
    fn new(context: &Context) -> EndpointSliceMirroringController {
        let metrics = Metrics::new(&context.metrics);
        EndpointSliceMirroringController {
            clock: context.clock.clone(),
            recorder: context.recorder("endpoint-slice-mirroring-controller"),
            writer: SliceWriter { slices: context.cache(), changes: metrics.changes.clone() },
            metrics,
            services: context.cache(),
            endpoints: context.cache(),
        }
    }
}

impl Controller for EndpointSliceMirroringController {
    const NAME: &'static str = "endpointslice-mirroring-controller";
    const QUEUE_NAME: &'static str = "endpoint_slice_mirroring";
    const FIRST_RETRY: Duration = Duration::from_secs(1);
    const MAX_RETRY: Duration = Duration::from_secs(100);
    const MAX_RETRIES: u32 = 15;
    /// The name of the Service and its Endpoints.
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on_each_if(&self.endpoints, |change| change.states().any(|endpoints| may_be_mirrored(endpoints)))
            .on_each_if(&self.services, |change| match (&change.old, &change.new) {
                (Some(_), Some(_)) => change.changed(has_no_selector),
                _ => change.states().any(|service| has_no_selector(service)),
            })
            .on(&self.writer.slices, |change, queue| {
                for service in foreign_changes(change, MANAGER) {
                    queue.add_after(service, FOREIGN_ENDPOINT_SLICE.after(FOREIGN_CHANGE_DELAY));
                }
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let since = self.clock.now();
        let synced = self.reconcile_endpoints(name, ctx).await;
        self.metrics.duration.observe(self.clock.now().duration_since(since).as_secs_f64());
        synced.map(|()| Action::AwaitChange)
    }
}

impl EndpointSliceMirroringController {
    async fn reconcile_endpoints(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<(), Error> {
        let slices = slices_of(name, MANAGER, &self.writer.slices);
        let endpoints = self.endpoints.get(name).filter(|endpoints| may_be_mirrored(endpoints));
        let service = self.services.get(name).filter(|service| has_no_selector(service));
        let (Some(endpoints), Some(_)) = (endpoints, service) else {
            self.metrics.gauges.set(name, None);
            return self.writer.delete(slices, ctx).await;
        };
        let Plan { changes, totals, counts } = plan(&endpoints, slices);
        self.metrics.planned(&totals);
        self.metrics.gauges.set(name, Some(counts));
        if totals.invalid > 0 {
            let message =
                format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", totals.invalid);
            self.recorder.warning(endpoints.as_ref(), "InvalidIPAddress", message);
        }
        if totals.skipped > totals.invalid {
            let message = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                plan::MAX_ADDRESSES,
                totals.skipped
            );
            self.recorder.warning(endpoints.as_ref(), "TooManyAddressesToMirror", message);
        }
        self.writer.apply(endpoints.as_ref(), changes, &BTreeMap::new(), ctx).await
    }
}

fn may_be_mirrored(endpoints: &Endpoints) -> bool {
    let skips = endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(SKIP_MIRROR));
    skips.is_none_or(|skips| skips != "true") && annotation(&endpoints.metadata, LEADER).is_none()
}

fn has_no_selector(service: &Service) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_none_or(BTreeMap::is_empty)
}
