//! Preparation: drops the fields of disabled features before validation.

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Field, Path};
use serde_json::{Map, Value};

use super::container_lists::{ContainerType, containers};

/// Drops the fields of disabled features from a template; `old` is the template before an update.
pub fn prepare_pod_template(template: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    if let Some(spec) = template.get_mut("spec") {
        drop_disabled(spec, old.and_then(|old| old.get("spec")), features);
    }
}

/// Drops the fields of disabled features from a pod's spec, unless the old spec has them already:
/// trust bundles and pod certificates (ClusterTrustBundleProjection, PodCertificateRequest), stop
/// signals (ContainerStopSignals) and scheduling groups (GenericWorkload).
pub fn drop_disabled(spec: &mut Value, old: Option<&Value>, features: &FeatureGates) {
    let old = Field::at(old, Path::root());
    let Some(spec) = spec.as_object_mut() else { return };
    let projections =
        [("clusterTrustBundle", "ClusterTrustBundleProjection"), ("podCertificate", "PodCertificateRequest")];
    for (source, gate) in projections {
        if !features.is_enabled(gate) && !has_projection(&old, source) {
            drop_projection(spec, source);
        }
    }
    if !features.is_enabled("ContainerStopSignals")
        && !containers(&old).any(|container| container.walk("lifecycle.stopSignal").exists())
    {
        drop_stop_signals(spec);
    }
    if !features.is_enabled("GenericWorkload") && !old.get("schedulingGroup").exists() {
        spec.remove("schedulingGroup");
    }
}

fn has_projection(spec: &Field<'_>, member: &str) -> bool {
    let volumes = spec.get("volumes");
    let mut sources = volumes.items().flat_map(|volume| volume.walk("projected.sources").items());
    sources.any(|source| source.get(member).exists())
}

fn drop_projection(spec: &mut Map<String, Value>, member: &str) {
    for volume in items(spec.get_mut("volumes")) {
        let sources = volume.get_mut("projected").and_then(|projected| projected.get_mut("sources"));
        for source in items(sources) {
            source.remove(member);
        }
    }
}

fn drop_stop_signals(spec: &mut Map<String, Value>) {
    for list in ContainerType::ALL.map(ContainerType::list) {
        for container in items(spec.get_mut(list)) {
            let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else {
                continue;
            };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_follow_their_gates() {
        let container = |signal: bool| match signal {
            true => json!({"name": "c", "lifecycle": {"stopSignal": "SIGTERM"}}),
            false => json!({"name": "c"}),
        };
        let spec = |signal: bool, group: bool, bundle: bool| {
            let source = if bundle { json!({"clusterTrustBundle": {"path": "p"}}) } else { json!({}) };
            let mut spec = json!({
                "containers": [container(signal)], "volumes": [{"name": "v", "projected": {"sources": [source]}}],
            });
            if group {
                spec["schedulingGroup"] = json!({"podGroupName": "g"});
            }
            spec
        };
        for (gates, old, want) in [
            (&[][..], None, spec(false, false, false)),
            (&[("ContainerStopSignals", true)], None, spec(true, false, false)),
            (&[("GenericWorkload", true)], None, spec(false, true, false)),
            (&[("ClusterTrustBundleProjection", true)], None, spec(false, false, true)),
            (&[("AllAlpha", true), ("AllBeta", true)], None, spec(true, true, true)),
            (&[], Some(spec(true, false, true)), spec(true, false, true)),
        ] {
            let mut given = spec(true, true, true);
            drop_disabled(&mut given, old.as_ref(), &FeatureGates::new(gates.iter().copied()).unwrap());
            assert_eq!(given, want, "{gates:?}");
        }
    }
}
