//! Conversion of the runtime state to a pod's status. The patch contains only fields that a kubelet
//! owns.

use std::net::Ipv4Addr;

use coracle_kinds::pods::{self, Role, containers, may_restart_all};
use k8s_openapi::api::core::v1::{
    Container as Spec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admission::Rejection;
use super::pod::full_name;
use super::resize;
use super::runtime_state::{
    CONTAINER_ID_PREFIX, CRASH_LOOP, Container, DEADLINE_EXCEEDED, End, Exit, Hold, PodRuntimeState, REMOVED,
    State, missing_image, never_pulled, restart_all,
};

/// The addresses of a pod and its node.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub host: Ipv4Addr,
    /// The pod's address; None if it has none yet.
    pub pod: Option<Ipv4Addr>,
}

/// Returns the strategic merge patch that writes the runtime state into a pod's status.
pub fn patch(pod: &Pod, state: &PodRuntimeState, addresses: Addresses, now: Timestamp) -> Value {
    let status = status(pod, state, addresses, now);
    let order: Vec<Value> =
        status.conditions.iter().flatten().map(|condition| json!({"type": condition.type_})).collect();
    let mut status = json!(status);
    status["$setElementOrder/conditions"] = json!(order);
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    conditions.for_each(|condition| delete_old_members(pod, condition));
    if state.deferred_resize.is_none() && resize::deferred(pod).is_some() {
        let deleted = json!({"$patch": "delete", "type": resize::POD_RESIZE_PENDING});
        status["conditions"]
            .as_array_mut()
            .into_iter()
            .for_each(|conditions| conditions.push(deleted.clone()));
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

/// Deletes the reason and the message that a condition had, if it has none any more.
fn delete_old_members(pod: &Pod, condition: &mut Value) {
    let Some(known) = pods::conditions(pod).find(|known| condition["type"] == known.type_) else { return };
    for (member, known) in [("reason", &known.reason), ("message", &known.message)] {
        if known.is_some() && condition[member].is_null() {
            condition[member] = Value::Null;
        }
    }
}

/// Returns the patch of the status of a pod that its kubelet rejects.
pub fn rejected(pod: &Pod, rejection: &Rejection, now: Timestamp) -> Value {
    json!({"metadata": {"uid": pod.metadata.uid}, "status": {
        "phase": "Failed", "reason": rejection.reason,
        "message": format!("Pod was rejected: {}", rejection.message),
        "startTime": Time(now), "observedGeneration": pod.metadata.generation,
    }})
}

fn status(pod: &Pod, state: &PodRuntimeState, addresses: Addresses, now: Timestamp) -> PodStatus {
    // The resources of a pod that stops do not change any more.
    let is_over = state.stop.is_some() || state.end.is_some();
    let is_deferred = state.deferred_resize.is_some() || is_over && resize::is_wanted(pod);
    let resources = pod.spec.as_ref().filter(|spec| spec.resources.is_some() && !is_deferred);
    let list = |is_listed: fn(Role) -> bool| -> Option<Vec<ContainerStatus>> {
        let listed = state.containers.iter().zip(containers(pod)).filter(|(_, (role, _))| is_listed(*role));
        let list: Vec<_> = listed
            .map(|(container, (_, spec))| container_status(pod, container, &spec, is_deferred))
            .collect();
        (!list.is_empty()).then_some(list)
    };
    let stopped = state.stop.filter(|stop| stop.is_overdue && state.end.is_some());
    let mut status = PodStatus {
        allocated_resources: resources.map(resize::allocated_requests),
        resources: resources.and_then(|spec| spec.resources.clone()),
        conditions: Some(conditions(pod, state, now)),
        container_statuses: list(|role| role == Role::Main),
        ephemeral_container_statuses: list(|role| role == Role::Ephemeral),
        init_container_statuses: list(|role| matches!(role, Role::Init | Role::Sidecar)),
        message: stopped.map(|_| DEADLINE_EXCEEDED.1.to_owned()),
        observed_generation: pod.metadata.generation,
        phase: Some(phase(state).to_owned()),
        reason: stopped.map(|_| DEADLINE_EXCEEDED.0.to_owned()),
        start_time: Some(Time(state.accepted)),
        ..PodStatus::default()
    };
    set_addresses(&mut status, addresses);
    status
}

/// Sets the addresses in a status.
pub fn set_addresses(status: &mut PodStatus, addresses: Addresses) {
    status.host_ip = Some(addresses.host.to_string());
    status.host_ips = Some(vec![HostIP { ip: addresses.host.to_string() }]);
    status.pod_ip = addresses.pod.map(|ip| ip.to_string());
    status.pod_ips = addresses.pod.map(|ip| vec![PodIP { ip: ip.to_string() }]);
}

pub fn phase(state: &PodRuntimeState) -> &'static str {
    match state.end {
        Some(End::Succeeded) => "Succeeded",
        Some(End::Failed) => "Failed",
        None if state.containers.iter().any(is_awaited) => "Pending",
        None => "Running",
    }
}

/// Returns `true` if a pod is pending until this container starts, or ends its initialization.
fn is_awaited(container: &Container) -> bool {
    match container.role {
        Role::Ephemeral => false,
        Role::Init => !container.has_started() || container.is_running(),
        Role::Main | Role::Sidecar => !container.has_started(),
    }
}

type Condition = (&'static str, bool, Option<&'static str>, String);

fn conditions(pod: &Pod, state: &PodRuntimeState, now: Timestamp) -> Vec<PodCondition> {
    let has_sandbox = state.has_sandbox();
    let containers = containers_ready(state);
    let ready = match containers {
        (true, ..) if !state.closed_gates.is_empty() => {
            (false, Some("ReadinessGatesNotReady"), state.closed_gates.join(", "))
        }
        ref same => same.clone(),
    };
    let named = |name, (is_true, reason, message): (bool, _, _)| (name, is_true, reason, message);
    let mut conditions: Vec<PodCondition> = [
        named("PodReadyToStartContainers", (has_sandbox, None, String::new())),
        named("Initialized", initialized(pod, state)),
        named("Ready", ready),
        named("ContainersReady", containers),
        named("PodScheduled", (true, None, String::new())),
    ]
    .map(|condition| dated(pod, condition, now))
    .into();
    if pod.spec.as_ref().is_some_and(may_restart_all) {
        let restarting = dated(pod, restarting(state), now);
        conditions.push(PodCondition { observed_generation: None, ..restarting });
    }
    if let Some(reason) = &state.deferred_resize {
        let pending = (resize::POD_RESIZE_PENDING, true, Some("Deferred"), reason.clone());
        conditions.push(dated(pod, pending, now));
    }
    conditions
}

fn restarting(state: &PodRuntimeState) -> Condition {
    let (is_true, reason, message) = match state.end {
        Some(End::Succeeded) => (false, Some("PodCompleted"), ""),
        Some(End::Failed) => (false, Some("PodFailed"), ""),
        None if state.restarting.is_some() => {
            (true, Some("RestartAllContainersStarted"), "container exited with restart policy rule")
        }
        None => (false, None, ""),
    };
    (restart_all::CONDITION, is_true, reason, message.to_owned())
}

/// Sets the times of a condition; it keeps its transition time if its status does not change.
fn dated(pod: &Pod, (name, is_true, reason, message): Condition, now: Timestamp) -> PodCondition {
    let status = if is_true { "True" } else { "False" };
    let known = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let same = known.into_iter().find(|known| known.type_ == name && known.status == status);
    PodCondition {
        last_transition_time: same.and_then(|same| same.last_transition_time.clone()).or(Some(Time(now))),
        message: (!message.is_empty()).then_some(message),
        observed_generation: pod.metadata.generation,
        reason: reason.map(str::to_owned),
        status: status.to_owned(),
        type_: name.to_owned(),
        ..PodCondition::default()
    }
}

fn initialized(pod: &Pod, state: &PodRuntimeState) -> (bool, Option<&'static str>, String) {
    let is_initialized = state.is_initialized();
    let is_done = |container: &Container| match (&container.state, container.role) {
        (State::Exited(exit), Role::Init) => exit.code == 0,
        (_, Role::Init) => false,
        _ => container.has_run() && (!container.is_starting || is_initialized),
    };
    let init = state.containers.iter();
    let init = init.filter(|container| matches!(container.role, Role::Init | Role::Sidecar));
    let incomplete: Vec<&str> =
        init.filter(|container| !is_done(container)).map(|container| container.name.as_str()).collect();
    if state.end == Some(End::Succeeded) {
        return (true, Some("PodCompleted"), String::new());
    }
    // A pod that was initialized once stays so when its init containers run again.
    let mut known = pods::conditions(pod);
    let was_initialized = known.any(|known| known.type_ == "Initialized" && known.status == "True");
    match was_initialized || incomplete.is_empty() {
        true => (true, None, String::new()),
        false => {
            let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
            (false, Some("ContainersNotInitialized"), message)
        }
    }
}

fn containers_ready(state: &PodRuntimeState) -> (bool, Option<&'static str>, String) {
    let counted = state.containers.iter();
    let counted = counted.filter(|container| matches!(container.role, Role::Main | Role::Sidecar));
    let unready: Vec<&str> = counted.filter(|c| !c.is_ready).map(|c| c.name.as_str()).collect();
    match state.end {
        Some(End::Succeeded) => (false, Some("PodCompleted"), String::new()),
        Some(End::Failed) => (false, Some("PodFailed"), String::new()),
        None if unready.is_empty() => (true, None, String::new()),
        None => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, Some("ContainersNotReady"), message)
        }
    }
}

fn container_status(pod: &Pod, container: &Container, spec: &Spec, is_deferred: bool) -> ContainerStatus {
    let id = |instance: u32| {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        format!("{CONTAINER_ID_PREFIX}{}", digest(&format!("{uid} {} {instance}", container.name)))
    };
    // The instance that ended last is the one before that which runs.
    let wanted = spec.image.clone().unwrap_or_default();
    let is_next = matches!(container.state, State::Running { .. } | State::Exited(_));
    let last_instance = container.restarts.saturating_sub(u32::from(is_next));
    let has_run = container.has_run();
    let (mut waiting, mut running, mut terminated) = (None, None, None);
    match &container.state {
        State::Waiting => waiting = Some(waiting_for(pod, container, &wanted)),
        State::BackOff { length, .. } => {
            let length = coracle_duration::print(SignedDuration::try_from(*length).unwrap_or_default());
            let (name, pod) = (&container.name, full_name(pod));
            waiting = Some(ContainerStateWaiting {
                reason: Some(CRASH_LOOP.to_owned()),
                message: Some(format!("back-off {length} restarting failed container={name} pod={pod}")),
            });
        }
        State::Running { since } => {
            running = Some(ContainerStateRunning { started_at: Some(Time(*since)) });
        }
        State::Exited(exit) => terminated = Some(ended(exit, id(container.restarts))),
    }
    let last = container.last.as_ref().map(|exit| ContainerState {
        terminated: Some(ended(exit, id(last_instance))),
        ..ContainerState::default()
    });
    let allocated = resize::allocated(pod, &container.name).filter(|_| is_deferred);
    let resources = allocated.or(spec.resources.as_ref()).cloned();
    ContainerStatus {
        allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
        container_id: has_run.then(|| id(container.restarts)),
        image_id: if has_run { image_id(&container.image) } else { String::new() },
        image: if has_run { container.image.clone() } else { wanted },
        last_state: last,
        name: container.name.clone(),
        ready: container.is_ready,
        resources,
        restart_count: i32::try_from(container.restarts).unwrap_or(i32::MAX),
        started: Some(container.is_running() && !container.is_starting),
        state: Some(ContainerState { running, terminated, waiting }),
        volume_mounts: mounts(spec),
        ..ContainerStatus::default()
    }
}

fn waiting_for(pod: &Pod, container: &Container, image: &str) -> ContainerStateWaiting {
    let has_init = pod.spec.iter().any(|spec| spec.init_containers.iter().flatten().next().is_some());
    let (reason, message) = match &container.hold {
        Some(Hold::Removed) => (REMOVED.0, Some(REMOVED.1.to_owned())),
        Some(Hold::Configuration(why)) => ("CreateContainerConfigError", Some(why.clone())),
        Some(Hold::ImageNeverPulled) => ("ErrImageNeverPull", Some(never_pulled(image))),
        Some(Hold::Image { backs_off, .. }) => {
            let error = missing_image(image);
            match backs_off {
                false => ("ErrImagePull", Some(error)),
                true => {
                    let message = format!("Back-off pulling image {image:?}: ErrImagePull: {error}");
                    ("ImagePullBackOff", Some(message))
                }
            }
        }
        None if has_init => ("PodInitializing", None),
        None => ("ContainerCreating", None),
    };
    ContainerStateWaiting { reason: Some(reason.to_owned()), message }
}

fn ended(exit: &Exit, container_id: String) -> ContainerStateTerminated {
    let reason = match (&exit.ran, exit.code) {
        _ if exit.is_removed => REMOVED.0,
        (None, _) => "ContainerStatusUnknown",
        (_, 0) => "Completed",
        _ => "Error",
    };
    let unknown = match exit.is_removed {
        true => REMOVED.1,
        false => "The container could not be located when the pod was terminated",
    };
    ContainerStateTerminated {
        container_id: exit.ran.map(|_| container_id),
        exit_code: exit.code,
        finished_at: exit.ran.map(|(_, to)| Time(to)),
        message: exit.message.clone().or_else(|| exit.ran.is_none().then(|| unknown.to_owned())),
        reason: Some(reason.to_owned()),
        started_at: exit.ran.map(|(from, _)| Time(from)),
        ..ContainerStateTerminated::default()
    }
}

fn mounts(spec: &Spec) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.as_ref()?.iter().map(|mount| {
        let is_read_only = mount.read_only.filter(|read_only| *read_only);
        VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only: is_read_only,
            recursive_read_only: is_read_only.map(|_| "Disabled".to_owned()),
            ..VolumeMountStatus::default()
        }
    });
    Some(mounts.collect())
}

/// Returns the digest that an image would have in a registry. The image is not pulled.
fn image_id(image: &str) -> String {
    match image.contains('@') {
        true => image.to_owned(),
        false => format!("{image}@sha256:{}", digest(image)),
    }
}

/// Returns 64 hexadecimal digits derived from a text: four FNV-1a hashes.
fn digest(text: &str) -> String {
    let part = |seed: u8| {
        let bytes = std::iter::once(seed).chain(text.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    (0..4).map(|seed| format!("{:016x}", part(seed))).collect()
}
