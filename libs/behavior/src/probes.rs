//! Probes that execute a command: they fail if it does not end in time with the code 0, by the
//! annotation `sim.coracle.dev/exec` or by what the command says plainly, with the files that the
//! container's own command has written by then. Probes over HTTP fail in the example of Kubernetes'
//! documentation, `agnhost liveness`. All other probes succeed.
//!
//! Probes that succeed from the start of a container count at once. Others count as the kubelet
//! counts them: after the initial delay, once in a period, and after so many results of the same
//! kind as the thresholds say.

use std::time::Duration;

use coracle_kinds::pods::{Role, containers};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Pod, Probe};
use k8s_openapi::jiff::Timestamp;

use crate::command::{File, Files, Reads, follow_briefly};
use crate::images::image_name;
use crate::pod::PodBehavior;

/// The defaults of the API: seconds between probes and for each of them, and results that count.
const PERIOD: i32 = 10;
const TIMEOUT: i32 = 1;
const FAILURES: i32 = 3;
const SUCCESSES: i32 = 1;
/// The longest output of a probe, in bytes, as for the kubelet's exec probes.
const MAX_OUTPUT: usize = 10 << 10;
/// The files that a probe may read, and the states of them for which it is followed. Of others
/// nothing is known.
const MAX_READS: usize = 8;
const MAX_STATES: usize = 8;
/// The containers of a pod whose probes read files.
const MAX_CONTAINERS: usize = 32;

/// A container that was started.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Its role in the pod.
    pub role: Role,
    /// Its specification.
    pub container: &'a Container,
    /// The time at which it was started.
    pub at: Timestamp,
}

/// A probe that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingProbe {
    /// `Liveness`, `Readiness` or `Startup`.
    pub kind: &'static str,
    /// The output of the command, or that it took too long.
    pub output: String,
    /// The time from the start of the container until so many probes have failed that they count.
    pub after: Duration,
}

/// The result of the probes that decide whether a container has started and is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether its startup probe has not succeeded yet.
    pub is_starting: bool,
    /// The probe that keeps it from being ready.
    pub failing: Option<FailingProbe>,
    /// The time from the start of the container until this changes, if it does.
    pub until: Option<Duration>,
}

/// A time from which on a probe has the same result, until the next one.
#[derive(Clone, Debug)]
struct Phase {
    from: Duration,
    /// The output if it fails.
    failure: Option<String>,
}

/// The results of a probe in the course of a container.
struct Results {
    kind: &'static str,
    phases: Vec<Phase>,
    /// The time of the first probe.
    begin: Duration,
    period: u64,
    failures: u64,
    successes: u64,
}

impl PodBehavior {
    /// Returns the result of the startup and the readiness probe of a container.
    pub fn readiness(&self, started: &Started, now: Timestamp) -> Readiness {
        let age = Duration::try_from(now.duration_since(started.at)).unwrap_or_default();
        let startup = self.results("Startup", started.container.startup_probe.as_ref(), started, now);
        let has_started = match &startup {
            None => Duration::ZERO,
            Some(results) => results.first_success().unwrap_or(Duration::MAX),
        };
        if has_started > age {
            let failing = startup.and_then(|results| results.last_failure(age));
            let until = (has_started < Duration::MAX).then_some(has_started);
            return Readiness { is_starting: true, failing, until };
        }
        let readiness = self.results("Readiness", started.container.readiness_probe.as_ref(), started, now);
        match readiness {
            None => Readiness::default(),
            Some(results) => results.from(has_started).readiness(has_started, age),
        }
    }

    /// Returns the probe by which a container is killed: before it has started, or afterwards.
    pub fn failing_liveness_or_startup(&self, started: &Started, now: Timestamp) -> Option<FailingProbe> {
        let startup = self.results("Startup", started.container.startup_probe.as_ref(), started, now);
        let has_started = match startup {
            None => Duration::ZERO,
            Some(results) => match (results.first_success(), results.first_failure()) {
                (success, Some(failure)) if success.is_none_or(|success| failure.after < success) => {
                    return Some(failure);
                }
                (success, _) => success.unwrap_or_default(),
            },
        };
        let liveness = self.results("Liveness", started.container.liveness_probe.as_ref(), started, now);
        liveness?.from(has_started).first_failure()
    }

    /// Returns the results of a probe; None if there is none, or it always succeeds.
    fn results(
        &self,
        kind: &'static str,
        probe: Option<&Probe>,
        started: &Started,
        now: Timestamp,
    ) -> Option<Results> {
        let probe = probe?;
        let phases = match (&probe.exec, &probe.http_get) {
            (Some(exec), _) => self.phases_of_command(exec.command.as_ref()?, probe, started, now),
            (_, Some(http)) if self.follows_commands() => phases_of_agnhost(started.container, http),
            _ => None,
        }?;
        let number = |field: Option<i32>, default: i32| u64::try_from(field.unwrap_or(default)).unwrap_or(0);
        phases.iter().any(|phase| phase.failure.is_some()).then(|| Results {
            kind,
            phases,
            begin: Duration::from_secs(number(probe.initial_delay_seconds, 0)),
            period: number(probe.period_seconds, PERIOD).max(1),
            failures: number(probe.failure_threshold, FAILURES).max(1),
            successes: number(probe.success_threshold, SUCCESSES).max(1),
        })
    }

    /// Returns the results of a command; None if they are not known.
    fn phases_of_command(
        &self,
        command: &[String],
        probe: &Probe,
        started: &Started,
        now: Timestamp,
    ) -> Option<Vec<Phase>> {
        let timeout = u64::try_from(probe.timeout_seconds.unwrap_or(TIMEOUT)).unwrap_or(0);
        let container = started.container;
        let failure = |files: Files| self.failure(container, command, timeout, files, now);
        let (at_first, reads) = failure(Files::of(container));
        if reads.is_empty() {
            return Some(vec![Phase { from: Duration::ZERO, failure: at_first }]);
        }
        if containers(started.pod).nth(MAX_CONTAINERS).is_some() {
            return None;
        }
        let files = self.run(started.pod, started.role, container, started.at).files;
        Some(phases_of(&files, failure))
    }

    /// Returns the output of a command that fails, and the files by which it does.
    ///
    /// - `timeout`: in seconds
    fn failure(
        &self,
        container: &Container,
        command: &[String],
        timeout: u64,
        files: Files,
        now: Timestamp,
    ) -> (Option<String>, Reads) {
        let in_time = Duration::from_secs(timeout);
        let timed_out = || format!("command timed out: {:?} timed out after {timeout}s", command.join(" "));
        if let Some(answer) = self.answers.find(&container.name, command) {
            let failure = match answer.exit_code {
                _ if answer.after > in_time => Some(timed_out()),
                0 => None,
                _ => Some(beginning(answer.stdout.iter().chain(answer.stderr.as_bytes()))),
            };
            return (failure, Reads::new());
        }
        let run = self.follows_commands().then(|| follow_briefly(command, files, now)).flatten();
        let Some(run) = run else { return (None, Reads::new()) };
        let failure = match run.end.filter(|end| end.after <= in_time) {
            _ if run.unsimulated.is_some() => None,
            None => Some(timed_out()),
            Some(end) if end.code == 0 => None,
            Some(_) => Some(beginning(run.output.iter().flat_map(|line| line.text.as_bytes()))),
        };
        (failure, run.files.reads())
    }
}

/// Returns the results of a command while files change: it has the same one whenever the files that
/// it reads are the same.
fn phases_of(files: &Files, failure: impl Fn(Files) -> (Option<String>, Reads)) -> Vec<Phase> {
    let mut known: Vec<(Reads, Option<String>)> = Vec::new();
    let mut phases: Vec<Phase> = Vec::new();
    for from in files.times_from_start() {
        let is_same = |(path, file): &(String, File)| files.get(path, from) == *file;
        let failure = match known.iter().find(|(reads, _)| reads.iter().all(is_same)) {
            Some((_, failure)) => failure.clone(),
            None if known.len() == MAX_STATES => None,
            None => {
                let (failure, reads) = failure(files.at(from));
                let failure = failure.filter(|_| reads.len() <= MAX_READS);
                known.push((reads, failure.clone()));
                failure
            }
        };
        if phases.last().is_none_or(|last| last.failure != failure) {
            phases.push(Phase { from, failure });
        }
    }
    phases
}

/// Returns the results of a probe of `agnhost liveness`, whose `/healthz` fails after ten seconds;
/// None for any other program.
fn phases_of_agnhost(container: &Container, http: &HTTPGetAction) -> Option<Vec<Phase>> {
    const HEALTHY: Duration = Duration::from_secs(10);
    let words: Vec<&str> =
        container.command.iter().chain(&container.args).flatten().map(String::as_str).collect();
    let is_agnhost = image_name(container.image.as_deref().unwrap_or_default()) == "agnhost"
        && matches!(*words, ["liveness"] | ["/agnhost", "liveness"]);
    // The second one is redirected to the first.
    let is_healthz = matches!(http.path.as_deref(), Some("/healthz" | "/redirect?loc=%2Fhealthz"));
    (is_agnhost && is_healthz).then(|| {
        let failure = "HTTP probe failed with statuscode: 500".to_owned();
        vec![Phase { from: Duration::ZERO, failure: None }, Phase { from: HEALTHY, failure: Some(failure) }]
    })
}

/// Consecutive probes with the same result.
struct Streak<'a> {
    /// The number of the first one, from 0 on.
    first: u64,
    count: u64,
    failure: Option<&'a String>,
}

impl Results {
    /// Returns the results of a probe that begins when the container has started, or after its
    /// initial delay if that is later.
    fn from(self, has_started: Duration) -> Results {
        Results { begin: self.begin.max(has_started), ..self }
    }

    /// Returns the time of a probe by its number.
    fn time(&self, number: u64) -> Duration {
        self.begin.saturating_add(Duration::from_secs(self.period.saturating_mul(number)))
    }

    /// Returns the number of the first probe that is not before a time.
    fn first_probe_at(&self, from: Duration) -> u64 {
        let passed = from.saturating_sub(self.begin);
        let seconds = passed.as_secs().saturating_add(u64::from(passed.subsec_nanos() > 0));
        seconds.div_ceil(self.period)
    }

    /// Iterates over the streaks of results; the last one has no end.
    fn streaks(&self) -> impl Iterator<Item = Streak<'_>> {
        let ends = self.phases.iter().skip(1).map(|phase| phase.from).chain([Duration::MAX]);
        self.phases.iter().zip(ends).filter_map(|(phase, end)| {
            let (first, next) = (self.first_probe_at(phase.from), self.first_probe_at(end));
            let count = next.saturating_sub(first);
            (count > 0).then_some(Streak { first, count, failure: phase.failure.as_ref() })
        })
    }

    /// Returns the failure at a time.
    fn failure_at(&self, time: Duration) -> Option<&str> {
        let phase = self.phases.iter().rev().find(|phase| phase.from <= time);
        phase.and_then(|phase| phase.failure.as_deref())
    }

    fn failing(&self, output: &str, after: Duration) -> FailingProbe {
        FailingProbe { kind: self.kind, output: output.to_owned(), after }
    }

    /// Returns the failure that counts first.
    fn first_failure(&self) -> Option<FailingProbe> {
        let mut failed = 0;
        for Streak { first, count, failure } in self.streaks() {
            match failure {
                Some(output) if count.saturating_add(failed) >= self.failures => {
                    return Some(self.failing(output, self.time(first + (self.failures - failed) - 1)));
                }
                Some(_) => failed += count,
                None => failed = 0,
            }
        }
        None
    }

    /// Returns the time of the first success.
    fn first_success(&self) -> Option<Duration> {
        let first = || self.streaks().find(|streak| streak.failure.is_none());
        match self.failure_at(Duration::ZERO) {
            None => Some(Duration::ZERO),
            Some(_) => first().map(|streak| self.time(streak.first)),
        }
    }

    /// Returns the last failure before an age, or the first one.
    fn last_failure(&self, age: Duration) -> Option<FailingProbe> {
        let failing = self.phases.iter().filter(|phase| phase.from <= age);
        let output = failing.filter_map(|phase| phase.failure.as_ref()).next_back()?;
        Some(self.failing(output, Duration::ZERO))
    }

    /// Returns the readiness at an age of a container that has started at a time.
    fn readiness(&self, has_started: Duration, age: Duration) -> Readiness {
        let mut failing = self.failure_at(has_started);
        let (mut failed, mut succeeded) = (0, 0);
        for Streak { first, count, failure } in self.streaks() {
            let (same, other, threshold) = match failure {
                Some(_) => (&mut failed, &mut succeeded, self.failures),
                None => (&mut succeeded, &mut failed, self.successes),
            };
            let counts_at = threshold.saturating_sub(*same).max(1) - 1;
            (*same, *other) = (same.saturating_add(count), 0);
            if count <= counts_at || failing.is_some() == failure.is_some() {
                continue;
            }
            let at = self.time(first + counts_at);
            if at > age {
                let failing = failing.map(|output| self.failing(output, Duration::ZERO));
                return Readiness { is_starting: false, failing, until: Some(at) };
            }
            failing = failure.map(String::as_str);
        }
        let failing = failing.map(|output| self.failing(output, Duration::ZERO));
        Readiness { is_starting: false, failing, until: None }
    }
}

/// Returns the beginning of an output.
fn beginning<'a>(output: impl Iterator<Item = &'a u8>) -> String {
    let bytes: Vec<u8> = output.take(MAX_OUTPUT).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::{EXEC, Profile};

    fn started<'a>(pod: &'a Pod, container: &'a Container) -> Started<'a> {
        Started { pod, role: Role::Main, container, at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn probes_fail_by_their_commands() {
        let exec = r#"{"check": {"exitCode": 1, "stderr": "down"}, "fine": {}, "other:live": {"exitCode": 1}, "slow": {"after": "3s"}}"#;
        let pod = json!({"metadata": {"annotations": {EXEC: exec}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container = |probes: Value| -> Container {
            let mut container = json!({"name": "c"});
            container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
            serde_json::from_value(container).unwrap()
        };
        let exec = |command: &str| json!({"exec": {"command": command.split('|').collect::<Vec<_>>()}});
        let life = |profile: Profile, probes: Value| {
            let (behavior, warnings) = PodBehavior::of(&pod, &[], profile);
            assert!(warnings.is_empty(), "{warnings:?}");
            let container = container(probes);
            let pod = Pod::default();
            behavior
                .failing_liveness_or_startup(&started(&pod, &container), Timestamp::UNIX_EPOCH)
                .map(|probe| format!("{} {} {}", probe.kind, probe.output, probe.after.as_secs()))
        };
        let timed = json!({"exec": {"command": ["check"]}, "initialDelaySeconds": 5, "periodSeconds": 2, "failureThreshold": 1});
        let patient = json!({"exec": {"command": ["slow"]}, "timeoutSeconds": 3});
        let timed_out =
            |command: &str| format!("Liveness command timed out: {command:?} timed out after 1s 20");
        for (probes, want) in [
            (json!({"livenessProbe": exec("check")}), Some("Liveness down 20".to_owned())),
            (
                json!({"livenessProbe": exec("check"), "startupProbe": timed}),
                Some("Startup down 5".to_owned()),
            ),
            (json!({"livenessProbe": exec("fine")}), None),
            (json!({"livenessProbe": exec("live")}), None),
            (json!({"livenessProbe": exec("slow")}), Some(timed_out("slow"))),
            (json!({"livenessProbe": patient}), None),
            (json!({"livenessProbe": exec("/bin/true")}), None),
            (json!({"livenessProbe": exec("/bin/false")}), Some("Liveness  20".to_owned())),
            (json!({"livenessProbe": exec("sh|-c|echo no; exit 3")}), Some("Liveness no\n 20".to_owned())),
            (json!({"livenessProbe": exec("sleep|60")}), Some(timed_out("sleep 60"))),
            (json!({"livenessProbe": exec("sleep|infinity")}), Some(timed_out("sleep infinity"))),
            (json!({"livenessProbe": {"httpGet": {"port": 80}}}), None),
            (json!({"readinessProbe": exec("check")}), None),
            (json!({}), None),
        ] {
            assert_eq!(life(Profile::Realistic, probes.clone()), want, "{probes}");
        }
        assert_eq!(life(Profile::Inert, json!({"livenessProbe": exec("false")})), None);
        let ready = |command: &str| {
            let (behavior, _) = PodBehavior::of(&pod, &[], Profile::Realistic);
            let container = container(json!({"readinessProbe": exec(command)}));
            behavior.readiness(&started(&Pod::default(), &container), Timestamp::UNIX_EPOCH).failing
        };
        assert!(ready("check").is_some() && ready("false").is_some() && ready("fine").is_none());
        let loud = json!({"metadata": {"annotations": {EXEC: json!({"*": {"exitCode": 1, "stdout": "x".repeat(2 * MAX_OUTPUT)}}).to_string()}}});
        let (loud, _) = PodBehavior::of(&serde_json::from_value(loud).unwrap(), &[], Profile::Realistic);
        let container = container(json!({"readinessProbe": exec("a")}));
        let long = loud.readiness(&started(&pod, &container), Timestamp::UNIX_EPOCH);
        assert_eq!(long.failing.unwrap().output.len(), MAX_OUTPUT);
    }

    #[test]
    fn commands_that_are_not_short_and_clear_succeed() {
        let (behavior, _) = PodBehavior::of(&Pod::default(), &[], Profile::Realistic);
        let fails = |command: &[&str]| {
            let probe = json!({"name": "c", "readinessProbe": {"exec": {"command": command}}});
            let container: Container = serde_json::from_value(probe).unwrap();
            let pod = Pod::default();
            behavior.readiness(&started(&pod, &container), Timestamp::UNIX_EPOCH).failing.is_some()
        };
        assert!(fails(&["sh", "-c", "while true; do echo a; done"]), "it has no end");
        assert!(!fails(&["check"]));
        assert!(!fails(&["cat", "/tmp/healthy"]), "the image decides what is there");
        assert!(!fails(&["sh", "-c", "exit $CODE"]), "a variable may have any value");
        assert!(fails(&["sh", "-c", &format!("{} exit 1", ":; ".repeat(50))]));
        assert!(!fails(&["sh", "-c", &format!("{} exit 1", ":; ".repeat(250))]), "many steps");
        assert!(!fails(&["sh", "-c", &format!("exit 1 {}", " ".repeat(1024))]), "a long one");
    }

    /// Returns the results of the probes of a container that runs a script: how long it starts,
    /// when its readiness changes, and the end.
    fn course(script: &str, probes: &Value) -> String {
        let (behavior, _) = PodBehavior::of(&Pod::default(), &[], Profile::Realistic);
        let mut container = json!({"name": "c", "command": ["sh", "-c", script]});
        container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
        let container: Container = serde_json::from_value(container).unwrap();
        let pod = Pod::default();
        let started = started(&pod, &container);
        let mut shown = Vec::new();
        let mut at = Duration::ZERO;
        for _ in 0..10 {
            let now = Timestamp::UNIX_EPOCH + at;
            let Readiness { is_starting, failing, until } = behavior.readiness(&started, now);
            let state = match (is_starting, failing) {
                (true, _) => "starting",
                (false, Some(_)) => "unready",
                (false, None) => "ready",
            };
            shown.push(format!("{} {state}", at.as_secs()));
            match until {
                Some(until) => at = until,
                None => break,
            }
        }
        let killed = behavior.failing_liveness_or_startup(&started, Timestamp::UNIX_EPOCH);
        shown.extend(killed.map(|probe| format!("{} {}", probe.after.as_secs(), probe.kind)));
        shown.join(", ")
    }

    #[test]
    fn probes_of_pods_with_many_containers_read_no_files() {
        let probe = json!({"exec": {"command": ["cat", "/tmp/f"]}});
        for (count, is_ready) in [(MAX_CONTAINERS, false), (MAX_CONTAINERS + 1, true)] {
            let container = json!({"name": "c", "command": ["sleep", "9"], "readinessProbe": probe});
            let pod = json!({"spec": {"containers": vec![container; count]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let (behavior, _) = PodBehavior::of(&pod, &[], Profile::Realistic);
            let started = started(&pod, &pod.spec.as_ref().unwrap().containers[0]);
            let readiness = behavior.readiness(&started, Timestamp::UNIX_EPOCH);
            assert_eq!(readiness.failing.is_none(), is_ready, "{count}");
        }
    }

    #[test]
    fn probes_follow_the_files_of_the_container() {
        let cat = |delay: u64, period: u64, failures: u64| {
            json!({
                "exec": {"command": ["cat", "/tmp/f"]}, "initialDelaySeconds": delay,
                "periodSeconds": period, "failureThreshold": failures,
            })
        };
        let liveness = || json!({"livenessProbe": cat(5, 5, 3)});
        let readiness = |delay: u64, period: u64| json!({"readinessProbe": cat(delay, period, 2)});
        let twice =
            json!({"readinessProbe": {"exec": {"command": ["cat", "/tmp/f"]}, "successThreshold": 2}});
        let false_after_startup = json!({
            "startupProbe": cat(0, 10, 30),
            "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1},
        });
        let starts = |path: &str, period: u64, readiness: Value| {
            let startup = json!({"exec": {"command": ["cat", path]}, "periodSeconds": period});
            json!({"startupProbe": startup, "readinessProbe": readiness})
        };
        for (script, probes, want) in [
            // The example of the documentation of Kubernetes.
            ("touch /tmp/f; sleep 30; rm -f /tmp/f; sleep 600", liveness(), "0 ready, 40 Liveness"),
            ("touch /tmp/f; sleep 600", liveness(), "0 ready"),
            ("sleep 600", liveness(), "0 ready, 15 Liveness"),
            ("touch /tmp/f; sleep 7; rm /tmp/f; sleep 8; touch /tmp/f; sleep 600", liveness(), "0 ready"),
            ("touch /tmp/f; exec ./serve", liveness(), "0 ready"),
            ("sleep 3; touch /tmp/f; sleep 600", readiness(0, 1), "0 unready, 3 ready"),
            ("sleep 3; touch /tmp/f; sleep 600", readiness(0, 10), "0 unready, 10 ready"),
            ("sleep 3; touch /tmp/f; sleep 600", readiness(5, 10), "0 unready, 5 ready"),
            ("sleep 3; ./serve", readiness(0, 1), "0 unready, 3 ready"),
            ("sleep 3; touch /tmp/f; sleep 600", twice, "0 unready, 20 ready"),
            ("touch /tmp/f; sleep 600", readiness(30, 1), "0 ready"),
            (
                "touch /tmp/f; sleep 5; rm /tmp/f; sleep 6; touch /tmp/f; sleep 9",
                readiness(0, 1),
                "0 ready, 6 unready, 11 ready",
            ),
            (
                "sleep 10; touch /tmp/f; sleep 600",
                false_after_startup.clone(),
                "0 starting, 10 ready, 10 Liveness",
            ),
            ("sleep 600", false_after_startup, "0 starting, 290 Startup"),
            (
                "sleep 1; touch /tmp/ok; sleep 1; touch /tmp/up; sleep 600",
                starts("/tmp/up", 1, json!({"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 60})),
                "0 starting, 2 ready",
            ),
            (
                "sleep 1; touch /tmp/up; sleep 4; touch /tmp/ok; sleep 600",
                starts(
                    "/tmp/up",
                    1,
                    json!({"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 3, "initialDelaySeconds": 2}),
                ),
                "0 starting, 1 unready, 5 ready",
            ),
            ("touch /tmp/f; sleep 1; rm /tmp/f; sleep 600", json!({"startupProbe": cat(2, 1, 3)}), "0 ready"),
        ] {
            assert_eq!(course(script, &probes), want, "{script} {probes}");
        }
        let http = |path: &str| json!({"livenessProbe": {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 3}});
        let agnhost = |path: &str, argument: &str| {
            let mut container = http(path);
            container["image"] = json!("registry.k8s.io/e2e-test-images/agnhost:2.40");
            container["command"] = json!(null);
            container["args"] = json!([argument]);
            course("", &container)
        };
        assert_eq!(agnhost("/healthz", "liveness"), "0 ready, 18 Liveness");
        assert_eq!(agnhost("/", "liveness"), "0 ready");
        assert_eq!(agnhost("/healthz", "netexec"), "0 ready");
        let hour = json!({"readinessProbe": cat(i32::MAX as u64, i32::MAX as u64, i32::MAX as u64)});
        assert_eq!(course("sleep 3; touch /tmp/f; sleep 600", &hour), "0 unready, 2147483647 ready");
        let many = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
            .map(|name| format!("cat /tmp/{name} 2>&1;"))
            .concat();
        let reads_many = json!({"readinessProbe": {"exec": {"command": ["sh", "-c", many]}}});
        assert_eq!(
            course("touch /tmp/a; sleep 5", &reads_many),
            "0 ready",
            "it reads more files than are followed"
        );
        let states: String = (0..20).map(|i| format!("echo {i} > /tmp/f; sleep 1;")).collect();
        let of_content = json!({"readinessProbe": {"exec": {"command": ["sh", "-c", "cat /tmp/f; false"]}, "periodSeconds": 1}});
        assert_eq!(course(&states, &of_content), "0 unready, 8 ready", "a ninth state is not followed");
        let busy = "while true; do touch /tmp/f; sleep 1; rm /tmp/f; sleep 1; done";
        let begins = "0 ready, 1 unready, 2 ready, 3 unready";
        let quick = json!({"readinessProbe": cat(0, 1, 1)});
        assert!(course(busy, &quick).starts_with(begins), "{}", course(busy, &quick));
    }
}
