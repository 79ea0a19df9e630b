//! service-cidr-controller: ServiceCIDRs are ready, and stay while addresses of Services are in them.
//!
//! A ServiceCIDR is reconciled when any of them changes:
//! 1. it gets a finalizer, and the condition Ready;
//! 2. once it is terminating, it waits until no IPAddress needs it: each is covered by another ServiceCIDR, or there is none;
//! 3. then it is kept for some seconds, in which the allocators of addresses observe that it is terminating, and goes.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::meta::has_finalizer;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::clock::Clock;
use crate::runtime::{
    Action, Controller, Error, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use crate::{Context, Initialize};
use plan::is_needed;

const MANAGER: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The addresses that allocators have given to Services.
const ALLOCATED: &str = "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io";
/// For how long a ServiceCIDR is kept that nobody needs.
const DELETION_GRACE: Duration = Duration::from_secs(10);
/// How often it is checked whether one that is needed still is.
const CHECK: Duration = Duration::from_secs(5);

pub struct ServiceCidrController {
    client: Client,
    clock: Clock,
    blocks: Arc<Cache<ServiceCIDR>>,
}

impl Initialize for ServiceCidrController {
    fn new(context: &Context) -> ServiceCidrController {
        ServiceCidrController {
            client: context.client.clone(),
            clock: context.clock.clone(),
            blocks: context.cache(),
        }
    }
}

impl Controller for ServiceCidrController {
    const NAME: &'static str = MANAGER;
    const QUEUE: &'static str = "ipaddresses";
    /// The name of a ServiceCIDR.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let blocks = self.blocks.clone();
        sources.on(&self.blocks, move |change, queue| {
            let overlapping =
                blocks.all().into_iter().filter(|block| block.metadata.deletion_timestamp.is_some());
            overlapping.for_each(|block| queue.add(block.name_any()));
            change.new.iter().for_each(|block| queue.add(block.name_any()));
        });
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(block) = self.blocks.get(&NamespacedName::new("", name)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(deleted) = &block.metadata.deletion_timestamp else {
            if !has_finalizer(&block.metadata, FINALIZER) {
                self.apply(&block, json!({"metadata": {"name": name, "finalizers": [FINALIZER]}}), ctx)
                    .await?;
            }
            self.set_ready(&block, true, "", "Kubernetes Service CIDR is ready", ctx).await?;
            return Ok(Action::AwaitChange);
        };
        if !has_finalizer(&block.metadata, FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        let allocated = Api::<IPAddress>::all(self.client.clone());
        let allocated = allocated.list_metadata(&ListParams::default().labels(ALLOCATED)).await?;
        let addresses = allocated.iter().filter_map(|address| address.metadata.name.as_deref());
        if is_needed(&block, &self.blocks.all(), addresses) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            self.set_ready(&block, false, "Terminating", message, ctx).await?;
            return Ok(Action::Requeue(CHECK));
        }
        let passed = Duration::try_from(self.clock.now().duration_since(deleted.0)).unwrap_or_default();
        if let Some(left) = DELETION_GRACE.checked_sub(passed).filter(|left| !left.is_zero()) {
            return Ok(Action::Requeue(left));
        }
        let others: Vec<&String> =
            block.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": block.metadata.resource_version, "finalizers": others},
        }));
        let blocks = Api::<ServiceCIDR>::all(self.client.clone());
        let answer = blocks.patch(name, &PatchParams::apply(MANAGER), &patch).await;
        ignore_not_found(ignore_conflict(answer))?;
        Ok(Action::AwaitChange)
    }
}

impl ServiceCidrController {
    async fn apply(&self, block: &ServiceCIDR, mut part: Value, ctx: &ReconcileContext) -> Result<(), Error> {
        part["apiVersion"] = json!("networking.k8s.io/v1");
        part["kind"] = json!("ServiceCIDR");
        let blocks = Api::<ServiceCIDR>::all(self.client.clone());
        let params = PatchParams::apply(MANAGER).force();
        let name = block.name_any();
        let applied = match part.get("status") {
            Some(_) => blocks.patch_status(&name, &params, &Patch::Apply(part)).await,
            None => blocks.patch(&name, &params, &Patch::Apply(part)).await,
        };
        if let Some(applied) = ignore_not_found(applied)? {
            ctx.record_write(&self.blocks, &applied);
        }
        Ok(())
    }

    async fn set_ready(
        &self,
        block: &ServiceCIDR,
        is_ready: bool,
        reason: &str,
        message: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let status = if is_ready { "True" } else { "False" };
        let conditions = block.status.as_ref().and_then(|status| status.conditions.as_ref());
        let known = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        if known.is_some_and(|known| known.status == status) {
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
        let part = json!({"metadata": {"name": block.name_any()}, "status": {"conditions": [condition]}});
        self.apply(block, part, ctx).await
    }
}
