//! The file of a recorder: how it is created, where it ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use coracle_record::{
    Damage, Entry, Error, Gap, GapReason, Limits, Options, Record, Recorder, Run, StopReason,
};

use crate::sample::{entries, read, run, unhurried, version, write};

#[test]
fn a_file_that_exists_is_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "mine").unwrap();
    let error = Recorder::create(&path, run(), &Options::default()).err().unwrap();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert!(error.to_string().ends_with("remove it, or choose another path"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn symbolic_links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("target"), directory.path().join("link"));
    symlink(&target, &link).unwrap();
    for exists in [false, true] {
        if exists {
            fs::write(&target, "mine").unwrap();
        }
        let error = Recorder::create(&link, run(), &Options::default()).err().unwrap();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
        assert_eq!(fs::read_to_string(&target).ok(), exists.then(|| "mine".to_owned()));
    }
}

#[test]
fn only_the_owner_may_read_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    write(&path, &Options::default(), &[entries()]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_cannot_be_created_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let long = Run { command: vec!["x".repeat(4 << 20)], ..run() };
    let limited = Options { max_bytes: 1024, ..Options::default() };
    for (run, options, want) in [
        (long, &Options::default(), "shorten the command line"),
        (run(), &limited, "is limited to 1024 bytes: allow it"),
    ] {
        let error = Recorder::create(&path, run, options).err().unwrap().to_string();
        assert!(error.contains(want), "{error}");
        assert!(!path.exists());
    }
    let error = Recorder::create(&directory.path().join("missing/a"), run(), &limited.clone()).err().unwrap();
    assert!(matches!(error, Error::LimitTooSmall { .. }), "{error}");
    let error =
        Recorder::create(&directory.path().join("missing/a"), run(), &Options::default()).err().unwrap();
    assert!(matches!(error, Error::Create { .. }), "{error}");
}

#[test]
fn recording_stops_at_the_limit_of_the_file_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let object = |revision: u64| {
        // Digests do not compress.
        let digits: String =
            (0..100).map(|i| format!("{:08x}", crc32fast::hash(&[revision as u8, i]))).collect();
        format!("{{\"data\":\"{digits}\"}}")
    };
    for max_bytes in [2_000, 2_500, 10_000, 50_000] {
        let path = directory.path().join(format!("{max_bytes}.coracle"));
        let options = Options { max_bytes, ..unhurried() };
        let blocks: Vec<Vec<Entry>> =
            (1..=200).map(|revision| vec![version(revision, Some(&object(revision)))]).collect();
        let statistics = write(&path, &options, &blocks);
        assert_eq!(statistics.stopped, Some(StopReason::MaxBytes));
        let length = fs::metadata(&path).unwrap().len();
        assert!(length <= max_bytes && length == statistics.file_bytes, "{length} of {max_bytes} bytes");
        let record = Record::open(&path, Limits::default()).unwrap();
        assert_eq!(record.damage(), None, "the end is written in the reserved bytes");
        let read: Vec<Entry> = record.entries().collect::<Result<_, _>>().unwrap();
        let versions = read.len() - 2;
        assert_eq!(read[..versions], blocks.concat()[..versions], "the beginning is whole");
        let dropped = 200 - versions as u64;
        let end = [Entry::Stopped { reason: StopReason::MaxBytes }, Entry::End { dropped }];
        assert_eq!(read[versions..], end);
        assert_eq!(statistics.dropped, dropped);
        assert!(max_bytes < 5_000 || versions > 0, "{max_bytes} bytes have entries");
    }
}

#[test]
fn entries_that_are_too_large_leave_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let large = " ".repeat((48 << 20) + 1);
    let blocks = [vec![version(1, None), version(2, Some(&large)), version(3, None)]];
    let statistics = write(&path, &unhurried(), &blocks);
    let time = blocks[0][1].time();
    let gap = Entry::Gap(Gap { reason: GapReason::TooLarge, entries: 1, from: time, to: time });
    let want = [version(1, None), gap, version(3, None), Entry::End { dropped: 1 }];
    assert_eq!(read(&path).unwrap(), want);
    assert_eq!((statistics.dropped, statistics.stopped), (1, None));
}

#[test]
fn a_record_is_readable_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let recorder = Recorder::create(&path, run(), &unhurried()).unwrap();
    let empty = Record::open(&path, Limits::default()).unwrap();
    assert_eq!((empty.len(), empty.damage()), (0, Some(Damage::Unfinished)));
    recorder.append(version(1, Some("{}")));
    recorder.flush();
    let record = Record::open(&path, Limits::default()).unwrap();
    assert_eq!((record.len(), record.damage()), (1, Some(Damage::Unfinished)));
    assert_eq!(recorder.statistics().entries, 1);
    recorder.finish();
    assert_eq!(record.entries().count(), 1, "an opened record does not change");
    assert_eq!(Record::open(&path, Limits::default()).unwrap().damage(), None);
}

#[test]
fn entries_are_written_after_the_interval_without_a_flush() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let recorder = Recorder::create(&path, run(), &Options::default()).unwrap();
    recorder.append(version(1, Some("{}")));
    // Nothing but the interval makes it end.
    while recorder.statistics().entries == 0 {
        std::thread::yield_now();
    }
    assert_eq!(Record::open(&path, Limits::default()).unwrap().len(), 1);
}

#[test]
fn finishing_twice_or_dropping_ends_the_record_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let recorder = Recorder::create(&path, run(), &unhurried()).unwrap();
    recorder.append(version(1, None));
    let first = recorder.finish();
    recorder.append(version(2, None));
    recorder.flush();
    let second = recorder.finish();
    assert_eq!((second.entries, second.dropped), (first.entries, 0), "it is no part of the record");
    drop(recorder);
    assert_eq!(read(&path).unwrap(), [version(1, None), Entry::End { dropped: 0 }]);

    let path = directory.path().join("b.coracle");
    drop(Recorder::create(&path, run(), &unhurried()).unwrap());
    assert_eq!(read(&path).unwrap(), [Entry::End { dropped: 0 }]);
}

#[test]
fn entries_of_many_threads_keep_the_order_of_each() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    // A queue of a few entries: every thread waits for the recorder now and then.
    let patience = std::time::Duration::from_secs(60);
    let options = Options { queue_bytes: 4 << 10, patience, ..Options::default() };
    let recorder = Arc::new(Recorder::create(&path, run(), &options).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                for index in 0..2_000 {
                    recorder.append(version(thread * 10_000 + index, Some("{}")));
                }
            });
        }
    });
    let statistics = recorder.finish();
    assert_eq!((statistics.entries, statistics.dropped), (8_001, 0));
    let revisions: Vec<u64> = read(&path).unwrap().iter().filter_map(Entry::revision).collect();
    for thread in 0..4 {
        let own: Vec<u64> =
            revisions.iter().copied().filter(|revision| revision / 10_000 == thread).collect();
        assert_eq!(own, (thread * 10_000..thread * 10_000 + 2_000).collect::<Vec<_>>());
    }
}
