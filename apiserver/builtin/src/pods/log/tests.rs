use super::*;
use serde_json::json;

fn pod(state: Value, last: Value) -> Value {
    json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "state": state, "lastState": last}]},
    })
}

fn read(pod: &Value, query: &str) -> Result<Option<ContainerLog>> {
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    of(pod, &LogOptions::parse(&Query::parse(query), now)?, Writer::default(), now)
}

#[test]
fn logs_are_those_of_containers_that_have_started() {
    let running = pod(json!({"running": {"startedAt": "2026-01-01T00:00:30Z"}}), json!({}));
    let waiting = pod(json!({"waiting": {"reason": "ContainerCreating"}}), json!({}));
    let unpulled = pod(json!({"waiting": {"reason": "ImagePullBackOff"}}), json!({}));
    let restarting = pod(
        json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        json!({"terminated": {"startedAt": "2026-01-01T00:00:10Z"}}),
    );
    let line = "container c is simulated: it runs no program, and has no output\n";
    let parse_error = r#"parsing time "x" as RFC 3339 failed"#;
    for (case, pod, query, want) in [
        ("running", &running, "", line.to_owned()),
        ("with its time", &running, "timestamps=true", format!("2026-01-01T00:00:30.000000000Z {line}")),
        ("nothing of it", &running, "tailLines=0", String::new()),
        ("a part of it", &running, "limitBytes=9", "container".to_owned()),
        ("of the last half minute", &running, "sinceSeconds=30", line.to_owned()),
        ("of the last seconds", &running, "sinceSeconds=29", String::new()),
        ("since a time", &running, "sinceTime=2026-01-01T00:00:30Z", line.to_owned()),
        ("since a later time", &running, "sinceTime=2026-01-01T00:00:31Z", String::new()),
        ("since no time", &running, "sinceTime=x", parse_error.to_owned()),
        ("since an empty time", &running, "sinceTime=", line.to_owned()),
        (
            "before",
            &running,
            "previous=true",
            r#"previous terminated container "c" in pod "p" not found"#.to_owned(),
        ),
        ("the one before", &restarting, "previous=true", line.to_owned()),
        ("the last one", &restarting, "timestamps=1", format!("2026-01-01T00:00:10.000000000Z {line}")),
        (
            "not started",
            &waiting,
            "follow=true",
            r#"container "c" in pod "p" is waiting to start: ContainerCreating"#.to_owned(),
        ),
        (
            "without its image",
            &unpulled,
            "",
            r#"container "c" in pod "p" is waiting to start: trying and failing to pull image"#.to_owned(),
        ),
    ] {
        let got = read(pod, query).map(|log| log.unwrap().text);
        assert_eq!(got.unwrap_or_else(|error| error.to_string()), want, "{case}");
    }
    let error = read(&running, "container=i").unwrap_err().to_string();
    assert_eq!(error, r#"container "i" in pod "p" is not available"#);
    assert!(read(&json!({"spec": {}}), "").unwrap().is_none());
}

#[test]
fn logs_are_what_an_annotation_says() {
    let mut scripted = pod(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), json!({}));
    scripted["metadata"]["annotations"] = json!({"sim.coracle.dev/log": "one\ntwö\nthree"});
    for (query, want, left) in [
        ("", "one\ntwö\nthree\n", None),
        ("follow=true", "one\ntwö\nthree\n", Some(None)),
        ("follow=true&tailLines=0&limitBytes=3", "", Some(Some(3))),
        ("follow=true&limitBytes=5", "one\nt", Some(Some(0))),
        ("follow=true&previous=false&limitBytes=99", "one\ntwö\nthree\n", Some(Some(84))),
        ("tailLines=2", "twö\nthree\n", None),
        ("tailLines=9", "one\ntwö\nthree\n", None),
        ("tailLines=1&timestamps=true", "2026-01-01T00:00:00.000000000Z three\n", None),
        ("limitBytes=7", "one\ntw", None),
    ] {
        let log = read(&scripted, query).unwrap().unwrap();
        assert_eq!(
            (log.text.as_str(), log.following.map(|following| following.left)),
            (want, left),
            "{query}"
        );
    }
    scripted["status"]["containerStatuses"][0]["state"] =
        json!({"terminated": {"startedAt": "2026-01-01T00:00:00Z"}});
    let log = read(&scripted, "follow=true").unwrap().unwrap();
    assert!(log.following.is_none(), "a container that has ended writes no more");
}

#[test]
fn logs_have_what_the_command_has_written_by_now() {
    let written = |state: Value, last: Value| {
        let mut pod = pod(state, last);
        pod["spec"]["containers"][0]["command"] =
            json!(["sh", "-c", "echo a; sleep 2; echo b; sleep 30; echo c"]);
        pod
    };
    let running = |since: &str| json!({"running": {"startedAt": since}});
    let ended = |at: &str| json!({"terminated": {"startedAt": "2026-01-01T00:00:10Z", "finishedAt": at}});
    for (case, pod, query, want) in [
        ("at the start", written(running("2026-01-01T00:01:00Z"), json!({})), "", "a\n"),
        ("before a line", written(running("2026-01-01T00:00:59Z"), json!({})), "", "a\n"),
        ("after it", written(running("2026-01-01T00:00:58Z"), json!({})), "", "a\nb\n"),
        ("its last seconds", written(running("2026-01-01T00:00:57Z"), json!({})), "sinceSeconds=2", "b\n"),
        (
            "times",
            written(running("2026-01-01T00:00:50Z"), json!({})),
            "timestamps=true&tailLines=1",
            "2026-01-01T00:00:52.000000000Z b\n",
        ),
        ("it was stopped", written(ended("2026-01-01T00:00:11Z"), json!({})), "", "a\n"),
        ("in the second of a line", written(ended("2026-01-01T00:00:12Z"), json!({})), "", "a\nb\n"),
        ("it has ended", written(ended("2026-01-01T00:00:42Z"), json!({})), "", "a\nb\nc\n"),
        (
            "the one before",
            written(running("2026-01-01T00:00:59Z"), ended("2026-01-01T00:00:42Z")),
            "previous=true",
            "a\nb\nc\n",
        ),
    ] {
        assert_eq!(read(&pod, query).unwrap().unwrap().text, want, "{case}");
    }
}
