//! resourcequota-controller: how much of what its ResourceQuotas allow a namespace has in use.
//!
//! The API server adds to a quota's `used` as it admits objects, and takes nothing away. A quota is
//! made exact when its limits change, when something that it limits is deleted or takes less, and
//! every five minutes:
//! 1. what there is in the namespace is listed: kinds that take more than their number
//!    (`evaluators.rs`, `pods/`) as a whole, of the others only the number (`counts.rs`);
//! 2. what the objects in the quota's scopes take (`scopes.rs`) is added up;
//! 3. the status is written if it differs, against the revision of the quota that was known before
//!    the list.
//!
//! That order is why the lists are the server's and not a cache's. Whoever adds an object changes
//! the quota: what the list has not seen, the write runs into, and all is done again.

mod affected;
mod counts;
mod evaluators;
mod plan;
mod pods;
mod scopes;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Cached, Change, NamespacedName};
use coracle_controller_runtime::discovery::Discovery;
use coracle_controller_runtime::supervise::Supervisor;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_pod_resources::{ResourceList, add_resource_list};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaSpec, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, Client, Resource};

use crate::settings::{Context, Settings};
use crate::timers::{RESOURCE_QUOTA_CONFLICT, RESOURCE_QUOTA_RESYNC};
use affected::{enqueue_affected, limited};
use counts::Counted;
use evaluators::{Evaluator, none, scoped_usage};

const RESYNC: Duration = Duration::from_secs(300);
/// That others write too is no failure, and must not make what is freed wait longer and longer.
const AFTER_A_CHARGE: Duration = Duration::from_millis(250);

pub struct ResourceQuotaController {
    reader: Client,
    clock: Clock,
    resources: Arc<Discovery>,
    supervisor: Supervisor,
    quotas: Arc<Cache<ResourceQuota>>,
    pods: Arc<Cache<Pod>>,
    services: Arc<Cache<Service>>,
    volume_claims: Arc<Cache<PersistentVolumeClaim>>,
    device_claims: Arc<Cache<ResourceClaim>>,
}

impl Initialize<Settings> for ResourceQuotaController {
    fn new(context: &Context) -> ResourceQuotaController {
        ResourceQuotaController {
            reader: context.unrecorded.clone(),
            clock: context.clock.clone(),
            resources: context.discovery(),
            supervisor: context.supervisor(),
            quotas: context.cache(),
            pods: context.cache(),
            services: context.cache(),
            volume_claims: context.cache(),
            device_claims: context.cache(),
        }
    }
}

impl Controller for ResourceQuotaController {
    const NAME: &'static str = "resourcequota-controller";
    const QUEUE_NAME: &'static str = "resourcequota_primary";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on(&self.quotas, |change, queue| {
            let has_changed = change.changed(|quota| (quota.metadata.uid.clone(), quota.spec.clone()));
            change.name().filter(|_| has_changed).into_iter().for_each(|name| queue.add(name));
        });
        self.replenish(sources, &self.pods);
        self.replenish(sources, &self.services);
        self.replenish(sources, &self.volume_claims);
        self.replenish(sources, &self.device_claims);
        let source = (self.reader.clone(), self.clock.clone());
        let (quotas, resources) = (self.quotas.clone(), self.resources.clone());
        let supervisor = self.supervisor.clone();
        sources.spawn(|queue| counts::watch_deletions(source, quotas, resources, queue, supervisor));
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(quota) = self.quotas.get(name) else { return Ok(Action::AwaitChange) };
        let used = self.used(&name.namespace, &spec_of(&quota)).await?;
        if let Some(status) = plan::status(&quota, &used) {
            let changed = ResourceQuota { status: Some(status), ..quota.as_ref().clone() };
            match ctx.api(&self.quotas).replace_status(&changed).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    return Ok(Action::Requeue(RESOURCE_QUOTA_CONFLICT.after(AFTER_A_CHARGE)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Action::Requeue(RESOURCE_QUOTA_RESYNC.after(RESYNC)))
    }
}

impl ResourceQuotaController {
    /// Enqueues the quotas that limit what an object of a kind takes, once it is deleted or its
    /// usage changes.
    fn replenish<K: Evaluator + Cached>(&self, sources: &mut Sources<NamespacedName>, cache: &Arc<Cache<K>>) {
        let (quotas, clock) = (self.quotas.clone(), self.clock.clone());
        sources.on(cache, move |change: &Change<K>, queue| {
            let Some(old) = &change.old else { return };
            let now = clock.now();
            enqueue_affected(&quotas, old.meta().namespace.as_deref(), queue, |spec| match &change.new {
                Some(new) => scoped_usage(spec, old.as_ref(), now) != scoped_usage(spec, new.as_ref(), now),
                None => limited(spec).any(K::matches),
            });
        });
    }

    /// Returns the known usage of the resources that a quota limits.
    async fn used(&self, namespace: &str, spec: &ResourceQuotaSpec) -> Result<ResourceList, Error> {
        let mut used = ResourceList::new();
        self.measure::<Pod>(namespace, spec, &mut used).await?;
        self.measure::<Service>(namespace, spec, &mut used).await?;
        self.measure::<PersistentVolumeClaim>(namespace, spec, &mut used).await?;
        self.measure::<ResourceClaim>(namespace, spec, &mut used).await?;
        let mut snapshot = self.resources.current();
        for name in limited(spec) {
            let Some(counted) = Counted::by(name) else { continue };
            if snapshot.resources.is_empty() {
                snapshot = self.resources.refresh().await?;
            }
            let Some(served) = counted.find(&snapshot) else { continue };
            let number = match scopes::are_none(spec) {
                true => counts::count(&self.reader, namespace, served).await?,
                // Only what is measured can be in a scope.
                false => none(),
            };
            used.insert(name.to_owned(), number);
        }
        Ok(used)
    }

    /// Adds up what the objects of a kind take.
    async fn measure<K>(
        &self,
        namespace: &str,
        spec: &ResourceQuotaSpec,
        used: &mut ResourceList,
    ) -> Result<(), Error>
    where
        K: Evaluator + Cached + Resource<Scope = NamespaceResourceScope>,
    {
        let names: Vec<&str> = limited(spec).filter(|name| K::matches(name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        used.extend(names.into_iter().map(|name| (name.to_owned(), none())));
        let objects =
            Api::<K>::namespaced(self.reader.clone(), namespace).list(&ListParams::default()).await?;
        let now = self.clock.now();
        objects.items.iter().for_each(|object| add_resource_list(used, &scoped_usage(spec, object, now)));
        Ok(())
    }
}

fn spec_of(quota: &ResourceQuota) -> ResourceQuotaSpec {
    quota.spec.clone().unwrap_or_default()
}
