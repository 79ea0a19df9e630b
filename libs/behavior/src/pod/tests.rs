use serde_json::{Value, json};

use super::*;

fn pod(annotations: &[(&str, &str)], spec: Value) -> Pod {
    let mut full =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}});
    for (name, value) in annotations {
        full["metadata"]["annotations"][*name] = json!(value);
    }
    for (key, value) in spec.as_object().into_iter().flatten() {
        full["spec"][key] = value.clone();
    }
    serde_json::from_value(full).unwrap()
}

fn read(annotations: &[(&str, &str)]) -> (PodBehavior, Vec<String>) {
    PodBehavior::of(&pod(annotations, json!({})), &[], Profile::Inert)
}

/// Returns the end of the first container of a role, in milliseconds, and its code.
fn ending(pod: &Pod, role: Role, profile: Profile) -> Option<(u128, i32)> {
    let (behavior, warnings) = PodBehavior::of(pod, &[], profile);
    assert_eq!(warnings, [""; 0]);
    let (_, container) = coracle_kinds::pods::containers(pod).find(|(known, _)| *known == role).unwrap();
    behavior.ending(pod, role, &container).map(|ending| (ending.after.as_millis(), ending.code))
}

#[test]
fn annotations_are_read() {
    let (behavior, warnings) = read(&[
        ("other.dev/ready-after", "x"),
        ("sim.coracle.dev/exit-after", "1s"),
        ("sim.coracle.dev/exit-code", "3"),
        ("sim.coracle.dev/ignore", "false"),
        ("sim.coracle.dev/log", "hello"),
    ]);
    assert_eq!(behavior.exit_after, Some(ExitAfter::Time(Duration::from_secs(1))));
    assert_eq!((behavior.exit_code, warnings), (Some(3), vec![]));
    let (behavior, warnings) = read(&[
        ("sim.coracle.dev/exit-after", "forever"),
        ("sim.coracle.dev/exit-code", "256"),
        ("sim.coracle.dev/never-ready", "yes"),
        ("sim.coracle.dev/redy-after", "1s"),
        ("sim.coracle.dev/cpu", "250m"),
        ("sim.coracle.dev/memory", "much"),
    ]);
    assert_eq!(behavior, PodBehavior { profile: Profile::Inert, ..PodBehavior::default() });
    assert_eq!(
        warnings,
        [
            r#"Ignored annotation sim.coracle.dev/exit-after="forever": neither never nor a duration such as 500ms, 2s or 1m30s"#,
            r#"Ignored annotation sim.coracle.dev/exit-code="256": not a number from 0 to 255"#,
            r#"Ignored annotation sim.coracle.dev/memory="much": not an amount such as 250m or 64Mi"#,
            r#"Ignored annotation sim.coracle.dev/never-ready="yes": neither true nor false"#,
            r#"Ignored annotation sim.coracle.dev/redy-after="1s": there is no such annotation"#,
        ]
    );
}

#[test]
fn some_indexes_fail() {
    // One that is stopped has not succeeded, whatever its index.
    for (index, code, want, stopped) in [
        ("1", None, Some(1), 143),
        ("2", None, Some(0), 143),
        ("4", Some("3"), Some(3), 3),
        ("2", Some("3"), Some(0), 3),
        ("x", None, None, 143),
        ("x", Some("3"), Some(3), 3),
    ] {
        let mut annotations = vec![
            ("batch.kubernetes.io/job-completion-index", index),
            ("sim.coracle.dev/fail-indexes", "1,3-5"),
        ];
        annotations.extend(code.map(|code| ("sim.coracle.dev/exit-code", code)));
        let behavior = read(&annotations).0;
        assert_eq!(behavior.own_code(), want, "{index}");
        assert_eq!(behavior.stopped_code(&pod(&[], json!({"restartPolicy": "Never"}))), stopped, "{index}");
        assert_eq!(behavior.stopped_code(&pod(&[], json!({}))), 0, "{index}: it runs until it is stopped");
    }
}

#[test]
fn the_nearest_annotation_counts() {
    let map = |entries: &[(&str, &str)]| -> Overrides {
        entries.iter().map(|(key, value)| (format!("sim.coracle.dev/{key}"), (*value).to_owned())).collect()
    };
    let owner = map(&[("exit-after", "2s"), ("exit-code", "2")]);
    let namespace = map(&[("exit-after", "3s"), ("exit-code", "3"), ("ready-after", "3s")]);
    let pod = pod(&[("sim.coracle.dev/exit-after", "never")], json!({}));
    let (behavior, _) = PodBehavior::of(&pod, &[owner, namespace], Profile::Realistic);
    assert_eq!(behavior.exit_after, Some(ExitAfter::Never));
    assert_eq!(behavior.exit_code, Some(2));
    assert_eq!(behavior.ready_after, Duration::from_secs(3));
}

#[test]
fn containers_end_by_their_policy_and_their_command() {
    let container = |command: &[&str]| json!({"name": "c", "image": "busybox", "command": command});
    for (case, annotations, spec, want) in [
        ("is restarted", &[][..], json!({"restartPolicy": "Always"}), None),
        ("has no policy", &[], json!({}), None),
        ("Never", &[], json!({"restartPolicy": "Never"}), Some((1000, 0))),
        ("OnFailure", &[], json!({"restartPolicy": "OnFailure"}), Some((1000, 0))),
        (
            "the policy of the container",
            &[],
            json!({"restartPolicy": "Always", "containers": [{"name": "c", "restartPolicy": "Never"}]}),
            Some((1000, 0)),
        ),
        ("command", &[], json!({"containers": [container(&["sleep", "5"])]}), Some((5000, 0))),
        (
            "arguments alone",
            &[],
            json!({"containers": [{"name": "c", "args": ["sh", "-c", "exit $(CODE)"], "env": [{"name": "CODE", "value": "4"}]}]}),
            Some((0, 4)),
        ),
        (
            "an unknown variable",
            &[],
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "args": ["exit", "$(A)"], "envFrom": [{}]}]}),
            Some((1000, 0)),
        ),
        (
            "pause",
            &[],
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]}),
            None,
        ),
        (
            "agnhost",
            &[],
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.k8s.io/e2e-test-images/agnhost:2.57"}]}),
            None,
        ),
        ("never", &[("sim.coracle.dev/exit-after", "never")], json!({"restartPolicy": "Never"}), None),
        (
            "another code",
            &[("sim.coracle.dev/exit-code", "3")],
            json!({"restartPolicy": "Never"}),
            Some((1000, 3)),
        ),
        (
            "annotations before the command",
            &[("sim.coracle.dev/exit-after", "2s")],
            json!({"containers": [container(&["sleep", "infinity"])]}),
            Some((2000, 0)),
        ),
        (
            "the code of a command that would have ended",
            &[("sim.coracle.dev/exit-after", "2s")],
            json!({"containers": [container(&["false"])]}),
            Some((2000, 1)),
        ),
    ] {
        assert_eq!(ending(&pod(annotations, spec), Role::Main, Profile::Realistic), want, "{case}");
    }
}

#[test]
fn init_containers_do_what_they_say_and_else_nothing() {
    let with = |init: Value| pod(&[("sim.coracle.dev/exit-after", "9s")], json!({"initContainers": [init]}));
    let init = with(json!({"name": "i", "command": ["sh", "-c", "until nslookup db; do sleep 2; done"]}));
    assert_eq!(ending(&init, Role::Init, Profile::Realistic), Some((0, 0)));
    let init = with(json!({"name": "i", "command": ["sh", "-c", "sleep 2; exit 1"]}));
    assert_eq!(ending(&init, Role::Init, Profile::Realistic), Some((2000, 1)));
    assert_eq!(ending(&init, Role::Init, Profile::Inert), Some((0, 0)));
    let sidecar = with(json!({"name": "s", "restartPolicy": "Always", "command": ["proxy"]}));
    assert_eq!(ending(&sidecar, Role::Sidecar, Profile::Realistic), None);
}

#[test]
fn an_inert_container_runs_until_it_is_stopped() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["false"]}]});
    assert_eq!(ending(&pod(&[], spec.clone()), Role::Main, Profile::Inert), None);
    let annotations = [("sim.coracle.dev/exit-after", "1s"), ("sim.coracle.dev/exit-code", "2")];
    assert_eq!(ending(&pod(&annotations, spec), Role::Main, Profile::Inert), Some((1000, 2)));
}

#[test]
fn logs() {
    let simulated = "container c is simulated: it runs no program, and has no output\n";
    for (annotations, profile, command, want) in [
        (&[][..], Profile::Realistic, &["echo", "hi"][..], "hi\n"),
        (&[], Profile::Realistic, &["true"], ""),
        (&[], Profile::Realistic, &[], simulated),
        (&[], Profile::Realistic, &["serve"], "container c is simulated: `serve` does nothing\n"),
        (
            &[],
            Profile::Realistic,
            &["sh", "-c", "echo hi; serve"],
            "hi\ncontainer c is simulated: `serve` does nothing\n",
        ),
        (&[], Profile::Inert, &["echo", "hi"], simulated),
        (&[("sim.coracle.dev/log", "a\nb")], Profile::Realistic, &["echo", "hi"], "a\nb\n"),
    ] {
        let pod = pod(annotations, json!({"containers": [{"name": "c", "command": command}]}));
        let (behavior, _) = PodBehavior::of(&pod, &[], profile);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let lines = behavior.log(&pod, Role::Main, container, Timestamp::UNIX_EPOCH);
        let text: String = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(text, want, "{command:?} {annotations:?} {profile:?}");
    }
}

#[test]
fn termination_messages_come_from_the_file_or_the_log() {
    let message = |fields: Value, script: &str, code: i32, after: u64| {
        let mut container = json!({"name": "c", "command": ["sh", "-c", script]});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let pod = pod(&[], json!({"containers": [container, {"name": "d"}, {"name": "e"}, {"name": "f"}]}));
        let (behavior, _) = PodBehavior::of(&pod, &[], Profile::Realistic);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let started = Started { pod: &pod, role: Role::Main, container, at: Timestamp::UNIX_EPOCH };
        behavior.termination_message(&started, Ending { after: Duration::from_secs(after), code })
    };
    let log = || json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let write = "echo DONE > /dev/termination-log; sleep 5; echo AGAIN > /dev/termination-log";
    for (fields, script, code, after, want) in [
        (json!({}), write, 0, 5, Some("AGAIN\n")),
        (json!({}), write, 137, 4, Some("DONE\n")),
        (log(), write, 0, 5, Some("AGAIN\n")),
        (json!({"terminationMessagePath": "/dev/other"}), "echo -n DONE > /dev/other", 0, 0, Some("DONE")),
        (json!({}), "echo -n DONE; false", 1, 0, None),
        (log(), "echo -n DONE; false", 1, 0, Some("DONE")),
        (log(), "echo -n DONE", 0, 0, None),
        (log(), "echo a; sleep 5; echo b; exit 1", 137, 2, Some("a\n")),
        (json!({}), "./work", 1, 0, None),
    ] {
        assert_eq!(message(fields.clone(), script, code, after).as_deref(), want, "{fields} {script}");
    }
    let long = |script: &str, text: &str| message(log(), &script.replace("TEXT", text), 1, 0).unwrap();
    assert_eq!(long("echo -n aTEXT > /dev/termination-log", &"é".repeat(2000)).len(), 3071, "of all four");
    assert_eq!(long("echo -n aTEXT; exit 1", &"é".repeat(2000)).len(), 2048);
    assert_eq!(long("echo TEXT; exit 1", &"a;echo ".repeat(100)).lines().count(), 80);
}

#[test]
fn programs_know_their_host_name_and_environment() {
    let env = json!([{"name": "A", "value": "1"}, {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    let container = json!({"name": "c", "command": ["sh", "-c", "hostname; env"], "env": env});
    let pod = pod(&[], json!({"containers": [container]}));
    let (behavior, _) = PodBehavior::of(&pod, &[], Profile::Realistic);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let log = behavior.log(&pod, Role::Main, container, Timestamp::UNIX_EPOCH);
    let log: String = log.into_iter().map(|line| line.text).collect();
    assert_eq!(log, "p\nA=1\nHOSTNAME=p\n", "what follows from the pod alone");
}
