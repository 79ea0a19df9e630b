//! The objects that pods inherit annotations from.

use std::sync::Arc;

use coracle_behavior::inheritance::{self, Overrides, OwnerKind, overrides_of};
use coracle_controller_runtime::Sources;
use coracle_controller_runtime::cache::{Cache, Cached, Change, NamespacedName};
use coracle_object_meta::controller_of;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::settings::Context;

#[derive(Clone)]
pub struct Inheritance {
    namespaces: Arc<Cache<Namespace>>,
    cronjobs: Arc<Cache<CronJob>>,
    daemonsets: Arc<Cache<DaemonSet>>,
    deployments: Arc<Cache<Deployment>>,
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
            deployments: context.cache(),
            jobs: context.cache(),
            replicasets: context.cache(),
            replicationcontrollers: context.cache(),
            statefulsets: context.cache(),
        }
    }

    /// Reconciles the pods that inherit from an object when its annotations change.
    ///
    /// - `pods_of`: the simulated pods of a namespace
    pub fn sources(
        &self,
        sources: &mut Sources<NamespacedName>,
        pods_of: &(impl Fn(&str) -> Vec<Arc<Pod>> + Clone + Send + Sync + 'static),
    ) {
        let pods = pods_of.clone();
        sources.on(&self.namespaces, move |change, queue| {
            // Pods wait for a namespace that is not known.
            let name = change.name().filter(|_| change.old.is_none() || has_changed(change));
            let pods = name.map(|name| pods(&name.name)).unwrap_or_default();
            pods.iter().for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
        fn on<K: Cached>(
            cache: &Arc<Cache<K>>,
            inheritance: Inheritance,
            sources: &mut Sources<NamespacedName>,
            pods_of: impl Fn(&str) -> Vec<Arc<Pod>> + Send + Sync + 'static,
        ) {
            sources.on(cache, move |change, queue| {
                let Some(owner) = change.new.as_ref().filter(|_| has_changed(change)) else { return };
                let (uid, is_new) = (owner.meta().uid.as_ref(), change.old.is_none());
                for pod in pods_of(owner.meta().namespace.as_deref().unwrap_or_default()) {
                    // Direct dependents of a new object are found by their controller; deeper ones
                    // do not exist yet.
                    let is_direct = controller_of(&pod.metadata).map(|controller| &controller.uid) == uid;
                    let is_below =
                        || inheritance.owners(&pod).iter().any(|(_, meta)| meta.uid.as_ref() == uid);
                    if is_direct || (!is_new && is_below()) {
                        queue.add(NamespacedName::of(pod.as_ref()));
                    }
                }
            });
        }
        on(&self.cronjobs, self.clone(), sources, pods_of.clone());
        on(&self.daemonsets, self.clone(), sources, pods_of.clone());
        on(&self.deployments, self.clone(), sources, pods_of.clone());
        on(&self.jobs, self.clone(), sources, pods_of.clone());
        on(&self.replicasets, self.clone(), sources, pods_of.clone());
        on(&self.replicationcontrollers, self.clone(), sources, pods_of.clone());
        on(&self.statefulsets, self.clone(), sources, pods_of.clone());
    }

    /// Returns the overrides that a pod inherits, the nearest first; None if its namespace is not
    /// known.
    pub fn of(&self, pod: &Pod) -> Option<Vec<Overrides>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let own = self.namespaces.get(&NamespacedName::new("", namespace))?;
        Some(inheritance::inherited(&self.owners(pod), Some(&own.metadata)))
    }

    fn owners(&self, pod: &Pod) -> Vec<(OwnerKind, ObjectMeta)> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        inheritance::owners(&pod.metadata, |kind, name| {
            self.owner(kind, &NamespacedName::new(namespace.clone(), name))
        })
    }

    fn owner(&self, kind: OwnerKind, name: &NamespacedName) -> Option<ObjectMeta> {
        fn get<K: Cached>(cache: &Cache<K>, name: &NamespacedName) -> Option<ObjectMeta> {
            cache.get(name).map(|object| object.meta().clone())
        }
        match kind {
            OwnerKind::CronJob => get(&self.cronjobs, name),
            OwnerKind::DaemonSet => get(&self.daemonsets, name),
            OwnerKind::Deployment => get(&self.deployments, name),
            OwnerKind::Job => get(&self.jobs, name),
            OwnerKind::ReplicaSet => get(&self.replicasets, name),
            OwnerKind::ReplicationController => get(&self.replicationcontrollers, name),
            OwnerKind::StatefulSet => get(&self.statefulsets, name),
        }
    }
}

/// Returns `true` if the settings that pods inherit from the object have changed.
fn has_changed<K: Cached>(change: &Change<K>) -> bool {
    let of = |object: &Option<Arc<K>>| object.as_ref().map(|object| overrides_of(object.meta()));
    of(&change.old).unwrap_or_default() != of(&change.new).unwrap_or_default()
}
