//! Probes that execute a command: they fail if it does not end in time with the code 0, by the
//! annotation `sim.coracle.dev/exec` or by what the command says plainly. All other probes succeed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::jiff::Timestamp;

use crate::command::follow_briefly;
use crate::pod::PodBehavior;

/// The defaults of the API: seconds between probes and for each of them, and failures that count.
const PERIOD: i32 = 10;
const TIMEOUT: i32 = 1;
const THRESHOLD: i32 = 3;
/// The longest output of a probe, in bytes, as for the kubelet's exec probes.
const MAX_OUTPUT: usize = 10 << 10;

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

impl PodBehavior {
    /// Returns the probe that keeps a container from being ready.
    ///
    /// - `now`: the time at which it is executed
    pub fn failing_readiness(&self, container: &Container, now: Timestamp) -> Option<FailingProbe> {
        self.failing("Readiness", container.readiness_probe.as_ref(), container, now)
    }

    /// Returns the probe by which a container is killed: before it has started, or afterwards.
    ///
    /// - `now`: the time at which it is executed
    pub fn failing_liveness_or_startup(&self, container: &Container, now: Timestamp) -> Option<FailingProbe> {
        let startup = self.failing("Startup", container.startup_probe.as_ref(), container, now);
        startup.or_else(|| self.failing("Liveness", container.liveness_probe.as_ref(), container, now))
    }

    fn failing(
        &self,
        kind: &'static str,
        probe: Option<&Probe>,
        container: &Container,
        now: Timestamp,
    ) -> Option<FailingProbe> {
        let probe = probe?;
        let command = probe.exec.as_ref()?.command.as_ref()?;
        let seconds = |field: Option<i32>, default: i32| u64::try_from(field.unwrap_or(default)).unwrap_or(0);
        let output = self.failure(container, command, seconds(probe.timeout_seconds, TIMEOUT), now)?;
        let delay = seconds(probe.initial_delay_seconds, 0);
        let period = seconds(probe.period_seconds, PERIOD);
        let others = seconds(probe.failure_threshold, THRESHOLD).saturating_sub(1);
        let after = Duration::from_secs(delay.saturating_add(period.saturating_mul(others)));
        Some(FailingProbe { kind, output, after })
    }

    /// Returns the output of a command that fails.
    ///
    /// - `timeout`: in seconds
    fn failure(
        &self,
        container: &Container,
        command: &[String],
        timeout: u64,
        now: Timestamp,
    ) -> Option<String> {
        let in_time = Duration::from_secs(timeout);
        let timed_out = || format!("command timed out: {:?} timed out after {timeout}s", command.join(" "));
        match self.answers.find(&container.name, command) {
            Some(answer) if answer.after > in_time => Some(timed_out()),
            Some(answer) if answer.exit_code == 0 => None,
            Some(answer) => Some(beginning(answer.stdout.iter().chain(answer.stderr.as_bytes()))),
            None if !self.follows_commands() => None,
            None => {
                let run = follow_briefly(command, now)?;
                match run.end.filter(|end| end.after <= in_time) {
                    None => Some(timed_out()),
                    Some(end) if end.code == 0 => None,
                    Some(_) => Some(beginning(run.output.iter().flat_map(|line| line.text.as_bytes()))),
                }
            }
        }
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
            behavior
                .failing_liveness_or_startup(&container(probes), Timestamp::UNIX_EPOCH)
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
            behavior.failing_readiness(&container, Timestamp::UNIX_EPOCH)
        };
        assert!(ready("check").is_some() && ready("false").is_some() && ready("fine").is_none());
        let loud = json!({"metadata": {"annotations": {EXEC: json!({"*": {"exitCode": 1, "stdout": "x".repeat(2 * MAX_OUTPUT)}}).to_string()}}});
        let (loud, _) = PodBehavior::of(&serde_json::from_value(loud).unwrap(), &[], Profile::Realistic);
        let long =
            loud.failing_readiness(&container(json!({"readinessProbe": exec("a")})), Timestamp::UNIX_EPOCH);
        assert_eq!(long.unwrap().output.len(), MAX_OUTPUT);
    }

    #[test]
    fn commands_that_are_not_short_and_clear_succeed() {
        let (behavior, _) = PodBehavior::of(&Pod::default(), &[], Profile::Realistic);
        let fails = |command: &[&str]| {
            let probe = json!({"name": "c", "readinessProbe": {"exec": {"command": command}}});
            let container = serde_json::from_value(probe).unwrap();
            behavior.failing_readiness(&container, Timestamp::UNIX_EPOCH).is_some()
        };
        assert!(fails(&["sh", "-c", "while true; do echo a; done"]), "it has no end");
        assert!(!fails(&["check"]));
        assert!(!fails(&["sh", "-c", "exit $CODE"]), "a variable may have any value");
        assert!(fails(&["sh", "-c", &format!("{} exit 1", ":; ".repeat(50))]));
        assert!(!fails(&["sh", "-c", &format!("{} exit 1", ":; ".repeat(250))]), "many steps");
        assert!(!fails(&["sh", "-c", &format!("exit 1 {}", " ".repeat(1024))]), "a long one");
    }
}
