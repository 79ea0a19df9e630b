//! Hints for `spec.trafficDistribution`.
//!
//! Source: `k8s.io/endpointslice/trafficdist`.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone};

use super::endpoint::is_ready_endpoint;

/// The preferred location of an endpoint's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// Anywhere.
    None,
    SameZone,
    SameNode,
}

impl TrafficDistribution {
    /// Returns the traffic distribution of a Service. An unknown value counts as none.
    pub fn of(service: &Service) -> TrafficDistribution {
        let spec = service.spec.as_ref();
        match spec.and_then(|spec| spec.traffic_distribution.as_deref()) {
            Some("PreferClose" | "PreferSameZone") => TrafficDistribution::SameZone,
            Some("PreferSameNode") => TrafficDistribution::SameNode,
            _ => TrafficDistribution::None,
        }
    }

    /// Sets the hints of a slice, and returns whether they changed. Endpoints that are not ready
    /// keep theirs.
    pub fn apply(self, slice: &mut EndpointSlice) -> bool {
        let mut changed = false;
        for endpoint in slice.endpoints.iter_mut().flatten() {
            if self != TrafficDistribution::None && !is_ready_endpoint(endpoint) {
                continue;
            }
            let wanted = self.hints(endpoint);
            changed |= endpoint.hints != wanted;
            endpoint.hints = wanted;
        }
        changed
    }

    /// Returns whether [`TrafficDistribution::apply`] would change a slice.
    pub fn differs(self, slice: &EndpointSlice) -> bool {
        slice.endpoints.iter().flatten().any(|endpoint| {
            (self == TrafficDistribution::None || is_ready_endpoint(endpoint))
                && endpoint.hints != self.hints(endpoint)
        })
    }

    fn hints(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
        let zones = zone.map(|name| vec![ForZone { name }]);
        let node = endpoint.node_name.clone().filter(|_| self == TrafficDistribution::SameNode);
        let nodes = node.map(|name| vec![ForNode { name }]);
        let hints = EndpointHints { for_nodes: nodes, for_zones: zones };
        (self != TrafficDistribution::None && hints != EndpointHints::default()).then_some(hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn hints_follow_the_traffic_distribution() {
        use TrafficDistribution::*;
        let zone = json!({"forZones": [{"name": "a"}]});
        let node = json!({"forNodes": [{"name": "n"}], "forZones": [{"name": "a"}]});
        let old = json!({"forZones": [{"name": "old"}]});
        for (case, distribution, ready, endpoint_zone, before, want) in [
            ("none", None, true, json!("a"), Value::Null, Value::Null),
            ("removed", None, false, json!("a"), old.clone(), Value::Null),
            ("its zone", SameZone, true, json!("a"), old.clone(), zone.clone()),
            ("as it is", SameZone, true, json!("a"), zone.clone(), zone.clone()),
            ("without a zone", SameZone, true, json!(null), old.clone(), Value::Null),
            ("not ready", SameZone, false, json!("a"), old.clone(), old.clone()),
            ("its node", SameNode, true, json!("a"), zone.clone(), node),
        ] {
            let endpoint = json!({
                "addresses": ["1.1.1.1"], "zone": endpoint_zone, "nodeName": "n", "hints": before, "conditions": {"ready": ready},
            });
            let slice = json!({"metadata": {}, "addressType": "IPv4", "endpoints": [endpoint]});
            let mut slice: EndpointSlice = serde_json::from_value(slice).unwrap();
            let differs = distribution.differs(&slice);
            assert_eq!(distribution.apply(&mut slice), differs, "{case}");
            assert_eq!(differs, before != want, "{case}");
            let hints = slice.endpoints.unwrap()[0].hints.clone();
            assert_eq!(hints.map_or(Value::Null, |hints| json!(hints)), want, "{case}");
        }
    }
}
