//! Processes that record and are killed, or may not write any more. The child is this program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use coracle_record::{Entry, Limits, Options, Record, Recorder, StopReason};

use crate::sample::{run, unhurried, version};

/// The variable with the path of the record that a child writes.
const RECORD: &str = "CORACLE_RECORD_OF_CHILD";

/// Returns the arguments by which this program runs one ignored test.
fn arguments(test: &str) -> [&str; 4] {
    [test, "--exact", "--ignored", "--nocapture"]
}

fn object(revision: u64) -> String {
    format!("{{\"revision\":{revision},\"digest\":\"{:08x}\"}}", crc32fast::hash(&revision.to_be_bytes()))
}

/// Checks that a record has the versions from 1 on, and returns their number.
fn versions(record: &Record) -> u64 {
    let mut count = 0;
    for entry in record.entries() {
        let entry = entry.unwrap();
        if entry.revision().is_some() {
            count += 1;
            assert_eq!(entry, version(count, Some(&object(count))));
        }
    }
    count
}

#[test]
#[ignore = "the child of another test"]
fn child_that_records_until_it_is_killed() {
    let Some(path) = std::env::var_os(RECORD) else { return };
    let recorder = Recorder::create(Path::new(&path), run(), &Options::default()).unwrap();
    for revision in 1.. {
        recorder.append(version(revision, Some(&object(revision))));
        if revision % 1_000 == 0 {
            recorder.flush();
            println!("flushed {revision}");
        }
    }
}

#[test]
fn a_killed_process_leaves_all_that_it_has_flushed() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=5 {
        let path = directory.path().join(format!("{round}.coracle"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments("killed::child_that_records_until_it_is_killed"))
            .env(RECORD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let flushed: Vec<u64> =
            lines.filter_map(|line| line.strip_prefix("flushed ")?.parse().ok()).take(3 * round).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let record = Record::open(&path, Limits::default()).unwrap();
        assert!(record.damage().is_some(), "there is no end");
        let versions = versions(&record);
        assert!(versions >= *flushed.last().unwrap(), "{versions} versions of {flushed:?}");
    }
}

#[test]
#[ignore = "the child of another test"]
fn child_that_may_not_write_more() {
    let Some(path) = std::env::var_os(RECORD) else { return };
    let recorder = Recorder::create(Path::new(&path), run(), &unhurried()).unwrap();
    for revision in 1..=100_000 {
        recorder.append(version(revision, Some(&object(revision))));
    }
    recorder.flush();
    let statistics = recorder.finish();
    assert!(matches!(statistics.stopped, Some(StopReason::WriteFailed { .. })), "{statistics:?}");
    assert_eq!(
        statistics.entries + statistics.dropped,
        100_000 + 2,
        "every entry is counted, and two of the end"
    );
}

#[test]
fn a_full_disk_stops_the_record_and_not_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    // The signal is ignored, so that a write beyond the limit fails as on a full disk.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(arguments("killed::child_that_may_not_write_more"))
        .env(RECORD, &path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let record = Record::open(&path, Limits::default()).unwrap();
    assert_eq!(record.damage(), None, "the part of a block was cut off, and the end found space");
    let versions = versions(&record);
    assert!((1..100_000).contains(&versions), "{versions} versions");
    let last: Vec<Entry> = record.entries().map(Result::unwrap).skip(versions.try_into().unwrap()).collect();
    assert!(
        matches!(&last[..], [Entry::Stopped { reason: StopReason::WriteFailed { .. } }, Entry::End { dropped }]
            if dropped + versions == 100_000),
        "{last:?}"
    );
}
