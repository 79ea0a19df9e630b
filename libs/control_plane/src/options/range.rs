//! The ranges of the numbers among the options, and numbers and durations as users write them.
//!
//! Every number of a command line or of the environment is read by [`parse`] within its range, so that an error names the value
//! and the range. A test walks all flags.

use std::fmt::{self, Display};
use std::time::Duration;

use super::values::Values;

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

/// The values that an option may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T> {
    /// The least value, other than zero.
    pub least: T,
    /// The greatest value.
    pub most: T,
    /// Whether zero is a value too, with a meaning of its own.
    pub or_zero: bool,
}

impl<T: Copy> Range<T> {
    pub(crate) const fn new(least: T, most: T) -> Range<T> {
        Range { least, most, or_zero: false }
    }

    const fn or_zero(self) -> Range<T> {
        Range { least: self.least, most: self.most, or_zero: true }
    }
}

impl<T: Copy + Ord + Default> Range<T> {
    /// Returns `true` if a value is in the range.
    pub fn contains(&self, value: T) -> bool {
        (self.or_zero && value == T::default()) || (self.least..=self.most).contains(&value)
    }

    /// Returns the nearest value in the range.
    pub fn clamp(&self, value: T) -> T {
        if self.contains(value) { value } else { value.clamp(self.least, self.most) }
    }
}

const fn seconds(least: u64, most: u64) -> Range<Duration> {
    Range::new(Duration::from_secs(least), Duration::from_secs(most))
}

/// The number of simulated nodes: Kubernetes is made for up to 5,000.
pub const NODES: Range<usize> = Range::new(1, 5000).or_zero();
/// The size of all objects in bytes; they are held in memory. Zero is no limit.
pub const STORE_BYTES: Range<u64> = Range::new(1, 1 << 40).or_zero();
/// The length of a record in bytes.
pub const RECORD_BYTES: Range<u64> = Range::new(1 << 20, 1 << 40);
/// The number of pods in all namespaces. Zero is no limit.
pub const PODS: Range<u32> = Range::new(1, 10_000_000).or_zero();
/// The number of forks at once; zero is none.
pub const FORKS: Range<usize> = Range::new(1, 100_000).or_zero();
/// The revisions that objects can be compared at.
pub const REVISION: Range<u64> = Range::new(1, 1 << 62);
/// The timers that `coracle clock` prints.
pub const TIMERS: Range<usize> = Range::new(1, 1000).or_zero();
/// The entries of the log that a request returns at most.
pub const LOG_ENTRIES: Range<usize> = Range::new(1, 1000);
/// The time to live of Events; zero keeps them.
pub const EVENT_TTL: Range<Duration> = seconds(1, 3650 * DAY).or_zero();
/// The period of HorizontalPodAutoscalers.
pub const SYNC_PERIOD: Range<Duration> = seconds(1, DAY);
/// The interval of compactions of etcd's history; zero is never.
pub const COMPACTION_INTERVAL: Range<Duration> = seconds(1, 365 * DAY).or_zero();
/// The delay between a signal and the end; zero is none.
pub const SHUTDOWN_DELAY: Range<Duration> =
    Range::new(Duration::from_millis(1), Duration::from_secs(DAY)).or_zero();
/// The time by which responses are delayed; zero is none.
pub const RESPONSE_LATENCY: Range<Duration> =
    Range::new(Duration::from_micros(100), Duration::from_secs(1)).or_zero();
/// The milliseconds between a write and its flush to disk; zero flushes continuously.
pub const FLUSH_INTERVAL: Range<u64> = Range::new(1, 60_000).or_zero();
/// The distance by which revisions continue above those of a backup.
pub const BUMP_REVISION: Range<u64> = Range::new(1, 1 << 53).or_zero();
/// The days for which old audit logs are kept; zero is for ever.
pub const AUDIT_LOG_AGE: Range<i64> = Range::new(1, 36_500).or_zero();
/// The number of old audit logs that are kept; zero is all.
pub const AUDIT_LOG_BACKUPS: Range<i64> = Range::new(1, 1_000_000).or_zero();
/// The megabytes of an audit log; zero is the default.
pub const AUDIT_LOG_MEGABYTES: Range<i64> = Range::new(1, 1 << 20).or_zero();

/// A type of values that have a range.
pub trait RangedValue: Copy + Ord + Default {
    /// A noun phrase for the type.
    const KIND: &'static str;
    /// The values of a flag of the type.
    const VALUES: Values;

    /// Reads a value; None for a text of another form.
    fn read(text: &str) -> Option<Self>;

    /// Writes a value as Go prints it.
    fn write(self) -> String;

    /// Writes a value as users write it: `1h`, not `1h0m0s`.
    fn write_short(self) -> String {
        self.write()
    }
}

macro_rules! whole_numbers {
    ($($number:ty: $signed:literal),*) => {$(
        impl RangedValue for $number {
            const KIND: &'static str = "a whole number";
            const VALUES: Values = Values::Number { signed: $signed };

            fn read(text: &str) -> Option<$number> {
                text.parse().ok()
            }

            fn write(self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers!(i64: true, u32: false, u64: false, usize: false);

impl RangedValue for Duration {
    const KIND: &'static str = "a duration";
    const VALUES: Values = Values::Text;

    fn read(text: &str) -> Option<Duration> {
        coracle_duration::parse(text).ok()?.try_into().ok()
    }

    fn write(self) -> String {
        self.try_into().map_or_else(|_| format!("{self:?}"), coracle_duration::print)
    }

    fn write_short(self) -> String {
        let text = self.write();
        let text = text.strip_suffix("m0s").map_or(text.clone(), |minutes| format!("{minutes}m"));
        text.strip_suffix("h0m").map_or(text.clone(), |hours| format!("{hours}h"))
    }
}

/// A range as an error shows it.
struct Shown<T>(Range<T>);

impl<T: RangedValue> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, most, or_zero } = self.0;
        let zero = if or_zero { "0, or " } else { "" };
        write!(f, "{zero}{} from {} to {}", T::KIND, least.write(), most.write())
    }
}

/// Parses a value and checks its range.
///
/// # Errors
/// The range, in a form that follows the value.
pub fn parse<T: RangedValue>(range: Range<T>, text: &str) -> Result<T, String> {
    T::read(text).filter(|value| range.contains(*value)).ok_or_else(|| format!("it must be {}", Shown(range)))
}

/// Checks the range of a value that was parsed before.
///
/// # Errors
/// One line with the flag, the value and the range.
pub fn check<T: RangedValue>(range: Range<T>, flag: &str, value: T) -> Result<T, String> {
    match range.contains(value) {
        true => Ok(value),
        false => {
            Err(format!("invalid value '{}' for '--{flag}': it must be {}", value.write(), Shown(range)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_become_the_nearest_inside() {
        for (value, want) in [(0, 0), (1, 1), (5000, 5000), (5001, 5000), (usize::MAX, 5000)] {
            assert_eq!(NODES.clamp(value), want);
        }
        for (value, want) in [(0, 1000), (1, 1000), (1500, 1500), (u64::MAX, 1000 * DAY)] {
            assert_eq!(SYNC_PERIOD.clamp(Duration::from_millis(value)), Duration::from_millis(want));
        }
        assert_eq!(EVENT_TTL.clamp(Duration::MAX), EVENT_TTL.most);
        assert_eq!(EVENT_TTL.clamp(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn durations_are_written_without_units_that_are_zero() {
        for (seconds, want) in
            [(0, "0s"), (15, "15s"), (60, "1m"), (300, "5m"), (3600, "1h"), (3660, "1h1m"), (3601, "1h0m1s")]
        {
            assert_eq!(Duration::from_secs(seconds).write_short(), want);
        }
    }
}
