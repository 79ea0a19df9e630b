//! Priority: sets a pod's priority from its PriorityClass, and allows one default class only.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::{object_at, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

pub(super) struct Priority;

const GROUP: &str = "scheduling.k8s.io";
const RESOURCE: &str = "priorityclasses";

impl AdmissionPlugin for Priority {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        match attributes.operation {
            Operation::Create if attributes.is("", "pods") => resolve(attributes, cluster),
            Operation::Update if attributes.is("", "pods") => {
                keep(attributes);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !attributes.is(GROUP, RESOURCE) || attributes.object["globalDefault"] != true {
            return Ok(());
        }
        let Some(other) = default_class(cluster)? else { return Ok(()) };
        let name = text(&other["metadata"]["name"]);
        if attributes.operation == Operation::Create || name != text(&attributes.object["metadata"]["name"]) {
            let detail =
                format!("PriorityClass {name} is already marked as default. Only one default can exist");
            return Err(attributes.forbidden(detail));
        }
        Ok(())
    }
}

fn resolve(attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
    let spec = &attributes.object["spec"];
    let class = match text(&spec["priorityClassName"]) {
        "" => default_class(cluster)?,
        name => match cluster.get(&GroupResource::new(GROUP, RESOURCE), "", name)? {
            None => {
                return Err(attributes.forbidden(format!("no PriorityClass with name {name} was found")));
            }
            found => found,
        },
    };
    let (priority, policy) = match &class {
        Some(class) => (class["value"].as_i64().unwrap_or(0), text(&class["preemptionPolicy"])),
        None => (0, "PreemptLowerPriority"),
    };
    if let Some(own) = spec["priority"].as_i64().filter(|own| *own != priority) {
        return Err(attributes.forbidden(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        )));
    }
    let own_policy = text(&spec["preemptionPolicy"]);
    if !policy.is_empty() && !own_policy.is_empty() && own_policy != policy {
        return Err(attributes.forbidden(format!(
            "the string value of PreemptionPolicy ({own_policy}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    let policy = policy.to_owned();
    let Some(spec) = object_at(attributes.object, "spec") else { return Ok(()) };
    spec["priority"] = priority.into();
    if !policy.is_empty() {
        spec["preemptionPolicy"] = policy.into();
    }
    if let Some(class) = class {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// Fills in the stored priority where an update leaves it out. Validation rejects a change.
fn keep(attributes: &mut AdmissionAttributes<'_>) {
    let Some(old) = attributes.old_object else { return };
    let Some(spec) = object_at(attributes.object, "spec") else { return };
    for field in ["priority", "preemptionPolicy"] {
        if spec[field].is_null() && !old["spec"][field].is_null() {
            spec[field] = old["spec"][field].clone();
        }
    }
}

/// Returns the global default; the lowest one if concurrent creates led to several.
fn default_class(cluster: &dyn Cluster) -> Result<Option<Value>> {
    let classes = cluster.list(&GroupResource::new(GROUP, RESOURCE), "")?;
    let default = classes.into_iter().filter(|class| class["globalDefault"] == true);
    Ok(default.min_by_key(|class| class["value"].as_i64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "PreemptLowerPriority"})
    }

    #[test]
    fn pods_get_the_priority_of_their_class() {
        let world = |default: bool| {
            World::default().with(GROUP, RESOURCE, class("mid", 100, false)).with(
                GROUP,
                RESOURCE,
                class("std", 7, default),
            )
        };
        let refused = |text: &str| format!("403 pods \"p\" is forbidden: {text}");
        for (default, spec, want) in [
            (false, json!({}), Ok(json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}))),
            (
                true,
                json!({}),
                Ok(
                    json!({"priority": 7, "preemptionPolicy": "PreemptLowerPriority", "priorityClassName": "std"}),
                ),
            ),
            (
                true,
                json!({"priorityClassName": "mid"}),
                Ok(
                    json!({"priority": 100, "preemptionPolicy": "PreemptLowerPriority", "priorityClassName": "mid"}),
                ),
            ),
            (
                false,
                json!({"priorityClassName": "x"}),
                Err(refused("no PriorityClass with name x was found")),
            ),
            (
                false,
                json!({"priorityClassName": "mid", "priority": 7}),
                Err(refused(
                    "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 100 from the given PriorityClass name",
                )),
            ),
            (
                false,
                json!({"preemptionPolicy": "Never"}),
                Err(refused(
                    "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
                )),
            ),
        ] {
            let request = Request::new("", "pods", "ns", json!({"metadata": {"name": "p"}, "spec": spec}));
            assert_eq!(request.run(&Priority, &world(default)).map(|pod| pod["spec"].clone()), want);
        }
    }

    #[test]
    fn updates_keep_the_priority() {
        let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
        let request = Request::new("", "pods", "ns", pod(json!({}))).update(pod(json!({"priority": 5})));
        assert_eq!(request.run(&Priority, &World::default()).expect("a pod")["spec"], json!({"priority": 5}));
    }

    #[test]
    fn a_second_default_class_is_rejected() {
        let world = World::default().with(GROUP, RESOURCE, class("std", 7, true));
        let create = |name: &str, default| Request::new(GROUP, RESOURCE, "", class(name, 1, default));
        let refused = Err("403 priorityclasses.scheduling.k8s.io \"new\" is forbidden: PriorityClass std is already marked as default. Only one default can exist".to_owned());
        assert_eq!(create("new", true).run(&Priority, &world).map(|_| ()), refused);
        assert_eq!(
            create("new", true).update(class("new", 1, false)).run(&Priority, &world).map(|_| ()),
            refused
        );
        assert!(create("new", false).run(&Priority, &world).is_ok());
        assert!(create("std", true).update(class("std", 1, true)).run(&Priority, &world).is_ok());
    }
}
