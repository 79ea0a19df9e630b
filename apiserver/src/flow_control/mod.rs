//! API Priority and Fairness: decides which requests execute now, wait, or are rejected with 429.
//!
//! A request belongs to a *flow*: the first FlowSchema that matches it (by precedence) determines
//! its priority level, and the schema's distinguisher separates the flows of a level by user or by
//! namespace. A priority level has a number of *seats*; a request occupies one while it executes.
//! When all are in use, requests wait in the queue of their flow, and the next seat is assigned to
//! the flow with the fewest seats, so that a flow with many requests delays only itself. Exempt
//! levels have no limit.
//!
//! The configuration is that of the stored FlowSchemas and PriorityLevelConfigurations; a change
//! takes effect within a second.
//!
//! Not implemented, in contrast to upstream: borrowing of seats between levels, shuffle sharding
//! (every flow has a queue of its own), and seats in proportion to the estimated work.
//!
//! Source: KEP-1040, `k8s.io/apiserver/pkg/util/flowcontrol`. Start at
//! [`FlowController::classify`].
#![expect(clippy::disallowed_methods, reason = "flow control protects the server")]

mod flow_schema;
mod metrics;
mod priority_level;
mod queue_set;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access::UserInfo;
use crate::access::authorize::RequestAttributes;

use flow_schema::FlowSchema;
use metrics::{Executing, FlowRuleMetrics};
pub use metrics::{FlowControlMetrics, RequestKind};
use priority_level::PriorityLevel;
pub use queue_set::{QueueLimits, QueueSet, Rejection, Seat};

/// The seats of all limited priority levels together: upstream's `--max-requests-inflight` (400)
/// and `--max-mutating-requests-inflight` (200).
pub const SERVER_CONCURRENCY_LIMIT: usize = 600;

/// The group of the configuration.
pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The resource of FlowSchemas.
pub(crate) const FLOW_SCHEMAS: &str = "flowschemas";
/// The resource of PriorityLevelConfigurations.
pub(crate) const PRIORITY_LEVELS: &str = "prioritylevelconfigurations";

/// The shortest interval at which classified requests compare the configuration with the stored
/// one.
const REFRESH: Duration = Duration::from_secs(1);

const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The members of a FlowSchema or a PriorityLevelConfiguration that are read. The others are often
/// larger.
pub(crate) const MEMBERS: [&str; 3] = ["/metadata/name", "/metadata/uid", "/spec"];

/// Reads the stored FlowSchemas and PriorityLevelConfigurations.
pub trait ConfigurationSource: Send + Sync {
    /// Returns the stored FlowSchemas, and the stored PriorityLevelConfigurations, at least their
    /// name, uid and spec.
    fn flow_configuration(&self) -> (Vec<Value>, Vec<Value>);

    /// Returns the revisions of the last changes of FlowSchemas and PriorityLevelConfigurations;
    /// None if they are not known.
    fn flow_revisions(&self) -> Option<[u64; 2]>;
}

/// Classifies requests. One for each server.
pub struct FlowController {
    source: Arc<dyn ConfigurationSource>,
    metrics: FlowControlMetrics,
    configuration: ArcSwap<Configuration>,
    base: Instant,
    /// The time of the last comparison of the configuration, in milliseconds from the base.
    compared_at: AtomicU64,
    /// Held by the request that refreshes the configuration.
    refreshing: Mutex<()>,
}

struct Configuration {
    /// The rules, in order of precedence.
    rules: Vec<Arc<FlowRule>>,
    levels: HashMap<String, Arc<PriorityLevel>>,
    /// The revisions of the last changes that it contains.
    revisions: Option<[u64; 2]>,
}

/// A FlowSchema and its priority level.
struct FlowRule {
    schema: FlowSchema,
    level: Arc<PriorityLevel>,
    metrics: FlowRuleMetrics,
}

/// The flow of a request.
pub struct Flow {
    rule: Arc<FlowRule>,
    /// Identifies the flow within its level; empty if the level is exempt.
    key: String,
}

/// Occupies a seat of a priority level, or counts a request of an exempt one, until it is dropped.
pub struct Admitted {
    _executing: Executing,
    _seat: Option<Seat>,
}

impl FlowController {
    /// Creates a controller for the configuration that `source` returns.
    pub fn new(source: Arc<dyn ConfigurationSource>, metrics: FlowControlMetrics) -> FlowController {
        let configuration = Configuration::read(&*source, &HashMap::new(), &metrics);
        FlowController {
            source,
            metrics,
            configuration: ArcSwap::from_pointee(configuration),
            base: Instant::now(),
            compared_at: AtomicU64::new(0),
            refreshing: Mutex::new(()),
        }
    }

    /// Returns the flow of a request; None if no FlowSchema matches. While the mandatory
    /// FlowSchemas exist, one always matches.
    pub fn classify(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> Option<Flow> {
        self.refresh();
        let configuration = self.configuration.load();
        let rule = configuration.rules.iter().find(|rule| rule.schema.matches(user, request))?;
        let exempt = rule.level.queue_set.is_none();
        let key = if exempt { String::new() } else { rule.schema.flow_of(user, request) };
        Some(Flow { rule: rule.clone(), key })
    }

    fn refresh(&self) {
        let elapsed = self.base.elapsed();
        let compared_at = Duration::from_millis(self.compared_at.load(Ordering::Relaxed));
        if elapsed.saturating_sub(compared_at) < REFRESH {
            return;
        }
        // Other requests continue with the current configuration in the meantime.
        let Some(_refreshing) = self.refreshing.try_lock() else { return };
        self.compared_at.store(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let known = self.configuration.load();
        let revisions = self.source.flow_revisions();
        if revisions.is_some() && revisions == known.revisions {
            return;
        }
        self.configuration.store(Arc::new(Configuration::read(&*self.source, &known.levels, &self.metrics)));
    }
}

impl Configuration {
    fn read(
        source: &dyn ConfigurationSource,
        known: &HashMap<String, Arc<PriorityLevel>>,
        metrics: &FlowControlMetrics,
    ) -> Configuration {
        // Before the objects: if they change in between, they are read again.
        let revisions = source.flow_revisions();
        let (schemas, levels) = source.flow_configuration();
        let mut schemas: Vec<FlowSchema> = schemas.iter().filter_map(FlowSchema::read).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let levels = priority_level::read_all(&levels, SERVER_CONCURRENCY_LIMIT, known);
        for level in levels.values() {
            metrics.limit(level);
        }
        let rule = |schema: FlowSchema| {
            let level = levels.get(&schema.priority_level)?.clone();
            let metrics = metrics.rule(&schema, &level);
            Some(Arc::new(FlowRule { schema, level, metrics }))
        };
        Configuration { rules: schemas.into_iter().filter_map(rule).collect(), levels, revisions }
    }
}

impl Flow {
    /// Returns the uids of the FlowSchema and the PriorityLevelConfiguration, as headers of the
    /// response.
    pub fn headers(&self) -> [(HeaderName, HeaderValue); 2] {
        [(FLOW_SCHEMA_UID, self.rule.schema.uid.clone()), (PRIORITY_LEVEL_UID, self.rule.level.uid.clone())]
    }

    /// Returns whether requests of this flow are never limited.
    pub fn is_exempt(&self) -> bool {
        self.rule.level.queue_set.is_none()
    }

    /// Waits for a seat, until `deadline` at the latest.
    ///
    /// - `kind`: under which the request is counted
    ///
    /// # Errors
    /// The reason why there is no seat: the level rejects, the flow's queue is full, or the
    /// deadline has passed.
    pub async fn admit(
        &self,
        deadline: tokio::time::Instant,
        kind: RequestKind,
    ) -> Result<Admitted, Rejection> {
        let FlowRule { level, metrics, .. } = &*self.rule;
        let seat = match &level.queue_set {
            None => None,
            Some(queue_set) => {
                let _waiting = metrics.inqueue(kind);
                Some(queue_set.acquire(&self.key, deadline).await.inspect_err(|e| metrics.rejected(*e))?)
            }
        };
        Ok(Admitted { _executing: metrics.executing(kind), _seat: seat })
    }
}

#[cfg(test)]
mod tests;
