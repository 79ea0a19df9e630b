//! Object count quotas for any resource, as `count/RESOURCE.GROUP`.
//!
//! Counts are not cached. The number is requested by a list of the metadata of one object;
//! deletions are watched only for resources that some quota names.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{
    Cache, Changes, Event, Identified, ListScope, NamespacedName, follow,
};
use coracle_controller_runtime::discovery::{Discovery, DiscoverySnapshot, ServedResource};
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::supervise::Supervisor;
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use tokio::task::{AbortHandle, JoinSet};

use super::affected::{enqueue_affected, limited};
use super::evaluators::Evaluator;

/// Plain names from before there were any for all resources.
const BY_NAME: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// A resource that is limited by number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Counted {
    group: String,
    plural: String,
}

impl Counted {
    /// Returns the resource whose objects a name in a quota counts, or `None` if an evaluator
    /// handles the name, or if it counts events or no objects.
    pub fn by(name: &str) -> Option<Counted> {
        let has_evaluator =
            [Pod::matches, Service::matches, PersistentVolumeClaim::matches, ResourceClaim::matches];
        if has_evaluator.iter().any(|matches| matches(name)) {
            return None;
        }
        let resource = name.strip_prefix("count/").or_else(|| BY_NAME.contains(&name).then_some(name))?;
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        // Events are never limited: without them the cause of a problem would not be visible.
        let is_event = plural == "events" && matches!(group, "" | "events.k8s.io");
        (!is_event).then(|| Counted { group: group.to_owned(), plural: plural.to_owned() })
    }

    /// Returns the resource in a snapshot of discovery, or `None` if it is not served or not
    /// namespaced.
    pub fn find<'a>(&self, snapshot: &'a DiscoverySnapshot) -> Option<&'a Arc<ServedResource>> {
        snapshot.preferred().find(|served| {
            served.namespaced
                && served.resource.group == self.group
                && served.resource.plural == self.plural
                && ["create", "delete", "list", "watch"].iter().all(|verb| served.supports(verb))
        })
    }
}

/// Counts the objects of a resource in a namespace.
pub(super) async fn count(
    client: &Client,
    namespace: &str,
    served: &ServedResource,
) -> kube::Result<Quantity> {
    let objects = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &served.resource);
    let first = objects.list_metadata(&ListParams::default().limit(1)).await?;
    let here = i64::try_from(first.items.len()).unwrap_or(i64::MAX);
    Ok(Quantity::from_int(here.saturating_add(first.metadata.remaining_item_count.unwrap_or(0))))
}

/// Watches for deletions of counted objects until dropped, and enqueues the quotas that count them.
pub(super) async fn watch_deletions(
    source: (Client, Clock),
    quotas: Arc<Cache<ResourceQuota>>,
    resources: Arc<Discovery>,
    queue: Queue<NamespacedName>,
    supervisor: Supervisor,
) {
    let (mut changes, mut snapshots) = (quotas.subscribe(), resources.subscribe());
    let mut running: HashMap<Counted, (Arc<ServedResource>, AbortHandle)> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let snapshot = resources.current();
        let wanted = wanted(&quotas, &snapshot);
        running.retain(|counted, (served, task)| {
            let goes_on = wanted.get(counted) == Some(served);
            if !goes_on {
                task.abort();
            }
            goes_on
        });
        for (counted, served) in wanted {
            running.entry(counted).or_insert_with_key(|counted| {
                let (source, watched, counted) = (source.clone(), served.clone(), counted.clone());
                let (quotas, queue, supervisor) = (quotas.clone(), queue.clone(), supervisor.clone());
                let name = format!("watch of {} for quotas", served.resource.plural);
                let start = move || {
                    watch(source.clone(), watched.clone(), counted.clone(), quotas.clone(), queue.clone())
                };
                (served, tasks.spawn(async move { supervisor.run(&name, start).await }))
            });
        }
        while tasks.try_join_next().is_some() {}
        tokio::select! {
            () = other_limits(&mut changes) => {}
            () = snapshots.changed() => {}
        }
    }
}

fn wanted(
    quotas: &Cache<ResourceQuota>,
    snapshot: &DiscoverySnapshot,
) -> HashMap<Counted, Arc<ServedResource>> {
    let quotas = quotas.all();
    let names = quotas.iter().filter_map(|quota| quota.spec.as_ref()).flat_map(limited);
    let counted = names.filter_map(Counted::by);
    counted.filter_map(|counted| counted.find(snapshot).cloned().map(|served| (counted, served))).collect()
}

/// Waits until a quota is created, is deleted or has other limits.
async fn other_limits(changes: &mut Changes<ResourceQuota>) {
    let spec = |quota: &Option<Arc<ResourceQuota>>| quota.as_ref().map(|quota| quota.spec.clone());
    while let Some(change) = changes.recv().await {
        if spec(&change.old) != spec(&change.new) {
            return;
        }
    }
    std::future::pending().await
}

async fn watch(
    (client, clock): (Client, Clock),
    served: Arc<ServedResource>,
    counted: Counted,
    quotas: Arc<Cache<ResourceQuota>>,
    queue: Queue<NamespacedName>,
) {
    let is_affected = |spec: &_| limited(spec).any(|name| Counted::by(name).as_ref() == Some(&counted));
    let handle = |event: Result<Event<Identified>, kube::Error>| {
        match event {
            Ok(Event::Delete(gone)) => {
                enqueue_affected(&quotas, gone.meta().namespace.as_deref(), &queue, is_affected)
            }
            // Deletions during the gap are not known.
            Ok(Event::InitDone(_)) => enqueue_affected(&quotas, None, &queue, is_affected),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(resource = %served.resource.plural, %error, "a watch has to be started again");
            }
        }
        ControlFlow::Continue(())
    };
    follow(&client, (&served.resource, ListScope::default()), &clock, None, (Identified::read, handle)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_count() {
        for (name, want) in [
            ("secrets", Some(("", "secrets"))),
            ("count/secrets", Some(("", "secrets"))),
            ("count/deployments.apps", Some(("apps", "deployments"))),
            ("count/widgets.example.com", Some(("example.com", "widgets"))),
            ("count/events", None),
            ("count/events.events.k8s.io", None),
            ("count/pods", None),
            ("count/resourceclaims.resource.k8s.io", None),
            ("services.nodeports", None),
            ("deployments", None),
        ] {
            let got = Counted::by(name);
            assert_eq!(got.as_ref().map(|c| (c.group.as_str(), c.plural.as_str())), want, "{name}");
        }
    }
}
