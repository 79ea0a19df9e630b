//! The addresses of Services of the type LoadBalancer.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use coracle_behavior::AddressBlock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use coracle_seed::Seed;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;

use super::pool::Pool;
use crate::settings::{Context, Settings};

pub struct ServiceAddresses {
    recorder: Recorder,
    services: Arc<Cache<Service>>,
    block: AddressBlock,
    /// None: the addresses of existing Services were not restored yet.
    known: Mutex<Option<Known>>,
    seed: Option<Seed>,
}

struct Known {
    pool: Pool,
    /// The UIDs of the Services that have an address of the pool.
    uids: HashMap<NamespacedName, String>,
}

impl Initialize<Settings> for ServiceAddresses {
    fn is_possible(settings: &Settings) -> bool {
        settings.load_balancers().is_some()
    }

    fn new(context: &Context) -> ServiceAddresses {
        ServiceAddresses {
            recorder: context.recorder("service-controller"),
            services: context.cache(),
            block: context.settings.load_balancers().unwrap_or(AddressBlock::DOCUMENTATION),
            known: Mutex::default(),
            seed: context.settings.seed,
        }
    }
}

impl Controller for ServiceAddresses {
    const NAME: &'static str = "service-lb-controller";
    const QUEUE_NAME: &'static str = "service";
    // Each address is given once.
    const WORKERS: usize = 1;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let services = self.services.clone();
        sources.on(&self.services, move |change, queue| {
            if change.states().any(|service| is_load_balancer(service) || address(service).is_some()) {
                change.name().into_iter().for_each(|name| queue.add(name));
            }
            // Others may wait for the address that is free now.
            let had = change
                .old
                .as_ref()
                .filter(|service| is_load_balancer(service))
                .map(|service| address(service));
            let has = change
                .new
                .as_ref()
                .filter(|service| is_load_balancer(service))
                .map(|service| address(service));
            if had.flatten().is_some() && had != has {
                let waiting = services.all().into_iter();
                let waiting =
                    waiting.filter(|service| is_load_balancer(service) && address(service).is_none());
                waiting.for_each(|service| queue.add(NamespacedName::of(service.as_ref())));
            }
        });
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let service = self.services.get(key);
        let uid = service.as_ref().and_then(|service| service.metadata.uid.clone());
        let Some((service, uid)) = service.filter(|service| is_load_balancer(service)).zip(uid.as_ref())
        else {
            // The API server has removed the address of a Service that is of another type now.
            self.release(key);
            return Ok(Action::AwaitChange);
        };
        // Another Service of the same name.
        if self.known(|known| known.uids.get(key).is_some_and(|known| known != uid)) {
            self.release(key);
        }
        let current = address(&service);
        // An address that a client wrote stays.
        if current.is_some_and(|address| !self.block.has_service(address)) || has_host_name(&service) {
            return Ok(Action::AwaitChange);
        }
        let allocated = self.allocate(key, uid, &service);
        if allocated.is_some() && allocated == current {
            return Ok(Action::AwaitChange);
        }
        self.recorder.normal(service.as_ref(), "EnsuringLoadBalancer", "Ensuring load balancer");
        let Some(allocated) = allocated else {
            let message = format!(
                "Error syncing load balancer: failed to ensure load balancer: no such address is free in {}",
                self.block
            );
            self.recorder.warning(service.as_ref(), "SyncLoadBalancerFailed", message);
            return Ok(Action::AwaitChange);
        };
        let status = json!({"loadBalancer": {"ingress": [{"ip": allocated.to_string(), "ipMode": "VIP"}]}});
        if self.write(key, &service, status, ctx).await? {
            self.recorder.normal(service.as_ref(), "EnsuredLoadBalancer", "Ensured load balancer");
        }
        Ok(Action::AwaitChange)
    }
}

impl ServiceAddresses {
    /// Allocates the address of a Service: the one that it requests, else the one that it has if it
    /// may keep it, else any; None if no such address is free.
    fn allocate(&self, key: &NamespacedName, uid: &str, service: &Service) -> Option<Ipv4Addr> {
        let wanted = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
        let wanted = wanted.filter(|ip| !ip.is_empty()).map(str::parse::<Ipv4Addr>);
        let choice = self.seed.map(|seed| {
            let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
            seed.number(&["services", &namespace, &name])
        });
        self.known(|known| {
            let allocated = match wanted {
                // It is none of this block.
                Some(Err(_)) => None,
                Some(Ok(wanted)) => known.pool.allocate(uid, Some(wanted), None),
                None => address(service)
                    .and_then(|current| known.pool.allocate(uid, Some(current), None))
                    .or_else(|| known.pool.allocate(uid, None, choice)),
            }?;
            known.uids.insert(key.clone(), uid.to_owned());
            Some(allocated)
        })
    }

    /// Writes a status. Whether the Service is still there.
    async fn write(
        &self,
        key: &NamespacedName,
        service: &Service,
        status: serde_json::Value,
        ctx: &ReconcileContext,
    ) -> Result<bool, Error> {
        let patch = Patch::Merge(json!({"metadata": {"uid": service.metadata.uid}, "status": status}));
        let written = ctx.api(&self.services).patch_status(key, patch).await;
        Ok(ignore_not_found(ignore_conflict(written))?.flatten().is_some())
    }

    /// Releases the address of a Service.
    fn release(&self, key: &NamespacedName) {
        self.known(|known| {
            if let Some(uid) = known.uids.remove(key) {
                known.pool.release(&uid);
            }
        });
    }

    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock();
        with(known.get_or_insert_with(|| {
            let mut known = Known { pool: Pool::new(self.block), uids: HashMap::new() };
            for service in self.services.all().into_iter().filter(|service| is_load_balancer(service)) {
                let (Some(uid), Some(address)) = (&service.metadata.uid, address(&service)) else { continue };
                if known.pool.restore(uid, address) {
                    known.uids.insert(NamespacedName::of(service.as_ref()), uid.clone());
                }
            }
            known
        }))
    }
}

/// Returns `true` if a Service has a load balancer of the default implementation.
fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref().filter(|_| service.metadata.deletion_timestamp.is_none());
    spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    })
}

/// Returns the address of the load balancer of a Service.
fn address(service: &Service) -> Option<Ipv4Addr> {
    let load_balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    load_balancer.ingress.as_ref()?.iter().find_map(|ingress| ingress.ip.as_ref()?.parse().ok())
}

fn has_host_name(service: &Service) -> bool {
    let load_balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = load_balancer.and_then(|load_balancer| load_balancer.ingress.as_ref());
    ingress.into_iter().flatten().any(|ingress| ingress.hostname.is_some())
}
