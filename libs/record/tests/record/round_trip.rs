//! Tests that entries are read as they were appended.

use coracle_record::{Entry, Limits, Options, PassOutcome, Record};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::sample::{clock_step, entries, pass, plain, read, request, run, time, unhurried, version, write};

#[test]
fn entries_of_all_kinds_are_read_as_they_were_appended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let statistics = write(&path, &Options::default(), &[entries()]);
    let record = Record::open(&path, Limits::default()).unwrap();
    assert_eq!(record.header().run, run());
    assert!(record.header().redacted);
    assert_eq!(record.damage(), None);
    let read: Vec<Entry> = record.entries().collect::<Result<_, _>>().unwrap();
    assert_eq!(read, [entries(), vec![Entry::End { dropped: 0 }]].concat());
    assert_eq!((record.len(), record.raw_bytes()), (statistics.entries, statistics.raw_bytes));
    assert_eq!(statistics.entries, 13);
    assert_eq!(statistics.file_bytes, std::fs::metadata(&path).unwrap().len());
    assert_eq!((statistics.dropped, statistics.stopped), (0, None));
    assert_eq!(record.revisions(), Some(1..=3));
    assert_eq!(record.times(), time(1)..=time(64));
}

#[test]
fn a_record_without_entries_has_its_header_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    write(&path, &plain(), &[]);
    let record = Record::open(&path, Limits::default()).unwrap();
    assert!(!record.header().redacted);
    assert_eq!((record.revisions(), record.times()), (None, time(0)..=time(0)));
    assert_eq!(record.entries().map(Result::unwrap).collect::<Vec<_>>(), [Entry::End { dropped: 0 }]);
}

#[test]
fn objects_larger_than_a_block_are_kept_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let large = format!("\"{}\"", "x".repeat(32 << 20));
    let entries = vec![version(1, Some("{}")), version(2, Some(&large)), version(3, Some("{}"))];
    write(&path, &Options::default(), std::slice::from_ref(&entries));
    assert_eq!(read(&path).unwrap()[..3], entries);
}

/// Checks that blocks before the start are skipped, without any entry that is asked for.
#[test]
fn reading_from_a_revision_or_time_gives_all_from_there_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    // Versions of two watches are not in order, nor are the times of requests.
    let blocks = [
        vec![version(1, Some("1")), pass(1, PassOutcome::Done), version(3, Some("3"))],
        vec![clock_step(3, 4)],
        vec![version(2, Some("2")), request(9, None), version(6, Some("6")), request(2, None)],
        vec![version(5, Some("5")), request(7, None)],
    ];
    write(&path, &unhurried(), &blocks);
    let record = Record::open(&path, Limits::default()).unwrap();
    let all: Vec<Entry> = record.entries().collect::<Result<_, _>>().unwrap();
    for revision in 0..=7 {
        let first = all.iter().position(|entry| entry.revision().is_some_and(|other| other >= revision));
        let want: Vec<Entry> = all[first.unwrap_or(all.len())..]
            .iter()
            .filter(|entry| entry.revision().is_none_or(|other| other >= revision))
            .cloned()
            .collect();
        let read: Vec<Entry> = record.entries_from_revision(revision).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, want, "from revision {revision}");
    }
    for seconds in 0..=10 {
        let from = time(seconds);
        let first = all.iter().position(|entry| entry.time().is_some_and(|other| other >= from));
        let want: Vec<Entry> = all[first.unwrap_or(all.len())..]
            .iter()
            .filter(|entry| entry.time().is_none_or(|other| other >= from))
            .cloned()
            .collect();
        let read: Vec<Entry> = record.entries_from_time(from).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, want, "from second {seconds}");
    }
    let first: Vec<u64> = record.entries_from_revision(5).filter_map(|e| e.unwrap().revision()).collect();
    assert_eq!(first, [6, 5], "the order of the file is kept");
}

#[test]
fn two_iterators_over_one_record_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.coracle");
    let blocks: Vec<Vec<Entry>> = (1..50).map(|revision| vec![version(revision, Some("{}"))]).collect();
    write(&path, &unhurried(), &blocks);
    let record = Record::open(&path, Limits::default()).unwrap();
    let ahead = record.entries_from_revision(20).map(|entry| entry.unwrap().revision());
    let behind = record.entries().map(|entry| entry.unwrap().revision());
    for (offset, (ahead, behind)) in ahead.zip(behind).take(29).enumerate() {
        assert_eq!((ahead, behind), (Some(20 + offset as u64), Some(1 + offset as u64)));
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/.-]{0,12}", any::<String>()]
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (Timestamp::MIN.as_second()..=Timestamp::MAX.as_second(), 0..1_000_000_000)
        .prop_map(|(seconds, nanoseconds)| Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::MAX))
}

fn any_payload() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        (any::<u8>(), 0_usize..100_000).prop_map(|(byte, length)| vec![byte; length]),
    ])
}

/// Generates any entry: one of the sample's with other texts, times, numbers and payloads.
fn any_entry() -> impl Strategy<Value = Entry> {
    let values = (any_text(), any_time(), any::<u64>(), any_payload());
    (0..entries().len(), values).prop_map(|(kind, (text, time, number, payload))| {
        let mut entry = entries().swap_remove(kind);
        let payload = payload.map(Into::into);
        match &mut entry {
            Entry::Version(version) => {
                (version.revision, version.time, version.object) = (number, time, payload);
                version.key = text.into();
                version.author = version.author.take().filter(|_| number % 2 == 0);
            }
            Entry::Request(request) => {
                (request.time, request.body, request.code) = (time, payload, number as u16);
                (request.message, request.user) = (text.as_str().into(), text.into());
            }
            Entry::Pass(pass) => (pass.key, pass.started) = (text.into(), time),
            Entry::Fault(fault) => (fault.rule, fault.time) = (text.into(), time),
            Entry::ClockStep(step) => step.to = time,
            Entry::Base { .. } | Entry::Fork(_) => {}
            Entry::Gap(_) | Entry::Stopped { .. } | Entry::End { .. } => {}
        }
        entry
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_entries_survive_their_record(
        blocks in proptest::collection::vec(proptest::collection::vec(any_entry(), 0..12), 0..5)
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.coracle");
        write(&path, &plain(), &blocks);
        let mut want = blocks.concat();
        want.push(Entry::End { dropped: 0 });
        prop_assert_eq!(read(&path).unwrap(), want);
    }
}
