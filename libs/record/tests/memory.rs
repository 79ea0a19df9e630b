//! The memory of a reader is bounded by a block, whatever a file has or claims.
//!
//! A program of its own, for the allocator counts what all tests of a program use.

// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use bytes::Bytes;
use coracle_record::{ClockMode, Entry, Limits, Options, Record, Recorder, Run, Version};
use jiff::Timestamp;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
/// The length of a block's head.
const HEAD: usize = 68;

/// Returns the result of a function and its peak memory in bytes.
fn peak<T>(function: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = function();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}

fn version(revision: u64, object: Bytes) -> Entry {
    let (bucket, key) = ("pods".into(), "shop/web".into());
    Entry::Version(Box::new(Version {
        fork: "".into(),
        revision,
        time: Timestamp::UNIX_EPOCH,
        bucket,
        key,
        author: None,
        object: Some(object),
    }))
}

fn create(path: &Path) -> Recorder {
    let (command, clock) = (Vec::new(), ClockMode::Real);
    let run = Run { version: "0.1.0".to_owned(), started: Timestamp::UNIX_EPOCH, command, clock, seed: None };
    Recorder::create(path, run, &Options::default()).unwrap()
}

fn count(path: &Path) -> Option<usize> {
    let record = Record::open(path, Limits::default()).ok()?;
    record.entries().try_fold(0, |count, entry| entry.ok().map(|_| count + 1))
}

/// Checks everything in one test: the memory of concurrent tests would be counted too.
#[test]
fn memory_is_bounded() {
    let directory = tempfile::tempdir().unwrap();

    let path = directory.path().join("long.coracle");
    let object = Bytes::from(vec![b'x'; 4000]);
    let ((), writing) = peak(|| {
        let recorder = create(&path);
        for revision in 0..20_000 {
            recorder.append(version(revision, object.clone()));
            if revision % 1_000 == 0 {
                recorder.flush();
            }
        }
        recorder.finish();
    });
    assert!(writing < 12 * MIB, "{writing} bytes to write 80 MB");
    let (read, reading) = peak(|| count(&path));
    assert_eq!(read, Some(20_001));
    assert!(reading < 2 * MIB, "{reading} bytes to read 80 MB, a block at a time");

    // A bomb: the largest block that is allowed, in a few kilobytes. Its entries are not kept.
    let path = directory.path().join("bomb.coracle");
    let recorder = create(&path);
    recorder.append(version(1, vec![b'x'; 47 * MIB].into()));
    recorder.finish();
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() < 16 << 10, "{} bytes", bytes.len());
    let (read, reading) = peak(|| count(&path));
    assert_eq!(read, Some(2));
    assert!(reading < 2 * 48 * MIB, "{reading} bytes: the block and its one entry");

    // Claims that are not true allocate nothing.
    let head = bytes.windows(4).position(|window| window == b"BLCK").unwrap();
    for (field, claim) in [(16, u32::MAX), (8, u32::MAX), (12, u32::MAX), (16, (64 << 20) + 1)] {
        let kept = bytes[head..head + HEAD].to_vec();
        bytes[head + field..head + field + 4].copy_from_slice(&claim.to_be_bytes());
        let checksum = crc32fast::hash(&bytes[head..head + HEAD - 4]).to_be_bytes();
        bytes[head + HEAD - 4..head + HEAD].copy_from_slice(&checksum);
        fs::write(&path, &bytes).unwrap();
        let (read, reading) = peak(|| count(&path));
        assert_eq!(read, None, "field {field}");
        assert!(reading < MIB, "{reading} bytes for a claim of {claim} in field {field}");
        bytes[head..head + HEAD].copy_from_slice(&kept);
    }
}
