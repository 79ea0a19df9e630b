//! The addresses of Ingresses without a controller: all have the same one.

use std::net::Ipv4Addr;
use std::sync::Arc;

use coracle_behavior::AddressBlock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::api::Patch;
use serde_json::json;

use crate::settings::{Context, Settings};

pub struct IngressAddresses {
    ingresses: Arc<Cache<Ingress>>,
    classes: Arc<Cache<IngressClass>>,
    address: Ipv4Addr,
}

impl Initialize<Settings> for IngressAddresses {
    fn is_possible(settings: &Settings) -> bool {
        settings.load_balancers().is_some()
    }

    fn new(context: &Context) -> IngressAddresses {
        let block = context.settings.load_balancers().unwrap_or(AddressBlock::DOCUMENTATION);
        IngressAddresses { ingresses: context.cache(), classes: context.cache(), address: block.ingress() }
    }
}

impl Controller for IngressAddresses {
    const NAME: &'static str = "ingress-address-controller";
    const QUEUE_NAME: &'static str = "ingress_address";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on(&self.ingresses, |change, queue| {
            if change.new.as_ref().is_some_and(|ingress| !has_address(ingress)) {
                change.name().into_iter().for_each(|name| queue.add(name));
            }
        });
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(ingress) = self.ingresses.get(key).filter(|ingress| !has_address(ingress)) else {
            return Ok(Action::AwaitChange);
        };
        let class = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
        if let Some(class) = class
            && self.exists(&NamespacedName::new("", class), ctx).await?
        {
            return Ok(Action::AwaitChange);
        }
        let status = json!({"loadBalancer": {"ingress": [{"ip": self.address.to_string()}]}});
        let patch = Patch::Merge(json!({"metadata": {"uid": ingress.metadata.uid}, "status": status}));
        let written = ctx.api(&self.ingresses).patch_status(key, patch).await;
        ignore_not_found(ignore_conflict(written))?;
        Ok(Action::AwaitChange)
    }
}

impl IngressAddresses {
    /// Returns `true` if an IngressClass exists. If the cache does not have it, the server is
    /// asked: the class may have been created just before its Ingress, which would otherwise never
    /// get an address.
    async fn exists(&self, class: &NamespacedName, ctx: &ReconcileContext) -> Result<bool, Error> {
        Ok(self.classes.get(class).is_some() || ctx.api(&self.classes).get(class).await?.is_some())
    }
}

/// Returns `true` if an Ingress has an address from any controller, or is terminating.
fn has_address(ingress: &Ingress) -> bool {
    let load_balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let addresses = load_balancer.and_then(|load_balancer| load_balancer.ingress.as_ref());
    ingress.metadata.deletion_timestamp.is_some() || addresses.is_some_and(|addresses| !addresses.is_empty())
}
