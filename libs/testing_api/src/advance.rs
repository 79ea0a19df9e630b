//! The advance of a manual clock: from timer to timer, with rest between them.
#![expect(clippy::disallowed_methods, reason = "an advance takes time of the machine")]

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_clock::{Class, Hold, ManualClock, Timer};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Testing;
use crate::clock::{ClockMode, time};
use crate::read::{conflict, duration, duration_or, invalid};
use crate::rest::DueTimers;
use crate::settle::TIMEOUT;
use crate::timers::CLIENT_TIMER;

/// The timers that an advance fires at most, unless the request names another number.
const MAX_TIMERS: u64 = 1_000_000;
/// The number of stops at one time after which an advance has come to a loop.
const MAX_STOPS_AT_A_TIME: u32 = 1000;
/// The wait for an external client that has got events.
const QUIET_FOR: Duration = Duration::from_millis(50);
/// The longest advance: a thousand years.
const MAX_ADVANCE: Duration = Duration::from_secs(1000 * 366 * 24 * 3600);

/// The bucket of the heartbeats of nodes.
const HEARTBEATS: &str = "leases.coordination.k8s.io";
/// The longest time that heartbeats may fail to come. Once they have come for longer, and nothing
/// else has happened, watchdogs are passed over on the way to the next timer.
const MAX_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// The message for a manual clock that was resumed.
const RESUMED: &str = "the clock was resumed, and goes by itself: it cannot be advanced again, but that of a new fork with --clock=manual can";

/// The way to move a clock on: one of `advance`, `next`, `set` and `mode`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClockRequest {
    /// The duration to move it on by, in Go's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advance: Option<String>,
    /// The number of times at which timers fire to move it on by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The time to move it to, which is not earlier, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The mode: `real` lets it run from its time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ClockMode>,
    /// The longest wait for rest at each time, in Go's format; 10s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The wait for external clients that got events after a timer, in Go's format; 50ms by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_for: Option<String>,
    /// The maximum number of timers that may fire, a million by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_timers: Option<u64>,
}

/// A clock that was moved on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockMoved {
    /// The mode of the clock.
    pub mode: ClockMode,
    /// The time that it has come to, as RFC 3339.
    pub now: String,
    /// The number of timers that fired on the way.
    pub timers_fired: u64,
    /// The same by name.
    pub timers_by_name: BTreeMap<String, u64>,
    /// Whether the control plane has settled, which is true unless the clock runs by itself.
    pub settled: bool,
}

/// The end of an advance.
enum End {
    At(Timestamp),
    /// After a number of times at which timers fire.
    After(u64),
}

/// The limits of an advance.
struct Limits {
    timeout: Duration,
    quiet_for: Duration,
    timers: u64,
}

/// The timers that have fired so far.
#[derive(Default)]
struct Fired {
    total: u64,
    by_name: BTreeMap<String, u64>,
}

impl Fired {
    fn add(&mut self, timers: impl IntoIterator<Item = &'static Timer>) {
        for timer in timers {
            self.total += 1;
            *self.by_name.entry(timer.name.to_owned()).or_default() += 1;
        }
    }

    /// Formats the names of the timers that fired most.
    fn most(&self) -> String {
        let mut names: Vec<_> = self.by_name.iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let names: Vec<String> =
            names.into_iter().take(3).map(|(name, count)| format!("{name} ({count} times)")).collect();
        names.join(", ")
    }
}

impl Testing {
    /// Moves a manual clock on: from timer to timer in order, and to rest at each of them before
    /// the next, so that causes come before effects as in real time. Of heartbeats and periodic
    /// checks each fires once on the way from one other timer to the next.
    ///
    /// # Errors
    /// 409 if the clock is real, more timers would fire than may, or the control plane is being
    /// stopped; 422 for values that are out of range; 504 if the control plane does not come to
    /// rest. The clock stays at the time that it has come to.
    pub async fn move_clock(&self, request: &ClockRequest) -> Result<ClockMoved> {
        if let Some(reason) = self.0.frozen.get() {
            return Err(conflict(reason));
        }
        let Some(manual) = self.0.manual.as_ref().filter(|manual| !manual.is_running()) else {
            return match request {
                ClockRequest {
                    mode: Some(ClockMode::Real), advance: None, next: None, set: None, ..
                } => Ok(self.moved(Fired::default())),
                _ if self.0.manual.is_some() => Err(conflict(RESUMED)),
                _ => Err(conflict(
                    "the clock is real and goes by itself: start the control plane with --clock=manual to advance it",
                )),
            };
        };
        let limits = Limits {
            timeout: duration_or("timeout", request.timeout.as_ref(), TIMEOUT)?,
            quiet_for: duration_or("quietFor", request.quiet_for.as_ref(), QUIET_FOR)?,
            timers: request.max_timers.unwrap_or(MAX_TIMERS).min(MAX_TIMERS),
        };
        if limits.timers == 0 {
            return Err(invalid("maxTimers", "it must be at least 1"));
        }
        let _turn = self.0.turn.lock().await;
        if manual.is_running() {
            return Err(conflict(RESUMED));
        }
        let now = self.0.clock.now();
        let end = match (&request.advance, request.next, &request.set, request.mode) {
            (Some(by), None, None, None) => {
                let by = duration("advance", by, MAX_ADVANCE)?;
                let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
                End::At(now.checked_add(by).map_err(|_| invalid("advance", "the time would be too late"))?)
            }
            (None, Some(count), None, None) => End::After(count),
            (None, None, Some(to), None) => {
                let to = time("set", to)?;
                if to < now {
                    return Err(invalid(
                        "set",
                        &format!("{to} is earlier than {now}, and the clock does not go back"),
                    ));
                }
                End::At(to)
            }
            (None, None, None, Some(ClockMode::Real)) => {
                manual.resume();
                self.0.clock_events.publish(self.0.clock.now());
                return Ok(self.moved(Fired::default()));
            }
            (None, None, None, Some(ClockMode::Manual)) => return Ok(self.moved(Fired::default())),
            _ => return Err(invalid("body", "it must have one of advance, next, set and mode")),
        };
        let fired = self.unless_ending(self.advance(manual, end, &limits)).await?;
        Ok(self.moved(fired))
    }

    async fn advance(&self, manual: &ManualClock, end: End, limits: &Limits) -> Result<Fired> {
        let (clock, mut fired) = (&self.0.clock, Fired::default());
        // Fires timers that an interrupted advance left.
        manual.fire();
        self.rest_within(limits.timeout, DueTimers::Awaited).await?;
        let (mut stops, mut stops_at_a_time) = (0, 0);
        let mut quiet_since = None;
        loop {
            // Others have their turn, however little there is to do at a stop.
            tokio::task::yield_now().await;
            let now = clock.now();
            let next = clock.timers().first_due(|class| class == Class::Semantic);
            let (goal, is_counted) = match (&end, next) {
                (End::After(count), _) if stops >= *count => break,
                (End::After(_), Some(next)) => (next, true),
                // Without deadlines it goes to the next sign of life, or check.
                (End::After(_), None) => match clock.timers().first_due(|_| true) {
                    Some(next) => (next, true),
                    None => break,
                },
                (End::At(end), Some(next)) if next <= *end => (next, true),
                (End::At(end), _) if now < *end => (*end, false),
                (End::At(_), _) => break,
            };
            let watchdog = clock.timers().first_due(|class| class == Class::Watchdog);
            // A node that was silent before the first known heartbeats is detected within this
            // time.
            let is_quiet = quiet_since.is_some_and(|since| now.duration_since(since) > MAX_GRACE_PERIOD);
            let watchdog = watchdog.filter(|due| *due < goal && !is_quiet);
            let stop = watchdog.unwrap_or(goal);
            stops_at_a_time = if stop <= now { stops_at_a_time + 1 } else { 0 };
            if fired.total >= limits.timers || stops_at_a_time > MAX_STOPS_AT_A_TIME {
                let (count, names) = (fired.total, fired.most());
                return Err(conflict(&format!(
                    "stopped at {now} after {count} timers, most of which are {names}"
                )));
            }
            let before = self.0.store.revision();
            tracing::debug!(at = %stop, is_watchdog = watchdog.is_some(), "the clock comes to a stop");
            self.stop_at(manual, stop, limits, &mut fired).await?;
            quiet_since = match watchdog {
                Some(_) if !self.0.store.has_changed_outside(HEARTBEATS, before) => {
                    quiet_since.or(Some(stop))
                }
                _ => None,
            };
            stops += u64::from(watchdog.is_none() && is_counted);
        }
        Ok(fired)
    }

    /// Moves the clock to a time, and fires what is due then. Heartbeats come just before, and then
    /// periodic checks, so that neither a check nor a deadline at that time misses a heartbeat
    /// which was left out on the way.
    async fn stop_at(
        &self,
        manual: &ManualClock,
        at: Timestamp,
        limits: &Limits,
        fired: &mut Fired,
    ) -> Result<()> {
        let hold = manual.hold();
        manual.set(at.saturating_sub(SignedDuration::from_nanos(1)).unwrap_or(at));
        let heartbeats = manual.fire_heartbeats();
        if !heartbeats.is_empty() {
            fired.add(heartbeats);
            self.rest_within(limits.timeout, DueTimers::Ignored).await?;
        }
        let delivered = self.0.traffic.delivered();
        if !self.fire(hold, fired).is_empty() {
            self.rest_within(limits.timeout, DueTimers::Awaited).await?;
        }
        let hold = manual.hold();
        manual.set(at);
        let is_watched = self.0.clock_events.publish(at);
        let is_for_client = self.fire(hold, fired).iter().any(|timer| timer.name == CLIENT_TIMER.name);
        if is_watched && is_for_client {
            self.0.traffic.deliver();
        }
        self.rest_within(limits.timeout, DueTimers::Awaited).await?;
        // A client that got events may have something to do, of which nothing is known here.
        let mut seen = delivered;
        while self.0.traffic.delivered() != seen {
            seen = self.0.traffic.delivered();
            self.rest_for(limits.quiet_for, limits.timeout).await?;
        }
        Ok(())
    }

    /// Fires what is due, and returns it. A hold ends with that, so that no source has fired
    /// anything before it is counted.
    fn fire(&self, hold: Hold<'_>, fired: &mut Fired) -> Vec<&'static Timer> {
        let mut timers = self.0.clock.timers().due_of_sources(self.0.clock.now());
        timers.extend(hold.fire());
        fired.add(timers.iter().copied());
        timers
    }

    async fn rest_within(&self, timeout: Duration, timers: DueTimers) -> Result<()> {
        let (began, writes) = (Instant::now(), self.0.traffic.observe());
        match self.rest(Duration::ZERO, timers, began + timeout).await {
            true => Ok(()),
            false => Err(self.unsettled(began.elapsed(), &writes, &[])),
        }
    }

    /// Waits a time, and for rest after it.
    async fn rest_for(&self, quiet_for: Duration, timeout: Duration) -> Result<()> {
        tokio::time::sleep(quiet_for).await;
        let (began, writes) = (Instant::now(), self.0.traffic.observe());
        match self.rest(quiet_for, DueTimers::Awaited, began + timeout.max(2 * quiet_for)).await {
            true => Ok(()),
            false => Err(self.unsettled(began.elapsed(), &writes, &[])),
        }
    }

    fn moved(&self, fired: Fired) -> ClockMoved {
        let mode = self.mode();
        ClockMoved {
            mode,
            now: self.0.clock.now().to_string(),
            timers_fired: fired.total,
            timers_by_name: fired.by_name,
            settled: mode == ClockMode::Manual,
        }
    }
}
