//! `coracle clock`: the time of a control plane, the timers that it waits for, and its advance.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use coracle_testing_api::{ClockMode, ClockMoved, ClockRequest, ClockStatus, NextTimer};
use jiff::{SignedDuration, Timestamp};

use super::Endpoints;

use crate::output::{self, say};

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that the server has to move its clock: long, since a year of a busy cluster is much
/// work.
const MOVE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Prints the clock of the control plane that a kubeconfig names.
///
/// - `kubeconfig`: None for kubectl's.
///
/// # Errors
/// The control plane cannot be reached, refuses or has no such endpoint, or standard output cannot
/// be written.
pub async fn print(kubeconfig: Option<&Path>, limit: usize) -> Result<()> {
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let status: ClockStatus = endpoints.get(&format!("clock?limit={limit}")).await?;
    output::write(&text(&status));
    Ok(())
}

/// Moves the clock of a control plane on, and prints its new time.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The clock cannot be moved so, the control plane cannot be reached or refuses, or standard output
/// cannot be written.
pub async fn move_on(kubeconfig: Option<&Path>, request: &ClockRequest) -> Result<()> {
    let moved: ClockMoved = Endpoints::new(kubeconfig, MOVE_TIMEOUT).await?.post("clock", request).await?;
    let ClockMoved { mode, now, timers_fired, timers_by_name, .. } = moved;
    let names: Vec<String> = timers_by_name.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let fired = match names.as_slice() {
        [] => String::new(),
        names => format!(", {timers_fired} timers fired: {}", names.join(", ")),
    };
    say!("{now} ({}){fired}", name_of(mode));
    Ok(())
}

fn name_of(mode: ClockMode) -> &'static str {
    match mode {
        ClockMode::Real => "real",
        ClockMode::Manual => "manual",
    }
}

/// Formats the time in one line, and the timers in columns.
fn text(status: &ClockStatus) -> String {
    let ClockStatus { mode, now, next_timers } = status;
    let mut text = format!("{now} ({})\n", name_of(*mode));
    if next_timers.is_empty() {
        return text;
    }
    let left: Vec<String> = next_timers.iter().map(|timer| left(now, &timer.at)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>, least: usize| texts.max().unwrap_or(0).max(least);
    let in_width = width(&mut left.iter().map(String::len), "IN".len());
    let name_width = width(&mut next_timers.iter().map(|timer| timer.name.len()), "TIMER".len());
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:<in_width$}   {:<name_width$}   OBJECT", "IN", "TIMER");
    for (left, NextTimer { name, key, .. }) in left.iter().zip(next_timers) {
        let line = format!("{left:<in_width$}   {name:<name_width$}   {key}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Returns the time from now until another one, to the millisecond.
fn left(now: &str, at: &str) -> String {
    let (Ok(now), Ok(at)) = (now.parse::<Timestamp>(), at.parse::<Timestamp>()) else { return at.to_owned() };
    let left = at.duration_since(now).max(SignedDuration::ZERO);
    coracle_duration::print(SignedDuration::from_millis(i64::try_from(left.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_stand_in_columns() {
        let timer = |at: &str, name: &str, key: &str| NextTimer {
            at: at.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            class: "semantic".to_owned(),
        };
        let status = ClockStatus {
            mode: ClockMode::Real,
            now: "2027-01-01T00:00:00Z".to_owned(),
            next_timers: vec![
                timer("2027-01-01T00:00:00.25Z", "node-heartbeat", "node-0"),
                timer("2027-01-01T01:00:00Z", "event-ttl", ""),
            ],
        };
        let want = "2027-01-01T00:00:00Z (real)\nIN       TIMER            OBJECT\n250ms    node-heartbeat   node-0\n1h0m0s   event-ttl\n";
        assert_eq!(text(&status), want);
        assert_eq!(text(&ClockStatus { next_timers: Vec::new(), ..status }), "2027-01-01T00:00:00Z (real)\n");
    }
}
