//! Restarts of all containers of a pod in place, for which a rule of a container asks when it
//! exits.
//!
//! The kubelet kills and removes all containers, and then starts the pod anew, init containers
//! first, on its node and with its volumes.
//!
//! Source: KEP-5532, restart all containers on container exits.

use std::time::Duration;

use coracle_controller_runtime::events::EventType;
use coracle_kinds::pods::{self, Role, containers, may_restart_all, restarts_all_after};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::{Container, During, Exit, Hold, KILLED, PodRuntimeState, Progress, Spec, State, after};

/// The condition of a pod whose containers are about to be removed.
pub const CONDITION: &str = "AllContainersRestarting";

/// The time from the exit until all containers are removed. It also bounds how often a pod
/// restarts, since there is no back-off.
const REMOVAL: Duration = Duration::from_secs(1);

impl PodRuntimeState {
    /// Restarts all containers if one of them has exited so, in steps: the exit is reported, then
    /// all of them are removed, and then they start. Returns `true` while none is to be started.
    pub(super) fn restarts_all(&mut self, during: &During<'_>, progress: &mut Progress) -> bool {
        let During { pod, now, .. } = *during;
        let mut all = self.containers.iter().zip(containers(pod));
        if self.restarting.is_none()
            && all.any(|(container, (_, spec))| container.asks_for_restart_of_all(&spec))
        {
            self.restarting = Some(now);
        }
        let Some(since) = self.restarting.map(|since| since.min(now)) else {
            for container in self.own_containers().filter(|c| c.hold == Some(Hold::Removed)) {
                container.hold = None;
            }
            return false;
        };
        let due = after(since, REMOVAL);
        if now < due {
            self.restarting = Some(since);
            progress.wake_at(due);
        } else {
            self.restarting = None;
            self.remove_all(progress);
            progress.wake_at(now);
        }
        true
    }

    /// Kills those that run, without a grace period, and removes all: main containers first.
    fn remove_all(&mut self, progress: &mut Progress) {
        for is_main in [true, false] {
            for container in self.own_containers().filter(|c| (c.role == Role::Main) == is_main) {
                if container.is_running() {
                    progress.record(container, EventType::Normal, "Killing", "killing".to_owned());
                }
                container.remove();
            }
        }
    }

    fn own_containers(&mut self) -> impl Iterator<Item = &mut Container> {
        self.containers.iter_mut().filter(|container| container.role != Role::Ephemeral)
    }
}

impl Container {
    /// Returns `true` if it has exited with a code for which a rule restarts all containers.
    pub(super) fn asks_for_restart_of_all(&self, spec: &Spec) -> bool {
        matches!(&self.state, State::Exited(exit) if exit.ran.is_some() && restarts_all_after(spec, exit.code))
    }

    fn remove(&mut self) {
        if self.state != State::Waiting {
            self.last = Some(Exit { is_removed: true, ..Exit::without_run(KILLED) });
            self.hold = Some(Hold::Removed);
            self.restarts += 1;
        }
        self.state = State::Waiting;
        self.back_off = None;
        (self.is_ready, self.is_starting) = (false, false);
    }
}

/// Returns the time since which all containers of a pod are to be removed, if its status says so.
pub(super) fn restarting_since(pod: &Pod) -> Option<Timestamp> {
    pod.spec.as_ref().filter(|spec| may_restart_all(spec))?;
    let restarting = pods::conditions(pod).find(|condition| condition.type_ == CONDITION)?;
    restarting.last_transition_time.as_ref().filter(|_| restarting.status == "True").map(|at| at.0)
}
