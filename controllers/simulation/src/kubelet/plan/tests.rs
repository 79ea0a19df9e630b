use super::*;
use std::net::Ipv4Addr;

use coracle_behavior::Profile;
use coracle_controller_runtime::events::EventType;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::jiff::ToSpan;
use serde_json::json;

use super::super::runtime_state::{Progress, State};

mod replaced;
mod restarted;

/// A pod, the start time, and the state of its kubelet.
struct Scenario {
    pod: Pod,
    state: Option<PodRuntimeState>,
    start: Timestamp,
    is_mountable: bool,
    obstacles: Obstacles,
    reported: Vec<String>,
    wake: Option<Timestamp>,
    is_deleted: bool,
    /// The last patch of the status.
    patch: Value,
}

impl Scenario {
    fn of(annotations: &[(&str, &str)], spec: Value) -> Scenario {
        let mut pod = json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "generation": 1, "annotations": {}},
            "spec": {"containers": [{"name": "c", "image": "img:1"}], "restartPolicy": "Always"},
            "status": {"phase": "Pending"},
        });
        for (name, value) in annotations {
            pod["metadata"]["annotations"][format!("sim.coracle.dev/{name}")] = json!(value);
        }
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        Scenario {
            pod: serde_json::from_value(pod).unwrap(),
            state: None,
            start: "2026-01-01T00:00:00Z".parse().unwrap(),
            is_mountable: true,
            obstacles: Obstacles::default(),
            reported: Vec::new(),
            wake: None,
            is_deleted: false,
            patch: Value::Null,
        }
    }

    /// Runs the kubelet at a time and returns the status that it writes; None if it writes none.
    fn at(&mut self, millis: i64) -> Option<String> {
        self.step(millis, false)
    }

    /// Writes the status even if nothing has changed, as for another generation of the pod.
    fn write(&mut self, millis: i64) {
        self.step(millis, true);
    }

    fn step(&mut self, millis: i64, is_outdated: bool) -> Option<String> {
        let (behavior, warnings) = PodBehavior::of(&self.pod, &[], Profile::Realistic);
        assert_eq!(warnings, [""; 0]);
        let now = self.start + millis.milliseconds();
        let addresses = Addresses {
            host: Ipv4Addr::new(172, 18, 0, 2),
            pod: self.is_mountable.then_some(Ipv4Addr::new(10, 244, 0, 2)),
        };
        let (pod, state) = (&self.pod, self.state.as_ref());
        let obstacles = Obstacles { volumes: !self.is_mountable, ..self.obstacles.clone() };
        let plan = plan(&Observed {
            pod,
            state,
            behavior: &behavior,
            obstacles: &obstacles,
            is_outdated,
            addresses,
            now,
        });
        self.state = Some(plan.state);
        self.wake = plan.wake;
        self.is_deleted = plan.is_deleted;
        self.reported = plan.events.iter().map(|h| format!("{} {}", h.reason, h.message)).collect();
        let mut status = plan.status?["status"].take();
        self.patch = status.clone();
        status.as_object_mut().unwrap().remove("$setElementOrder/conditions");
        status["conditions"].as_array_mut().unwrap().retain(|condition| condition.get("$patch").is_none());
        self.pod.status = Some(serde_json::from_value(status).unwrap());
        Some(self.shown())
    }

    fn delete(&mut self, grace: i64) {
        self.pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.start));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
    }

    fn status(&self) -> &PodStatus {
        self.pod.status.as_ref().unwrap()
    }

    /// Returns the phase, the containers and the conditions as text, such as `Running c:running
    /// Ready`.
    fn shown(&self) -> String {
        let status = self.status();
        let lists = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        let containers = lists.into_iter().flatten().flatten().map(show);
        let conditions = status.conditions.iter().flatten();
        let ready = conditions.filter(|c| c.type_ == "Ready").map(|c| match c.status.as_str() {
            "True" => "Ready".to_owned(),
            _ => format!("({})", c.reason.as_deref().unwrap_or("?")),
        });
        let phase = status.phase.clone().unwrap_or_default();
        std::iter::once(phase).chain(containers).chain(ready).collect::<Vec<_>>().join(" ")
    }

    fn wakes_at(&self) -> Option<i64> {
        self.wake.map(|wake| i64::try_from(wake.duration_since(self.start).as_millis()).unwrap())
    }
}

fn show(container: &ContainerStatus) -> String {
    let state = container.state.clone().unwrap_or_default();
    let what = match (state.waiting, state.terminated) {
        (Some(waiting), _) => waiting.reason.unwrap_or_default(),
        (_, Some(terminated)) => {
            format!("{}({})", terminated.reason.unwrap_or_default(), terminated.exit_code)
        }
        _ => "running".to_owned(),
    };
    match container.restart_count {
        0 => format!("{}:{what}", container.name),
        restarts => format!("{}:{what}+{restarts}", container.name),
    }
}

#[test]
fn what_is_written_and_when() {
    let container = |name: &str| json!({"name": name, "image": "img:1"});
    let sidecar = |name: &str| json!({"name": name, "image": "img:1", "restartPolicy": "Always"});
    let script = |text: &str| json!({"name": "c", "image": "img:1", "command": ["sh", "-c", text]});
    type Steps = Vec<(i64, Option<&'static str>, Option<i64>)>;
    type Case = (&'static str, &'static [(&'static str, &'static str)], Value, Steps);
    let cases: Vec<Case> = vec![
        (
            "one write to the start, and then nothing",
            &[],
            json!({}),
            vec![(0, Some("Running c:running Ready"), None), (60_000, None, None)],
        ),
        (
            "init containers and sidecars go first",
            &[],
            json!({"initContainers": [container("a"), sidecar("b")]}),
            vec![(0, Some("Running a:Completed(0) b:running c:running Ready"), None)],
        ),
        (
            "ready later",
            &[("ready-after", "1500ms")],
            json!({}),
            vec![
                (0, Some("Running c:running (ContainersNotReady)"), Some(1500)),
                (1499, None, Some(1500)),
                (1500, Some("Running c:running Ready"), None),
            ],
        ),
        (
            "never ready",
            &[("never-ready", "true")],
            json!({}),
            vec![(0, Some("Running c:running (ContainersNotReady)"), None), (60_000, None, None)],
        ),
        (
            "does its work",
            &[("exit-after", "2s")],
            json!({"restartPolicy": "OnFailure", "initContainers": [sidecar("b")]}),
            vec![
                (0, Some("Running b:running c:running Ready"), Some(2000)),
                (2000, Some("Succeeded b:Completed(0) c:Completed(0) (PodCompleted)"), None),
                (9000, None, None),
            ],
        ),
        (
            "fails for good",
            &[("exit-after", "2s"), ("exit-code", "3")],
            json!({"restartPolicy": "Never"}),
            vec![
                (0, Some("Running c:running Ready"), Some(2000)),
                (2000, Some("Failed c:Error(3) (PodFailed)"), None),
            ],
        ),
        (
            "fails again and again",
            &[("exit-after", "1s"), ("exit-code", "1")],
            json!({}),
            vec![
                (0, Some("Running c:running Ready"), Some(1000)),
                (1000, Some("Running c:running+1 Ready"), Some(2000)),
                (2000, Some("Running c:CrashLoopBackOff+1 (ContainersNotReady)"), Some(12_000)),
                (12_000, Some("Running c:running+2 Ready"), Some(13_000)),
                (13_000, Some("Running c:CrashLoopBackOff+2 (ContainersNotReady)"), Some(33_000)),
                (33_000, Some("Running c:running+3 Ready"), Some(34_000)),
                (34_000, Some("Running c:CrashLoopBackOff+3 (ContainersNotReady)"), Some(74_000)),
            ],
        ),
        (
            "at once",
            &[("exit-after", "0s")],
            json!({}),
            vec![(0, Some("Running c:CrashLoopBackOff+1 (ContainersNotReady)"), Some(10_000))],
        ),
        (
            "is forgiven after a long time",
            &[("exit-after", "601s")],
            json!({}),
            vec![
                (0, Some("Running c:running Ready"), Some(601_000)),
                (601_000, Some("Running c:running+1 Ready"), Some(1_202_000)),
                (1_202_000, Some("Running c:running+2 Ready"), Some(1_803_000)),
            ],
        ),
        (
            "a command that ends",
            &[],
            json!({"restartPolicy": "OnFailure", "containers": [script("sleep 2; exit 1"), script("true")]}),
            vec![
                (0, Some("Running c:running c:Completed(0) (ContainersNotReady)"), Some(2000)),
                (2000, Some("Running c:running+1 c:Completed(0) (ContainersNotReady)"), Some(4000)),
                (
                    4000,
                    Some("Running c:CrashLoopBackOff+1 c:Completed(0) (ContainersNotReady)"),
                    Some(14_000),
                ),
            ],
        ),
        (
            "nothing is known of its command",
            &[],
            json!({"restartPolicy": "Never"}),
            vec![
                (0, Some("Running c:running Ready"), Some(1000)),
                (1000, Some("Succeeded c:Completed(0) (PodCompleted)"), None),
            ],
        ),
        (
            "init containers take their time",
            &[],
            json!({"initContainers": [script("sleep 2"), sidecar("b"), script("sleep 1")]}),
            vec![
                (
                    0,
                    Some(
                        "Pending c:running b:PodInitializing c:PodInitializing c:PodInitializing (ContainersNotReady)",
                    ),
                    Some(2000),
                ),
                (
                    2000,
                    Some("Pending c:Completed(0) b:running c:running c:PodInitializing (ContainersNotReady)"),
                    Some(3000),
                ),
                (3000, Some("Running c:Completed(0) b:running c:Completed(0) c:running Ready"), None),
            ],
        ),
        (
            "an init container fails again and again",
            &[],
            json!({"initContainers": [script("false")]}),
            vec![
                (
                    0,
                    Some("Pending c:CrashLoopBackOff+1 c:PodInitializing (ContainersNotReady)"),
                    Some(10_000),
                ),
                (
                    10_000,
                    Some("Pending c:CrashLoopBackOff+2 c:PodInitializing (ContainersNotReady)"),
                    Some(30_000),
                ),
            ],
        ),
        (
            "an init container fails for good",
            &[],
            json!({"restartPolicy": "Never", "initContainers": [script("exit 2"), container("b")]}),
            vec![(0, Some("Failed c:Error(2) b:PodInitializing c:PodInitializing (PodFailed)"), None)],
        ),
        (
            "runs too long",
            &[("terminate-after", "1s")],
            json!({"activeDeadlineSeconds": 5}),
            vec![
                (0, Some("Running c:running Ready"), Some(5000)),
                (5000, Some("Running c:running Ready"), Some(6000)),
                (6000, Some("Failed c:Completed(0) (PodFailed)"), None),
            ],
        ),
    ];
    for (case, annotations, spec, steps) in cases {
        let mut scenario = Scenario::of(annotations, spec);
        for (millis, want, wake) in steps {
            assert_eq!(scenario.at(millis).as_deref(), want, "{case} at {millis}");
            assert_eq!(scenario.wakes_at(), wake, "{case} at {millis}");
        }
    }
}

#[test]
fn a_pod_that_ran_too_long_says_so() {
    let mut scenario = Scenario::of(&[], json!({"activeDeadlineSeconds": 5}));
    scenario.at(0);
    assert_eq!(scenario.status().reason, None);
    scenario.at(5000);
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(scenario.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(scenario.status().message.as_deref(), Some(message));
    assert_eq!(
        scenario.reported,
        [format!("DeadlineExceeded {message}"), "Killing Stopping container c".to_owned()]
    );
}

#[test]
fn pods_end_within_their_grace() {
    for (case, terminate_after, grace, steps) in [
        ("at once", "0s", 30, vec![(1000, Some("Succeeded c:Completed(0) (PodCompleted)"), true)]),
        (
            "after a while",
            "2s",
            30,
            vec![
                (1000, Some("Running c:running Ready"), false),
                (2999, None, false),
                (3000, Some("Succeeded c:Completed(0) (PodCompleted)"), true),
            ],
        ),
        (
            "too slow",
            "1m",
            5,
            vec![
                (1000, Some("Running c:running Ready"), false),
                (6000, Some("Failed c:Error(137) (PodFailed)"), true),
            ],
        ),
        ("kept by a finalizer only", "1m", 0, vec![(1000, None, false)]),
    ] {
        let mut scenario = Scenario::of(&[("terminate-after", terminate_after)], json!({}));
        scenario.at(0);
        scenario.delete(grace);
        if grace == 0 {
            scenario.pod.metadata.finalizers = Some(vec!["example.com/x".to_owned()]);
        }
        for (millis, want, is_deleted) in steps {
            assert_eq!(scenario.at(millis).as_deref(), want, "{case} at {millis}");
            assert_eq!(scenario.is_deleted, is_deleted, "{case} at {millis}");
        }
    }
}

#[test]
fn a_pod_that_runs_to_completion_fails_if_it_is_stopped() {
    for (annotations, policy, want) in [
        (&[][..], "Always", "Succeeded c:Completed(0) (PodCompleted)"),
        (&[("exit-after", "never")], "Never", "Failed c:Error(143) (PodFailed)"),
        (&[("exit-after", "1h")], "OnFailure", "Failed c:Error(143) (PodFailed)"),
        (&[("exit-after", "never"), ("exit-code", "3")], "Never", "Failed c:Error(3) (PodFailed)"),
        (&[("exit-after", "never"), ("exit-code", "0")], "Never", "Succeeded c:Completed(0) (PodCompleted)"),
    ] {
        let mut scenario = Scenario::of(annotations, json!({"restartPolicy": policy}));
        scenario.at(0);
        scenario.delete(30);
        assert_eq!(scenario.at(1000).as_deref(), Some(want), "{annotations:?}");
        assert!(scenario.is_deleted, "{annotations:?}");
    }
}

#[test]
fn nothing_starts_behind_a_sidecar_that_fails_its_startup_probe() {
    let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
    let init = json!([
        {"name": "s", "image": "img:1", "restartPolicy": "Always", "startupProbe": probe},
        {"name": "i", "image": "img:1", "command": ["true"]},
    ]);
    let mut scenario = Scenario::of(&[], json!({"initContainers": init}));
    for seconds in 0..60 {
        scenario.at(1000 * seconds);
        let status = scenario.status();
        let statuses =
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
        let mut others = statuses.filter(|status| status.name != "s");
        assert!(
            others.all(
                |other| other.started != Some(true) && other.state.as_ref().unwrap().terminated.is_none()
            )
        );
    }
    assert!(scenario.status().init_container_statuses.as_ref().unwrap()[0].restart_count > 0);
}

#[test]
fn an_init_container_goes_on_beside_a_sidecar_that_has_failed() {
    let init = json!([
        {"name": "s", "image": "img:1", "restartPolicy": "Always", "command": ["sleep", "1"]},
        {"name": "i", "image": "img:1", "command": ["sleep", "5"]},
    ]);
    let mut scenario = Scenario::of(&[], json!({"initContainers": init}));
    (0..=5).for_each(|second| drop(scenario.at(1000 * second)));
    let ended = scenario.status().init_container_statuses.as_ref().unwrap()[1].state.clone();
    assert_eq!(ended.and_then(|state| state.terminated).map(|end| end.exit_code), Some(0));
}

#[test]
fn a_deletion_without_grace_is_completed() {
    for (case, grace, finalizers, want) in [
        ("with grace", 30, &[][..], true),
        ("with grace and a finalizer", 30, &["example.com/x"], true),
        ("its second write was lost", 0, &[], true),
        ("kept by a finalizer", 0, &["example.com/x"], false),
    ] {
        let mut pod = Pod::default();
        assert!(!waits_for_removal(&pod), "{case}: not deleted");
        pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod.metadata.finalizers = Some(finalizers.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(waits_for_removal(&pod), want, "{case}");
    }
}

#[test]
fn a_shorter_grace_is_obeyed() {
    let mut scenario = Scenario::of(&[("terminate-after", "1m")], json!({}));
    scenario.at(0);
    scenario.delete(30);
    scenario.at(1000);
    assert_eq!(scenario.wakes_at(), Some(31_000));
    scenario.delete(2);
    scenario.at(1500);
    assert_eq!(scenario.wakes_at(), Some(3000));
    assert_eq!(scenario.at(3000).as_deref(), Some("Failed c:Error(137) (PodFailed)"));
}

#[test]
fn a_pod_that_never_ran_ends_too() {
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.delete(30);
    assert_eq!(scenario.at(0).as_deref(), Some("Failed c:ContainerStatusUnknown(137) (PodFailed)"));
    assert!(scenario.is_deleted);
}

#[test]
fn nothing_starts_without_its_volumes() {
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.is_mountable = false;
    assert_eq!(scenario.at(0).as_deref(), Some("Pending c:ContainerCreating (ContainersNotReady)"));
    assert_eq!(scenario.status().pod_ip, None);
    assert_eq!(scenario.at(1000), None);
    scenario.is_mountable = true;
    assert_eq!(scenario.at(2000).as_deref(), Some("Running c:running Ready"));
    scenario.is_mountable = false;
    assert_eq!(scenario.at(3000), None, "what runs goes on");
}

#[test]
fn what_a_client_wrote_stays() {
    let mut scenario = Scenario::of(&[("exit-after", "10s"), ("exit-code", "1")], json!({}));
    scenario.at(0);
    let set_ready = |scenario: &mut Scenario, value: &str| {
        let conditions = scenario.pod.status.as_mut().and_then(|status| status.conditions.as_mut()).unwrap();
        let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
        ready.status = value.to_owned();
    };
    set_ready(&mut scenario, "False");
    assert_eq!(scenario.at(1000), None);
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(2000), None);
    assert_eq!(scenario.wakes_at(), Some(10_000));
    assert_eq!(scenario.at(10_000).as_deref(), Some("Running c:running+1 Ready"), "this is news");
}

#[test]
fn a_restarted_process_continues() {
    let mut scenario = Scenario::of(&[("exit-after", "1s"), ("exit-code", "1")], json!({}));
    for millis in [0, 1000, 2000, 12_000, 13_000] {
        scenario.at(millis);
    }
    assert_eq!(scenario.shown(), "Running c:CrashLoopBackOff+2 (ContainersNotReady)");
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(20_000), None);
    assert_eq!(scenario.wakes_at(), Some(33_000));
    assert_eq!(scenario.at(33_000).as_deref(), Some("Running c:running+3 Ready"));
}

#[test]
fn a_restarted_process_continues_to_stop() {
    let mut scenario = Scenario::of(&[("terminate-after", "10s")], json!({}));
    scenario.at(0);
    let deletion = scenario.start + k8s_openapi::jiff::SignedDuration::from_secs(1 + 30);
    scenario.delete(30);
    scenario.pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(deletion));
    scenario.at(1000);
    assert_eq!(scenario.reported, ["Killing Stopping container c"]);
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!((scenario.at(5000), &*scenario.reported), (None, &[][..]), "it is reported once");
    assert_eq!(scenario.wakes_at(), Some(11_000));
    assert_eq!(scenario.at(11_000).as_deref(), Some("Succeeded c:Completed(0) (PodCompleted)"));
}

#[test]
fn readiness_gates_are_obeyed() {
    let mut scenario = Scenario::of(&[], json!({"readinessGates": [{"conditionType": "e.io/up"}]}));
    assert_eq!(scenario.at(0).as_deref(), Some("Running c:running (ReadinessGatesNotReady)"));
    let message = |scenario: &Scenario| {
        let mut conditions = scenario.status().conditions.iter().flatten();
        conditions.find(|c| c.type_ == "Ready").and_then(|c| c.message.clone())
    };
    let missing = r#"corresponding condition of pod readiness gate "e.io/up" does not exist."#;
    assert_eq!(message(&scenario).as_deref(), Some(missing));
    let open = |scenario: &mut Scenario, status: &str| {
        let conditions = scenario.pod.status.as_mut().and_then(|status| status.conditions.as_mut()).unwrap();
        conditions.retain(|condition| condition.type_ != "e.io/up");
        conditions.push(serde_json::from_value(json!({"type": "e.io/up", "status": status})).unwrap());
    };
    open(&mut scenario, "False");
    assert_eq!(scenario.at(1000).as_deref(), Some("Running c:running (ReadinessGatesNotReady)"));
    let closed = r#"the status of pod readiness gate "e.io/up" is not "True", but False"#;
    assert_eq!(message(&scenario).as_deref(), Some(closed));
    open(&mut scenario, "True");
    assert_eq!(scenario.at(2000).as_deref(), Some("Running c:running Ready"));
}

#[test]
fn events_report_starts_and_failures() {
    let mut scenario = Scenario::of(&[("exit-after", "1s"), ("exit-code", "1")], json!({}));
    let start = [
        r#"Pulled Container image "img:1" already present on machine and can be accessed by the pod"#,
        "Created Container created",
        "Started Container started",
    ];
    scenario.at(0);
    assert_eq!(scenario.reported, start);
    scenario.at(1000);
    assert_eq!(scenario.reported, start);
    scenario.at(2000);
    assert_eq!(scenario.reported, ["BackOff Back-off restarting failed container c in pod p_n(u)"]);
    let waiting = scenario.status().container_statuses.as_ref().unwrap()[0].state.clone().unwrap().waiting;
    assert_eq!(
        waiting.unwrap().message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=p_n(u)")
    );
    scenario.at(12_000);
    scenario.delete(30);
    scenario.at(12_500);
    assert_eq!(scenario.reported, ["Killing Stopping container c"]);
}

#[test]
fn events_name_fields() {
    let scenario = Scenario::of(&[], json!({"initContainers": [{"name": "a"}]}));
    let mut state = PodRuntimeState::begin(&scenario.pod, scenario.start);
    let Progress { events, .. } =
        state.advance(&scenario.pod, &PodBehavior::default(), &Obstacles::default(), scenario.start);
    let fields: Vec<_> = events.iter().map(|h| (h.field.as_deref(), h.r#type)).collect();
    let (init, main) = (Some("spec.initContainers{a}"), Some("spec.containers{c}"));
    assert_eq!(fields, [init, init, init, main, main, main].map(|field| (field, EventType::Normal)));
}

#[test]
fn a_status_in_full() {
    let mut scenario = Scenario::of(&[], json!({}));
    scenario.at(0);
    let mut status = json!(scenario.status());
    let container = status["containerStatuses"][0].as_object_mut().unwrap();
    assert!(container["containerID"].as_str().unwrap().starts_with("coracle://"));
    container.remove("containerID");
    container.remove("imageID");
    let time = "2026-01-01T00:00:00Z";
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": time, "observedGeneration": 1});
    assert_eq!(
        status,
        json!({
            "phase": "Running", "startTime": time, "observedGeneration": 1,
            "hostIP": "172.18.0.2", "hostIPs": [{"ip": "172.18.0.2"}],
            "podIP": "10.244.0.2", "podIPs": [{"ip": "10.244.0.2"}],
            "conditions": [
                condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                condition("ContainersReady"), condition("PodScheduled"),
            ],
            "containerStatuses": [{
                "name": "c", "image": "img:1", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": time}},
            }],
        })
    );
}

#[test]
fn a_container_waits_for_what_its_configuration_needs() {
    let containers = json!([{"name": "c", "image": "img:1"}, {"name": "d", "image": "img:1"}]);
    let mut scenario = Scenario::of(&[], json!({"containers": containers}));
    let missing = |why: &str| [("c".to_owned(), why.to_owned())].into();
    scenario.obstacles.configuration = missing("configmap \"m\" not found");
    let waiting = "Pending c:CreateContainerConfigError d:running (ContainersNotReady)";
    assert_eq!(scenario.at(0).as_deref(), Some(waiting));
    assert_eq!(scenario.reported[1], "Failed Error: configmap \"m\" not found");
    let state = scenario.status().container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().message.as_deref(), Some("configmap \"m\" not found"));
    assert_eq!(scenario.at(1000), None, "one event for one reason");
    scenario.obstacles.configuration = missing("couldn't find key k in ConfigMap n/m");
    assert_eq!(scenario.at(2000).as_deref(), Some(waiting));
    assert_eq!(scenario.reported[1], "Failed Error: couldn't find key k in ConfigMap n/m");
    scenario.obstacles = Obstacles::default();
    assert_eq!(scenario.at(3000).as_deref(), Some("Running c:running d:running Ready"));
}

#[test]
fn an_image_is_pulled_again_and_again_until_it_is_there() {
    let mut scenario = Scenario::of(&[("missing-images", "other, img:*")], json!({}));
    assert_eq!(scenario.at(0).as_deref(), Some("Pending c:ErrImagePull (ContainersNotReady)"));
    assert_eq!(scenario.reported.len(), 3);
    for (millis, want, wake, events) in [
        (500, None, 1000, 0),
        (1000, Some("Pending c:ImagePullBackOff (ContainersNotReady)"), 10_000, 2),
        (10_000, Some("Pending c:ErrImagePull (ContainersNotReady)"), 11_000, 3),
        (11_000, Some("Pending c:ImagePullBackOff (ContainersNotReady)"), 30_000, 2),
        (30_000, Some("Pending c:ErrImagePull (ContainersNotReady)"), 31_000, 3),
    ] {
        assert_eq!(scenario.at(millis).as_deref(), want, "{millis}");
        assert_eq!((scenario.wakes_at(), scenario.reported.len()), (Some(wake), events), "{millis}");
    }
    let annotations = scenario.pod.metadata.annotations.as_mut().unwrap();
    annotations.clear();
    assert_eq!(scenario.at(30_500).as_deref(), Some("Running c:running Ready"));
}

#[test]
fn an_ephemeral_container_runs_once_in_a_pod_that_runs() {
    let mut scenario = Scenario::of(&[("exit-after", "10s")], json!({"restartPolicy": "Never"}));
    scenario.at(0);
    let ephemeral =
        json!([{"name": "e", "image": "debug:1"}, {"name": "f", "image": "b", "command": ["sleep", "2"]}]);
    scenario.pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(ephemeral).unwrap();
    assert_eq!(scenario.at(1000).as_deref(), Some("Running c:running e:running f:running Ready"));
    let fields: Vec<_> = scenario.reported.iter().filter(|event| event.starts_with("Started")).collect();
    assert_eq!(fields.len(), 2);
    assert_eq!(scenario.at(3000).as_deref(), Some("Running c:running e:running f:Completed(0) Ready"));
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(4000), None);
    let ended = "Succeeded c:Completed(0) e:Completed(0) f:Completed(0) (PodCompleted)";
    assert_eq!(scenario.at(10_000).as_deref(), Some(ended));
}

#[test]
fn a_pod_is_initialized_once_its_init_containers_have_succeeded() {
    let init = json!([{"name": "i", "image": "b", "command": ["sleep", "5"]}]);
    let mut scenario = Scenario::of(&[("terminate-after", "2s")], json!({"initContainers": init}));
    let initialized = |scenario: &Scenario| {
        let mut conditions = scenario.status().conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == "Initialized")
            .map(|condition| condition.status.clone())
    };
    scenario.at(0);
    assert_eq!(initialized(&scenario).as_deref(), Some("False"));
    let mut stopped = Scenario { state: scenario.state.clone(), ..Scenario::of(&[], json!({})) };
    stopped.pod = scenario.pod.clone();
    // The same after a restart of the process.
    scenario.state = PodRuntimeState::restore(&scenario.pod);
    assert_eq!(scenario.at(4000), None);
    scenario.at(5000);
    assert_eq!(initialized(&scenario).as_deref(), Some("True"));
    // A pod that is deleted in the meantime gets its grace period.
    stopped.delete(30);
    stopped.at(1000);
    assert_eq!((stopped.is_deleted, stopped.wakes_at()), (false, Some(3000)));
    stopped.at(3000);
    assert!(stopped.is_deleted);
}

#[test]
fn what_follows_a_sidecar_waits_for_its_image_and_ephemeral_containers_do_not() {
    let init = json!([{"name": "s", "image": "img:2", "restartPolicy": "Always"}]);
    let mut scenario = Scenario::of(&[("missing-images", "img:2")], json!({"initContainers": init}));
    let ephemeral = json!([{"name": "e", "image": "debug:1"}]);
    scenario.pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(ephemeral).unwrap();
    let waiting = "Pending s:ErrImagePull c:PodInitializing e:running (ContainersNotReady)";
    assert_eq!(scenario.at(0).as_deref(), Some(waiting));
    let sandbox =
        scenario.status().conditions.iter().flatten().find(|c| c.type_ == "PodReadyToStartContainers");
    assert_eq!(sandbox.map(|condition| condition.status.as_str()), Some("True"));
    scenario.pod.metadata.annotations.as_mut().unwrap().clear();
    assert_eq!(scenario.at(1).as_deref(), Some("Running s:running c:running e:running Ready"));
}

#[test]
fn an_image_that_must_not_be_pulled_is_not() {
    let containers = json!([{"name": "c", "image": "img:1", "imagePullPolicy": "Never"}]);
    let mut scenario = Scenario::of(&[], json!({"containers": containers}));
    scenario.obstacles.missing_images = "img:*".parse().unwrap();
    assert_eq!(scenario.at(0).as_deref(), Some("Pending c:ErrImageNeverPull (ContainersNotReady)"));
    assert_eq!(
        scenario.reported[0],
        "ErrImageNeverPull Container image \"img:1\" is not present with pull policy of Never"
    );
    assert_eq!((scenario.at(60_000), scenario.wakes_at()), (None, None));
}

#[test]
fn probes_and_messages_follow_what_the_command_writes() {
    let probe = |path: &str| json!({"exec": {"command": ["cat", path]}, "periodSeconds": 5});
    let script =
        "sleep 5; touch /tmp/up; sleep 5; touch /tmp/ok; sleep 10; echo bye > /dev/termination-log; exit 2";
    let container = json!({
        "name": "c", "image": "img:1", "command": ["sh", "-c", script],
        "startupProbe": probe("/tmp/up"), "readinessProbe": probe("/tmp/ok"),
    });
    let mut pod = Scenario::of(&[], json!({"containers": [container], "restartPolicy": "Never"}));
    let started = |pod: &Scenario| pod.status().container_statuses.as_ref().unwrap()[0].started;
    assert_eq!(pod.at(0).unwrap(), "Running c:running (ContainersNotReady)");
    assert_eq!((started(&pod), pod.wakes_at()), (Some(false), Some(5000)));
    assert_eq!(pod.at(5000).unwrap(), "Running c:running (ContainersNotReady)");
    assert_eq!((started(&pod), pod.wakes_at()), (Some(true), Some(10_000)));
    assert_eq!(pod.at(10_000).unwrap(), "Running c:running Ready");
    assert_eq!(pod.wakes_at(), Some(20_000));
    pod.state = PodRuntimeState::restore(&pod.pod);
    pod.at(20_000).unwrap();
    let message = |pod: &Scenario| {
        let state = pod.status().container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
        state.terminated.unwrap().message
    };
    assert_eq!(message(&pod).as_deref(), Some("bye\n"));
    let restored = PodRuntimeState::restore(&pod.pod).unwrap();
    assert!(
        matches!(&restored.containers[0].state, State::Exited(exit) if exit.message.as_deref() == Some("bye\n"))
    );
}

#[test]
fn commands_know_the_addresses() {
    let variable =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "c", "image": "img:1", "env": [variable("HOST", "status.hostIP"), variable("IP", "status.podIP")],
        "command": ["sh", "-c", "[ $HOST = 172.18.0.2 ] && [ $IP = 10.244.0.2 ] && exit 7"],
    });
    let mut pod = Scenario::of(&[], json!({"containers": [container], "restartPolicy": "Never"}));
    assert_eq!(pod.at(0).unwrap(), "Failed c:Error(7) (PodFailed)");
}

#[test]
fn containers_wait_for_the_startup_of_a_sidecar() {
    let sidecar = json!({
        "name": "s", "image": "img:1", "restartPolicy": "Always",
        "command": ["sh", "-c", "sleep 4; touch /tmp/up; sleep infinity"],
        "startupProbe": {"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 2},
    });
    let mut pod = Scenario::of(&[], json!({"initContainers": [sidecar]}));
    let initialized = |pod: &Scenario| {
        let conditions = pod.status().conditions.iter().flatten();
        conditions.filter(|condition| condition.type_ == "Initialized").map(|one| one.status.clone()).next()
    };
    assert_eq!(pod.at(0).unwrap(), "Pending s:running c:PodInitializing (ContainersNotReady)");
    assert_eq!((initialized(&pod).as_deref(), pod.wakes_at()), (Some("False"), Some(4000)));
    pod.state = PodRuntimeState::restore(&pod.pod);
    assert_eq!(pod.at(4000).unwrap(), "Running s:running c:running Ready");
    assert_eq!(initialized(&pod).as_deref(), Some("True"));
}
