//! Pods: the summary of their containers.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::pods;
use coracle_apimachinery::render::age;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, string};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The columns of Pod.
pub const POD: &[Column] = &[
    NAME,
    string("Ready", Literal("The aggregate readiness state of this pod for accepting traffic."), ready),
    string("Status", Literal("The aggregate status of the containers in this pod."), status),
    string(
        "Restarts",
        Literal(
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        ),
        restarts,
    ),
    AGE,
    string("IP", Described("core.v1.PodStatus.podIP"), |row| {
        let first = row.get("status.podIPs").items().next();
        first.map(|ip| ip.get("ip").str()).filter(|ip| !ip.is_empty()).unwrap_or("<none>").into()
    })
    .wide(),
    string("Node", Described("core.v1.PodSpec.nodeName"), |row| row.text_or("spec.nodeName", "<none>"))
        .wide(),
    string("Nominated Node", Described("core.v1.PodStatus.nominatedNodeName"), |row| {
        row.text_or("status.nominatedNodeName", "<none>")
    })
    .wide(),
    string("Readiness Gates", Described("core.v1.PodSpec.readinessGates"), readiness_gates).wide(),
];

/// Returns the conditions for the row of a finished pod.
pub fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod.pointer("/status/phase").and_then(Value::as_str)? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn ready(row: &Row<'_>) -> Value {
    let pod = &row.object;
    let sidecars = pod.walk("spec.initContainers").items().filter(is_sidecar).count();
    let total = pod.walk("spec.containers").len() + sidecars;
    format!("{}/{total}", Summary::of(pod).ready).into()
}

fn status(row: &Row<'_>) -> Value {
    Summary::of(&row.object).reason.into()
}

fn restarts(row: &Row<'_>) -> Value {
    match Summary::of(&row.object).restarts {
        Restarts { count, last: Some(last) } if count != 0 => {
            format!("{count} ({} ago)", age::since(last, row.now)).into()
        }
        Restarts { count, .. } => count.to_string().into(),
    }
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let gates = row.get("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let passed = |gate: &Field<'_>| has_condition(&row.object, gate.get("conditionType").str());
    format!("{}/{}", gates.items().filter(passed).count(), gates.len()).into()
}

/// Returns `true` if the first condition of that type has status `True`.
fn has_condition(pod: &Field<'_>, condition_type: &str) -> bool {
    let mut conditions = pod.walk("status.conditions").items();
    conditions
        .find(|c| c.get("type").str() == condition_type)
        .is_some_and(|c| c.get("status").str() == "True")
}

fn is_sidecar(container: &Field<'_>) -> bool {
    container.value().is_some_and(pods::is_sidecar)
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Field<'_>) {
        self.count += status.get("restartCount").int().unwrap_or(0);
        self.last = self.last.max(age::moment(&status.walk("lastState.terminated.finishedAt")));
    }
}

/// The state of a pod, computed from its containers in the order in which they run.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Field<'_>) -> Summary {
        let mut summary = Summary { reason: reason_of_pod(pod), ready: 0, restarts: Restarts::default() };
        let initializing = summary.add_init_containers(pod);
        if !initializing || has_condition(pod, "Initialized") {
            summary.add_containers(pod);
        }
        if pod.walk("metadata.deletionTimestamp").exists() {
            if pod.walk("status.reason").str() == "NodeLost" {
                summary.reason = "Unknown".into();
            } else if !pod.value().is_some_and(pods::is_terminal) {
                summary.reason = "Terminating".into();
            }
        }
        summary
    }

    /// Adds the init containers, and returns whether one of them is unfinished or has failed. If
    /// none is, only the restarts of sidecars count.
    fn add_init_containers(&mut self, pod: &Field<'_>) -> bool {
        let specs = pod.walk("spec.initContainers");
        let restartable = |status: &Field<'_>| {
            let name = status.get("name").str();
            specs.items().any(|spec| spec.get("name").str() == name && is_sidecar(&spec))
        };
        let mut all = Restarts::default();
        for (i, status) in pod.walk("status.initContainerStatuses").items().enumerate() {
            all.add(&status);
            let sidecar = restartable(&status);
            if sidecar {
                self.restarts.add(&status);
            }
            let terminated = status.walk("state.terminated");
            if terminated.exists() && terminated.get("exitCode").int().unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && status.get("started").bool() {
                self.ready += usize::from(status.get("ready").bool());
                continue;
            }
            let waiting = status.walk("state.waiting.reason").str();
            self.reason = if terminated.exists() {
                format!("Init:{}", termination_reason(&terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{}", specs.len())
            };
            if !has_condition(pod, "Initialized") {
                self.restarts = all;
            }
            return true;
        }
        false
    }

    /// Adds the containers from the last to the first, so that the first has precedence.
    fn add_containers(&mut self, pod: &Field<'_>) {
        let mut running = false;
        let mut error = None;
        let statuses = pod.walk("status.containerStatuses").items().collect::<Vec<_>>();
        for status in statuses.iter().rev() {
            self.restarts.add(status);
            let waiting = status.walk("state.waiting.reason").str();
            let terminated = status.walk("state.terminated");
            if !waiting.is_empty() {
                self.reason = waiting.into();
            } else if terminated.exists() {
                self.reason = termination_reason(&terminated);
                if terminated.get("exitCode").int().unwrap_or(0) != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status.get("ready").bool() && status.walk("state.running").exists() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            match error {
                _ if running && pod.value().is_some_and(pods::is_ready) => self.reason = "Running".into(),
                Some(error) => self.reason = error,
                None if running => self.reason = "NotReady".into(),
                None => {}
            }
        }
    }
}

fn reason_of_pod(pod: &Field<'_>) -> String {
    const GATED: &str = "SchedulingGated";
    let gated = |c: &Field<'_>| c.get("type").str() == "PodScheduled" && c.get("reason").str() == GATED;
    let (reason, phase) = (pod.walk("status.reason").str(), pod.walk("status.phase").str());
    if pod.walk("status.conditions").items().any(|c| gated(&c)) {
        GATED.into()
    } else if reason.is_empty() {
        phase.into()
    } else {
        reason.into()
    }
}

/// Returns the reason why a container terminated.
fn termination_reason(terminated: &Field<'_>) -> String {
    let (reason, signal) = (terminated.get("reason").str(), terminated.get("signal").int().unwrap_or(0));
    if !reason.is_empty() {
        reason.into()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated.get("exitCode").int().unwrap_or(0))
    }
}
