//! Probes that execute a command: they succeed unless the annotation `sim.coracle.dev/exec` has
//! another answer for the command. All other probes succeed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use crate::exec::{Answer, Answers};

/// The defaults of the API: seconds between probes, and failures that count.
const PERIOD: i32 = 10;
const THRESHOLD: i32 = 3;

/// A probe that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingProbe {
    /// `Liveness`, `Readiness` or `Startup`.
    pub kind: &'static str,
    /// The output of the command.
    pub output: String,
    /// The time from the start of the container until so many probes have failed that they count.
    pub after: Duration,
}

impl FailingProbe {
    /// Returns the probe that keeps a container from being ready.
    pub fn of_readiness(answers: &Answers, container: &Container) -> Option<FailingProbe> {
        failing(answers, container, "Readiness", container.readiness_probe.as_ref())
    }

    /// Returns the probe by which a container is killed: before it has started, or afterwards.
    pub fn of_liveness_or_startup(answers: &Answers, container: &Container) -> Option<FailingProbe> {
        let startup = failing(answers, container, "Startup", container.startup_probe.as_ref());
        startup.or_else(|| failing(answers, container, "Liveness", container.liveness_probe.as_ref()))
    }
}

fn failing(
    answers: &Answers,
    container: &Container,
    kind: &'static str,
    probe: Option<&Probe>,
) -> Option<FailingProbe> {
    let probe = probe?;
    let command = probe.exec.as_ref()?.command.as_ref()?;
    let Answer { stdout, stderr, .. } =
        answers.find(&container.name, command).filter(|answer| answer.exit_code != 0)?;
    let seconds = |field: Option<i32>, default: i32| u64::try_from(field.unwrap_or(default)).unwrap_or(0);
    let delay = seconds(probe.initial_delay_seconds, 0);
    let period = seconds(probe.period_seconds, PERIOD);
    let others = seconds(probe.failure_threshold, THRESHOLD).saturating_sub(1);
    let after = Duration::from_secs(delay.saturating_add(period.saturating_mul(others)));
    let output = String::from_utf8_lossy(stdout).into_owned() + stderr;
    Some(FailingProbe { kind, output, after })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn probes_fail_by_the_answers_to_their_commands() {
        let answers: Answers =
            r#"{"check": {"exitCode": 1, "stderr": "down"}, "fine": {}, "other:live": {"exitCode": 1}}"#
                .parse()
                .unwrap();
        let container = |probes: Value| -> Container {
            let mut container = json!({"name": "c"});
            container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
            serde_json::from_value(container).unwrap()
        };
        let exec = |command: &str| json!({"exec": {"command": [command]}});
        let life = |probes: Value| {
            FailingProbe::of_liveness_or_startup(&answers, &container(probes))
                .map(|probe| format!("{} {} {}", probe.kind, probe.output, probe.after.as_secs()))
        };
        let timed = json!({"exec": {"command": ["check"]}, "initialDelaySeconds": 5, "periodSeconds": 2, "failureThreshold": 1});
        for (probes, want) in [
            (json!({"livenessProbe": exec("check")}), Some("Liveness down 20")),
            (json!({"livenessProbe": exec("check"), "startupProbe": timed}), Some("Startup down 5")),
            (json!({"livenessProbe": exec("fine")}), None),
            (json!({"livenessProbe": exec("live")}), None),
            (json!({"livenessProbe": {"httpGet": {"port": 80}}}), None),
            (json!({"readinessProbe": exec("check")}), None),
            (json!({}), None),
        ] {
            assert_eq!(life(probes.clone()).as_deref(), want, "{probes}");
        }
        let ready = |command| {
            FailingProbe::of_readiness(&answers, &container(json!({"readinessProbe": exec(command)})))
        };
        assert!(ready("check").is_some() && ready("fine").is_none());
    }
}
