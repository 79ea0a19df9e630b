//! Removes the finalizers of pods that no Job counts any more: their Job was deleted, has finished,
//! or never existed.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, controller_ref,
};
use coracle_kinds::jobs::{finished, is_managed_externally, is_tracked};
use coracle_object_meta::controller_of;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::executor::remove_finalizer;
use super::{FIRST_RETRY, MAX_RETRY};
use crate::settings::{Context, Settings};
use crate::workload::owners::referred_owner;

pub struct OrphanPodController {
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
}

impl Initialize<Settings> for OrphanPodController {
    fn new(context: &Context) -> OrphanPodController {
        OrphanPodController { jobs: context.cache(), pods: context.cache() }
    }
}

impl Controller for OrphanPodController {
    const NAME: &'static str = super::NAME;
    const QUEUE_NAME: &'static str = "job_orphan_pod";
    const FIRST_RETRY: std::time::Duration = FIRST_RETRY;
    const MAX_RETRY: std::time::Duration = MAX_RETRY;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let jobs = self.jobs.clone();
        sources.on(&self.pods, move |change, queue| {
            let tracked = change.new.as_ref().filter(|pod| is_tracked(pod));
            let orphan = tracked.filter(|pod| is_orphan(&pod.metadata, &jobs));
            orphan.into_iter().for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
        let pods = self.pods.clone();
        sources.on(&self.jobs, move |change, queue| {
            let gone = change.old.as_ref().filter(|_| change.new.is_none());
            let Some(job) = gone.or(change.new.as_ref().filter(|job| finished(job).is_some())) else {
                return;
            };
            let left = controller_ref::candidates(&job.metadata, &pods).into_iter();
            let left = left.filter(|pod| is_tracked(pod) && controller_of(&pod.metadata).is_some());
            left.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let pod = self.pods.get(name).filter(|pod| is_tracked(pod));
        let Some(pod) = pod.filter(|pod| is_orphan(&pod.metadata, &self.jobs)) else {
            return Ok(Action::AwaitChange);
        };
        // The cache may lag behind the creation of the Job, and what is not counted now never will
        // be.
        if let Some(controller) = controller_of(&pod.metadata) {
            let job = NamespacedName::new(&name.namespace, &controller.name);
            let job = ctx.api(&self.jobs).get(&job).await?;
            let job = job.filter(|job| job.uid().as_ref() == Some(&controller.uid));
            if job.is_some_and(|job| counts_pods(&job)) {
                return Ok(Action::AwaitChange);
            }
        }
        // A Job may adopt it meanwhile.
        remove_finalizer(&ctx.api(&self.pods), &pod, true).await?;
        Ok(Action::AwaitChange)
    }
}

/// Returns `true` if the controller of a Job will still remove the finalizers of its pods, be it
/// this one or an external one.
fn counts_pods(job: &Job) -> bool {
    finished(job).is_none() || is_managed_externally(job)
}

/// Returns `true` if no Job counts a pod, as far as the cache knows.
fn is_orphan(pod: &ObjectMeta, jobs: &Cache<Job>) -> bool {
    let Some(controller) = controller_of(pod) else { return true };
    let is_a_job = controller.kind == "Job" && controller.api_version == "batch/v1";
    let job = || referred_owner(controller, pod.namespace.as_deref().unwrap_or_default(), jobs);
    is_a_job && !job().is_some_and(|job| counts_pods(&job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn orphans_are_pods_that_no_job_counts() {
        let job = |name: &str, manager: Option<&str>, condition: Option<&str>| -> Job {
            let conditions: Vec<_> =
                condition.iter().map(|condition| json!({"type": condition, "status": "True"})).collect();
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "n", "uid": name},
                "spec": {"template": {}, "managedBy": manager},
                "status": {"conditions": conditions},
            }))
            .unwrap()
        };
        let jobs = Cache::with([
            job("active", None, None),
            job("deciding", None, Some("FailureTarget")),
            job("done", None, Some("Complete")),
            job("failed", None, Some("Failed")),
            job("foreign", Some("acme.io/controller"), Some("Failed")),
        ]);
        for (version, kind, name, uid, want) in [
            ("batch/v1", "Job", "active", "active", false),
            ("batch/v1", "Job", "active", "earlier", true),
            ("batch/v1", "Job", "deciding", "deciding", false),
            ("batch/v1", "Job", "done", "done", true),
            ("batch/v1", "Job", "failed", "failed", true),
            ("batch/v1", "Job", "foreign", "foreign", false),
            ("batch/v1", "Job", "deleted", "deleted", true),
            ("apps/v1", "ReplicaSet", "r", "r", false),
            ("batch/v2", "Job", "done", "done", false),
        ] {
            let owner =
                json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true});
            let pod: ObjectMeta =
                serde_json::from_value(json!({"namespace": "n", "ownerReferences": [owner]})).unwrap();
            assert_eq!(is_orphan(&pod, &jobs), want, "{kind} {name} {uid}");
        }
        assert!(is_orphan(&ObjectMeta::default(), &jobs), "without a controller");
    }
}
