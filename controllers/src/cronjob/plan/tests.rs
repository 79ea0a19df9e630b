use super::*;
use serde_json::{Value, json};

fn cron_job(spec: Value) -> CronJob {
    let mut object = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"metadata": {"labels": {"a": "b"}}}},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn render((decision, events): (Decision, Vec<CronJobEvent>)) -> String {
    let time =
        |time: Option<Timestamp>| time.map_or("never".to_owned(), |time| time.strftime("%H:%M").to_string());
    let decision = match decision {
        Decision::Stop => "stop".to_owned(),
        Decision::Wait(next) => format!("wait {}", time(next)),
        Decision::Start { scheduled, replaces_active, next } => {
            let replace = if replaces_active { " replace" } else { "" };
            format!("start {}{replace} then {}", time(Some(scheduled)), time(next))
        }
    };
    let reasons = events.iter().map(|event| format!(" {}", event.reason));
    decision + &reasons.collect::<String>()
}

#[test]
fn the_last_time_is_run_if_the_policy_lets_it() {
    let last = |time: &str| json!({"lastScheduleTime": time});
    let active = json!({"active": [{"name": "c-other", "uid": "1"}]});
    let taken = json!({"active": [{"name": "c-29453820", "uid": "1"}]});
    for (case, spec, status, now, want) in [
        ("not yet", json!({}), json!({}), "00:30", "wait 01:00"),
        ("due", json!({}), json!({}), "01:00", "start 01:00 then 02:00"),
        ("only the last", json!({}), json!({}), "03:10", "start 03:00 then 04:00"),
        ("run", json!({}), last("2026-01-01T01:00:00Z"), "01:10", "wait 02:00"),
        ("run by name", json!({}), taken, "01:10", "wait 02:00"),
        ("suspended", json!({"suspend": true}), json!({}), "01:10", "stop"),
        ("no zone", json!({"timeZone": "X/Y", "suspend": true}), json!({}), "01:10", "stop UnknownTimeZone"),
        ("no schedule", json!({"schedule": "x"}), json!({}), "01:10", "stop UnparseableSchedule"),
        ("never", json!({"schedule": "0 0 31 2 *"}), json!({}), "01:10", "stop InvalidSchedule"),
        ("too late", json!({"startingDeadlineSeconds": 60}), json!({}), "01:10", "wait 02:00"),
        ("in time", json!({"startingDeadlineSeconds": 601}), json!({}), "01:10", "start 01:00 then 02:00"),
        ("beside another", json!({}), active.clone(), "01:10", "start 01:00 then 02:00"),
        (
            "forbidden",
            json!({"concurrencyPolicy": "Forbid"}),
            active.clone(),
            "01:10",
            "wait 02:00 JobAlreadyActive",
        ),
        (
            "allowed alone",
            json!({"concurrencyPolicy": "Forbid"}),
            json!({}),
            "01:10",
            "start 01:00 then 02:00",
        ),
        (
            "replaced",
            json!({"concurrencyPolicy": "Replace"}),
            active,
            "01:10",
            "start 01:00 replace then 02:00",
        ),
        (
            "too many",
            json!({"schedule": "* * * * *"}),
            json!({}),
            "02:00",
            "start 02:00 then 02:01 TooManyMissedTimes",
        ),
        (
            "zone in the schedule",
            json!({"schedule": "TZ=Asia/Tokyo 0 10 * * *"}),
            json!({}),
            "01:10",
            "start 01:00 then 01:00 UnsupportedSchedule",
        ),
    ] {
        let status: CronJobStatus = serde_json::from_value(status).unwrap();
        let now = format!("2026-01-01T{now}:00Z").parse().unwrap();
        assert_eq!(render(decide(&cron_job(spec), &status, now)), want, "{case}");
    }
}

#[test]
fn nothing_is_started_while_it_terminates() {
    let mut cron_job = cron_job(json!({}));
    cron_job.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-01-01T01:00:00Z".parse().unwrap()));
    let decided = decide(&cron_job, &CronJobStatus::default(), "2026-01-01T01:10:00Z".parse().unwrap());
    assert_eq!(render(decided), "stop");
}

#[test]
fn jobs_are_named_by_their_minute() {
    let cron_job = cron_job(json!({"timeZone": "Asia/Tokyo"}));
    let job = job(&cron_job, "2026-01-01T01:00:00Z".parse().unwrap());
    assert_eq!(job.name_any(), "c-29453820");
    assert_eq!(
        json!(job.metadata),
        json!({
            "name": "c-29453820", "namespace": "n", "labels": {"a": "b"},
            "annotations": {SCHEDULED_TIMESTAMP: "2026-01-01T10:00:00+09:00"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u",
                                 "controller": true, "blockOwnerDeletion": true}],
        })
    );
}

fn finished_job(name: &str, condition: &str, start: Option<&str>) -> Arc<Job> {
    let conditions = json!([{"type": condition, "status": "True"}]);
    let job = json!({
        "metadata": {"name": name, "uid": name},
        "status": {"startTime": start, "completionTime": start, "conditions": conditions},
    });
    Arc::new(serde_json::from_value(job).unwrap())
}

#[test]
fn the_oldest_finished_jobs_are_too_many() {
    let at = |day: u8| Some(format!("2026-01-0{day}T00:00:00Z"));
    let jobs = [
        finished_job("s3", "Complete", at(3).as_deref()),
        finished_job("s1", "Complete", at(1).as_deref()),
        finished_job("f1", "Failed", at(1).as_deref()),
        finished_job("unstarted", "Failed", None),
        finished_job("running", "Suspended", at(1).as_deref()),
        finished_job("s2", "Complete", at(1).as_deref()),
    ];
    for (succeeded, failed, want) in [
        (json!(1), json!(1), &["f1", "s1", "s2"][..]),
        (json!(0), json!(2), &["s1", "s2", "s3"]),
        (json!(9), json!(0), &["f1", "unstarted"]),
        (json!(null), json!(null), &[]),
    ] {
        let spec = json!({"successfulJobsHistoryLimit": succeeded, "failedJobsHistoryLimit": failed});
        let surplus = surplus(&cron_job(spec).spec, &jobs);
        assert_eq!(surplus.iter().map(|job| job.name_any()).collect::<Vec<_>>(), want);
    }
}

#[test]
fn what_has_finished_is_not_active() {
    let mut status: CronJobStatus =
        serde_json::from_value(json!({"active": [{"uid": "a"}, {"uid": "b"}, {"uid": "c"}]})).unwrap();
    let jobs = [
        finished_job("a", "Complete", Some("2026-01-02T00:00:00Z")),
        finished_job("b", "Failed", Some("2026-01-03T00:00:00Z")),
        finished_job("d", "Complete", Some("2026-01-01T00:00:00Z")),
    ];
    let events = note_finished(&mut status, &jobs);
    let messages: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        messages,
        ["Saw completed job: a, condition: Complete", "Saw completed job: b, condition: Failed"]
    );
    let want = json!({"active": [{"uid": "c"}], "lastSuccessfulTime": "2026-01-02T00:00:00Z"});
    assert_eq!(json!(status), want);
}
