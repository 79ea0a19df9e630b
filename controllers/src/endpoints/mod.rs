//! endpoints-controller: the Endpoints of Services with a selector, as clients read them that do
//! not know EndpointSlices.
//!
//! A Service is reconciled when it changes, when a pod that it selects changes in a way that shows
//! in its Endpoints, and when its Endpoints are deleted. The Endpoints of a Service that does not
//! exist are deleted; those without a pod have no subsets.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
    is_namespace_terminating,
};
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::DeleteParams;

use crate::service_endpoints::LEADER;
use crate::service_endpoints::rate_limit::RateLimit;
use crate::service_endpoints::selection::{pods_of, selector, services_of};
use crate::service_endpoints::trigger_time::TriggerTimeTracker;
use crate::settings::{Context, Settings};
use crate::timers::ENDPOINTS_RATE;
use plan::plan;

pub struct EndpointsController {
    recorder: Recorder,
    trigger_times: TriggerTimeTracker,
    rate_limit: RateLimit,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    endpoints: Arc<Cache<Endpoints>>,
}

impl Initialize<Settings> for EndpointsController {
    fn new(context: &Context) -> EndpointsController {
        EndpointsController {
            recorder: context.recorder("endpoint-controller"),
            trigger_times: TriggerTimeTracker::default(),
            rate_limit: RateLimit::new(context.clock.clone()),
            services: context.cache(),
            pods: context.cache(),
            endpoints: context.cache(),
        }
    }
}

impl Controller for EndpointsController {
    const NAME: &'static str = "endpoints-controller";
    const QUEUE_NAME: &'static str = "endpoint";
    const FIRST_RETRY: Duration = Duration::from_secs(1);
    const MAX_RETRIES: u32 = 15;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (services, at_start) = (self.services.clone(), self.endpoints.clone());
        sources
            .on_each(&self.services)
            .on(&self.pods, move |change, queue| {
                services_of(change, &services).into_iter().for_each(|service| queue.add(service));
            })
            .on_each_if(&self.endpoints, |change| change.new.is_none())
            // Their Services may have been deleted while no controller ran.
            .spawn(move |queue| async move {
                at_start.synced().await;
                let found = at_start.all();
                let of_services = found.iter().filter(|e| annotation(&e.metadata, LEADER).is_none());
                of_services.for_each(|endpoints| queue.add(NamespacedName::of(endpoints.as_ref())));
                std::future::pending().await
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let api = ctx.api(&self.endpoints);
        let Some(service) = self.services.get(name) else {
            self.trigger_times.forget(name);
            self.rate_limit.forget(name);
            // The Endpoints of a Service that does not exist.
            if let Some(leftover) = self.endpoints.get(name) {
                ignore_not_found(api.delete(&leftover, &DeleteParams::default()).await)?;
            }
            return Ok(Action::AwaitChange);
        };
        if selector(&service).is_none() {
            return Ok(Action::AwaitChange);
        }
        if let Some(delay) = self.rate_limit.delay(name) {
            return Ok(Action::Requeue(ENDPOINTS_RATE.after(delay)));
        }
        let pods = pods_of(&service, &self.pods);
        let trigger_time = self.trigger_times.observe(name, &service, &pods);
        let current = self.endpoints.get(name);
        let Some(mut wanted) = plan(&service, &pods, current.as_deref(), trigger_time) else {
            return Ok(Action::AwaitChange);
        };
        self.rate_limit.spend(name, 1);
        let written = match &current {
            Some(_) => api.replace(&wanted).await,
            None => api.create(&wanted).await,
        };
        match written {
            Ok(_) => {}
            Err(error) if current.is_none() && is_namespace_terminating(&error) => {}
            Err(error) => {
                let error = Error::from(error);
                let (reason, what) = match &current {
                    Some(_) => ("FailedToUpdateEndpoint", "update endpoint"),
                    None => {
                        // kube-controller-manager's object has no namespace before it is created.
                        wanted.metadata.namespace = None;
                        ("FailedToCreateEndpoint", "create endpoint for service")
                    }
                };
                let message = format!("Failed to {what} {name}: {}", error.message());
                self.recorder.warning(&wanted, reason, message);
                return Err(error);
            }
        }
        Ok(Action::AwaitChange)
    }
}
