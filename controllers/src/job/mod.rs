//! job-controller: runs pods until enough of them have succeeded, or too many have failed.
//!
//! A Job is reconciled when it changes, a moment after its pods do, at its deadline, and when a
//! backoff ends:
//! 1. matching pods are adopted, with the tracking finalizer, and others released
//!    (`coracle_controller_runtime::controller_ref`);
//! 2. its pods are classified ([`pod_counts`]): the active ones, and those that have newly
//!    finished;
//! 3. the [`verdict`] is made: whether the Job ends, and why;
//! 4. without a verdict, missing pods are created and superfluous ones deleted ([`manage`],
//!    [`pods`]); with one, all active ones are deleted;
//! 5. finished pods are counted, each exactly once, and the status is written ([`tracking`]).
//!
//! [`plan`] does all of that except the requests, which are in [`executor`]. [`orphans`], a queue
//! of its own, removes the finalizers of pods that no Job counts any more.

mod backoff;
mod conditions;
mod executor;
mod indexes;
mod manage;
mod metrics;
#[cfg(test)]
mod model;
mod orphans;
mod plan;
mod pod_counts;
mod pods;
mod policies;
mod tracking;
mod verdict;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, controller_ref, run_all, start_part,
};
use coracle_kinds::jobs::{TRACKING_FINALIZER, finished, is_managed_externally, is_tracked};
use coracle_object_meta::selector_matches;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::Selector;
use parking_lot::{Mutex, MutexGuard};

use crate::settings::{Context, Settings};
use crate::timers::JOB_BATCH;
use crate::workload::owners::owners_of;
use crate::workload::pod_control::PodControl;
use backoff::BackoffRecord;
use executor::Executor;
use metrics::JobMetrics;
use orphans::OrphanPodController;
use plan::plan;
use pod_counts::{Observed, uid};

pub const NAME: &str = "job-controller";

/// kube-controller-manager's backoff of both queues.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The period during which changes of pods are batched. kube-controller-manager waits for a second;
/// only the number of writes depends on it.
const BATCH_PERIOD: Duration = Duration::from_millis(100);

/// Runs both queues.
pub async fn run(context: Context, ready: impl FnOnce()) {
    run_all(context, &[start_part::<_, JobController>, start_part::<_, OrphanPodController>], ready).await;
}

pub struct JobController {
    clock: Clock,
    recorder: Recorder,
    pod_control: PodControl,
    metrics: Arc<JobMetrics>,
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
    records: Mutex<HashMap<NamespacedName, JobRecord>>,
    /// Whether it continues the work of another one, and so the backoffs.
    goes_on: bool,
    /// The queue of this controller, once it runs.
    queue: OnceLock<Queue<NamespacedName>>,
}

/// The state of a Job that is not in the API.
#[derive(Clone, Default)]
struct JobRecord {
    uid: String,
    backoff: BackoffRecord,
    /// The uids of pods that have lost their finalizers, as long as the cache shows these.
    released: HashSet<String>,
}

impl Initialize<Settings> for JobController {
    fn new(context: &Context) -> JobController {
        let recorder = context.recorder(NAME);
        JobController {
            clock: context.clock.clone(),
            pod_control: PodControl::new(recorder.clone(), context.cache()),
            recorder,
            metrics: Arc::new(JobMetrics::new(&context.metrics)),
            jobs: context.cache(),
            pods: context.cache(),
            records: Mutex::default(),
            goes_on: context.settings.goes_on,
            queue: OnceLock::new(),
        }
    }
}

impl Controller for JobController {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = "job";
    const FIRST_RETRY: Duration = FIRST_RETRY;
    const MAX_RETRY: Duration = MAX_RETRY;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let metrics = self.metrics.clone();
        sources.on(&self.jobs, move |change, queue| {
            let Some(name) = change.name() else { return };
            if change.old.is_none() {
                let external = change.new.as_ref().filter(|job| is_managed_externally(job));
                let manager = external.and_then(|job| job.spec.as_ref()?.managed_by.clone());
                manager.iter().for_each(|manager| metrics.managed_externally(manager));
            }
            // The pods that a finished Job leaves are released by the orphans' queue.
            delay(change).into_iter().for_each(|delay| queue.add_after(name.clone(), JOB_BATCH.after(delay)));
        });
        let (jobs, metrics) = (self.jobs.clone(), self.metrics.clone());
        sources.on(&self.pods, move |change, queue| {
            count_tracked(change, &metrics);
            let owners = owners_of(change, &jobs, selects);
            owners.into_iter().for_each(|job| queue.add_after(job, JOB_BATCH.after(BATCH_PERIOD)));
        });
        // A controller is started once.
        let _ = self.queue.set(sources.queue());
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(job) = self.jobs.get(name).filter(|job| !is_managed_externally(job)) else {
            self.records().remove(name);
            return Ok(Action::AwaitChange);
        };
        if finished(&job).is_some() {
            if let Some(record) = self.records().get_mut(name) {
                record.backoff = BackoffRecord::default();
            }
            return Ok(Action::AwaitChange);
        }
        self.sync_job(name, &job, ctx).await
    }

    fn on_stale_cache(&self, group: &str, resource: &str) {
        self.metrics.stale_skips.with_label_values(&[group, resource]).inc();
    }
}

impl JobController {
    async fn sync_job(
        &self,
        name: &NamespacedName,
        job: &Job,
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        let Some(spec) = &job.spec else { return Ok(Action::AwaitChange) };
        if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.recorder.warning(job, "UnknownCompletionMode", message);
            return Ok(Action::AwaitChange);
        }
        #[expect(clippy::disallowed_methods, reason = "a metric: the duration on the machine")]
        let begin = Instant::now();
        let pods = self.claim_pods(job, ctx).await?;
        let record = self.record(name, job, &pods);
        let released = Mutex::new(record.released.clone());
        let observed = Observed {
            job,
            spec,
            pods: &pods,
            released: &record.released,
            backoff: record.backoff,
            now: self.clock.now(),
        };
        let plan = plan(&observed);
        let outcome = Executor { controller: self, observed: &observed, ctx, released: &released };
        let outcome = outcome.execute(&plan).await;
        if let Some(record) = self.records().get_mut(name) {
            record.released.extend(released.into_inner());
        }
        self.metrics.synced(job, &plan.action, outcome.is_ok(), begin.elapsed().as_secs_f64());
        // The next retry may be much later than the end of the backoff.
        if outcome.is_err()
            && let Some((queue, delay)) = self.queue.get().zip(plan.requeue_after)
        {
            queue.add_after(name.clone(), delay);
        }
        outcome.map(|()| plan.requeue_after.map_or(Action::AwaitChange, Action::Requeue))
    }

    async fn claim_pods(&self, job: &Job, ctx: &ReconcileContext) -> Result<Vec<Arc<Pod>>, Error> {
        let candidates = controller_ref::candidates(&job.metadata, &self.pods);
        let selector = selector(job);
        let matches =
            |pod: &Pod| selector.as_ref().is_some_and(|selector| selector_matches(selector, &pod.metadata));
        let finalizer = Some(TRACKING_FINALIZER);
        let owner = (&self.jobs, job);
        controller_ref::claim_with_finalizer(owner, &self.pods, candidates, matches, finalizer, ctx).await
    }

    /// Returns the record of a Job. It drops the removals of finalizers that the cache already
    /// shows.
    fn record(&self, name: &NamespacedName, job: &Job, pods: &[Arc<Pod>]) -> JobRecord {
        let mut records = self.records();
        let record = records.entry(name.clone()).or_default();
        let uid_of_job = job.uid().unwrap_or_default();
        if record.uid != uid_of_job {
            *record = JobRecord { uid: uid_of_job, ..JobRecord::default() };
            if self.goes_on {
                record.backoff = backoff_of_counted(job, pods);
            }
        }
        let tracked: HashSet<&str> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
        record.released.retain(|uid| tracked.contains(uid.as_str()));
        record.clone()
    }

    fn remember_backoff(&self, job: &Job, backoff: BackoffRecord) {
        if let Some(record) = self.records().get_mut(&NamespacedName::of(job)) {
            record.backoff = backoff;
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<NamespacedName, JobRecord>> {
        self.records.lock()
    }
}

/// Returns the delay between a change of a Job and its reconciliation, or `None` if the change
/// needs no reconciliation.
fn delay(change: &Change<Job>) -> Option<Duration> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Some(Duration::ZERO) };
    match finished(new) {
        Some(_) => None,
        None if old.metadata.generation != new.metadata.generation => Some(Duration::ZERO),
        None => Some(BATCH_PERIOD),
    }
}

/// Returns the backoff by the pods that the status of a Job counts, or is about to.
fn backoff_of_counted(job: &Job, pods: &[Arc<Pod>]) -> BackoffRecord {
    fn uids(listed: Option<&Vec<String>>) -> HashSet<&str> {
        listed.into_iter().flatten().map(String::as_str).collect()
    }
    let uncounted = job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.as_ref());
    let succeeded = uids(uncounted.and_then(|uncounted| uncounted.succeeded.as_ref()));
    let failed = uids(uncounted.and_then(|uncounted| uncounted.failed.as_ref()));
    let is_counted =
        |pod: &&Pod| !is_tracked(pod) || succeeded.contains(uid(pod)) || failed.contains(uid(pod));
    BackoffRecord::of_counted(pods.iter().map(Arc::as_ref).filter(is_counted), |pod| {
        failed.contains(uid(pod))
    })
}

fn selector(job: &Job) -> Option<Selector> {
    let selector = job.spec.as_ref()?.selector.clone()?;
    Selector::try_from(selector).ok()
}

fn selects(job: &Job, pod: &ObjectMeta) -> bool {
    selector(job).is_some_and(|selector| selector_matches(&selector, pod))
}

/// Counts the ended pods that have the finalizer, when they end and when they lose it.
fn count_tracked(change: &Change<Pod>, metrics: &JobMetrics) {
    let is_held = |pod: &Arc<Pod>| is_tracked(pod) && coracle_kinds::pods::is_terminal(pod);
    match (change.old.as_ref().is_some_and(is_held), change.new.as_ref().is_some_and(is_held)) {
        (false, true) => metrics.tracked("add"),
        (true, false) => metrics.tracked("delete"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use coracle_controller_runtime::metrics::Metrics;
    use http::{Method, Request, Response};
    use k8s_openapi::jiff::Timestamp;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::timers::JOB_BACKOFF;

    /// Creates a client of an API that accepts all changes, except of a status if it refuses these.
    fn api(refuses_status: bool) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let (code, answer) = match head.method == Method::PUT && refuses_status {
                true => {
                    let status = json!({"kind": "Status", "status": "Failure", "code": 422});
                    (422, status.to_string().into_bytes())
                }
                false => (200, body.to_vec()),
            };
            Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(answer)).unwrap())
        });
        Client::new(service, "default")
    }

    /// Creates a Job of two pods, of which one failed at the start of the clock.
    fn job_with_failure(start: Timestamp) -> (Job, [Pod; 2]) {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        let job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {
                "completions": 2, "parallelism": 2, "backoffLimit": 6, "template": template,
                "selector": {"matchLabels": {"a": "b"}},
            },
        });
        let pod = |name: &str, phase: &str, ready: &str| -> Pod {
            let owner =
                json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
            let meta = json!({
                "name": name, "namespace": "n", "uid": name, "labels": {"a": "b"},
                "finalizers": [TRACKING_FINALIZER], "ownerReferences": [owner],
            });
            let ready = json!({"type": "Ready", "status": ready, "lastTransitionTime": start.to_string()});
            let status = json!({"phase": phase, "conditions": [ready]});
            serde_json::from_value(json!({"metadata": meta, "status": status})).unwrap()
        };
        (serde_json::from_value(job).unwrap(), [pod("f", "Failed", "False"), pod("r", "Running", "True")])
    }

    #[tokio::test]
    async fn the_end_of_a_backoff_is_waited_for_whether_the_status_is_written_or_not() {
        let (start, passed) = (Timestamp::UNIX_EPOCH, Duration::from_secs(3));
        for refuses_status in [false, true] {
            let (clock, mock) = Clock::mock(start);
            mock.advance(passed);
            let client = api(refuses_status);
            let (metrics, settings) = (Metrics::default(), Settings::default());
            let context = Context::new(client.clone(), clock.clone(), metrics, settings);
            let (job, pods) = job_with_failure(start);
            let (name, pods) = (NamespacedName::of(&job), Arc::new(Cache::with(pods)));
            let recorder = context.recorder(NAME);
            let controller = JobController {
                clock,
                pod_control: PodControl::new(recorder.clone(), pods.clone()),
                recorder,
                metrics: Arc::new(JobMetrics::new(&context.metrics)),
                jobs: Arc::new(Cache::with([job])),
                pods,
                records: Mutex::default(),
                goes_on: false,
                queue: OnceLock::from(context.queue(JobController::QUEUE_NAME)),
            };
            let outcome = controller.reconcile(&name, &ReconcileContext::new(client)).await;
            let mut delays = context.clock.timers().pending().into_iter().map(|pending| {
                let delay = Duration::try_from(pending.due.duration_since(context.clock.now())).unwrap();
                pending.timer.after(delay)
            });
            let end = JOB_BACKOFF.after(Duration::from_secs(10) - passed);
            match outcome {
                Ok(action) => assert_eq!((refuses_status, action), (false, Action::Requeue(end))),
                Err(error) => assert_eq!((refuses_status, delays.next()), (true, Some(end)), "{error}"),
            }
        }
    }
}
