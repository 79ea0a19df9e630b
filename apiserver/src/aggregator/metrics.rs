//! `aggregator_unavailable_apiservice*`: which APIServices are not available, and how often one
//! became so.
//!
//! Source: kube-aggregator's `pkg/controllers/status/metrics`.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};
use serde_json::Value;

use super::{GROUP, PLURAL, RemoteGroups};
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::registry::Registry;

/// The number of times that an APIService became unavailable, by its name and the reason.
pub(super) struct Unavailabilities(IntCounterVec);

impl std::fmt::Debug for Unavailabilities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Unavailabilities")
    }
}

const STATIC: &str = "names and labels are fixed here";

impl Default for Unavailabilities {
    fn default() -> Unavailabilities {
        let help = "APIServices that became unavailable.";
        let options = Opts::new("aggregator_unavailable_apiservice_total", help);
        Unavailabilities(IntCounterVec::new(options, &["name", "reason"]).expect(STATIC))
    }
}

impl Unavailabilities {
    /// Counts an APIService that was available, and is not any more.
    pub fn record(&self, name: &str, reason: &str) {
        self.0.with_label_values(&[name, reason]).inc();
    }
}

/// Reads which APIServices are available, at each scrape.
pub struct AvailabilityCollector {
    /// The metrics of a server may outlive it.
    registry: Weak<Registry>,
    groups: Arc<RemoteGroups>,
    /// Filled by one scrape at a time.
    unavailable: Mutex<IntGaugeVec>,
    desc: Desc,
}

impl AvailabilityCollector {
    /// Creates a collector.
    ///
    /// - `groups`: those of the controller that keeps the conditions of APIServices
    pub fn new(registry: &Arc<Registry>, groups: Arc<RemoteGroups>) -> AvailabilityCollector {
        let options = Opts::new("aggregator_unavailable_apiservice", "APIServices that are not available.");
        let unavailable = IntGaugeVec::new(options, &["name"]).expect(STATIC);
        let desc = unavailable.desc().first().copied().expect(STATIC).clone();
        let registry = Arc::downgrade(registry);
        AvailabilityCollector { registry, groups, unavailable: Mutex::new(unavailable), desc }
    }

    /// Returns the names of all APIServices, and whether each is unavailable.
    fn read(&self) -> Vec<(String, bool)> {
        let Some(registry) = self.registry.upgrade() else { return Vec::new() };
        let resource = GroupResource::new(GROUP, PLURAL);
        let stored = Cluster::list(&*registry, &resource, "").unwrap_or_default();
        stored.iter().filter_map(unavailability).collect()
    }
}

/// Returns the name of an APIService, and whether it is unavailable.
fn unavailability(object: &Value) -> Option<(String, bool)> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_available = conditions.iter().any(|c| c["type"] == "Available" && c["status"] == "True");
    Some((name, !is_available))
}

impl Collector for AvailabilityCollector {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.groups.unavailabilities.0.desc();
        all.push(&self.desc);
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauges = self.unavailable.lock();
        gauges.reset();
        for (name, is_unavailable) in self.read() {
            gauges.with_label_values(&[&name]).set(i64::from(is_unavailable));
        }
        let mut families = gauges.collect();
        families.extend(self.groups.unavailabilities.0.collect());
        families
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_api_service_without_a_true_condition_is_unavailable() {
        for (conditions, want) in [
            (json!([{"type": "Available", "status": "True"}]), false),
            (json!([{"type": "Available", "status": "False"}]), true),
            (json!([]), true),
            (json!(null), true),
        ] {
            let object = json!({"metadata": {"name": "v1.x"}, "status": {"conditions": conditions}});
            assert_eq!(unavailability(&object), Some(("v1.x".to_owned(), want)), "{object}");
        }
    }
}
