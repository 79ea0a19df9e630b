//! `apiserver_flowcontrol_*`: executing, queued and rejected requests, by FlowSchema and priority
//! level.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::OnceLock;
use std::time::Instant;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::flow_schema::FlowSchema;
use super::priority_level::PriorityLevel;
use super::queue_set::Rejection;
use crate::telemetry::metrics::{counters, gauges, histograms};

const FLOW: &[&str] = &["priority_level", "flow_schema"];
const LEVEL: &[&str] = &["priority_level"];
const WAIT_SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// The metrics of flow control.
pub struct FlowControlMetrics {
    executing: IntGaugeVec,
    seats: IntGaugeVec,
    inqueue: IntGaugeVec,
    inqueue_seats: IntGaugeVec,
    /// The gauges of requests that read, and of others.
    inqueue_by_kind: [IntGauge; 2],
    execution: HistogramVec,
    dispatched: IntCounterVec,
    rejected: IntCounterVec,
    wait: HistogramVec,
    nominal_limit: IntGaugeVec,
    current_limit: IntGaugeVec,
}

/// The metrics of one FlowSchema.
pub(super) struct FlowRuleMetrics {
    executing: IntGauge,
    seats: IntGauge,
    inqueue: [IntGauge; 2],
    inqueue_by_kind: [IntGauge; 2],
    dispatched: IntCounter,
    wait: Histogram,
    /// The metrics of regular requests, and of the start of watches, shown from the first one on.
    execution: [OnceLock<Histogram>; 2],
    executions: HistogramVec,
    labels: [String; 2],
    /// In the order of [`Rejection::ALL`].
    rejected: Vec<IntCounter>,
}

/// The kind of a request, for its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind {
    /// Whether the request may change an object.
    pub is_mutating: bool,
    /// Whether the request is a watch, which executes until it has begun.
    pub is_watch: bool,
}

/// Counts a request as executing until it is dropped, and then records how long that took.
pub(super) struct Executing {
    gauges: [IntGauge; 2],
    seconds: Histogram,
    began: Instant,
}

impl Drop for Executing {
    fn drop(&mut self) {
        self.gauges.iter().for_each(IntGauge::dec);
        self.seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

/// Counts a request as waiting until it is dropped, and then records how long it waited.
pub(super) struct Waiting<'a> {
    metrics: &'a FlowRuleMetrics,
    kind: RequestKind,
    began: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.metrics.waiting(self.kind).for_each(IntGauge::dec);
        self.metrics.wait.observe(self.began.elapsed().as_secs_f64());
    }
}

impl FlowRuleMetrics {
    /// Counts a request as executing until the guard is dropped.
    pub fn executing(&self, kind: RequestKind) -> Executing {
        self.dispatched.inc();
        let gauges = [self.executing.clone(), self.seats.clone()];
        gauges.iter().for_each(IntGauge::inc);
        let [level, schema] = &self.labels;
        let type_name = if kind.is_watch { "watch" } else { "regular" };
        let find = || self.executions.with_label_values(&[level.as_str(), schema.as_str(), type_name]);
        let [regular, watch] = &self.execution;
        let seconds = if kind.is_watch { watch } else { regular }.get_or_init(find).clone();
        Executing { gauges, seconds, began: Instant::now() }
    }

    /// Counts a request as waiting until the guard is dropped.
    pub fn inqueue(&self, kind: RequestKind) -> Waiting<'_> {
        self.waiting(kind).for_each(IntGauge::inc);
        Waiting { metrics: self, kind, began: Instant::now() }
    }

    /// Returns the gauges that count a waiting request.
    fn waiting(&self, kind: RequestKind) -> impl Iterator<Item = &IntGauge> {
        let [read_only, mutating] = &self.inqueue_by_kind;
        self.inqueue.iter().chain([if kind.is_mutating { mutating } else { read_only }])
    }

    /// Counts a rejected request.
    pub fn rejected(&self, rejection: Rejection) {
        let position = Rejection::ALL.iter().position(|known| *known == rejection);
        if let Some(counter) = position.and_then(|position| self.rejected.get(position)) {
            counter.inc();
        }
    }
}

impl FlowControlMetrics {
    /// Registers the metrics.
    pub fn new(registry: &Registry) -> FlowControlMetrics {
        let inqueue_by_kind = gauges(
            registry,
            "apiserver_current_inqueue_requests",
            "Requests that wait for a seat, by kind.",
            &["request_kind"],
        );
        FlowControlMetrics {
            executing: gauges(
                registry,
                "apiserver_flowcontrol_current_executing_requests",
                "Requests that are executed now.",
                FLOW,
            ),
            seats: gauges(
                registry,
                "apiserver_flowcontrol_current_executing_seats",
                "Seats that executing requests take.",
                FLOW,
            ),
            inqueue: gauges(
                registry,
                "apiserver_flowcontrol_current_inqueue_requests",
                "Requests that wait for a seat.",
                FLOW,
            ),
            inqueue_seats: gauges(
                registry,
                "apiserver_flowcontrol_current_inqueue_seats",
                "Seats that waiting requests will take.",
                FLOW,
            ),
            inqueue_by_kind: ["readOnly", "mutating"].map(|kind| inqueue_by_kind.with_label_values(&[kind])),
            execution: histograms(
                registry,
                "apiserver_flowcontrol_request_execution_seconds",
                "Time from a seat to the response.",
                &["priority_level", "flow_schema", "type"],
                WAIT_SECONDS,
            ),
            dispatched: counters(
                registry,
                "apiserver_flowcontrol_dispatched_requests_total",
                "Requests that were executed.",
                FLOW,
            ),
            rejected: counters(
                registry,
                "apiserver_flowcontrol_rejected_requests_total",
                "Requests that were refused with 429.",
                &["priority_level", "flow_schema", "reason"],
            ),
            wait: histograms(
                registry,
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "How long requests waited for a seat.",
                &["priority_level", "flow_schema", "execute"],
                WAIT_SECONDS,
            ),
            nominal_limit: gauges(
                registry,
                "apiserver_flowcontrol_nominal_limit_seats",
                "Seats of a priority level.",
                LEVEL,
            ),
            current_limit: gauges(
                registry,
                "apiserver_flowcontrol_current_limit_seats",
                "Seats of a priority level, borrowed ones included.",
                LEVEL,
            ),
        }
    }

    pub(super) fn limit(&self, level: &PriorityLevel) {
        let seats = level.queue_set.as_ref().map_or(0, |queue_set| queue_set.limits().seats);
        let seats = i64::try_from(seats).unwrap_or(i64::MAX);
        self.nominal_limit.with_label_values(&[&level.name]).set(seats);
        self.current_limit.with_label_values(&[&level.name]).set(seats);
    }

    pub(super) fn rule(&self, schema: &FlowSchema, level: &PriorityLevel) -> FlowRuleMetrics {
        let labels = [level.name.as_str(), schema.name.as_str()];
        let rejected = |rejection: &Rejection| {
            self.rejected.with_label_values(&[labels[0], labels[1], rejection.reason()])
        };
        FlowRuleMetrics {
            executing: self.executing.with_label_values(&labels),
            seats: self.seats.with_label_values(&labels),
            inqueue: [&self.inqueue, &self.inqueue_seats].map(|gauges| gauges.with_label_values(&labels)),
            inqueue_by_kind: self.inqueue_by_kind.clone(),
            execution: [OnceLock::new(), OnceLock::new()],
            executions: self.execution.clone(),
            labels: labels.map(str::to_owned),
            dispatched: self.dispatched.with_label_values(&labels),
            wait: self.wait.with_label_values(&[labels[0], labels[1], "true"]),
            rejected: Rejection::ALL.iter().map(rejected).collect(),
        }
    }
}
