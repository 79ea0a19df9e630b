//! The backoff of deletions of failed pods on a node: none at first, then growing.
//!
//! Source: client-go's `flowcontrol.Backoff`.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

const INITIAL_DELAY: SignedDuration = SignedDuration::from_secs(1);
const MAX_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// The failures of the pods of one generation of a set, on each node.
#[derive(Default)]
pub struct FailedPodsBackoff {
    entries: HashMap<Key, Entry>,
}

/// The uid of a set, its observed generation, and a node.
pub type Key = (String, i64, String);

struct Entry {
    delay: SignedDuration,
    at: Timestamp,
}

impl Entry {
    fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) > MAX_DELAY * 2
    }
}

impl FailedPodsBackoff {
    /// Returns the time until a failed pod may be deleted. Returns `None` if it may be deleted now,
    /// which doubles the delay of the next failed pod.
    pub fn delay(&mut self, key: Key, now: Timestamp) -> Option<Duration> {
        // Entries of deleted sets and nodes are removed only here.
        self.entries.retain(|_, entry| !entry.is_expired(now));
        match self.entries.get_mut(&key) {
            Some(entry) => {
                let left = entry.delay - now.duration_since(entry.at);
                if left > SignedDuration::ZERO {
                    return Duration::try_from(left).ok();
                }
                *entry = Entry { delay: (entry.delay * 2).min(MAX_DELAY), at: now };
            }
            None => drop(self.entries.insert(key, Entry { delay: INITIAL_DELAY, at: now })),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_waits_longer() {
        let mut backoff = FailedPodsBackoff::default();
        let key = ("u".to_owned(), 1, "node".to_owned());
        let mut delay = |second: i64| {
            let now = Timestamp::from_second(second).unwrap();
            backoff.delay(key.clone(), now).map(|delay| delay.as_secs())
        };
        let waits = [0, 0, 1, 2, 3, 7, 100, 100 + 1801].map(&mut delay);
        assert_eq!(waits, [None, Some(1), None, Some(1), None, None, None, None]);
        assert_eq!(delay(100 + 1801), Some(1), "it was forgotten");
    }
}
