//! DefaultTolerationSeconds: pods tolerate a node that is not ready or unreachable for five
//! minutes, unless they have tolerations of their own.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apiserver::admission::json::{items, list_at, object_at, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::{Value, json};

pub(super) struct DefaultTolerationSeconds;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl AdmissionPlugin for DefaultTolerationSeconds {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !attributes.is("", "pods") {
            return Ok(());
        }
        let given = items(&attributes.object["spec"]["tolerations"]);
        let missing: Vec<Value> = TAINTS
            .iter()
            .filter(|taint| !given.iter().any(|toleration| covers(toleration, taint)))
            .map(|taint| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(list) = object_at(attributes.object, "spec").and_then(|spec| list_at(spec, "tolerations"))
        {
            list.extend(missing);
        }
        Ok(())
    }
}

/// Returns `true` if a toleration tolerates a taint with effect `NoExecute`. An empty key or effect
/// matches everything.
fn covers(toleration: &Value, taint: &str) -> bool {
    ["", taint].contains(&text(&toleration["key"]))
        && ["", "NoExecute"].contains(&text(&toleration["effect"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};

    #[test]
    fn missing_tolerations_are_added() {
        let default = |taint: &str| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let own = json!({"key": TAINTS[0], "operator": "Exists", "effect": "NoExecute"});
        let all = json!({"operator": "Exists"});
        let other = json!({"key": TAINTS[1], "operator": "Exists", "effect": "NoSchedule"});
        for (given, want) in [
            (json!([]), json!([default(TAINTS[0]), default(TAINTS[1])])),
            (json!([own]), json!([own, default(TAINTS[1])])),
            (json!([all]), json!([all])),
            (json!([other]), json!([other, default(TAINTS[0]), default(TAINTS[1])])),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"tolerations": given}});
            let got = Request::new("", "pods", "ns", pod).run(&DefaultTolerationSeconds, &World::default());
            assert_eq!(got.expect("a pod")["spec"]["tolerations"], want);
        }
    }
}
