//! The wait until nothing is left to happen.
#![expect(
    clippy::disallowed_methods,
    reason = "clients wait for a time of the machine, whatever the clock shows"
)]

use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_pattern::glob;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::clock::TIMERS;
use crate::read::{duration_or, invalid, printed};
use crate::rest::DueTimers;
use crate::{NextTimer, Testing};

/// The time without writes by default.
const QUIET_FOR: Duration = Duration::from_millis(50);
/// The longest wait by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of looking for user agents.
const SIGHTING_INTERVAL: Duration = Duration::from_millis(2);
/// The most user agents that can be waited for.
const MAX_USER_AGENTS: usize = 100;

/// The conditions of a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleRequest {
    /// The time for which nothing may have been written, in Go's format; 50ms by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_for: Option<String>,
    /// The longest wait, in Go's format; 10s by default, an hour at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Patterns of user agents, with `*` for any characters: a client of each must have made a
    /// request before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_agents: Vec<String>,
}

/// The state of a control plane that has settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    /// True; a control plane that does not settle is an error.
    pub settled: bool,
    /// The resourceVersion at that moment.
    pub resource_version: String,
    /// The time that was waited, in Go's format.
    pub took: String,
    /// The next timers, in the order of their times.
    pub next_timers: Vec<NextTimer>,
}

impl Testing {
    /// Waits until nothing is left to happen at this moment of the clock: every change is followed
    /// to the end of the reconciliations that it caused, every watch has been delivered, no request
    /// is under way, and nothing was written for a time.
    ///
    /// # Errors
    /// 409 if the control plane is being stopped; 422 for values that are out of range; 504 with what
    /// is not done, if it takes too long.
    pub async fn settle(&self, request: &SettleRequest) -> Result<Settled> {
        self.unless_ending(self.settle_now(request)).await
    }

    async fn settle_now(&self, request: &SettleRequest) -> Result<Settled> {
        let quiet_for = duration_or("quietFor", request.quiet_for.as_ref(), QUIET_FOR)?;
        let timeout = duration_or("timeout", request.timeout.as_ref(), TIMEOUT)?;
        if quiet_for > timeout {
            let (quiet_for, timeout) = (printed(quiet_for), printed(timeout));
            return Err(invalid("quietFor", &format!("{quiet_for} is longer than the timeout of {timeout}")));
        }
        if request.user_agents.len() > MAX_USER_AGENTS {
            return Err(invalid("userAgents", &format!("more than {MAX_USER_AGENTS}")));
        }
        let began = Instant::now();
        let deadline = began + timeout;
        let writes = self.0.traffic.observe();
        loop {
            let unseen = self.unseen(&request.user_agents);
            if unseen.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                return Err(self.unsettled(began.elapsed(), &writes, &unseen));
            }
            sleep(SIGHTING_INTERVAL).await;
        }
        // Fires timers that an interrupted advance left.
        if let (Some(manual), Ok(_turn)) = (&self.0.manual, self.0.turn.try_lock()) {
            manual.fire();
        }
        if !self.rest(quiet_for, DueTimers::Awaited, deadline).await {
            return Err(self.unsettled(began.elapsed(), &writes, &[]));
        }
        // Nanoseconds are noise.
        let took = printed(Duration::from_micros(began.elapsed().as_micros() as u64));
        let resource_version = self.0.store.revision().to_string();
        Ok(Settled { settled: true, resource_version, took, next_timers: self.next_timers(TIMERS) })
    }

    fn unseen(&self, user_agents: &[String]) -> Vec<String> {
        let is_unseen = |pattern: &&String| !self.0.traffic.has_seen(|agent| glob::matches(pattern, agent));
        user_agents.iter().filter(is_unseen).cloned().collect()
    }
}
