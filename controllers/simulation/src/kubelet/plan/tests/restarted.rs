//! Pods whose containers are all restarted after an exit of one of them.

use super::*;

fn with_rule(name: &str) -> Value {
    let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
    json!({"name": name, "image": name, "restartPolicy": "Never", "restartPolicyRules": [rule]})
}

/// Builds a pod with an init container, a sidecar, and a container that exits with 42 after two
/// seconds.
fn scenario() -> Scenario {
    let init = json!([{"name": "i", "image": "i"}, {"name": "s", "image": "s", "restartPolicy": "Always"}]);
    let containers = json!([with_rule("c"), {"name": "d", "image": "d", "command": ["sleep", "1000"]}]);
    Scenario::of(
        &[("exit-code", "42"), ("exit-after", "2s")],
        json!({"restartPolicy": "Never", "initContainers": init, "containers": containers}),
    )
}

impl Scenario {
    fn restarting(&self) -> (String, String) {
        let mut conditions = self.status().conditions.iter().flatten();
        let condition = conditions.find(|condition| condition.type_ == "AllContainersRestarting").unwrap();
        (condition.status.clone(), condition.reason.clone().unwrap_or_default())
    }
}

#[test]
fn all_containers_are_removed_and_started_again() {
    let mut scenario = scenario();
    let runs = "Running i:Completed(0) s:running c:running d:running Ready";
    assert_eq!(scenario.at(0).as_deref(), Some(runs));
    assert_eq!(scenario.restarting(), ("False".to_owned(), String::new()));
    let exited = "Running i:Completed(0) s:running c:Error(42) d:running (ContainersNotReady)";
    assert_eq!(scenario.at(2000).as_deref(), Some(exited));
    assert_eq!(scenario.restarting(), ("True".to_owned(), "RestartAllContainersStarted".to_owned()));
    assert_eq!(scenario.wakes_at(), Some(3000));
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(2500), None);
    let removed = "Running i:RestartingAllContainers+1 s:RestartingAllContainers+1 c:RestartingAllContainers+1 d:RestartingAllContainers+1 (ContainersNotReady)";
    assert_eq!(scenario.at(3000).as_deref(), Some(removed));
    assert_eq!(scenario.reported, ["Killing killing", "Killing killing"], "d, then s");
    assert_eq!(scenario.restarting(), ("False".to_owned(), String::new()));
    let status = scenario.status().container_statuses.as_ref().unwrap()[0].clone();
    let last = status.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.reason.as_deref(), last.exit_code), (Some("RestartingAllContainers"), 137));
    assert_eq!((status.container_id, scenario.wakes_at()), (None, Some(3000)));
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    let again = "Running i:Completed(0)+1 s:running+1 c:running+1 d:running+1 Ready";
    assert_eq!(scenario.at(3000).as_deref(), Some(again));
    let ready =
        scenario.patch["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    let deleted = ["reason", "message"].map(|member| ready.get(member) == Some(&Value::Null));
    assert_eq!(deleted, [true, true], "they belong to the status before");
    let conditions = scenario.status().conditions.as_ref().unwrap();
    let changed =
        |name: &str| conditions.iter().find(|c| c.type_ == name).unwrap().last_transition_time.clone();
    assert_eq!(changed("Initialized").unwrap().0, scenario.start, "it stays initialized");
    assert_eq!(scenario.reported.len(), 12, "without a back-off: {:?}", scenario.reported);
    assert_eq!(scenario.at(4999), None);
    assert!(scenario.at(5000).unwrap().contains("c:Error(42)+1"), "again and again");
}

#[test]
fn a_pod_without_its_containers_is_deleted() {
    let mut scenario = scenario();
    scenario.at(0);
    scenario.at(2000);
    scenario.at(3000);
    scenario.delete(30);
    scenario.at(3100);
    assert!(scenario.is_deleted, "{}", scenario.shown());
}
