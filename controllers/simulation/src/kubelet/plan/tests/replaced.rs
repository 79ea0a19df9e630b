//! Containers that are replaced while they run, and resources that change in place.

use super::*;

impl Scenario {
    /// Changes the first container of the spec.
    fn change(&mut self, member: &str, value: Value) {
        let mut pod = json!(self.pod);
        pod["spec"]["containers"][0][member] = value;
        pod["metadata"]["generation"] = json!(self.pod.metadata.generation.unwrap() + 1);
        self.pod = serde_json::from_value(pod).unwrap();
    }

    fn container(&self) -> ContainerStatus {
        self.status().container_statuses.as_ref().unwrap()[0].clone()
    }

    fn deferred(&self) -> Option<String> {
        let mut conditions = self.status().conditions.iter().flatten();
        conditions.find(|condition| condition.type_ == "PodResizePending")?.message.clone()
    }
}

#[test]
fn a_container_whose_image_changes_is_replaced() {
    for (policy, role, code, want) in [
        ("Always", "containers", 0, "Container c definition changed, will be restarted"),
        ("Never", "containers", 143, "Container c definition changed, will be restarted"),
        ("Always", "initContainers", 0, "Init container c definition changed"),
    ] {
        let mut spec = json!({"restartPolicy": policy, "containers": [{"name": "m", "image": "m", "command": ["sleep", "1000"]}]});
        let own = json!({"name": "c", "image": "img:1", "command": ["sleep", "1000"]});
        match role {
            "containers" => spec["containers"].as_array_mut().unwrap().insert(0, own),
            _ => {
                spec["initContainers"] = json!([own]);
                spec["initContainers"][0]["restartPolicy"] = json!("Always");
            }
        }
        let mut scenario = Scenario::of(&[], spec);
        scenario.at(0);
        let mut pod = json!(scenario.pod);
        pod["spec"][role][0]["image"] = json!("img:2");
        scenario.pod = serde_json::from_value(pod).unwrap();
        assert_eq!(
            scenario.at(5000).as_deref(),
            Some("Running c:running+1 m:running Ready"),
            "{role} {policy}"
        );
        assert_eq!(scenario.reported[0], format!("Killing {want}"));
        assert!(scenario.reported[1].starts_with("Pulled Container image \"img:2\""), "{role} {policy}");
        assert_eq!(scenario.reported.len(), 4, "{role} {policy}");
        let statuses = [&scenario.status().init_container_statuses, &scenario.status().container_statuses];
        let status = statuses.into_iter().flatten().flatten().next().unwrap().clone();
        let last = status.last_state.unwrap().terminated.unwrap();
        assert_eq!((status.image.as_str(), status.restart_count, last.exit_code), ("img:2", 1, code));
        assert_ne!(last.container_id, status.container_id);
        assert_eq!(scenario.at(6000), None, "{role} {policy}: once");
    }
}

#[test]
fn a_replaced_container_waits_for_its_image() {
    let mut scenario = Scenario::of(&[("missing-images", "bad")], json!({}));
    scenario.at(0);
    scenario.change("image", json!("bad"));
    // The phase of a pod that has run is not pending any more.
    let pulling = "Running c:ErrImagePull (ContainersNotReady)";
    assert_eq!(scenario.at(1000).as_deref(), Some(pulling));
    assert!(scenario.container().last_state.unwrap().terminated.is_some());
    assert_eq!(scenario.at(2000).as_deref(), Some("Running c:ImagePullBackOff (ContainersNotReady)"));
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    scenario.at(3000);
    assert!(!scenario.shown().contains("running"), "{}", scenario.shown());
    scenario.change("image", json!("img:3"));
    assert_eq!(scenario.at(4000).as_deref(), Some("Running c:running+1 Ready"));
    assert_eq!((scenario.container().restart_count, scenario.container().image.as_str()), (1, "img:3"));
    scenario.change("image", json!("bad"));
    scenario.at(5000);
    scenario.delete(30);
    assert_eq!(scenario.at(6000).as_deref(), Some("Succeeded c:Completed(0)+1 (PodCompleted)"));
}

#[test]
fn another_image_ends_a_back_off() {
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.change("command", json!(["false"]));
    for millis in [0, 1000] {
        scenario.at(millis);
    }
    assert_eq!(scenario.shown(), "Running c:CrashLoopBackOff+1 (ContainersNotReady)");
    scenario.change("command", json!(["sleep", "1000"]));
    assert_eq!(scenario.at(2000), None, "the command of a container cannot change, and nothing looks at it");
    scenario.change("image", json!("img:2"));
    assert_eq!(scenario.at(3000).as_deref(), Some("Running c:running+2 Ready"));
}

#[test]
fn a_container_that_a_probe_kills_is_restarted_by_its_policy() {
    for (policy, want) in [
        ("Always", "Killing Container c failed liveness probe, will be restarted"),
        ("Never", "Killing Container c failed liveness probe"),
        // Its rules are for its own exits.
        ("Rule", "Killing Container c failed liveness probe"),
    ] {
        let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
        let container =
            json!({"name": "c", "image": "i", "command": ["sleep", "100"], "livenessProbe": probe});
        let mut spec = json!({"restartPolicy": policy, "containers": [container]});
        if policy == "Rule" {
            let codes = json!({"operator": "In", "values": [137]});
            spec["restartPolicy"] = json!("Always");
            spec["containers"][0]["restartPolicy"] = json!("Never");
            spec["containers"][0]["restartPolicyRules"] = json!([{"action": "Restart", "exitCodes": codes}]);
        }
        let mut scenario = Scenario::of(&[], spec);
        scenario.at(0);
        assert!(scenario.reported.contains(&want.to_owned()), "{policy}: {:?}", scenario.reported);
    }
}

#[test]
fn resources_change_in_place() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}});
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.change("resources", resources("100m"));
    scenario.at(0);
    scenario.change("resources", resources("0.1"));
    assert_eq!(scenario.at(500), None, "the same amount");
    scenario.change("resources", resources("200m"));
    scenario.write(1000);
    let summary = r#"{"containers":[{"name":"c","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"200m"}}}],"generation":4}"#;
    assert_eq!(
        scenario.reported,
        [
            format!("ResizeStarted Pod resize started: {summary}"),
            format!("ResizeCompleted Pod resize completed: {summary}"),
        ]
    );
    assert_eq!(json!(scenario.container().resources), resources("200m"));
    assert_eq!(json!(scenario.container().allocated_resources), json!({"cpu": "200m"}));
    assert_eq!(scenario.container().restart_count, 0);

    let policy = |resource: &str, policy: &str| json!({"resourceName": resource, "restartPolicy": policy});
    scenario
        .change("resizePolicy", json!([policy("cpu", "RestartContainer"), policy("memory", "NotRequired")]));
    scenario.change("resources", json!({"requests": {"cpu": "200m"}, "limits": {"memory": "2Gi"}}));
    scenario.write(2000);
    assert_eq!(scenario.reported.len(), 2, "{:?}", scenario.reported);
    scenario.change("resources", json!({"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}));
    scenario.at(3000);
    assert_eq!(scenario.reported[1], "Killing Container c resize requires restart");
    assert_eq!(scenario.container().restart_count, 1);
}

#[test]
fn a_resize_waits_for_room() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.change("resources", resources("1"));
    scenario.at(0);
    scenario.change("resources", resources("2"));
    scenario.obstacles.resize = Some("no room".to_owned());
    assert_eq!(scenario.at(1000).as_deref(), Some("Running c:running Ready"));
    let [event] = &scenario.reported[..] else { panic!("{:?}", scenario.reported) };
    assert!(event.starts_with("ResizeDeferred Pod resize Deferred: {\"containers\":"), "{event}");
    assert!(event.ends_with("\"generation\":3,\"error\":\"no room\"}"), "{event}");
    assert_eq!(scenario.deferred().as_deref(), Some("no room"));
    assert_eq!(json!(scenario.container().resources), resources("1"), "what it has");
    assert_eq!(scenario.at(2000), None, "one event");
    scenario.obstacles.resize = Some("less room".to_owned());
    scenario.at(3000);
    assert_eq!((scenario.reported.len(), scenario.deferred().as_deref()), (0, Some("less room")));
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(4000), None);
    let mut withdrawn =
        Scenario { pod: scenario.pod.clone(), state: scenario.state.clone(), ..Scenario::of(&[], json!({})) };
    withdrawn.change("resources", resources("1"));
    withdrawn.at(5000);
    assert_eq!((withdrawn.reported.len(), withdrawn.deferred()), (0, None));
    scenario.obstacles.resize = None;
    scenario.at(5000);
    assert_eq!((scenario.reported.len(), scenario.deferred()), (2, None));
    assert_eq!(json!(scenario.container().resources), resources("2"));
}

#[test]
fn main_containers_go_on_beside_a_sidecar_that_waits_for_its_image() {
    let sidecar = json!({"name": "s", "image": "s", "restartPolicy": "Always"});
    let main = json!({"name": "c", "image": "c", "command": ["sleep", "5"]});
    let spec = json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [main]});
    let mut scenario = Scenario::of(&[("missing-images", "bad")], spec);
    scenario.at(0);
    let mut pod = json!(scenario.pod);
    pod["spec"]["initContainers"][0]["image"] = json!("bad");
    scenario.pod = serde_json::from_value(pod).unwrap();
    assert_eq!(scenario.at(1000).as_deref(), Some("Running s:ErrImagePull c:running (ContainersNotReady)"));
    scenario.at(2000);
    let ended = "Succeeded s:Error(143) c:Completed(0) (PodCompleted)";
    assert_eq!(scenario.at(5000).as_deref(), Some(ended));
}

#[test]
fn a_status_has_the_image_that_ran() {
    let init = json!([{"name": "i", "image": "i:1", "command": ["sh", "-c", "sleep 4; exit 1"]}]);
    let mut scenario = Scenario::of(&[("missing-images", "i:3")], json!({"initContainers": init}));
    let image = |scenario: &Scenario| {
        let init = scenario.status().init_container_statuses.clone().unwrap();
        (init[0].image.clone(), init[0].restart_count)
    };
    let set_image = |scenario: &mut Scenario, image: &str| {
        let mut pod = json!(scenario.pod);
        pod["spec"]["initContainers"][0]["image"] = json!(image);
        scenario.pod = serde_json::from_value(pod).unwrap();
    };
    scenario.at(0);
    set_image(&mut scenario, "i:2");
    scenario.write(1000);
    assert_eq!(image(&scenario), ("i:1".to_owned(), 0), "an init container is not replaced while it runs");
    scenario.at(4000);
    assert_eq!(image(&scenario), ("i:2".to_owned(), 1), "it runs again with the new image");
    set_image(&mut scenario, "i:3");
    scenario.at(8000);
    assert_eq!(image(&scenario), ("i:2".to_owned(), 1));
    assert_eq!(scenario.shown(), "Pending i:ErrImagePull+1 c:PodInitializing (ContainersNotReady)");

    let containers = json!([{"name": "c", "image": "c:1", "command": ["true"]}, {"name": "d", "image": "d"}]);
    let mut scenario = Scenario::of(
        &[("exits", r#"{"d": {"after": "1h"}}"#)],
        json!({"restartPolicy": "Never", "containers": containers}),
    );
    scenario.at(0);
    scenario.change("image", json!("c:2"));
    scenario.write(1000);
    assert_eq!(scenario.container().image, "c:1", "it does not run again");
}

#[test]
fn a_change_of_an_image_is_noticed_after_a_restart_of_the_process() {
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.at(0);
    scenario.change("image", json!("img:2"));
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(1000).as_deref(), Some("Running c:running+1 Ready"));
    // A client that writes a status may name the image as another runtime does.
    let mut pod = json!(scenario.pod);
    pod["status"]["containerStatuses"][0]["image"] = json!("docker.io/library/img:2");
    pod["status"]["containerStatuses"][0]["containerID"] = json!("containerd://1");
    scenario.pod = serde_json::from_value(pod).unwrap();
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(2000), None);
}

#[test]
fn a_pod_that_ends_keeps_the_resources_that_it_had() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut scenario = Scenario::of(&[("exit-after", "5s")], json!({"restartPolicy": "Never"}));
    scenario.change("resources", resources("2"));
    scenario.at(0);
    scenario.change("resources", resources("20"));
    scenario.obstacles.resize = Some("too much".to_owned());
    scenario.at(1000);
    assert_eq!(scenario.at(5000).as_deref(), Some("Succeeded c:Completed(0) (PodCompleted)"));
    assert_eq!((json!(scenario.container().resources), scenario.deferred()), (resources("2"), None));
}
