//! The state of a clock, and the timers of clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_clock::{Class, Pending};
use futures::{Stream, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;

use crate::Testing;
use crate::read::{conflict, invalid};
use crate::timers::CLIENT_TIMER;

/// The timers that are listed, unless the query has another `limit`.
pub(crate) const TIMERS: usize = 20;
/// The maximum number of timers that are listed.
const MAX_TIMERS: usize = 1000;
/// The maximum number of timers that clients can have set at a time.
const MAX_CLIENT_TIMERS: usize = 10_000;

/// The capacity of the channel of clock events.
const MAX_MOVES: usize = 1024;
/// The longest name of a timer of a client, in bytes.
const MAX_NAME_LENGTH: usize = 256;

/// The mode of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClockMode {
    /// The machine's time, or one that goes as fast.
    Real,
    /// It stands still until it is moved on.
    Manual,
}

/// The state of the clock of a control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockStatus {
    /// The mode of the clock.
    pub mode: ClockMode,
    /// The current time, as RFC 3339.
    pub now: String,
    /// The next timers, in the order of their times.
    pub next_timers: Vec<NextTimer>,
}

/// A time that the clock has come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockEvent {
    /// The mode of the clock.
    pub mode: ClockMode,
    /// The time, as RFC 3339.
    pub now: String,
}

/// A timer that is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextTimer {
    /// The time at which it fires, as RFC 3339.
    pub at: String,
    /// Its name, such as `job-deadline`.
    pub name: String,
    /// The object that it is about, such as `namespace/name`; "" if there is none.
    pub key: String,
    /// `semantic` for a timer of Kubernetes' semantics, `periodic` for one that repeats as long as
    /// the control plane runs, `pacing` for one of the implementation.
    pub class: String,
}

/// A timer of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TimerRequest {
    /// The time at which an advance is to stop, as RFC 3339.
    pub at: String,
    /// A name of the client's, by which the timer is listed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A timer that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimerSet {
    /// The time at which an advance stops, as RFC 3339.
    pub at: String,
    /// The name of the timer in `DELETE clock/timers/ID`.
    pub id: String,
}

/// The timers of clients.
pub(crate) struct ClientTimers {
    /// The number of timers that may still be set.
    left: Arc<Semaphore>,
    /// The tasks that wait for the timers that are set, by ID.
    set: Mutex<HashMap<u64, JoinHandle<()>>>,
    last_id: AtomicU64,
}

impl ClientTimers {
    pub(crate) fn new() -> ClientTimers {
        let left = Arc::new(Semaphore::new(MAX_CLIENT_TIMERS));
        ClientTimers { left, set: Mutex::default(), last_id: AtomicU64::new(0) }
    }
}

/// Observes the times that a clock comes to.
type ObserveTime = Box<dyn Fn(Timestamp) + Send + Sync>;

/// The times that a clock comes to.
pub(crate) struct ClockEvents {
    /// Created at the first subscription, to save memory.
    times: OnceLock<broadcast::Sender<Timestamp>>,
    observers: Mutex<Vec<ObserveTime>>,
}

impl ClockEvents {
    pub(crate) fn new() -> ClockEvents {
        ClockEvents { times: OnceLock::new(), observers: Mutex::default() }
    }

    fn subscribe(&self) -> broadcast::Receiver<Timestamp> {
        self.times.get_or_init(|| broadcast::Sender::new(MAX_MOVES)).subscribe()
    }

    /// Registers an observer of clock changes.
    pub(crate) fn record(&self, record: impl Fn(Timestamp) + Send + Sync + 'static) {
        self.observers.lock().push(Box::new(record));
    }

    /// Publishes the time to its watchers. Returns `true` if there are any.
    pub(crate) fn publish(&self, now: Timestamp) -> bool {
        self.record_now(now);
        self.times.get().is_some_and(|times| times.send(now).is_ok())
    }

    pub(crate) fn record_now(&self, now: Timestamp) {
        self.observers.lock().iter().for_each(|record| record(now));
    }
}

impl ClockStatus {
    /// Returns the requested number of timers.
    ///
    /// # Errors
    /// 400 unless it is a number from 0 to 1000.
    pub fn limit(query: &Query) -> Result<usize> {
        let Some(text) = query.first("limit") else { return Ok(TIMERS) };
        let limit = text.parse().ok().filter(|limit| *limit <= MAX_TIMERS);
        limit.ok_or_else(|| {
            Error::bad_request(format!("limit: {text:?} is not a number from 0 to {MAX_TIMERS}"))
        })
    }
}

impl Testing {
    /// Returns the state of the clock, with at most `limit` of its next timers.
    pub fn clock_status(&self, limit: usize) -> ClockStatus {
        let now = self.0.clock.now().to_string();
        ClockStatus { mode: self.mode(), now, next_timers: self.next_timers(limit) }
    }

    pub(crate) fn mode(&self) -> ClockMode {
        match &self.0.manual {
            _ if self.0.frozen.get().is_some() => ClockMode::Manual,
            Some(manual) if !manual.is_running() => ClockMode::Manual,
            _ => ClockMode::Real,
        }
    }

    pub(crate) fn next_timers(&self, limit: usize) -> Vec<NextTimer> {
        self.0.clock.timers().next(limit).into_iter().map(NextTimer::from).collect()
    }

    /// Returns the current time, and then each time that the clock is moved to.
    pub fn clock_events(&self) -> impl Stream<Item = ClockEvent> + Send + 'static + use<> {
        let events = self.0.clock_events.subscribe();
        stream::unfold((self.clone(), events, true), async |(testing, mut events, is_first)| {
            let now = match is_first {
                true => testing.0.clock.now(),
                false => loop {
                    match events.recv().await {
                        Ok(now) => break now,
                        // A client that reads too slowly misses times, and gets the later ones.
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return None,
                    }
                },
            };
            let event = ClockEvent { mode: testing.mode(), now: now.to_string() };
            Some((event, (testing, events, false)))
        })
    }

    /// Sets a timer of a client, at which an advance of the clock stops.
    ///
    /// # Errors
    /// 409 if the clock is real, 422 for an invalid time, 429 if there are too many.
    pub fn set_timer(&self, request: &TimerRequest) -> Result<TimerSet> {
        if self.mode() == ClockMode::Real {
            return Err(conflict("the clock is real: a client's own timers go by the same time"));
        }
        let at = time("at", &request.at)?;
        if request.name.len() > MAX_NAME_LENGTH || request.name.chars().any(char::is_control) {
            return Err(invalid(
                "name",
                &format!("it must be at most {MAX_NAME_LENGTH} bytes, without control characters"),
            ));
        }
        let timers = &self.0.client_timers;
        let Ok(permit) = timers.left.clone().try_acquire_owned() else {
            let message = format!("more than {MAX_CLIENT_TIMERS} timers of clients");
            return Err(Error::TooManyRequests { message, retry_after: 0, causes: Vec::new() });
        };
        let wait = self.0.clock.until(&CLIENT_TIMER, at).of(request.name.clone());
        let id = timers.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        // A weak reference, so that the timer does not keep the control plane alive.
        let known = Arc::downgrade(timers);
        let mut set = timers.set.lock();
        let waiting = tokio::spawn(async move {
            let work = wait.await;
            known.upgrade().into_iter().for_each(|timers| _ = timers.set.lock().remove(&id));
            drop((work, permit));
        });
        set.insert(id, waiting);
        Ok(TimerSet { at: at.to_string(), id: id.to_string() })
    }

    /// Removes a timer of a client.
    ///
    /// # Errors
    /// 404 if there is none, or it has fired.
    pub async fn remove_timer(&self, id: &str) -> Result<()> {
        let removed = id.parse().ok().and_then(|id: u64| self.0.client_timers.set.lock().remove(&id));
        let waiting = removed.ok_or_else(|| Error::not_found(&GroupResource::new("", "timers"), id))?;
        waiting.abort();
        // No advance stops at it after this.
        let _ = waiting.await;
        Ok(())
    }
}

/// Parses a field as an RFC 3339 time.
///
/// # Errors
/// 422 if it is invalid.
pub(crate) fn time(field: &str, text: &str) -> Result<Timestamp> {
    text.parse().map_err(|error| invalid(field, &format!("{text:?} is no time: {error}")))
}

impl From<Pending> for NextTimer {
    fn from(Pending { due, timer, key }: Pending) -> NextTimer {
        let class = Class::as_str(timer.class).to_owned();
        NextTimer { at: due.to_string(), name: timer.name.to_owned(), key, class }
    }
}
