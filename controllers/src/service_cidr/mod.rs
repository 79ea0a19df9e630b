//! service-cidr-controller: makes ServiceCIDRs ready, and keeps them while they contain addresses
//! of Services.
//!
//! A ServiceCIDR is reconciled when any of them changes:
//! 1. it gets a finalizer, and the condition Ready;
//! 2. once it is terminating, it waits until no IPAddress needs it: each is covered by another
//!    ServiceCIDR, or there is none;
//! 3. then it is kept for some seconds, in which the address allocators observe that it is
//!    terminating, and its finalizer is removed.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_object_meta::has_finalizer;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ListParams, Patch};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::settings::{Context, Settings};
use crate::timers::{SERVICE_CIDR_ADDRESSES, SERVICE_CIDR_DELETION};
use plan::is_needed;

const MANAGER: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The label selector of addresses that allocators have assigned to Services.
const ALLOCATED: &str = "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io";
/// The time for which an unused ServiceCIDR is kept before its deletion.
const DELETION_GRACE: Duration = Duration::from_secs(10);
/// The interval at which a terminating ServiceCIDR in use is checked again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub struct ServiceCidrController {
    reader: Client,
    clock: Clock,
    service_cidrs: Arc<Cache<ServiceCIDR>>,
}

impl Initialize<Settings> for ServiceCidrController {
    fn new(context: &Context) -> ServiceCidrController {
        ServiceCidrController {
            reader: context.unrecorded.clone(),
            clock: context.clock.clone(),
            service_cidrs: context.cache(),
        }
    }
}

impl Controller for ServiceCidrController {
    const NAME: &'static str = MANAGER;
    const QUEUE_NAME: &'static str = "ipaddresses";
    /// The name of a ServiceCIDR.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let service_cidrs = self.service_cidrs.clone();
        sources.on(&self.service_cidrs, move |change, queue| {
            let overlapping = service_cidrs
                .all()
                .into_iter()
                .filter(|service_cidr| service_cidr.metadata.deletion_timestamp.is_some());
            overlapping.for_each(|service_cidr| queue.add(service_cidr.name_any()));
            change.new.iter().for_each(|service_cidr| queue.add(service_cidr.name_any()));
        });
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let name = &NamespacedName::new("", name);
        let Some(service_cidr) = self.service_cidrs.get(name) else { return Ok(Action::AwaitChange) };
        let Some(deleted) = &service_cidr.metadata.deletion_timestamp else {
            if !has_finalizer(&service_cidr.metadata, FINALIZER) {
                self.patch(name, json!({"finalizers": [FINALIZER]}), ctx).await?;
            }
            self.set_ready(&service_cidr, true, "", "Kubernetes Service CIDR is ready", ctx).await?;
            return Ok(Action::AwaitChange);
        };
        if !has_finalizer(&service_cidr.metadata, FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        let allocated = Api::<IPAddress>::all(self.reader.clone());
        let allocated = allocated.list_metadata(&ListParams::default().labels(ALLOCATED)).await?;
        let addresses = allocated.iter().filter_map(|address| address.metadata.name.as_deref());
        if is_needed(&service_cidr, &self.service_cidrs.all(), addresses) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            self.set_ready(&service_cidr, false, "Terminating", message, ctx).await?;
            return Ok(Action::Requeue(SERVICE_CIDR_ADDRESSES.after(CHECK_INTERVAL)));
        }
        let passed = Duration::try_from(self.clock.now().duration_since(deleted.0)).unwrap_or_default();
        if let Some(left) = DELETION_GRACE.checked_sub(passed).filter(|left| !left.is_zero()) {
            return Ok(Action::Requeue(SERVICE_CIDR_DELETION.after(left)));
        }
        self.patch(name, json!({"$deleteFromPrimitiveList/finalizers": [FINALIZER]}), ctx).await?;
        Ok(Action::AwaitChange)
    }
}

impl ServiceCidrController {
    /// Changes the metadata of a ServiceCIDR, unless it was deleted.
    async fn patch(
        &self,
        name: &NamespacedName,
        metadata: Value,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let patch = Patch::Strategic(json!({ "metadata": metadata }));
        ignore_not_found(ctx.api(&self.service_cidrs).patch(name, patch).await)?;
        Ok(())
    }

    async fn set_ready(
        &self,
        service_cidr: &ServiceCIDR,
        is_ready: bool,
        reason: &str,
        message: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let status = if is_ready { "True" } else { "False" };
        let conditions = service_cidr.status.as_ref().and_then(|status| status.conditions.as_ref());
        let known = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let is_same =
            |known: &&Condition| known.status == status && known.reason == reason && known.message == message;
        if known.filter(is_same).is_some() {
            return Ok(());
        }
        let condition = Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(self.clock.now()),
            observed_generation: None,
        };
        let name = NamespacedName::of(service_cidr);
        let part = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name.name},
            "status": {"conditions": [condition]},
        });
        let service_cidrs = ctx.api(&self.service_cidrs).managed_by(MANAGER);
        ignore_not_found(service_cidrs.patch_status(&name, Patch::Apply(part)).await)?;
        Ok(())
    }
}
