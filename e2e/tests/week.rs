//! A week of a busy namespace by a clock that is moved on, against a model of it.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::random::Rng;
use coracle_e2e::{cluster, workloads};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const CLOCK: &str = "/coracle/v1alpha1/clock";
const START: &str = "2050-01-03T00:00:00Z";
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A CronJob whose Jobs succeed after a time.
#[derive(Clone, Debug)]
struct Schedule {
    minute: i64,
    /// The hours from one start to the next, which divide a day.
    every: i64,
    policy: &'static str,
    seconds: i64,
    kept: usize,
    ttl: Option<i64>,
}

/// A Job as the model and the control plane have it: its start, and its end if it has one.
type Runs = BTreeMap<Timestamp, Option<Timestamp>>;

impl Schedule {
    fn random(random: &mut Rng) -> Schedule {
        let one = |random: &mut Rng, values: &[i64]| values[random.below(values.len())];
        Schedule {
            minute: 1 + random.below(58) as i64,
            every: one(random, &[3, 4, 6, 12]),
            policy: ["Allow", "Forbid", "Replace"][random.below(3)],
            seconds: one(random, &[1, 90, 3600, 2 * 3600 + 60, 5 * 3600, 13 * 3600]),
            kept: random.below(4),
            ttl: random.one_in(3).then(|| one(random, &[60, 7200])),
        }
    }

    fn object(&self, name: &str) -> Value {
        let annotations = json!({"sim.coracle.dev/exit-after": format!("{}s", self.seconds)});
        let mut object =
            workloads::cron_job(name, &format!("{} */{} * * *", self.minute, self.every), annotations);
        object["spec"]["concurrencyPolicy"] = json!(self.policy);
        object["spec"]["successfulJobsHistoryLimit"] = json!(self.kept);
        if let Some(ttl) = self.ttl {
            object["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] = json!(ttl);
        }
        object
    }

    /// Computes the Jobs that exist after a time, and the last start.
    fn model(&self, from: Timestamp, to: Timestamp) -> (Runs, Option<Timestamp>) {
        let (mut runs, mut last) = (Runs::new(), None);
        let mut next = from + SignedDuration::from_mins(self.minute);
        while next <= to {
            self.settle(&mut runs, next);
            let is_active = runs.values().any(Option::is_none);
            if self.policy == "Replace" {
                runs.retain(|_, end| end.is_some());
            }
            if !(is_active && self.policy == "Forbid") {
                runs.insert(next, None);
                last = Some(next);
            }
            next += SignedDuration::from_hours(self.every);
        }
        self.settle(&mut runs, to);
        (runs, last)
    }

    /// Ends what ends by a time, in order, and removes what is too old.
    fn settle(&self, runs: &mut Runs, now: Timestamp) {
        loop {
            let end = |start: &Timestamp| *start + SignedDuration::from_secs(self.seconds);
            let active = runs.iter().filter(|(_, ended)| ended.is_none()).map(|(start, _)| *start);
            let Some(first) = active.filter(|start| end(start) <= now).min() else { break };
            runs.insert(first, Some(end(&first)));
            let finished: Vec<Timestamp> =
                runs.iter().filter(|(_, ended)| ended.is_some()).map(|(start, _)| *start).collect();
            let too_many = finished.len().saturating_sub(self.kept);
            finished.iter().take(too_many).for_each(|start| _ = runs.remove(start));
        }
        if let Some(ttl) = self.ttl {
            runs.retain(|_, ended| ended.is_none_or(|ended| ended + SignedDuration::from_secs(ttl) > now));
        }
    }
}

fn time(value: &Value) -> Result<Option<Timestamp>> {
    value.as_str().map(str::parse).transpose().context("a time")
}

#[tokio::test]
async fn a_week_of_cron_jobs_is_as_the_model_has_it() -> Result<()> {
    let cluster = cluster().flag("--clock", "manual").flag("--nodes", "2").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.call("POST", CLOCK, Some(json!({"set": START}))).await?;
    let start: Timestamp = START.parse()?;
    let mut random = Rng(27);
    let schedules: Vec<Schedule> = (0..6).map(|_| Schedule::random(&mut random)).collect();
    for (number, schedule) in schedules.iter().enumerate() {
        client
            .create(&workloads::batch("default", "cronjobs"), schedule.object(&format!("c{number}")))
            .await?;
    }
    // At other times of the day than the schedules' first ones, too.
    let (mut now, began) = (start, Instant::now());
    for part in [WEEK / 3, WEEK / 2, WEEK - WEEK / 3 - WEEK / 2] {
        now += part;
        client.call("POST", CLOCK, Some(json!({"set": now.to_string()}))).await?;
        let jobs = client.list(&workloads::batch("default", "jobs")).await?;
        for (number, schedule) in schedules.iter().enumerate() {
            let name = format!("c{number}");
            let mut runs = Runs::new();
            for job in jobs.iter().filter(|job| job["metadata"]["ownerReferences"][0]["name"] == *name) {
                let started = time(&job["status"]["startTime"])?.context("a start")?;
                let minutes = started.as_second() / 60;
                ensure!(workloads::name(job) == format!("{name}-{minutes}"), "{job}");
                runs.insert(started, time(&job["status"]["completionTime"])?);
            }
            let (want, last) = schedule.model(start, now);
            let cron_job = client.get(&format!("{}/{name}", workloads::batch("default", "cronjobs"))).await?;
            let status = &cron_job["status"];
            ensure!(runs == want, "{schedule:?} at {now}: {runs:?} instead of {want:?}: {status}");
            ensure!(time(&cron_job["status"]["lastScheduleTime"])? == last, "{schedule:?}: {cron_job}");
            let active = cron_job["status"]["active"].as_array().map_or(0, Vec::len);
            let is_active = runs.values().filter(|end| end.is_none()).count();
            ensure!(active == is_active, "{schedule:?}: {active} active instead of {is_active}");
        }
    }
    println!("a week took {:?}", began.elapsed());
    Ok(())
}
