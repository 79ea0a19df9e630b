//! Probes that execute a command: they fail if it does not end in time with the code 0, by the
//! annotation `sim.coracle.dev/exec` or by what the command says plainly. All other probes succeed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::jiff::Timestamp;

use crate::pod::{Execution, PodBehavior};

/// The defaults of the API: seconds between probes and for each of them, and failures that count.
const PERIOD: i32 = 10;
const TIMEOUT: i32 = 1;
const THRESHOLD: i32 = 3;

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
    pub fn failing_readiness(
        &self,
        pod: &Pod,
        container: &Container,
        now: Timestamp,
    ) -> Option<FailingProbe> {
        self.failing("Readiness", container.readiness_probe.as_ref(), pod, container, now)
    }

    /// Returns the probe by which a container is killed: before it has started, or afterwards.
    ///
    /// - `now`: the time at which it is executed
    pub fn failing_liveness_or_startup(
        &self,
        pod: &Pod,
        container: &Container,
        now: Timestamp,
    ) -> Option<FailingProbe> {
        let startup = self.failing("Startup", container.startup_probe.as_ref(), pod, container, now);
        startup.or_else(|| self.failing("Liveness", container.liveness_probe.as_ref(), pod, container, now))
    }

    fn failing(
        &self,
        kind: &'static str,
        probe: Option<&Probe>,
        pod: &Pod,
        container: &Container,
        now: Timestamp,
    ) -> Option<FailingProbe> {
        let probe = probe?;
        let command = probe.exec.as_ref()?.command.as_ref()?;
        let execution = self.answer(container, command);
        let execution = execution.or_else(|| self.follow(pod, container, command, now))?;
        let seconds = |field: Option<i32>, default: i32| u64::try_from(field.unwrap_or(default)).unwrap_or(0);
        let timeout = seconds(probe.timeout_seconds, TIMEOUT);
        let ending = execution.ending.filter(|ending| ending.after <= Duration::from_secs(timeout));
        let output = match ending {
            Some(ending) if ending.code == 0 => return None,
            Some(_) => output(&execution),
            None => format!("command timed out: {:?} timed out after {timeout}s", command.join(" ")),
        };
        let delay = seconds(probe.initial_delay_seconds, 0);
        let period = seconds(probe.period_seconds, PERIOD);
        let others = seconds(probe.failure_threshold, THRESHOLD).saturating_sub(1);
        let after = Duration::from_secs(delay.saturating_add(period.saturating_mul(others)));
        Some(FailingProbe { kind, output, after })
    }
}

/// Returns all that a command writes.
fn output(execution: &Execution) -> String {
    let written = execution.output.iter().map(|part| String::from_utf8_lossy(&part.data));
    written.collect()
}

#[cfg(test)]
mod tests {
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
                .failing_liveness_or_startup(&pod, &container(probes), Timestamp::UNIX_EPOCH)
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
            behavior.failing_readiness(&pod, &container, Timestamp::UNIX_EPOCH)
        };
        assert!(ready("check").is_some() && ready("false").is_some() && ready("fine").is_none());
    }
}
