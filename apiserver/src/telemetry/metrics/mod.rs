//! Metrics: `/metrics`, with Kubernetes' names.
//!
//! The values are in the `prometheus` crate, since it writes the classic text format without
//! changing names (an OpenMetrics encoder renames counters), and its registry accepts the
//! collectors of other modules ([`Metrics::registry`]). Looking up four metrics by nine labels
//! would cost more than counting, so the handles of each set of labels are looked up once and
//! cached: a known set costs one hash and one lookup, no lock and no allocation.
//!
//! Start at [`RequestLabels::of`] and [`Metrics::request`].

mod access;
mod labels;
mod process;
mod text;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use access::AccessMetrics;
pub use access::AuthenticationResult;
pub use labels::RequestLabels;

/// The Content-Type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

const REQUEST: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run", "code"];
const REQUEST_TIMED: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run"];
const REQUEST_LONGRUNNING: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component"];
const REQUEST_TERMINATED: &[&str] =
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "code"];
const DEPRECATED: &[&str] = &["group", "version", "resource", "subresource", "removed_release"];
const WATCHED: &[&str] = &["group", "version", "resource"];

const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
const RESPONSE_BYTES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const EVENT_BYTES: &[f64] = &[1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0];

/// The number of stored objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObjects {
    /// The API group.
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// The number of objects.
    pub objects: u64,
}

/// The metrics of the server.
pub struct Metrics {
    registry: Registry,
    total: IntCounterVec,
    duration: HistogramVec,
    sli_duration: HistogramVec,
    response_sizes: HistogramVec,
    longrunning: IntGaugeVec,
    terminations: IntCounterVec,
    deprecated: IntGaugeVec,
    access: AccessMetrics,
    inflight: [IntGauge; 2],
    watch_events: IntCounterVec,
    watch_event_sizes: HistogramVec,
    /// Updated at each scrape; the lock keeps two scrapes apart.
    stored: Mutex<Stored>,
    storage_size: IntGaugeVec,
    tls_handshake_errors: IntCounter,
    hasher: DefaultHashBuilder,
    /// By the hash of labels and code. As in the crate's own families, 64 bits are assumed to have
    /// no collisions.
    known: ArcSwap<HashMap<u64, Arc<Handles>>>,
}

struct Stored {
    objects: IntGaugeVec,
    objects_by_kind: IntGaugeVec,
}

/// The metrics of one set of labels and code.
struct Handles {
    total: IntCounter,
    duration: Histogram,
    /// None for dry runs and watches.
    sli_duration: Option<Histogram>,
    /// For reads only.
    response_sizes: Option<Histogram>,
}

/// Increments a gauge while it lives.
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: IntGauge) -> GaugeGuard {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The counters of one watch.
pub struct WatchEvents {
    total: IntCounter,
    sizes: Histogram,
}

impl WatchEvents {
    /// Counts a sent event of `bytes` bytes.
    pub fn sent(&self, bytes: usize) {
        self.total.inc();
        self.sizes.observe(bytes as f64);
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Creates the metrics of a new server, all zero.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        register(&registry, process::Process::new().expect(STATIC));
        let inflight = gauges(
            &registry,
            "apiserver_current_inflight_requests",
            "Requests being answered, by kind.",
            &["request_kind"],
        );
        Metrics {
            total: counters(&registry, "apiserver_request_total", "Requests answered.", REQUEST),
            duration: histograms(
                &registry,
                "apiserver_request_duration_seconds",
                "Time to answer.",
                REQUEST_TIMED,
                SECONDS,
            ),
            sli_duration: histograms(
                &registry,
                "apiserver_request_sli_duration_seconds",
                "Time to answer, without the time of webhooks and of waiting for a seat.",
                REQUEST_LONGRUNNING,
                // Only the full histogram has the two finest buckets.
                &SECONDS[2..],
            ),
            response_sizes: histograms(
                &registry,
                "apiserver_response_sizes",
                "Bytes of the answers to reads.",
                REQUEST_LONGRUNNING,
                RESPONSE_BYTES,
            ),
            longrunning: gauges(
                &registry,
                "apiserver_longrunning_requests",
                "Watches and other requests that last.",
                REQUEST_LONGRUNNING,
            ),
            terminations: counters(
                &registry,
                "apiserver_request_terminations_total",
                "Requests that the server refused or ended to protect itself.",
                REQUEST_TERMINATED,
            ),
            deprecated: gauges(
                &registry,
                "apiserver_requested_deprecated_apis",
                "Deprecated APIs that were requested.",
                DEPRECATED,
            ),
            access: AccessMetrics::new(&registry),
            inflight: ["readOnly", "mutating"].map(|kind| inflight.with_label_values(&[kind])),
            watch_events: counters(
                &registry,
                "apiserver_watch_events_total",
                "Events sent to watchers.",
                WATCHED,
            ),
            watch_event_sizes: histograms(
                &registry,
                "apiserver_watch_events_sizes",
                "Bytes of the events sent to watchers.",
                WATCHED,
                EVENT_BYTES,
            ),
            stored: Mutex::new(Stored {
                objects: gauges(
                    &registry,
                    "apiserver_resource_objects",
                    "Stored objects.",
                    &["group", "resource"],
                ),
                objects_by_kind: gauges(
                    &registry,
                    "apiserver_storage_objects",
                    "Stored objects; apiserver_resource_objects has them by group.",
                    &["resource"],
                ),
            }),
            storage_size: gauges(
                &registry,
                "apiserver_storage_size_bytes",
                "Bytes of all stored objects, which --max-store-bytes bounds.",
                &["storage_cluster_id"],
            ),
            tls_handshake_errors: registered(
                &registry,
                IntCounter::new(
                    "apiserver_tls_handshake_errors_total",
                    "Connections dropped for an error in their TLS handshake.",
                ),
            ),
            hasher: DefaultHashBuilder::default(),
            known: ArcSwap::default(),
            registry,
        }
    }

    /// Returns the registry, for collectors of other modules.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds a collector that reads its values at each scrape. It must be added once.
    pub fn collect(&self, collector: impl Collector + 'static) {
        register(&self.registry, collector);
    }

    /// Counts a response of a handler.
    ///
    /// - `waited`: the part of its duration that was spent waiting for webhooks and for a seat.
    pub fn request(
        &self,
        labels: &RequestLabels<'_>,
        code: u16,
        duration: Duration,
        waited: Duration,
        bytes: usize,
    ) {
        let key = self.hasher.hash_one((labels, code));
        if let Some(handles) = self.known.load().get(&key) {
            handles.record(duration, waited, bytes);
            return;
        }
        let handles = Arc::new(self.handles(labels, code));
        handles.record(duration, waited, bytes);
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(key, handles.clone());
            known
        });
    }

    /// Counts a request that is refused because there are too many. It was not executed, so it has
    /// no duration.
    pub fn rejected(&self, labels: &RequestLabels<'_>, code: u16) {
        let code = code.to_string();
        let [verb, group, version, resource, subresource, scope, component] = labels.longrunning_values();
        let all = [verb, group, version, resource, subresource, scope, component, labels.dry_run, &code];
        self.total.with_label_values(&all).inc();
    }

    /// Counts a request that the server refused or ended to protect itself.
    pub fn terminated(&self, labels: &RequestLabels<'_>, code: u16) {
        let code = code.to_string();
        let [verb, group, version, resource, subresource, scope, component] = labels.longrunning_values();
        let all = [verb, group, version, resource, subresource, scope, component, &code];
        self.terminations.with_label_values(&all).inc();
    }

    /// Records that a deprecated API was requested.
    ///
    /// - `removed_release`: the release without it, such as `1.32`; empty if none is planned.
    pub fn requested_deprecated(&self, labels: &RequestLabels<'_>, removed_release: &str) {
        let RequestLabels { group, version, resource, subresource, .. } = labels;
        let values = [*group, *version, *resource, *subresource, removed_release];
        self.deprecated.with_label_values(&values).set(1);
    }

    /// Counts and times the authentication of a request.
    pub fn authentication(&self, result: AuthenticationResult<'_>, took: Duration) {
        self.access.authentication(result, took);
    }

    /// Counts and times the authorization of a request.
    pub fn authorization(&self, is_allowed: bool, took: Duration) {
        self.access.authorization(is_allowed, took);
    }

    /// Records the remaining validity of the client certificate of a request, in seconds.
    pub fn client_certificate(&self, remaining_seconds: i64) {
        self.access.certificate(remaining_seconds as f64);
    }

    /// Counts a long-running request until the guard is dropped.
    pub fn longrunning(&self, labels: &RequestLabels<'_>) -> GaugeGuard {
        GaugeGuard::new(self.longrunning.with_label_values(&labels.longrunning_values()))
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn inflight(&self, mutating: bool) -> GaugeGuard {
        GaugeGuard::new(self.inflight[usize::from(mutating)].clone())
    }

    /// Creates the counters for a new watch of a resource.
    pub fn watch(&self, group: &str, version: &str, resource: &str) -> WatchEvents {
        let labels = [group, version, resource];
        WatchEvents {
            total: self.watch_events.with_label_values(&labels),
            sizes: self.watch_event_sizes.with_label_values(&labels),
        }
    }

    /// Counts a failed TLS handshake.
    pub fn tls_handshake_error(&self) {
        self.tls_handshake_errors.inc();
    }

    /// Sets `kubernetes_build_info` with these labels, once.
    pub fn build_info(&self, labels: &[(&str, &str)]) {
        let (names, values): (Vec<&str>, Vec<&str>) = labels.iter().copied().unzip();
        let info = gauges(&self.registry, "kubernetes_build_info", "What was built, and how.", &names);
        info.with_label_values(&values).set(1);
    }

    /// Sets the size of the store in bytes. kube-apiserver numbers its etcd clusters; there is one
    /// store.
    pub fn storage_size(&self, bytes: u64) {
        self.storage_size.with_label_values(&["etcd-0"]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Renders the response of `/metrics`. The caller passes the stored objects at each scrape.
    pub fn render(&self, stored: impl IntoIterator<Item = StoredObjects>) -> String {
        let gauges = self.stored.lock();
        gauges.objects.reset();
        gauges.objects_by_kind.reset();
        for StoredObjects { group, resource, objects } in stored {
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            gauges.objects.with_label_values(&[&group, &resource]).set(objects);
            let kind = if group.is_empty() { resource } else { format!("{resource}.{group}") };
            gauges.objects_by_kind.with_label_values(&[&kind]).set(objects);
        }
        let mut text = String::with_capacity(256 * 1024);
        if let Err(error) = text::write_families(&mut text, &self.registry.gather()) {
            tracing::error!(%error, "a metric that cannot be written");
        }
        text
    }

    fn handles(&self, labels: &RequestLabels<'_>, code: u16) -> Handles {
        let code = code.to_string();
        let longrunning_values = labels.longrunning_values();
        let [verb, group, version, resource, subresource, scope, component] = longrunning_values;
        let timed = [verb, group, version, resource, subresource, scope, component, labels.dry_run];
        let all = [verb, group, version, resource, subresource, scope, component, labels.dry_run, &code];
        let real = labels.dry_run.is_empty() && labels.verb != "WATCH";
        let read = matches!(labels.verb, "GET" | "LIST");
        Handles {
            total: self.total.with_label_values(&all),
            duration: self.duration.with_label_values(&timed),
            sli_duration: real.then(|| self.sli_duration.with_label_values(&longrunning_values)),
            response_sizes: read.then(|| self.response_sizes.with_label_values(&longrunning_values)),
        }
    }
}

impl Handles {
    fn record(&self, duration: Duration, waited: Duration, bytes: usize) {
        self.total.inc();
        self.duration.observe(duration.as_secs_f64());
        if let Some(histogram) = &self.sli_duration {
            histogram.observe(duration.saturating_sub(waited).as_secs_f64());
        }
        if let Some(histogram) = &self.response_sizes {
            histogram.observe(bytes as f64);
        }
    }
}

const STATIC: &str = "names and labels are fixed here, and used once";

fn register(registry: &Registry, collector: impl Collector + 'static) {
    registry.register(Box::new(collector)).expect(STATIC);
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect(STATIC);
    register(registry, collector.clone());
    collector
}

pub(crate) fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

pub(crate) fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

pub(crate) fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}

pub(crate) fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(options, labels))
}

#[cfg(test)]
mod tests;
