//! The containers of a pod that do not run or are not ready.

use serde_json::Value;

use crate::context::{Context, Target, event_time};
use crate::explanation::Cause;
use crate::kubectl;
use crate::reason::State;
use crate::simulation;
use crate::text::{count, items, plural, quoted, text, text_or_empty};

/// The containers that are explained.
const MAX_CONTAINERS: usize = 5;

/// A container that keeps its pod from being ready.
pub struct Finding {
    pub state: State,
    /// A word for the tree: `CrashLoopBackOff`.
    pub short: String,
    /// The rest of a sentence about the pod: `its container app ...`.
    pub clause: String,
    pub cause: Cause,
}

/// Returns the findings about containers that keep a pod from being ready. If init containers are
/// not done, these are only about init containers.
pub fn findings(ctx: &Context, target: Target) -> Vec<Finding> {
    let init = of_list(ctx, target, "initContainerStatuses", "init container");
    match init.is_empty() {
        true => of_list(ctx, target, "containerStatuses", "container"),
        false => init,
    }
}

fn of_list(ctx: &Context, target: Target, list: &str, noun: &str) -> Vec<Finding> {
    let is_init = noun.starts_with("init");
    let statuses = items(&target.status()[list]).filter(|status| text(&status["name"]).is_some());
    let all: Vec<Finding> =
        statuses.filter_map(|status| finding(ctx, target, list, noun, status)).take(MAX_CONTAINERS).collect();
    // The later init containers wait for the first that is not done.
    all.into_iter().take(if is_init { 1 } else { MAX_CONTAINERS }).collect()
}

fn finding(ctx: &Context, target: Target, list: &str, noun: &str, status: &Value) -> Option<Finding> {
    let name = quoted(text_or_empty(&status["name"]));
    let state = &status["state"];
    let restarts = count(&status["restartCount"]);
    let mut cause = Cause::of(ctx.reference_of(target)).field(format!("status.{list}: {name}"));
    let (kind, short, clause, waits_for, remedy);
    if let Some(waiting) = state.get("waiting") {
        let reason = text(&waiting["reason"]).unwrap_or("Waiting");
        let message = text(&waiting["message"]).map(quoted);
        (kind, clause, remedy) = of_waiting(ctx, target, status, noun, &name, reason, message.as_deref())?;
        short = quoted(reason);
        waits_for = clause.clone();
    } else if let Some(ended) = state.get("terminated") {
        let code = count(&ended["exitCode"]);
        if code == 0 {
            // An init container that is done, or a container that ended well beside others that
            // run.
            return None;
        }
        let message = text(&ended["message"]).map(|message| format!(": {}", quoted(message)));
        cause = cause.since(text_or_empty(&ended["finishedAt"]));
        kind = State::Failing;
        short = format!("exit code {code}");
        let why = exit_reason(code, text(&ended["reason"]));
        clause = format!("its {noun} {name} ended with exit code {code}{why}{}", message.unwrap_or_default());
        waits_for = clause.clone();
        remedy = logs(target, &name, false);
    } else if state.get("running").is_some() && status["ready"] == false {
        let is_init = noun.starts_with("init") && !is_sidecar(target, &name);
        cause = cause.since(text_or_empty(&state["running"]["startedAt"]));
        kind = State::Progressing;
        short = if is_init { "init container runs".to_owned() } else { "not ready".to_owned() };
        (clause, waits_for, remedy) = match is_init {
            true => (
                format!("its {noun} {name} has not ended yet, and the containers start after it"),
                format!("the end of the {noun} {name}"),
                logs(target, &name, false),
            ),
            false => of_running(ctx, target, &name, restarts),
        };
    } else {
        return None;
    }
    Some(Finding { state: kind, short, clause, cause: cause.waits_for(waits_for).remedy(remedy) })
}

/// Returns `true` if an init container is a sidecar, which runs beside the other containers.
fn is_sidecar(target: Target, name: &str) -> bool {
    items(&target.spec()["initContainers"])
        .any(|container| container["name"] == name && container["restartPolicy"] == "Always")
}

fn of_waiting(
    ctx: &Context,
    target: Target,
    status: &Value,
    noun: &str,
    name: &str,
    reason: &str,
    message: Option<&str>,
) -> Option<(State, String, String)> {
    let image = quoted(text_or_empty(&status["image"]));
    let detail = message.map(|message| format!(": {message}")).unwrap_or_default();
    let result = match reason {
        "PodInitializing" => return None,
        "RestartingAllContainers" => (
            State::Progressing,
            format!("all its containers are being restarted, as a rule of one of them asks for{detail}"),
            String::new(),
        ),
        "ContainerCreating" => {
            (State::Progressing, format!("its {noun} {name} is being created{detail}"), String::new())
        }
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable" => {
            let remedy = match simulation::missing_images(ctx, target) {
                Some(object) => format!(
                    "the annotation sim.coracle.dev/missing-images of {object} says so: remove the image from it"
                ),
                None => "check the name of the image, the access to its registry, and spec.imagePullSecrets"
                    .to_owned(),
            };
            (
                State::Failing,
                format!("the image {image} of its {noun} {name} cannot be pulled ({reason}){detail}"),
                remedy,
            )
        }
        "CrashLoopBackOff" => {
            let last = &status["lastState"]["terminated"];
            let code = last["exitCode"].as_i64();
            let why = code.map_or_else(String::new, |code| {
                format!(" with exit code {code}{}", exit_reason(code, text(&last["reason"])))
            });
            let restarts = plural(count(&status["restartCount"]), "restart");
            (
                State::Failing,
                format!(
                    "its {noun} {name} ended again and again{why} ({restarts}), and waits before it is started again (CrashLoopBackOff)"
                ),
                logs(target, name, true),
            )
        }
        "CreateContainerConfigError" => (
            State::Failing,
            format!("its {noun} {name} cannot be configured{detail}"),
            match detail.contains("not found") {
                true => "create the ConfigMap or the Secret, or the key in it".to_owned(),
                false => String::new(),
            },
        ),
        _ => (State::Failing, format!("its {noun} {name} waits: {}{detail}", quoted(reason)), String::new()),
    };
    Some(result)
}

/// Explains a container that runs and is not ready: its clause, the pending condition, and the
/// remedy.
fn of_running(ctx: &Context, target: Target, name: &str, restarts: i64) -> (String, String, String) {
    let restarted = match restarts {
        0 => String::new(),
        _ => format!(" (after {})", plural(restarts, "restart")),
    };
    let spec = items(&target.spec()["containers"]).find(|container| container["name"] == name);
    let has = |probe: &str| spec.is_some_and(|spec| spec[probe].is_object());
    let failure = ctx.last_event(target, &["Unhealthy"]);
    let never_ready = simulation::inherited(ctx, target, "sim.coracle.dev/never-ready");
    if let Some((_, object)) = never_ready.filter(|(value, _)| value == "true") {
        return (
            format!(
                "its container {name} runs and is not ready{restarted}, as the annotation sim.coracle.dev/never-ready of {object} says"
            ),
            format!("the container {name} to become ready"),
            "remove the annotation sim.coracle.dev/never-ready".to_owned(),
        );
    }
    let probe = match () {
        () if has("startupProbe") => "startup or readiness probe",
        () if has("readinessProbe") => "readiness probe",
        () => {
            return (
                format!("its container {name} runs and is not ready{restarted}"),
                format!("the container {name} to become ready"),
                String::new(),
            );
        }
    };
    let said = failure.as_ref().and_then(|event| text(&event["message"])).map(quoted);
    let at = failure
        .as_ref()
        .map(event_time)
        .filter(|at| !at.is_empty())
        .map(|at| format!(" at {}", ctx.moment(at)));
    let said = said.map(|said| format!(": {said}{}", at.unwrap_or_default())).unwrap_or_default();
    (
        format!("its container {name} runs{restarted}, and its {probe} has not succeeded{said}"),
        format!("the {probe} of container {name}"),
        logs(target, name, false),
    )
}

/// Returns the meaning of an exit code.
fn exit_reason(code: i64, reason: Option<&str>) -> String {
    let meaning = match (reason, code) {
        (Some("OOMKilled"), _) => "it used more memory than its limit",
        (_, 126) => "its command cannot be executed",
        (_, 127) => "its command was not found",
        (_, 137) => "it was killed",
        (_, 143) => "it was asked to stop",
        _ => return String::new(),
    };
    format!(" ({meaning})")
}

fn logs(target: Target, container: &str, previous: bool) -> String {
    let object = kubectl::named(target.namespace, target.name);
    format!("kubectl logs {object} -c {container}{}", if previous { " --previous" } else { "" })
}
