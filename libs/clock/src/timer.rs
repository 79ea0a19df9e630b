//! Timers as they are declared: a name, a class, and the reason for which something waits.

use std::fmt;
use std::time::Duration;

/// The reason why a timer exists, which decides whether a test has to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Kubernetes' semantics: deadlines, lifetimes, schedules, grace periods. Time must pass for
    /// the timer to fire.
    Semantic,
    /// The pace of the implementation: batches of writes, first retries, rediscovery. No object
    /// says how long it takes.
    Pacing,
    /// A deadline that heartbeats put off as long as they come. An advance stops at it until it is
    /// known that they do.
    Watchdog,
    /// Heartbeats. A clock that is advanced by an hour fires them once, not each time that they
    /// would have been due, and before anything else.
    Heartbeat,
    /// Checks that repeat as long as the control plane runs. A clock that is advanced by an hour
    /// fires them once, too.
    Periodic,
    /// The upkeep of the implementation, which follows the machine's time even where the clock is
    /// advanced.
    Upkeep,
}

impl Class {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Semantic => "semantic",
            Class::Pacing => "pacing",
            Class::Watchdog => "watchdog",
            Class::Heartbeat => "heartbeat",
            Class::Periodic => "periodic",
            Class::Upkeep => "upkeep",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A declared timer: see [`timers!`](crate::timers!).
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// The name, which no other timer has.
    pub name: &'static str,
    /// The class.
    pub class: Class,
    /// The documentation.
    pub about: &'static str,
}

impl Timer {
    /// Creates a timer of [`Class::Semantic`].
    pub const fn semantic(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Semantic, about }
    }

    /// Creates a timer of [`Class::Pacing`].
    pub const fn pacing(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Pacing, about }
    }

    /// Creates a timer of [`Class::Watchdog`].
    pub const fn watchdog(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Watchdog, about }
    }

    /// Creates a timer of [`Class::Upkeep`].
    pub const fn upkeep(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Upkeep, about }
    }

    /// Creates a timer of [`Class::Heartbeat`].
    pub const fn heartbeat(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Heartbeat, about }
    }

    /// Creates a timer of [`Class::Periodic`].
    pub const fn periodic(name: &'static str, about: &'static str) -> Timer {
        Timer { name, class: Class::Periodic, about }
    }

    /// Returns a delay of this timer.
    pub const fn after(&'static self, delay: Duration) -> Delay {
        Delay { delay, timer: self }
    }
}

/// The length of a wait, and the timer that it is a wait of. The shortest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    /// The length.
    pub delay: Duration,
    /// The timer.
    pub timer: &'static Timer,
}

/// Declares the timers of a crate as statics of the type [`Timer`], and `TIMERS`, the list of all
/// of them.
///
/// ```
/// coracle_clock::timers! {
///     /// The end of a Job's `.spec.activeDeadlineSeconds`.
///     pub JOB_DEADLINE = semantic("job-deadline");
///     /// The batch of changes of pods that a Job is reconciled for.
///     pub JOB_BATCH = pacing("job-batch");
/// }
/// assert_eq!(TIMERS.len(), 2);
/// ```
#[macro_export]
macro_rules! timers {
    ($($(#[doc = $about:literal])+ $visibility:vis $timer:ident = $class:ident($name:literal);)+) => {
        $(
            $(#[doc = $about])+
            $visibility static $timer: $crate::Timer = $crate::Timer::$class($name, concat!($($about),+));
        )+

        /// All timers of this crate.
        pub static TIMERS: &[&$crate::Timer] = &[$(&$timer),+];
    };
}
