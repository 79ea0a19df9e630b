//! Amounts of resources: what pods ask for, and what nodes have.

use std::collections::BTreeMap;

use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Amounts of resources, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    pub fn of(quantities: Option<&BTreeMap<String, Text>>) -> Amounts {
        let quantities = quantities.into_iter().flatten();
        Amounts(quantities.map(|(name, quantity)| (name.clone(), read(&quantity.0))).collect())
    }

    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or(Quantity::from_int(0))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn add(&mut self, other: &Amounts) {
        self.merge(other, |mine, theirs| mine.plus(&theirs));
    }

    fn at_least(&mut self, other: &Amounts) {
        self.merge(other, Quantity::max);
    }

    fn merge(&mut self, other: &Amounts, with: impl Fn(Quantity, Quantity) -> Quantity) {
        for (name, amount) in &other.0 {
            let mine = self.0.entry(name.clone()).or_insert(Quantity::from_int(0));
            *mine = with(*mine, *amount);
        }
    }
}

/// Whether an init container runs on beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What has to be free for a pod: what it needs while it runs, or to get there if that is more.
pub fn requests(spec: &PodSpec) -> Amounts {
    let of = |container: &Container| {
        Amounts::of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let (mut running, mut sidecars, mut peak) = (Amounts::default(), Amounts::default(), Amounts::default());
    spec.containers.iter().for_each(|container| running.add(&of(container)));
    for container in spec.init_containers.iter().flatten() {
        let mut here = of(container);
        if is_sidecar(container) {
            sidecars.add(&here);
            peak.at_least(&sidecars);
        } else {
            here.add(&sidecars);
            peak.at_least(&here);
        }
    }
    running.add(&sidecars);
    running.at_least(&peak);
    let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    running.0.extend(Amounts::of(of_pod).0);
    running.add(&Amounts::of(spec.overhead.as_ref()));
    running
}

/// The API server lets no quantity through that cannot be read.
fn read(text: &str) -> Quantity {
    text.parse().unwrap_or(Quantity::from_int(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_pods_ask_for() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| {
            let mut container = container(cpu);
            container["restartPolicy"] = json!("Always");
            container
        };
        for (case, spec, want) in [
            ("nothing", json!({"containers": [{"name": "c"}]}), 0),
            ("sums", json!({"containers": [container("1"), container("500m")]}), 1500),
            ("init", json!({"containers": [container("1")], "initContainers": [container("2")]}), 2000),
            (
                "sidecar before init",
                json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("2")]}),
                3000,
            ),
            (
                "sidecar beside",
                json!({"containers": [container("1")], "initContainers": [container("1"), sidecar("1")]}),
                2000,
            ),
            ("overhead", json!({"containers": [container("1")], "overhead": {"cpu": "1"}}), 2000),
            (
                "the pod's own",
                json!({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}),
                4000,
            ),
        ] {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(requests(&spec).get("cpu").milli_value(), want, "{case}");
        }
    }
}
