//! The objects that pods inherit annotations from.

use std::sync::Arc;

use coracle_behavior::inheritance::{self, Overrides, OwnerKind, overrides_of};
use coracle_controller_runtime::Sources;
use coracle_controller_runtime::cache::{Cache, Cached, Change, NamespacedName};
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::settings::Context;

pub struct Inheritance {
    namespaces: Arc<Cache<Namespace>>,
    cronjobs: Arc<Cache<CronJob>>,
    daemonsets: Arc<Cache<DaemonSet>>,
    jobs: Arc<Cache<Job>>,
    replicasets: Arc<Cache<ReplicaSet>>,
    replicationcontrollers: Arc<Cache<ReplicationController>>,
    statefulsets: Arc<Cache<StatefulSet>>,
}

impl Inheritance {
    pub fn new(context: &Context) -> Inheritance {
        Inheritance {
            namespaces: context.cache(),
            cronjobs: context.cache(),
            daemonsets: context.cache(),
            jobs: context.cache(),
            replicasets: context.cache(),
            replicationcontrollers: context.cache(),
            statefulsets: context.cache(),
        }
    }

    /// Reconciles the pods of a namespace when its annotations change, or those of an owner in it.
    ///
    /// - `pods_of`: the simulated pods of a namespace
    pub fn sources(
        &self,
        sources: &mut Sources<NamespacedName>,
        pods_of: &(impl Fn(&str) -> Vec<Arc<Pod>> + Clone + Send + Sync + 'static),
    ) {
        fn on<K: Cached>(
            cache: &Arc<Cache<K>>,
            sources: &mut Sources<NamespacedName>,
            pods_of: impl Fn(&str) -> Vec<Arc<Pod>> + Send + Sync + 'static,
        ) {
            sources.on(cache, move |change, queue| {
                if let Some(namespace) = affected_namespace(change) {
                    let pods = pods_of(&namespace);
                    pods.iter().for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
                }
            });
        }
        on(&self.namespaces, sources, pods_of.clone());
        on(&self.cronjobs, sources, pods_of.clone());
        on(&self.daemonsets, sources, pods_of.clone());
        on(&self.jobs, sources, pods_of.clone());
        on(&self.replicasets, sources, pods_of.clone());
        on(&self.replicationcontrollers, sources, pods_of.clone());
        on(&self.statefulsets, sources, pods_of.clone());
    }

    /// What a pod inherits, the nearest first. None: its namespace is not known yet.
    pub fn of(&self, pod: &Pod) -> Option<Vec<Overrides>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let own = self.namespaces.get(&NamespacedName::new("", namespace.clone()))?;
        Some(inheritance::inherited(&pod.metadata, Some(&own.metadata), |kind, name| {
            self.owner(kind, &NamespacedName::new(namespace.clone(), name))
        }))
    }

    fn owner(&self, kind: OwnerKind, name: &NamespacedName) -> Option<ObjectMeta> {
        fn get<K: Cached>(cache: &Cache<K>, name: &NamespacedName) -> Option<ObjectMeta> {
            cache.get(name).map(|object| object.meta().clone())
        }
        match kind {
            OwnerKind::CronJob => get(&self.cronjobs, name),
            OwnerKind::DaemonSet => get(&self.daemonsets, name),
            OwnerKind::Job => get(&self.jobs, name),
            OwnerKind::ReplicaSet => get(&self.replicasets, name),
            OwnerKind::ReplicationController => get(&self.replicationcontrollers, name),
            OwnerKind::StatefulSet => get(&self.statefulsets, name),
        }
    }
}

/// The namespace in which pods may inherit something else than before.
fn affected_namespace<K: Cached>(change: &Change<K>) -> Option<String> {
    let of = |object: &Option<Arc<K>>| object.as_ref().map(|object| overrides_of(object.meta()));
    let meta = change.new.as_ref()?.meta();
    // Pods wait for a namespace that is not known.
    let is_new_namespace = meta.namespace.is_none() && change.old.is_none();
    let has_changed = of(&change.old).unwrap_or_default() != of(&change.new).unwrap_or_default();
    (is_new_namespace || has_changed)
        .then(|| meta.namespace.clone().or_else(|| meta.name.clone()).unwrap_or_default())
}
