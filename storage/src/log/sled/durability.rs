//! The durability of a log on disk.

use std::{str::FromStr, time::Duration};

/// The time at which a change is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A write is on disk before its writer gets the result.
    Sync,
    /// A write has been passed to the operating system before its writer gets the result, so that a
    /// killed process loses nothing. It is on disk after at most this interval, plus the time that
    /// a flush takes.
    Interval(Duration),
    /// A write is on disk at some later time, at the latest when the store is closed.
    None,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        let interval = |text: &str| text.strip_prefix("interval=")?.parse().ok().map(Duration::from_millis);
        match text {
            "sync" => Ok(Durability::Sync),
            "none" => Ok(Durability::None),
            _ => interval(text)
                .map(Durability::Interval)
                .ok_or_else(|| format!("{text:?} is not one of sync, interval=MILLISECONDS, none")),
        }
    }
}
