//! The limits of a file that no test of the crate's users can reach, and disks that are full.

use std::fs::OpenOptions;

use super::*;
use crate::{ClockStep, Limits, Record, Run};

const UNLIMITED: FileLimits = FileLimits { bytes: u64::MAX, raw_bytes: u64::MAX, blocks: u64::MAX };

fn step() -> Entry {
    Entry::ClockStep(ClockStep { fork: "".into(), from: Timestamp::UNIX_EPOCH, to: Timestamp::UNIX_EPOCH })
}

/// Creates a writer of a new file with a header.
fn writer(path: &Path, limits: FileLimits) -> Writer {
    let (version, command, clock) = (String::new(), Vec::new(), crate::ClockMode::Real);
    let run = Run { version, started: Timestamp::UNIX_EPOCH, command, clock, seed: None };
    let header = crate::Header { run, redacted: false }.encode(path).unwrap();
    std::fs::write(path, &header).unwrap();
    let file = OpenOptions::new().append(true).open(path).unwrap();
    Writer::new(file, path, header.len() as u64, Timestamp::UNIX_EPOCH, 1, limits).unwrap()
}

#[test]
fn a_disk_that_is_full_stops_the_writer_without_an_error() {
    let full = Path::new("/dev/full");
    let file = OpenOptions::new().write(true).open(full).unwrap();
    let mut writer = Writer::new(file, full, 0, Timestamp::UNIX_EPOCH, 1, UNLIMITED).unwrap();
    writer.append(&step());
    writer.append(&step());
    writer.flush();
    let Some(StopReason::WriteFailed { error }) = writer.stopped() else { panic!("{:?}", writer.stopped()) };
    assert!(error.contains("No space left"), "{error}");
    writer.append(&step());
    writer.flush();
    writer.finish(0);
    assert_eq!(writer.totals(), Totals { lost: 3, ..Totals::default() });
}

#[test]
fn a_writer_makes_nothing_that_a_reader_refuses() {
    let directory = tempfile::tempdir().unwrap();
    for (case, limits) in [
        ("blocks", FileLimits { blocks: 10, ..UNLIMITED }),
        ("raw bytes", FileLimits { raw_bytes: 2_000, ..UNLIMITED }),
        ("bytes", FileLimits { bytes: 3_000, ..UNLIMITED }),
    ] {
        let path = directory.path().join(case);
        let mut writer = writer(&path, limits);
        for _ in 0..100 {
            writer.append(&step());
            writer.flush();
        }
        assert_eq!(writer.stopped(), Some(&StopReason::MaxBytes), "{case}");
        writer.finish(5);
        let Totals { entries, lost, .. } = writer.totals();
        assert_eq!(entries + lost, 102, "{case}: the steps, and two entries of the end");
        let limits = Limits { raw_bytes: limits.raw_bytes, blocks: limits.blocks };
        let record = Record::open(&path, limits).unwrap();
        let last = record.entries().last().unwrap().unwrap();
        assert_eq!((last, record.damage()), (Entry::End { dropped: lost + 5 }, None), "{case}");
        assert!(entries > 3, "{case}: {entries} entries");
    }
}

#[test]
fn a_part_of_a_block_that_stays_ends_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let mut writer = writer(&path, UNLIMITED);
    writer.append(&step());
    writer.flush();
    // A file that is open for reading takes neither bytes nor another length.
    writer.file = Some(File::open(&path).unwrap());
    writer.append(&step());
    writer.flush();
    assert!(writer.stopped().is_some() && writer.file.is_none());
    writer.finish(0);
    let record = Record::open(&path, Limits::default()).unwrap();
    assert_eq!((record.len(), record.damage()), (1, Some(crate::Damage::Unfinished)));
}
