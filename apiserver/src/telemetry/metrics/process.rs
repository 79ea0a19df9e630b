//! Metrics of the process: CPU time, memory, open files. Empty on systems without `/proc`.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// The unit of times in `/proc`: USER_HZ, which is 100 on every Linux that runs Rust.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) struct Process {
    counters: [(Counter, Reading); 3],
    gauges: [(Gauge, Reading); 6],
}

type Reading = fn() -> Option<f64>;

impl Process {
    pub(super) fn new() -> prometheus::Result<Process> {
        Ok(Process {
            counters: [
                (Counter::new("process_cpu_seconds_total", "Processor time used, in seconds.")?, cpu_seconds),
                // As Prometheus' client for Go counts them: of the network namespace.
                (
                    Counter::new("process_network_receive_bytes_total", "Bytes received by the network.")?,
                    || octets("InOctets"),
                ),
                (Counter::new("process_network_transmit_bytes_total", "Bytes sent by the network.")?, || {
                    octets("OutOctets")
                }),
            ],
            gauges: [
                (Gauge::new("process_resident_memory_bytes", "Memory held in bytes.")?, || status("VmRSS:")),
                (Gauge::new("process_virtual_memory_bytes", "Memory mapped in bytes.")?, || {
                    status("VmSize:")
                }),
                (
                    Gauge::new("process_virtual_memory_max_bytes", "Memory that may be mapped in bytes.")?,
                    max_memory,
                ),
                (Gauge::new("process_open_fds", "Open file descriptors.")?, open_files),
                (Gauge::new("process_max_fds", "File descriptors that may be open.")?, max_files),
                (Gauge::new("process_start_time_seconds", "When it started, in Unix time.")?, start_time),
            ],
        })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.desc());
        let counters = self.counters.iter().flat_map(|(counter, _)| counter.desc());
        counters.chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        for (counter, read) in &self.counters {
            if let Some(value) = read() {
                counter.reset();
                counter.inc_by(value);
                families.extend(counter.collect());
            }
        }
        for (gauge, read) in &self.gauges {
            if let Some(value) = read() {
                gauge.set(value);
                families.extend(gauge.collect());
            }
        }
        families
    }
}

/// Reads a field of `/proc/self/stat`, counted from 1 as in proc(5).
fn stat(number: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the program's name, may contain anything and ends at the last parenthesis.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number.checked_sub(3)?)?.parse().ok()
}

/// Reads a value of `/proc/self/status`, which is in kilobytes, and returns it in bytes.
fn status(key: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS_PER_SECOND)
}

fn start_time() -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(boot + stat(22)? / TICKS_PER_SECOND)
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn max_files() -> Option<f64> {
    limit("Max open files")
}

fn max_memory() -> Option<f64> {
    limit("Max address space")
}

/// Reads a soft limit of `/proc/self/limits`; the largest number of 64 bits stands for none.
fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        limit => limit.parse().ok(),
    }
}

/// Reads a value of the line `IpExt` of `/proc/self/net/netstat`: the names are in the line before
/// the one with the numbers.
fn octets(name: &str) -> Option<f64> {
    let netstat = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split(' ').position(|known| known == name)?;
    values.split(' ').nth(index)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let process = Process::new().expect("static names");
        let families = process.collect();
        assert_eq!(families.len(), 9);
        assert!(process.desc().len() == 9);
        for (key, least) in [
            (status("VmRSS:"), 1e5),
            (status("VmSize:"), 1e6),
            (open_files(), 3.0),
            (max_files(), 3.0),
            (max_memory(), 1e6),
        ] {
            assert!(key.is_some_and(|value| value >= least), "{key:?} >= {least}");
        }
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!(start_time().is_some_and(|started| (now - 3600.0..=now + 1.0).contains(&started)));
    }
}
