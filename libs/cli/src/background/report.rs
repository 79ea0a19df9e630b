//! The state of control planes in the background, as text.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use coracle_control_plane::Name;

use super::kubeconfig::default_file;
use super::state::{Record, State, StateDir, plain};
use crate::output::say;
use crate::process::error_line;
use crate::ready;
use crate::shell::quoted;

/// Prints the state of one. Returns whether it is ready.
pub async fn print(name: &Name, state: Option<&StateDir>, found: &State) -> bool {
    match (found, state) {
        (State::Stopped(Some(record)), _) => {
            say!("{name} is not running");
            row("data", data(record));
            false
        }
        (State::Running(record), Some(state)) => {
            let readiness = match record.served {
                Some(_) => ready::check(Some(&state.kubeconfig())).await.map(drop),
                None => Err(anyhow!("it is starting")),
            };
            say!("{name} is {}", if record.served.is_some() { "running" } else { "starting" });
            details(name, state, record);
            row(
                "ready",
                readiness
                    .as_ref()
                    .map_or_else(|error| format!("no: {}", error_line(error)), |()| "yes".to_owned()),
            );
            readiness.is_ok()
        }
        (State::Starting, _) => {
            say!("{name} is starting");
            false
        }
        (State::Stopped(None) | State::Running(_), _) => {
            say!("{name} is not running");
            false
        }
    }
}

/// Prints the result of `up`.
///
/// - `previous_context`: the context that was current, if it was another
pub fn started(name: &Name, state: &StateDir, record: &Record, is_new: bool, previous_context: Option<&str>) {
    say!("{name} {}", if is_new { "is running" } else { "is already running; it keeps its flags" });
    details(name, state, record);
    if let Some(context) = previous_context {
        row(
            "before",
            format!("the current context was {context:?}; kubectl config use-context selects it again"),
        );
    }
    if default_file().is_ok_and(|file| std::path::absolute(&file).unwrap_or(file) != record.kubeconfig) {
        say!("export KUBECONFIG={}", quoted(&path(&record.kubeconfig).to_string()));
    }
    let option = if *name == Name::default() { String::new() } else { format!(" --name {name}") };
    say!("next: kubectl get nodes\nstop: coracle down{option}");
}

/// Prints the properties of a process.
fn details(name: &Name, state: &StateDir, record: &Record) {
    let url = record.served.as_ref().map_or_else(|| "not yet known".to_owned(), |served| plain(&served.url));
    row("address", url);
    row("context", format!("{name} in {}", path(&record.kubeconfig)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    row("process", format!("{}, for {}", record.process, age(now.saturating_sub(record.started))));
    row("version", plain(&record.version));
    row("data", data(record));
    let log = state.log();
    let size = fs::metadata(&log).map_or(0, |metadata| metadata.len());
    row("log", format!("{} ({})", path(&log), bytes(size)));
}

fn row(title: &str, value: impl Display) {
    say!("  {title:<8} {value}");
}

/// Describes where the data is.
fn data(record: &Record) -> String {
    let keys = record.data.as_deref().map(path);
    match (keys, &*record.etcd) {
        (None, []) => "in memory".to_owned(),
        (Some(directory), []) => directory.to_string(),
        (None, servers) => format!("in etcd ({})", plain(&servers.join(","))),
        (Some(keys), servers) => format!("in etcd ({}), keys in {keys}", plain(&servers.join(","))),
    }
}

/// Formats a path for the terminal.
pub fn path(path: &Path) -> impl Display + use<> {
    plain(&PathBuf::from(path).display().to_string())
}

/// Formats a duration in seconds as its two largest units.
fn age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m"), (1, "s")];
    let mut left = seconds;
    let parts: Vec<String> = UNITS
        .into_iter()
        .filter_map(|(unit, letter)| {
            let count = left / unit;
            left %= unit;
            (count > 0).then(|| format!("{count}{letter}"))
        })
        .take(2)
        .collect();
    if parts.is_empty() { "0s".to_owned() } else { parts.concat() }
}

/// Formats a size as a whole number of its unit.
fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..1_048_576 => format!("{} KiB", size >> 10),
        _ => format!("{} MiB", size >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_short() {
        for (seconds, want) in [(0, "0s"), (59, "59s"), (125, "2m5s"), (3600, "1h"), (90_061, "1d1h")] {
            assert_eq!(age(seconds), want);
        }
        assert_eq!([0, 2048, 3 << 20].map(bytes), ["0 B", "2 KiB", "3 MiB"]);
    }
}
