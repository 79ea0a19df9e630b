//! A Job and its pods as stored by an API server, and the counted pods.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use coracle_kinds::jobs::{finished, is_tracked};
use coracle_kinds::pods;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::backoff::BackoffRecord;
use super::super::manage::PodAction;
use super::super::plan::{Executed, plan};
use super::super::pod_counts::{Observed, uid};
use super::super::pods::new_pods;
use super::super::tracking::track;

pub struct World {
    job: Job,
    pods: BTreeMap<String, Arc<Pod>>,
    /// The pods as the controller has observed them.
    cache: Vec<Arc<Pod>>,
    released: HashSet<String>,
    backoff: BackoffRecord,
    now: Timestamp,
    created: usize,
    /// The uids in the lists of the status, and those that were in them and are counted.
    uncounted: BTreeSet<String>,
    counted: BTreeSet<String>,
    violation: Option<String>,
}

/// The number of requests that succeed before all others fail.
struct Requests(usize);

impl Requests {
    fn succeed(&mut self) -> bool {
        let succeeds = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        succeeds
    }
}

impl World {
    pub fn new(spec: Value) -> World {
        let mut job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        World {
            job: serde_json::from_value(job).unwrap(),
            pods: BTreeMap::new(),
            cache: Vec::new(),
            released: HashSet::new(),
            backoff: BackoffRecord::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            created: 0,
            uncounted: BTreeSet::new(),
            counted: BTreeSet::new(),
            violation: None,
        }
    }

    pub fn change(&mut self, change: impl FnOnce(&mut JobSpec)) {
        let is_finished = self.is_finished();
        if let Some(spec) = self.job.spec.as_mut().filter(|_| !is_finished) {
            change(spec);
        }
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub fn restart(&mut self) {
        self.released.clear();
        self.backoff = BackoffRecord::default();
        self.observe();
    }

    fn observe(&mut self) {
        self.cache = self.pods.values().cloned().collect();
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        edit(Arc::make_mut(pod));
        let meta = &pod.metadata;
        if meta.deletion_timestamp.is_some()
            && meta.deletion_grace_period_seconds == Some(0)
            && meta.finalizers.is_none()
        {
            self.pods.remove(name);
        }
    }

    fn nth(&self, n: usize) -> Option<String> {
        self.pods.keys().nth(n % self.pods.len().max(1)).cloned()
    }

    pub fn end(&mut self, n: usize, is_success: bool) {
        let now = Time(self.now);
        let Some(name) = self.nth(n) else { return };
        self.edit(&name, |pod| {
            if !pods::is_terminal(pod) {
                let phase = if is_success { "Succeeded" } else { "Failed" };
                let unready = json!({"phase": phase,
                    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}]});
                pod.status = serde_json::from_value::<PodStatus>(unready).ok();
            }
        });
    }

    pub fn end_all(&mut self) {
        (0..self.pods.len()).for_each(|n| self.end(n, true));
    }

    pub fn delete(&mut self, n: usize) {
        if let Some(name) = self.nth(n) {
            self.delete_pod(&name);
        }
    }

    fn delete_pod(&mut self, name: &str) {
        let now = Time(self.now);
        self.edit(name, |pod| {
            let grace = if pods::is_terminal(pod) { 0 } else { 30 };
            pod.metadata.deletion_timestamp.get_or_insert(now);
            pod.metadata.deletion_grace_period_seconds.get_or_insert(grace);
        });
    }

    /// Ends the terminating pods, as kubelets do.
    pub fn terminate(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.edit(&name, |pod| {
                if pods::is_terminating(pod) {
                    if !pods::is_terminal(pod) {
                        pod.status = serde_json::from_value(json!({"phase": "Failed"})).ok();
                    }
                    pod.metadata.deletion_grace_period_seconds = Some(0);
                }
            });
        }
    }

    fn release(&mut self, name: &str) {
        if let Some(pod) = self.pods.get(name) {
            self.released.insert(uid(pod).to_owned());
        }
        self.edit(name, |pod| pod.metadata.finalizers = None);
    }

    /// Executes a reconciliation as the executor does. The controller observes its own writes
    /// before the next one.
    pub fn pass(&mut self, is_fresh: bool, requests: usize) {
        if self.is_finished() {
            return;
        }
        if is_fresh {
            self.observe();
        }
        let mut requests = Requests(requests);
        let (job, cache, released) = (self.job.clone(), self.cache.clone(), self.released.clone());
        let Some(spec) = &job.spec else { return };
        let observed = Observed {
            job: &job,
            spec,
            pods: &cache,
            released: &released,
            backoff: self.backoff,
            now: self.now,
        };
        let plan = plan(&observed);
        let executed = self.act(&observed, &plan.action, &mut requests);
        let tracking = track(&observed, &plan.pod_counts, plan.settle(&observed, executed));
        if tracking.has_changed(&observed) && !(requests.succeed() && self.write(&tracking.status)) {
            return self.observe();
        }
        self.backoff = plan.pod_counts.backoff;
        let mut is_all = true;
        for pod in &tracking.released {
            match requests.succeed() {
                true => self.release(&pod.name_any()),
                false => is_all = false,
            }
        }
        let stored = self.status();
        if let Some((status, _)) = tracking.conclude(&stored, &self.released, is_all, self.now)
            && requests.succeed()
        {
            self.write(&status);
        }
        self.observe();
        let tracked: HashSet<&str> =
            self.cache.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
        self.released.retain(|uid| tracked.contains(uid.as_str()));
    }

    fn act(&mut self, observed: &Observed, action: &PodAction, requests: &mut Requests) -> Executed {
        let mut executed = Executed::default();
        match action {
            PodAction::None | PodAction::BackOff(_) => {}
            PodAction::Create(creation) => {
                for mut pod in new_pods(observed.job, observed.spec, creation) {
                    if !requests.succeed() {
                        break;
                    }
                    let name = format!("p{}", self.created);
                    self.created += 1;
                    executed.created += 1;
                    pod.metadata.name = Some(name.clone());
                    pod.metadata.uid = Some(name.clone());
                    pod.metadata.creation_timestamp = Some(Time(self.now));
                    self.pods.insert(name, Arc::new(pod));
                }
            }
            PodAction::Terminate(pods) | PodAction::Remove(pods) => {
                for pod in pods {
                    let is_removed = matches!(action, PodAction::Remove(_));
                    if is_removed && requests.succeed() {
                        self.release(&pod.name_any());
                    }
                    if requests.succeed() {
                        self.delete_pod(&pod.name_any());
                        executed.deleted += 1;
                    }
                }
            }
        }
        executed
    }

    /// Stores a status, and follows the uids in it.
    fn write(&mut self, status: &JobStatus) -> bool {
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let lists = [uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default()];
        let listed: BTreeSet<String> = lists.iter().flatten().cloned().collect();
        if listed.len() != lists.iter().map(Vec::len).sum::<usize>() {
            self.violation = Some(format!("a uid is listed twice: {lists:?}"));
        }
        if let Some(again) = listed.intersection(&self.counted).next() {
            self.violation = Some(format!("{again} is counted already"));
        }
        let left: Vec<String> = self.uncounted.difference(&listed).cloned().collect();
        self.counted.extend(left);
        self.uncounted = listed;
        let before = self.job.clone();
        self.job.status = Some(status.clone());
        if finished(&before).is_some() {
            self.violation = Some("a finished Job has changed".to_owned());
        }
        true
    }

    pub fn status(&self) -> JobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    pub fn is_finished(&self) -> bool {
        finished(&self.job).is_some()
    }

    fn is_indexed(&self) -> bool {
        self.job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
    }

    pub fn invariants(&self) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let status = self.status();
        // Succeeded pods of an Indexed Job are counted by index, all others by uid.
        let succeeded = if self.is_indexed() { 0 } else { status.succeeded.unwrap_or(0) };
        let counters = usize::try_from(succeeded + status.failed.unwrap_or(0)).unwrap_or(usize::MAX);
        if counters != self.counted.len() {
            return Err(format!("{counters} in the counters, {:?} were listed", self.counted));
        }
        Ok(())
    }

    pub fn at_the_end(&self) -> Result<(), String> {
        let status = self.status();
        let is_complete = finished(&self.job).is_some_and(|condition| condition.type_ == "Complete");
        let completions = self.job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1);
        if is_complete && status.succeeded.unwrap_or(0) < completions {
            return Err(format!("complete with {:?} of {completions}", status.succeeded));
        }
        if is_complete != status.completion_time.is_some() || status.active.is_some() {
            return Err(format!("not a final status: {status:?}"));
        }
        match self.pods.values().find(|pod| is_tracked(pod)) {
            Some(pod) => Err(format!("{} keeps its finalizer", pod.name_any())),
            None => Ok(()),
        }
    }
}
