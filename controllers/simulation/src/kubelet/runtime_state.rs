//! The course of a pod: the part of a container runtime, and of the kubelet that starts and stops
//! containers.
//!
//! A [`PodRuntimeState`] is moved on to a time by [`PodRuntimeState::advance`], which does
//! everything that is due by then and returns what happened and when something is due next. Nothing
//! here knows the format of a status.

pub mod restart_all;

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_behavior::{Ending, FailingProbe, Images, PodBehavior, Readiness, Started};
use coracle_controller_runtime::events::EventType;
use coracle_kinds::pods::{self, Role, containers, restarts_after};
use k8s_openapi::api::core::v1::{Container as Spec, ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::{closed_gates, full_name, grace_period, waits_for_removal};
use super::resize;

/// The kubelet's: a container that exits again and again waits so long, then twice as long each
/// time, at most ...
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_secs(300);
/// ... and no longer at all after it ran so long.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
/// The time for which the failure of a pull is shown, before the wait for the next attempt is.
const FAILED_PULL: Duration = Duration::from_secs(1);
/// The beginning of the identifiers of containers.
pub const CONTAINER_ID_PREFIX: &str = "coracle://";
/// The exit code of a process that was killed, and of one that is not known.
const KILLED: i32 = 137;
/// The reason for which a container waits that exits again and again.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRuntimeState {
    /// The time at which the pod came to its node.
    pub accepted: Timestamp,
    /// Init containers first, in the order of the spec.
    pub containers: Vec<Container>,
    /// The messages about readiness gates that are not true.
    pub closed_gates: Vec<String>,
    /// The reason for which the resources of its spec are not allocated yet.
    pub deferred_resize: Option<String>,
    /// The time of an exit for which all containers are restarted, until they are removed.
    pub restarting: Option<Timestamp>,
    pub stop: Option<Stop>,
    pub end: Option<End>,
}

/// The obstacles that keep containers from being started, or from being resized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Whether the volumes of the pod cannot be mounted. No container starts then.
    pub volumes: bool,
    /// The images that the node cannot pull.
    pub missing_images: Images,
    /// The containers whose configuration cannot be made, by name, with the reason.
    pub configuration: BTreeMap<String, String>,
    /// The reason for which the node has no room for the resources of the spec.
    pub resize: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub role: Role,
    /// The image of its last run.
    pub image: String,
    pub state: State,
    /// The end of the run before this.
    pub last: Option<Exit>,
    pub restarts: u32,
    pub is_ready: bool,
    /// Whether it runs, and its startup probe has not succeeded yet.
    pub is_starting: bool,
    /// Whether a probe keeps it from being ready. Only the first failure causes an event.
    fails_readiness: bool,
    /// The reason that it is not started, beside its turn.
    pub hold: Option<Hold>,
    /// The time that it waited before it was started, and waits at least next time.
    back_off: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Was not started yet, or not again since its spec has changed.
    Waiting,
    Running {
        since: Timestamp,
    },
    /// Exited, and will be started again.
    BackOff {
        until: Timestamp,
        length: Duration,
    },
    Exited(Exit),
}

/// A failed start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It was removed with all others, which are to be started together.
    Removed,
    /// Its configuration cannot be made, for this reason.
    Configuration(String),
    /// Its image is not on the node, and must not be pulled.
    ImageNeverPulled,
    /// Its image cannot be pulled.
    Image {
        /// The image.
        image: String,
        /// Whether the next attempt waits for its time; otherwise the last one has just failed.
        backs_off: bool,
        /// The time of the last attempt.
        attempted: Timestamp,
        /// The time between it and the next one.
        length: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// None: it never ran.
    pub ran: Option<(Timestamp, Timestamp)>,
    /// The termination message.
    pub message: Option<String>,
    /// Whether the container was removed, so that nothing else is known of its end.
    pub is_removed: bool,
}

impl Exit {
    /// Returns the end of a container that never ran.
    fn without_run(code: i32) -> Exit {
        Exit { code, ran: None, message: None, is_removed: false }
    }
}

/// The stop of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub since: Timestamp,
    pub is_overdue: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Succeeded,
    Failed,
}

/// Something to make an event of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The field of the pod that it is about, if not all of it.
    pub field: Option<String>,
    pub r#type: EventType,
    pub reason: &'static str,
    pub message: String,
}

/// The result of an advance.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub events: Vec<PodEvent>,
    /// The time at which something is due next.
    pub wake: Option<Timestamp>,
}

impl Progress {
    fn record(&mut self, container: &Container, r#type: EventType, reason: &'static str, message: String) {
        let list = match container.role {
            Role::Main => "containers",
            Role::Init | Role::Sidecar => "initContainers",
            Role::Ephemeral => "ephemeralContainers",
        };
        let field = Some(format!("spec.{list}{{{}}}", container.name));
        self.events.push(PodEvent { field, r#type, reason, message });
    }

    fn record_for_pod(&mut self, r#type: EventType, reason: &'static str, message: String) {
        self.events.push(PodEvent { field: None, r#type, reason, message });
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// The circumstances of an advance.
struct During<'a> {
    pod: &'a Pod,
    behavior: &'a PodBehavior,
    obstacles: &'a Obstacles,
    now: Timestamp,
}

impl PodRuntimeState {
    pub fn begin(pod: &Pod, now: Timestamp) -> PodRuntimeState {
        let containers = containers(pod).map(|(role, spec)| Container::new(role, &spec)).collect();
        PodRuntimeState {
            accepted: now,
            containers,
            closed_gates: Vec::new(),
            deferred_resize: None,
            restarting: None,
            stop: None,
            end: None,
        }
    }

    /// Restores the state from a status after a restart of this process, or in a fork; None if no
    /// kubelet has accepted the pod. One that is being deleted goes on to stop.
    pub fn restore(pod: &Pod) -> Option<PodRuntimeState> {
        let status = pod.status.as_ref()?;
        let mut state = PodRuntimeState::begin(pod, status.start_time.as_ref()?.0);
        let lists = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for known in lists.into_iter().flatten().flatten() {
            if let Some(container) = state.containers.iter_mut().find(|c| c.name == known.name) {
                container.restore(known);
            }
        }
        state.closed_gates = closed_gates(pod);
        state.deferred_resize = resize::deferred(pod);
        state.restarting = restart_all::restarting_since(pod);
        if waits_for_removal(pod) && state.containers.iter().any(Container::is_running) {
            let since = pods::begin_of_deletion(pod).unwrap_or(state.accepted);
            let is_overdue = state.deadline(pod).is_some_and(|deadline| deadline <= since);
            state.stop = Some(Stop { since, is_overdue });
        }
        Some(state)
    }

    /// Returns `true` if a container other than an ephemeral one was started.
    pub fn has_started(&self) -> bool {
        let own = self.containers.iter().filter(|container| container.role != Role::Ephemeral);
        own.into_iter().any(Container::has_started)
    }

    /// Returns `true` if the pod has a sandbox: a container of it ran, or failed to start in it.
    pub fn has_sandbox(&self) -> bool {
        self.end.is_none()
            && (self.has_started() || self.containers.iter().any(|container| container.hold.is_some()))
    }

    /// Returns `true` if a container is to be started for the first time, or with another image.
    pub fn has_waiting(&self, pod: &Pod) -> bool {
        let mut all = self.containers.iter().zip(containers(pod));
        all.any(|(container, (_, spec))| {
            container.state == State::Waiting || container.has_other_image(&spec)
        })
    }

    /// Returns `true` if a main container ran.
    pub fn is_initialized(&self) -> bool {
        self.main_containers().any(Container::has_run)
    }

    pub fn main_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.role == Role::Main)
    }

    /// Performs all transitions that are due at `now`.
    pub fn advance(
        &mut self,
        pod: &Pod,
        behavior: &PodBehavior,
        obstacles: &Obstacles,
        now: Timestamp,
    ) -> Progress {
        let mut progress = Progress::default();
        if self.end.is_some() {
            return progress;
        }
        self.closed_gates = closed_gates(pod);
        let added = containers(pod).skip(self.containers.len());
        self.containers.extend(added.map(|(role, spec)| Container::new(role, &spec)));
        self.begin_to_stop(pod, now, &mut progress);
        let during = During { pod, behavior, obstacles, now };
        match self.stop {
            Some(stop) => self.stop(stop, &during, &mut progress),
            None => {
                self.resize(&during, &mut progress);
                let may_run = !obstacles.volumes || self.has_started();
                if may_run && !self.restarts_all(&during, &mut progress) {
                    self.run(&during, &mut progress);
                }
            }
        }
        progress
    }

    /// Gives the containers the resources of the spec, if the node has room for them. Containers
    /// whose policy says so are restarted.
    fn resize(&mut self, during: &During<'_>, progress: &mut Progress) {
        let During { pod, obstacles, .. } = *during;
        if !resize::is_wanted(pod) {
            self.deferred_resize = None;
            return;
        }
        if let Some(reason) = &obstacles.resize {
            // Once for each generation.
            if self.deferred_resize.is_none() || !resize::is_observed(pod) {
                progress.record_for_pod(
                    EventType::Warning,
                    "ResizeDeferred",
                    resize::message("Deferred", pod, reason),
                );
            }
            self.deferred_resize = Some(reason.clone());
            return;
        }
        self.deferred_resize = None;
        progress.record_for_pod(EventType::Normal, "ResizeStarted", resize::message("started", pod, ""));
        for (container, (_, spec)) in self.containers.iter_mut().zip(containers(pod)) {
            if container.is_running() && resize::needs_restart(pod, &spec) {
                let message = format!("Container {} resize requires restart", container.name);
                container.replace(message, &spec, during, progress);
            }
        }
        progress.record_for_pod(EventType::Normal, "ResizeCompleted", resize::message("completed", pod, ""));
    }

    /// Returns the time at which the pod exceeds its `activeDeadlineSeconds`.
    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds)?;
        Some(after(self.accepted, Duration::from_secs(seconds.unsigned_abs())))
    }

    fn begin_to_stop(&mut self, pod: &Pod, now: Timestamp, progress: &mut Progress) {
        let deadline = self.deadline(pod);
        let is_overdue = deadline.is_some_and(|deadline| deadline <= now);
        if self.stop.is_some() {
            return;
        }
        if !is_overdue && !waits_for_removal(pod) {
            deadline.into_iter().for_each(|deadline| progress.wake_at(deadline));
            return;
        }
        if is_overdue {
            progress.record_for_pod(EventType::Normal, DEADLINE_EXCEEDED.0, DEADLINE_EXCEEDED.1.to_owned());
        }
        self.stop = Some(Stop { since: now, is_overdue });
        for container in self.containers.iter().filter(|container| container.is_running()) {
            let message = format!("Stopping container {}", container.name);
            progress.record(container, EventType::Normal, "Killing", message);
        }
    }

    /// Stops the containers, sidecars and ephemeral ones after the others; then the pod has ended.
    fn stop(&mut self, stop: Stop, during: &During<'_>, progress: &mut Progress) {
        let During { pod, behavior, now, .. } = *during;
        let grace = grace_period(pod);
        let due = after(stop.since, grace.min(behavior.terminate_after));
        let code = if behavior.terminate_after <= grace { behavior.stopped_code(pod) } else { KILLED };
        let is_first = |c: &Container| matches!(c.role, Role::Init | Role::Main) && c.is_running();
        let containers = self.containers.iter_mut().zip(containers(pod));
        for (container, (_, spec)) in containers.filter(|(container, _)| is_first(container)) {
            match due <= now {
                true => container.exit(code, &spec, during),
                false => progress.wake_at(due),
            }
        }
        if !self.containers.iter().any(is_first) {
            self.finish(during);
        }
    }

    /// Marks the pod as ended. If it was stopped, containers that never ran are lost; else they
    /// wait forever behind an init container that failed.
    fn finish(&mut self, during: &During<'_>) {
        for (container, (_, spec)) in self.containers.iter_mut().zip(containers(during.pod)) {
            match &container.state {
                State::Running { .. } => container.exit(0, &spec, during),
                State::Waiting if self.stop.is_none() && container.last.is_none() => {}
                State::Waiting | State::BackOff { .. } => {
                    let last = container.last.take();
                    container.state = State::Exited(last.unwrap_or(Exit::without_run(KILLED)));
                }
                State::Exited(_) => {}
            }
        }
        self.deferred_resize = None;
        let is_overdue = self.stop.is_some_and(|stop| stop.is_overdue);
        let is_well =
            |container: &Container| matches!(&container.state, State::Exited(exit) if exit.code == 0);
        let succeeded = !is_overdue && self.main_containers().all(is_well);
        self.end = Some(if succeeded { End::Succeeded } else { End::Failed });
    }

    /// Starts containers: ephemeral ones at any time, init containers one after another, each after
    /// the success of the previous one, with sidecars at their position, and the others together
    /// after them.
    fn run(&mut self, during: &During<'_>, progress: &mut Progress) {
        let all = || containers(during.pod);
        let is_initialized = self.is_initialized();
        for (container, (_, spec)) in
            self.containers.iter_mut().zip(all()).filter(|(_, (role, _))| *role == Role::Ephemeral)
        {
            container.run(&spec, during, progress);
        }
        let mut is_blocked = false;
        for (container, (role, spec)) in self.containers.iter_mut().zip(all()) {
            if role == Role::Ephemeral {
                break;
            }
            if is_blocked && !container.has_run() {
                return;
            }
            container.run(&spec, during, progress);
            if container.asks_for_restart_of_all(&spec) {
                self.restarts_all(during, progress);
                return;
            }
            match (role, &container.state) {
                (Role::Sidecar, _) if !container.has_run() => return,
                // Nothing more starts until it runs and has passed its startup probe, once.
                (Role::Sidecar, _) if !is_initialized && !container.is_started() => is_blocked = true,
                (Role::Init, State::Exited(Exit { code: 0, .. })) => {}
                (Role::Init, State::Exited(_)) => {
                    self.finish(during);
                    return;
                }
                (Role::Init, _) => return,
                _ => {}
            }
        }
        if self.main_containers().all(|container| matches!(container.state, State::Exited(_))) {
            for sidecar in self.containers.iter().filter(|container| container.is_running()) {
                let message = format!("Stopping container {}", sidecar.name);
                progress.record(sidecar, EventType::Normal, "Killing", message);
            }
            self.finish(during);
        }
    }
}

/// The reason and the message of a container that was removed with all others.
pub const REMOVED: (&str, &str) =
    ("RestartingAllContainers", "The container is removed because RestartAllContainers in place");

/// The reason and the message of a pod that ran too long.
pub const DEADLINE_EXCEEDED: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

impl Container {
    fn new(role: Role, spec: &Spec) -> Container {
        Container {
            name: spec.name.clone(),
            role,
            image: spec.image.clone().unwrap_or_default(),
            state: State::Waiting,
            last: None,
            restarts: 0,
            is_ready: false,
            is_starting: false,
            fails_readiness: false,
            hold: None,
            back_off: None,
        }
    }

    fn restore(&mut self, status: &ContainerStatus) {
        self.restarts = u32::try_from(status.restart_count).unwrap_or(0);
        self.is_ready = status.ready;
        // A client that writes a status may name images in another form.
        if status.container_id.as_ref().is_some_and(|id| id.starts_with(CONTAINER_ID_PREFIX)) {
            status.image.clone_into(&mut self.image);
        }
        self.back_off =
            self.restarts.checked_sub(1).map(|doublings| back_off(FIRST_BACK_OFF, doublings.min(10)));
        let exit = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
            let terminated = state.as_ref()?.terminated.as_ref()?;
            let ran = terminated.started_at.as_ref().zip(terminated.finished_at.as_ref());
            let ran = ran.map(|(from, to)| (from.0, to.0));
            let message = terminated.message.clone().filter(|_| ran.is_some());
            let is_removed = terminated.reason.as_deref() == Some(REMOVED.0);
            Some(Exit { code: terminated.exit_code, ran, message, is_removed })
        };
        self.last = exit(&status.last_state);
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let is_backing_off = waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(CRASH_LOOP));
        if let Some(since) = running.and_then(|running| running.started_at.as_ref()) {
            self.state = State::Running { since: since.0 };
        } else if let Some(exit) = exit(&status.state) {
            self.state = State::Exited(exit);
        } else if let Some((_, finished)) =
            self.last.as_ref().and_then(|last| last.ran).filter(|_| is_backing_off)
        {
            let length = self.back_off.unwrap_or(FIRST_BACK_OFF);
            self.state = State::BackOff { until: after(finished, length), length };
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Returns `true` if it was started once.
    pub fn has_started(&self) -> bool {
        self.state != State::Waiting || self.last.is_some()
    }

    /// Returns `true` if it ran, and was not removed since.
    pub fn has_run(&self) -> bool {
        match &self.state {
            State::Waiting => self.last.as_ref().is_some_and(|last| !last.is_removed),
            State::Exited(exit) => exit.ran.is_some(),
            State::Running { .. } | State::BackOff { .. } => true,
        }
    }

    /// Returns `true` if it runs, and has passed its startup probe.
    fn is_started(&self) -> bool {
        self.is_running() && !self.is_starting
    }

    /// Records that a probe has failed so often that the container is killed.
    fn report_failure(&self, probe: &FailingProbe, is_restarted: bool, progress: &mut Progress) {
        let FailingProbe { kind, output, .. } = probe;
        progress.record(self, EventType::Warning, "Unhealthy", format!("{kind} probe failed: {output}"));
        let why = format!("failed {} probe", kind.to_ascii_lowercase());
        let message = self.killing_message(&why, is_restarted);
        progress.record(self, EventType::Normal, "Killing", message);
    }

    /// Returns the message of the event that the container is killed. Only for a main container
    /// does the kubelet add that it will be restarted.
    fn killing_message(&self, why: &str, is_restarted: bool) -> String {
        let name = &self.name;
        match self.role {
            Role::Sidecar => format!("Init container {name} {why}"),
            _ if is_restarted => format!("Container {name} {why}, will be restarted"),
            _ => format!("Container {name} {why}"),
        }
    }

    /// Records that a probe begins to keep the container from being ready.
    fn report_unready(&mut self, failing: Option<&FailingProbe>, progress: &mut Progress) {
        let was_failing = std::mem::replace(&mut self.fails_readiness, failing.is_some());
        if let Some(FailingProbe { kind, output, .. }) = failing.filter(|_| !was_failing) {
            progress.record(self, EventType::Warning, "Unhealthy", format!("{kind} probe failed: {output}"));
        }
    }

    /// Moves a container on until nothing more is due.
    fn run(&mut self, spec: &Spec, during: &During<'_>, progress: &mut Progress) {
        let During { pod, behavior, now, .. } = *during;
        let role = self.role;
        loop {
            match self.state.clone() {
                // Only a sidecar and a main container are replaced while they run. Another image
                // does not wait for the back-off of the one before.
                State::Running { .. } if self.has_other_image(spec) && role != Role::Init => {
                    self.back_off = None;
                    self.replace(self.killing_message("definition changed", true), spec, during, progress);
                }
                State::BackOff { .. } if self.has_other_image(spec) => {
                    self.back_off = None;
                    self.state = State::Waiting;
                }
                State::Waiting => {
                    if self.is_held(spec, during, progress) {
                        return;
                    }
                    match self.has_run() {
                        true => self.restart(spec, now, progress),
                        false => self.start(spec, now, progress),
                    }
                }
                State::Running { since } => {
                    let started = Started { pod, role, container: spec, at: since };
                    let own = behavior.ending(pod, role, spec).map(|ending| (ending, None));
                    let killed = behavior
                        .failing_liveness_or_startup(&started, now)
                        .map(|probe| (Ending { after: probe.after, code: KILLED }, Some(probe)));
                    let first = own.into_iter().chain(killed).min_by_key(|(ending, _)| ending.after);
                    if let Some((ending, probe)) = first {
                        let at = after(since, ending.after);
                        if at <= now {
                            if let Some(probe) = probe {
                                self.report_failure(&probe, restarts_when_killed(pod, spec), progress);
                            }
                            self.exit(ending.code, spec, during);
                            continue;
                        }
                        progress.wake_at(at);
                    }
                    let (ready_after, is_ever_ready) = match role {
                        Role::Init | Role::Ephemeral => (Duration::ZERO, false),
                        Role::Sidecar => (Duration::ZERO, true),
                        Role::Main => (behavior.ready_after, !behavior.never_ready),
                    };
                    let Readiness { is_starting, failing, until } = behavior.readiness(&started, now);
                    self.is_starting = is_starting;
                    self.report_unready(failing.as_ref(), progress);
                    until.into_iter().for_each(|until| progress.wake_at(after(since, until)));
                    let is_ever_ready = is_ever_ready && !is_starting && failing.is_none();
                    let ready_at = after(since, ready_after);
                    self.is_ready = is_ever_ready && ready_at <= now;
                    if !self.is_ready && is_ever_ready {
                        progress.wake_at(ready_at);
                    }
                    return;
                }
                State::Exited(exit) => {
                    // An init container that succeeded counts as ready, and is never started again.
                    if self.asks_for_restart_of_all(spec) {
                        return;
                    }
                    let is_done = self.role == Role::Init && exit.code == 0;
                    if is_done || !restarts_after(pod, spec, exit.code) {
                        self.is_ready = is_done;
                        return;
                    }
                    let ran = exit.ran.map(|(from, to)| to.duration_since(from));
                    let is_forgiven = ran.is_some_and(|ran| {
                        ran > SignedDuration::try_from(FORGIVEN_AFTER).unwrap_or_default()
                    });
                    self.back_off = self.back_off.filter(|_| !is_forgiven);
                    let until = exit.ran.map_or(now, |(_, to)| to);
                    self.last = Some(exit);
                    if self.has_other_image(spec) {
                        self.back_off = None;
                        self.state = State::Waiting;
                        continue;
                    }
                    let Some(length) = self.back_off else {
                        self.restart(spec, now, progress);
                        continue;
                    };
                    let name = &self.name;
                    let message =
                        format!("Back-off restarting failed container {name} in pod {}", full_name(pod));
                    progress.record(self, EventType::Warning, "BackOff", message);
                    self.state = State::BackOff { until: after(until, length), length };
                }
                State::BackOff { until, .. } if until <= now => self.restart(spec, now, progress),
                State::BackOff { until, .. } => return progress.wake_at(until),
            }
        }
    }

    /// Returns `true` if it ran with another image than that of its spec.
    fn has_other_image(&self, spec: &Spec) -> bool {
        spec.image.as_deref().unwrap_or_default() != self.image
    }

    /// Makes the attempts that are due, and returns `true` if an obstacle keeps the container from
    /// its first start.
    fn is_held(&mut self, spec: &Spec, during: &During<'_>, progress: &mut Progress) -> bool {
        let image = spec.image.as_deref().unwrap_or_default();
        if during.behavior.is_missing(image) || during.obstacles.missing_images.contains(image) {
            match spec.image_pull_policy.as_deref() {
                Some("Never") => self.refuse_to_pull(image, progress),
                _ => self.pull(image, during.now, progress),
            }
            return true;
        }
        let reason = during.obstacles.configuration.get(&self.name);
        let hold = reason.map(|reason| Hold::Configuration(reason.clone()));
        if let Some(reason) = reason.filter(|_| self.hold != hold) {
            progress.record(self, EventType::Normal, "Pulled", pulled(image));
            progress.record(self, EventType::Warning, "Failed", format!("Error: {reason}"));
        }
        self.hold = hold;
        self.hold.is_some()
    }

    /// Reports an image that is missing and not to be pulled.
    fn refuse_to_pull(&mut self, image: &str, progress: &mut Progress) {
        if self.hold != Some(Hold::ImageNeverPulled) {
            progress.record(self, EventType::Warning, "ErrImageNeverPull", never_pulled(image));
            progress.record(self, EventType::Warning, "Failed", "Error: ErrImageNeverPull".to_owned());
            self.hold = Some(Hold::ImageNeverPulled);
        }
    }

    /// Attempts to pull an image that is missing, whenever it is time.
    fn pull(&mut self, image: &str, now: Timestamp, progress: &mut Progress) {
        let last = match self.hold {
            Some(Hold::Image { image: ref last, backs_off, attempted, length }) if last == image => {
                Some((backs_off, attempted, length))
            }
            _ => None,
        };
        let pending = last.filter(|(_, attempted, length)| now < after(*attempted, *length));
        let (backs_off, attempted, length) = pending.unwrap_or_else(|| {
            let error = missing_image(image);
            progress.record(self, EventType::Normal, "Pulling", format!("Pulling image {image:?}"));
            let failed = format!("Failed to pull image {image:?}: {error}");
            progress.record(self, EventType::Warning, "Failed", failed);
            progress.record(self, EventType::Warning, "Failed", "Error: ErrImagePull".to_owned());
            (false, now, last.map_or(FIRST_BACK_OFF, |(_, _, length)| back_off(length, 1)))
        });
        let shown_until = after(attempted, FAILED_PULL);
        let is_over = shown_until <= now;
        if is_over && !backs_off {
            progress.record(self, EventType::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
            progress.record(self, EventType::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
        }
        progress.wake_at(if is_over { after(attempted, length) } else { shown_until });
        self.hold = Some(Hold::Image { image: image.to_owned(), backs_off: is_over, attempted, length });
    }

    /// Stops a container that runs, and has it started again whatever its policy.
    fn replace(&mut self, message: String, spec: &Spec, during: &During<'_>, progress: &mut Progress) {
        progress.record(self, EventType::Normal, "Killing", message);
        self.exit(during.behavior.stopped_code(during.pod), spec, during);
        if let State::Exited(exit) = std::mem::replace(&mut self.state, State::Waiting) {
            self.last = Some(exit);
        }
    }

    fn restart(&mut self, spec: &Spec, now: Timestamp, progress: &mut Progress) {
        self.restarts += 1;
        self.back_off = Some(self.back_off.map_or(FIRST_BACK_OFF, |length| back_off(length, 1)));
        self.start(spec, now, progress);
    }

    fn start(&mut self, spec: &Spec, now: Timestamp, progress: &mut Progress) {
        let image = spec.image.as_deref().unwrap_or_default();
        progress.record(self, EventType::Normal, "Pulled", pulled(image));
        progress.record(self, EventType::Normal, "Created", "Container created".to_owned());
        progress.record(self, EventType::Normal, "Started", "Container started".to_owned());
        self.state = State::Running { since: now };
        image.clone_into(&mut self.image);
        self.hold = None;
    }

    fn exit(&mut self, code: i32, spec: &Spec, during: &During<'_>) {
        let During { pod, behavior, now, .. } = *during;
        if let State::Running { since } = self.state {
            let ran = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            let ending = Ending { after: ran, code };
            let started = Started { pod, role: self.role, container: spec, at: since };
            let message = behavior.termination_message(&started, ending);
            self.state = State::Exited(Exit { code, ran: Some((since, now)), message, is_removed: false });
            self.is_ready = false;
            self.is_starting = false;
        }
    }
}

/// Returns `true` if the kubelet restarts a container that it kills. Rules are for containers that
/// exit by themselves.
fn restarts_when_killed(pod: &Pod, container: &Spec) -> bool {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    container.restart_policy.as_deref().or(of_pod) != Some("Never")
}

fn pulled(image: &str) -> String {
    format!("Container image {image:?} already present on machine and can be accessed by the pod")
}

/// Returns the kubelet's message about an image that it must not pull.
pub fn never_pulled(image: &str) -> String {
    format!("Container image {image:?} is not present with pull policy of Never")
}

/// Returns the error of the container runtime about an image that its registry does not have.
pub fn missing_image(image: &str) -> String {
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image {image:?}: failed to resolve reference {image:?}: {image}: not found"
    )
}

fn back_off(length: Duration, doublings: u32) -> Duration {
    length.saturating_mul(1 << doublings).min(MAX_BACK_OFF)
}

fn after(time: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}
