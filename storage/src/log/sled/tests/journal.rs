//! The state that a killed process and a stopped machine leave.

use std::num::NonZeroU32;

use super::*;
use crate::log::sled::{journal, journal::Journal, state::State, unsynced::Unsynced};

/// An interval that does not pass during a test: nothing but the journal has what is written.
const LATE: Durability = Durability::Interval(Duration::from_secs(3600));

/// Makes the store look as after a stop of the machine, by recording another boot.
fn stop_machine(disk: &Disk) {
    let store = disk.path().join("store");
    let State::Open { synced, .. } = State::parse(&fs::read(&store).unwrap()).unwrap() else {
        panic!("closed")
    };
    fs::write(store, State::Open { synced, boot: NonZeroU32::new(1) }.line()).unwrap();
}

/// Makes the store look as after a stop of the machine that lost the journal.
pub(super) fn lose(disk: &Disk) {
    journal::remove(disk.path()).unwrap();
    stop_machine(disk);
}

/// Returns the only segment of the journal with records.
fn segment(disk: &Disk) -> PathBuf {
    let with_records = |path: &PathBuf| fs::metadata(path).unwrap().len() > 0;
    let mut segments =
        ["journal.0", "journal.1"].map(|name| disk.path().join(name)).into_iter().filter(with_records);
    let segment = segments.next().unwrap();
    assert_eq!(segments.next(), None);
    segment
}

#[tokio::test]
async fn a_killed_process_loses_nothing_in_interval() {
    let mut disk = Disk::new();
    let mut store = open(&disk, LATE);
    for n in 0..60 {
        put(&store, &key(&format!("n{}", n % 20)), &"x".repeat(n * 97 % 5_000)).await;
        if n % 7 == 0 {
            delete(&store, &key(&format!("n{}", n % 20))).await;
        }
        if n % 25 != 24 {
            continue;
        }
        let (revision, want) = (store.revision(), render_bucket(&store.snapshot().bucket("things")));
        let killed = crash(&disk);
        let report = check(&killed);
        assert!(report.is_sound() && report.newest == revision, "{report:?}");
        for durability in [LATE, Durability::Sync, Durability::None] {
            let killed = crash(&killed);
            let reopened = open(&killed, durability);
            assert_eq!(reopened.revision(), revision, "{durability:?}");
            assert_eq!(render_bucket(&reopened.snapshot().bucket("things")), want, "{durability:?}");
            assert!(reopened.snapshot_at("things", Revision(1)).is_ok(), "{durability:?}: watches go on");
            assert_eq!(put(&reopened, &key("next"), "").await, revision.next(), "{durability:?}");
            reopened.close().await.unwrap();
            assert!(!killed.path().join("journal.0").exists(), "{durability:?}");
            assert_eq!(open(&killed, LATE).revision(), revision.next(), "{durability:?}");
        }
        // The next life begins after a kill.
        store = open(&killed, LATE);
        disk = killed;
    }
}

#[tokio::test]
async fn a_stopped_machine_loses_what_was_not_synced_and_history() {
    for journal_is_on_disk in [false, true] {
        let disk = Disk::new();
        let store = open(&disk, LATE);
        for n in 0..10 {
            put(&store, &key(&n.to_string()), "1").await;
        }
        let given = store.revision();
        let stopped = crash(&disk);
        if journal_is_on_disk {
            stop_machine(&stopped)
        } else {
            lose(&stopped)
        }
        assert!(check(&stopped).is_sound());
        let store = open(&stopped, LATE);
        assert_eq!(store.snapshot().len("things"), if journal_is_on_disk { 10 } else { 0 });
        assert!(store.revision() > given, "revisions are not given again");
        assert_eq!(
            store.snapshot().compact_revision("things").revision(),
            store.revision(),
            "nobody resumes"
        );
        // From here on nothing is lost in a kill of the process, although nothing is synced.
        let next = put(&store, &key("next"), "").await;
        let killed = crash(&stopped);
        assert_eq!(open(&killed, LATE).revision(), next);
    }
}

#[tokio::test]
async fn a_torn_tail_of_the_journal_is_cut() {
    let disk = Disk::new();
    let store = open(&disk, LATE);
    put(&store, &key("a"), "1").await;
    let whole = fs::read(segment(&disk)).unwrap();
    put(&store, &key("b"), &"x".repeat(2_000)).await;
    let torn = fs::read(segment(&disk)).unwrap();
    let step = (torn.len() - whole.len()) / 20;
    for end in (whole.len()..torn.len()).step_by(step).chain([whole.len() + 1, torn.len() - 1]) {
        let killed = crash(&disk);
        fs::write(segment(&killed), &torn[..end]).unwrap();
        assert!(check(&killed).is_sound(), "cut at {end}");
        let store = open(&killed, LATE);
        assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=1@1", "cut at {end}");
        assert_eq!(put(&store, &key("c"), "").await, Revision(2), "cut at {end}");
    }
}

#[tokio::test]
async fn damage_to_the_journal_of_a_killed_process_is_reported() {
    let disk = Disk::new();
    let store = open(&disk, LATE);
    for name in ["a", "b", "c"] {
        put(&store, &key(name), &"x".repeat(300)).await;
    }
    let bytes = fs::read(segment(&disk)).unwrap();
    for (case, at, length) in
        [("first", 100, 1), ("middle", bytes.len() / 2, 1), ("last", bytes.len() - 9, 9), ("a length", 1, 1)]
    {
        let killed = crash(&disk);
        let mut damaged = bytes.clone();
        damaged[at..at + length].iter_mut().for_each(|byte| *byte ^= 0xff);
        fs::write(segment(&killed), damaged).unwrap();
        assert!(!check(&killed).is_sound(), "{case}");
        let error = refused(&killed);
        assert!(matches!(error, LogError::Damaged { .. }), "{case}: {error}");
        assert!(error.to_string().contains("journal"), "{case}: {error}");
        // The same after a stop of the machine was not promised to be there.
        let killed = crash(&killed);
        stop_machine(&killed);
        assert!(check(&killed).is_sound(), "{case}");
        assert!(open(&killed, LATE).revision() > Revision(3), "{case}");
    }
}

#[tokio::test]
async fn a_closed_store_with_records_in_its_journal_is_damaged() {
    let disk = Disk::new();
    let store = open(&disk, LATE);
    put(&store, &key("a"), "1").await;
    let bytes = fs::read(segment(&disk)).unwrap();
    store.close().await.unwrap();
    fs::write(disk.path().join("journal.1"), bytes).unwrap();
    assert!(!check(&disk).is_sound());
    assert!(matches!(refused(&disk), LogError::Damaged { .. }));
}

#[tokio::test]
async fn the_journal_is_emptied_by_flushes() {
    let disk = Disk::new();
    let store = open(&disk, SOON);
    let value = "x".repeat(100_000);
    for n in 0..400 {
        put(&store, &key(&format!("n{n}")), &value).await;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while journal::has_records(disk.path()) {
        assert!(Instant::now() < deadline, "emptied once everything is flushed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(open(&crash(&disk), LATE).revision(), Revision(400));
}

#[tokio::test]
async fn a_batch_that_the_journal_cannot_take_is_flushed() {
    let disk = Disk::new();
    let mut log = SledLog::open(disk.path(), LATE).unwrap();
    log.unsynced = Unsynced::new(Some(Journal::unwritable(disk.path())));
    let store = Store::open(Box::new(log), Marked, Options::default()).unwrap();
    for n in 1..=3 {
        put(&store, &key(&n.to_string()), "1").await;
        assert_eq!(open(&crash(&disk), LATE).revision(), Revision(n));
    }
}
