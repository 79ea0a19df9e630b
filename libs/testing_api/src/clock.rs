//! The state of a clock.

use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_clock::{Class, Clock, Pending};
use serde::{Deserialize, Serialize};

/// The timers that are listed, unless the query has another `limit`.
const TIMERS: usize = 20;
/// The most timers that are listed.
const MOST_TIMERS: usize = 1000;

/// The mode of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClockMode {
    /// The machine's time.
    Real,
}

/// The state of the clock of a control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockStatus {
    /// Its mode.
    pub mode: ClockMode,
    /// The current time, as RFC 3339.
    pub now: String,
    /// The next timers, in the order of their times.
    pub next_timers: Vec<NextTimer>,
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
    /// `semantic` for a timer of Kubernetes' semantics, `pacing` for one of the implementation.
    pub class: String,
}

impl ClockStatus {
    /// The state of a clock, with its next timers.
    pub fn of(clock: &Clock, limit: usize) -> ClockStatus {
        let next_timers = clock.timers().next(limit).into_iter().map(NextTimer::from).collect();
        ClockStatus { mode: ClockMode::Real, now: clock.now().to_string(), next_timers }
    }

    /// The number of timers that a query asks for.
    ///
    /// # Errors
    /// 400 for what is no number from 0 to 1000.
    pub fn limit(query: &Query) -> Result<usize> {
        let Some(text) = query.first("limit") else { return Ok(TIMERS) };
        let limit = text.parse().ok().filter(|limit| *limit <= MOST_TIMERS);
        limit.ok_or_else(|| {
            Error::bad_request(format!("limit: {text:?} is not a number from 0 to {MOST_TIMERS}"))
        })
    }
}

impl From<Pending> for NextTimer {
    fn from(Pending { due, timer, key }: Pending) -> NextTimer {
        let class = match timer.class {
            Class::Semantic => "semantic",
            Class::Pacing => "pacing",
        };
        NextTimer { at: due.to_string(), name: timer.name.to_owned(), key, class: class.to_owned() }
    }
}
