//! The ranges of the numbers among the options.

use std::time::Duration;

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
    const fn new(least: T, most: T) -> Range<T> {
        Range { least, most, or_zero: false }
    }

    const fn or_zero(self) -> Range<T> {
        Range { least: self.least, most: self.most, or_zero: true }
    }
}

impl<T: Copy + Ord + Default> Range<T> {
    /// Whether a value is in the range.
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
/// The number of pods in all namespaces. Zero is no limit.
pub const PODS: Range<u32> = Range::new(1, 10_000_000).or_zero();
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
}
