//! Quality of service classes of pods, as their specs are written.

use crate::field::Field;
use crate::validation::resource_list;

/// Returns `Guaranteed` if every container has limits of both cpu and memory, and equal requests;
/// `BestEffort` if there are no requests or limits; otherwise `Burstable`. Pod-level resources, if
/// set, alone determine the class.
pub fn qos_class(spec: &Field<'_>) -> &'static str {
    let whole = spec.get("resources");
    let requirements: Vec<Field<'_>> = if whole.exists() {
        vec![whole]
    } else {
        let lists = [spec.get("containers"), spec.get("initContainers")];
        lists.iter().flat_map(|list| list.items()).map(|container| container.get("resources")).collect()
    };
    let lists = |field: &Field<'_>| {
        (resource_list::read(&field.get("requests")), resource_list::read(&field.get("limits")))
    };
    coracle_pod_resources::qos_class(requirements.iter().map(lists)).as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_and_limits_determine_the_class() {
        let container = |requests, limits| json!({"resources": {"requests": requests, "limits": limits}});
        let none = json!({});
        let zero = json!({"cpu": "0"});
        let all = json!({"cpu": "1", "memory": "1Gi"});
        let less = json!({"cpu": "500m", "memory": "1Gi"});
        let cpu = json!({"cpu": "1"});
        for (case, spec, want) in [
            ("nothing", json!({"containers": [container(&none, &none)]}), "BestEffort"),
            ("zero is nothing", json!({"containers": [container(&zero, &none)]}), "BestEffort"),
            ("all and equal", json!({"containers": [container(&all, &all)]}), "Guaranteed"),
            ("less requested", json!({"containers": [container(&less, &all)]}), "Burstable"),
            ("cpu only", json!({"containers": [container(&cpu, &cpu)]}), "Burstable"),
            (
                "one without",
                json!({"containers": [container(&all, &all), container(&none, &none)]}),
                "Burstable",
            ),
            (
                "init counts",
                json!({"containers": [container(&all, &all)], "initContainers": [container(&none, &none)]}),
                "Burstable",
            ),
            (
                "the whole pod",
                json!({"containers": [container(&none, &none)], "resources": {"requests": all, "limits": all}}),
                "Guaranteed",
            ),
            (
                "requests of the whole pod",
                json!({"containers": [container(&none, &none)], "resources": {"requests": all}}),
                "Burstable",
            ),
        ] {
            assert_eq!(qos_class(&Field::root(&spec)), want, "{case}");
        }
    }
}
