//! Tests of the promises that only the log on disk makes.

// Only on systems where a killed process can be distinguished from a stopped machine.
#[cfg(target_os = "linux")]
mod journal;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    directory::Directory,
    reserve::Available,
    rows,
    tree::{COMPACT_REVISION, RESERVED, Tree, wait_for_sled},
    *,
};
use crate::{
    CompactRevision, EntryId, Expect, Key, Options, PutOutcome, Revision, Store, StoreError, Write,
    log::{Change, Entry, Log, LogError, Notifier, Outcome, Proposal, Record, transaction::entries},
    testing::{Disk, Marked, delete, key, put, render_bucket},
};

const SOON: Durability = Durability::Interval(Duration::from_millis(1));

fn open(disk: &Disk, durability: Durability) -> Store<Marked> {
    Store::open(Box::new(SledLog::open(disk.path(), durability).unwrap()), Marked, Options::default())
        .unwrap()
}

fn refused(disk: &Disk) -> LogError {
    let opened = SledLog::open(disk.path(), Durability::Sync);
    match opened.and_then(|log| Store::open(Box::new(log), Marked, Options::default())) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

fn check(disk: &Disk) -> CheckReport {
    let before = contents(disk.path());
    let report = SledLog::check(disk.path(), &Marked, Disk::new().path()).unwrap();
    assert!(contents(disk.path()) == before, "nothing is changed");
    report
}

fn no_notifications() -> Notifier {
    Notifier::new(|notification| panic!("{notification:?}"))
}

fn creation(name: &str, size: usize) -> Proposal {
    let change = Change::Put { created: None, stored: "@".repeat(size).into() };
    Proposal { key: key(name), previous: None, change }
}

/// Returns the key of a row of the first entry at a revision.
fn row(revision: u64, part: u16) -> Vec<u8> {
    rows::key(EntryId::first(Revision(revision)), part)
}

/// Returns the key of the only row of an entry.
fn entry_row(revision: u64, index: u32) -> Vec<u8> {
    rows::key(EntryId { revision: Revision(revision), index }, 0)
}

/// Returns all files of a directory with their contents.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push((path.clone(), fs::read(path).unwrap()))
            }
        }
    }
    found.sort();
    found
}

/// Returns a copy of the directory as a crash would leave it: with the flushed data, but not
/// closed.
fn crash(disk: &Disk) -> Disk {
    let after = Disk::new();
    for (path, bytes) in contents(disk.path()) {
        let to = after.path().join(path.strip_prefix(disk.path()).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
    after
}

#[test]
fn durability_is_read_from_words() {
    for (text, want) in [
        ("sync", Some(Durability::Sync)),
        ("none", Some(Durability::None)),
        ("interval=50", Some(Durability::Interval(Duration::from_millis(50)))),
        ("interval=0", Some(Durability::Interval(Duration::ZERO))),
        ("interval", None),
        ("interval=", None),
        ("interval=-1", None),
        ("interval=50ms", None),
        ("Sync", None),
        ("", None),
    ] {
        assert_eq!(text.parse().ok(), want, "{text:?}");
    }
}

#[tokio::test]
async fn a_second_process_is_refused_and_writes_nothing() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("a"), "1").await;
    let before = contents(disk.path());
    let error = refused(&disk);
    assert!(matches!(error, LogError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(disk.path().to_str().unwrap()), "{error}");
    assert_eq!(contents(disk.path()), before);
    put(&store, &key("a"), "2").await;
    store.close().await.unwrap();
    assert_eq!(render_bucket(&open(&disk, Durability::Sync).snapshot().bucket("things")), "a=2@2");
}

#[tokio::test]
async fn what_was_acknowledged_in_sync_survives_a_crash() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    for n in 0..100 {
        put(&store, &key(&format!("n{:02}", n % 30)), &n.to_string()).await;
        if n % 7 == 0 {
            delete(&store, &key(&format!("n{:02}", n % 30))).await;
        }
    }
    let large = "x".repeat(100_000);
    put(&store, &key("large"), &large).await;
    let after = crash(&disk);
    let reopened = open(&after, Durability::Sync);
    assert_eq!(reopened.revision(), store.revision());
    assert_eq!(
        render_bucket(&reopened.snapshot().bucket("things")),
        render_bucket(&store.snapshot().bucket("things"))
    );
    assert!(reopened.snapshot_at("things", Revision(1)).is_ok(), "nothing is lost, so history is whole");
    let next = put(&reopened, &key("a"), "").await;
    assert_eq!(next, store.revision().next());
}

#[tokio::test]
async fn revisions_lost_in_a_crash_are_not_given_again() {
    let disk = Disk::new();
    let store = open(&disk, Durability::None);
    let first = put(&store, &key("a"), "1").await;
    let after = crash(&disk);
    let given = store.revision();
    assert_eq!(given, first);
    // This holds whether the write survived or not, because clients may have seen it.
    let reopened = open(&after, SOON);
    assert!(reopened.revision() > given);
    let compact_revision = reopened.revision();
    assert_eq!(
        reopened.snapshot().compact_revision("things").revision(),
        compact_revision,
        "nobody resumes from what may be lost"
    );
    let second = put(&reopened, &key("b"), "2").await;
    assert_eq!(second, compact_revision.next());
    reopened.close().await.unwrap();
    let again = open(&after, Durability::Sync);
    assert_eq!(again.revision(), second, "a store that was closed goes on where it was");
    assert_eq!(again.snapshot().compact_revision("things").revision(), compact_revision);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_interval_passes_and_all_is_on_disk() {
    let disk = Disk::new();
    let store = open(&disk, SOON);
    for n in 0..50 {
        put(&store, &key(&n.to_string()), "").await;
    }
    let survived = || {
        let after = crash(&disk);
        journal::lose(&after);
        open(&after, Durability::Sync).snapshot().len("things")
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while survived() < 50 {
        assert!(Instant::now() < deadline, "flushed in the background");
    }
}

#[test]
fn a_transaction_cut_short_is_not_there() {
    let disk = Disk::new();
    let mut log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    log.start(no_notifications()).unwrap();
    log.append(&[vec![creation("a", 1)]]).unwrap();
    let batch = [vec![creation("b", 5_000), creation("c", 1)]];
    let rows = rows::rows(&entries(&batch[0], Revision(2))).unwrap();
    assert_eq!(rows.len(), 4 + 1);
    let tree = log.tree().unwrap();
    for (left, (row, value)) in (1..).zip(&rows[..4]) {
        tree.insert(row, value).unwrap();
        tree.flush(Revision(1)).unwrap();
        let after = crash(&disk);
        let mut log = SledLog::open(after.path(), Durability::Sync).unwrap();
        assert_eq!(log.start(no_notifications()).unwrap().newest, Revision(1), "{left} rows left");
        let mut names = Vec::new();
        log.load(&mut |record| {
            let Record::Entry(entry) = record else { panic!("{record:?}") };
            names.push(entry.key);
            Ok(())
        })
        .unwrap();
        assert_eq!(names, [key("a")], "{left} rows left");
        assert_eq!(log.append(&[vec![creation("d", 1)]]).unwrap(), [Outcome::Committed(Revision(2))]);
    }
}

/// Checks that stores of format 2 open: there each entry had a revision of its own, and a
/// transaction as many revisions as entries.
#[tokio::test]
async fn stores_of_format_2_are_opened() {
    let disk = Disk::new();
    let directory = Directory::take(disk.path()).unwrap();
    let tree = Tree::open(&directory).unwrap();
    let put = |stored: String| Change::Put { created: None, stored: stored.into() };
    let large = "x".repeat(5_000);
    let entries = [
        ("a", put(large.clone() + "@"), 0),
        ("b", put("1@".into()), 1),
        ("c", put("1@".into()), 0),
        ("a", Change::Delete, 0),
    ];
    for (revision, (name, change, more)) in (1..).zip(entries) {
        let id = EntryId::first(Revision(revision));
        let rows = rows::rows(&[Entry { id, key: key(name), change }]).unwrap();
        let parts = rows.len();
        for (part, (_, mut value)) in (0..).zip(rows) {
            value[0] = if usize::from(part) + 1 == parts { more } else { 1 };
            tree.insert(&rows::earlier_key(id.revision, part), &value).unwrap();
        }
    }
    tree.set_mark(RESERVED, Revision(4)).unwrap();
    tree.db.flush().unwrap();
    drop(tree);
    wait_for_sled(&directory.log(), directory.path()).unwrap();
    directory.seal(Revision(4)).unwrap();
    drop(directory);
    let sealed = fs::read_to_string(disk.path().join("store")).unwrap();
    let second = sealed.rsplit_once(' ').unwrap().0.replace("store 4", "store 2");
    let crc = crc32fast::hash(second.as_bytes());
    fs::write(disk.path().join("store"), format!("{second} {crc:08x}\n")).unwrap();

    let store = open(&disk, Durability::Sync);
    assert_eq!(store.revision(), Revision(4));
    assert_eq!(
        render_bucket(&store.snapshot_at("things", Revision(3)).unwrap()),
        format!("a={large}@1 b=1@2 c=1@3")
    );
    let writes = vec![Write::put(key("b"), Expect::Any, "5@"), Write::delete(key("c"), Expect::Any)];
    store.commit(writes).await.unwrap();
    store.close().await.unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(render_bucket(&store.snapshot_at("things", Revision(4)).unwrap()), "b=1@2 c=1@3");
    store.compact(Revision(5)).await.unwrap();
    store.close().await.unwrap();
    let log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    assert_eq!(log.tree().unwrap().db.scan_prefix(rows::PREFIX).count(), 1, "no part is left behind");
    Box::new(log).close().unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "b=5@5");
    let line = fs::read_to_string(disk.path().join("store")).unwrap();
    assert!(line.starts_with("coracle store 4 open"), "an earlier program refuses it: {line}");
}

/// Checks a compaction that deletes the second half of a transaction: the first half must not be
/// treated as a truncated one.
#[tokio::test]
async fn half_a_compacted_transaction_is_not_cut_short() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("b"), "1").await;
    let writes = vec![Write::put(key("a"), Expect::Any, "2@"), Write::delete(key("b"), Expect::Any)];
    store.commit(writes).await.unwrap();
    store.compact(store.revision()).await.unwrap();
    store.close().await.unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=2@2");
    assert_eq!(store.revision(), Revision(2));
}

#[tokio::test]
async fn large_values_come_and_go() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    let sizes = [0, 1_000, 1_480, 1_500, 70_000, 1_500_000];
    for size in sizes {
        put(&store, &key("large"), &"x".repeat(size)).await;
    }
    store.close().await.unwrap();
    let store = open(&disk, Durability::Sync);
    for (at, size) in (1..).zip(sizes) {
        let object = store.snapshot_at("things", Revision(at)).unwrap().get("large").unwrap().clone();
        assert_eq!(object.meta.len(), size);
    }
    delete(&store, &key("large")).await;
    store.compact(store.revision()).await.unwrap();
    store.close().await.unwrap();
    let log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    assert_eq!(log.tree().unwrap().db.scan_prefix(rows::PREFIX).count(), 0, "no part is left behind");
}

#[tokio::test]
async fn damage_is_reported_with_the_path() {
    type Damage = fn(&Tree);
    let cases: [(&str, Damage, &str); 10] = [
        ("a hole", |tree| drop(tree.remove(&row(3, 0)).unwrap()), "between 2 and 4"),
        ("the end gone", |tree| drop(tree.remove(&row(5, 0)).unwrap()), "ends at revision 4"),
        ("a foreign row", |tree| tree.insert(&row(3, 0), b"?").unwrap(), "after revision 2"),
        ("a value unreadable", |tree| unreadable(tree, Revision(3)), "things/c at revision 3: no mark"),
        ("a row too long", |tree| tree.insert(b"log/12345678+", b"\0\0\x01").unwrap(), "unreadable"),
        ("marks of another size", |tree| tree.insert(COMPACT_REVISION, b"7").unwrap(), "marks"),
        ("the start of a transaction gone", |tree| drop(tree.remove(&entry_row(4, 0)).unwrap()), "half a"),
        ("the middle of a transaction gone", |tree| drop(tree.remove(&entry_row(4, 1)).unwrap()), "half a"),
        ("the rest of a transaction gone", |tree| drop(tree.remove(&entry_row(4, 2)).unwrap()), "half a"),
        ("no marks", |tree| drop(tree.remove(RESERVED).unwrap()), "empty"),
    ];
    for (case, damage, want) in cases {
        let disk = Disk::new();
        let store = open(&disk, Durability::Sync);
        for name in ["a", "b", "c"] {
            put(&store, &key(name), "").await;
        }
        let writes = ["d", "e", "f"].map(|name| Write::put(key(name), Expect::Any, "@"));
        store.commit(writes.into()).await.unwrap();
        put(&store, &key("g"), "").await;
        store.close().await.unwrap();
        let directory = Directory::take(disk.path()).unwrap();
        let tree = Tree::open(&directory).unwrap();
        damage(&tree);
        tree.flush(Revision(5)).unwrap();
        drop(tree);
        wait_for_sled(&directory.log(), directory.path()).unwrap();
        directory.seal(Revision(5)).unwrap();
        drop(directory);
        let findings = check(&disk).findings;
        assert!(findings.iter().any(|finding| finding.contains(want)), "{case}: {findings:?}");
        let error = refused(&disk);
        assert!(matches!(error, LogError::Damaged { .. }), "{case}: {error}");
        let message = error.to_string();
        assert!(
            message.contains(disk.path().to_str().unwrap()) && message.contains(want),
            "{case}: {message}"
        );
    }
}

fn unreadable(tree: &Tree, revision: Revision) {
    let change = Change::Put { created: None, stored: "unmarked".into() };
    for (key, value) in
        rows::rows(&[Entry { id: EntryId::first(revision), key: Key::new("things", "c"), change }]).unwrap()
    {
        tree.insert(&key, &value).unwrap();
    }
}

/// Checks a crash in the middle of a compaction, which leaves the later parts of a value after its
/// first part was deleted.
#[tokio::test]
async fn an_interrupted_compaction_does_no_harm() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("a"), &"x".repeat(30_000)).await;
    put(&store, &key("a"), "small").await;
    store.close().await.unwrap();
    let mut log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    log.tree().unwrap().set_mark(COMPACT_REVISION, Revision(2)).unwrap();
    log.tree().unwrap().remove(&row(1, 0)).unwrap();
    log.tree().unwrap().remove(&row(1, 1)).unwrap();
    log.start(no_notifications()).unwrap();
    Box::new(log).close().unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=small@2");
    assert!(matches!(store.put(key("b"), Expect::Absent, "@").await.unwrap(), PutOutcome::Stored(_)));
}

#[tokio::test]
async fn files_changed_after_closing_are_refused_untouched() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("a"), "1").await;
    store.close().await.unwrap();
    let db = disk.path().join("log/db");
    let mut bytes = fs::read(&db).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&db, bytes).unwrap();
    let before = contents(disk.path());
    assert!(matches!(refused(&disk), LogError::Damaged { .. }));
    assert_eq!(contents(disk.path()), before);
}

#[tokio::test]
async fn a_lost_file_is_not_an_empty_store() {
    for (case, closed, damage) in [
        ("closed, file gone", true, (|db| fs::remove_file(db).unwrap()) as fn(&Path)),
        ("crashed, file gone", false, |db| fs::remove_file(db).unwrap()),
        ("crashed, file emptied", false, |db| fs::write(db, "").unwrap()),
        ("crashed, file overwritten", false, |db| fs::write(db, "x".repeat(2_000_000)).unwrap()),
    ] {
        let disk = Disk::new();
        let store = open(&disk, Durability::Sync);
        put(&store, &key("a"), "1").await;
        let disk = if closed {
            store.close().await.unwrap();
            disk
        } else {
            crash(&disk)
        };
        damage(&disk.path().join("log/db"));
        assert!(!check(&disk).is_sound(), "{case}");
        let error = refused(&disk);
        assert!(matches!(error, LogError::Damaged { .. }), "{case}: {error}");
    }
}

#[tokio::test]
async fn a_sound_store_is_found_to_be_sound() {
    let disk = Disk::new();
    let refused = SledLog::check(disk.path(), &Marked, Disk::new().path()).unwrap_err();
    assert!(matches!(refused, LogError::Failed { .. }), "there is no store");
    let store = open(&disk, Durability::Sync);
    for name in ["a", "b", "gone"] {
        put(&store, &key(name), &"x".repeat(5_000)).await;
    }
    delete(&store, &key("gone")).await;
    let in_use = SledLog::check(disk.path(), &Marked, Disk::new().path()).unwrap_err();
    assert!(matches!(in_use, LogError::InUse { .. }), "{in_use}");
    let render = |report: CheckReport| {
        let CheckReport { findings, newest, entries, objects, is_closed, .. } = report;
        format!("{findings:?} {newest} {entries} {objects} {is_closed}")
    };
    assert_eq!(render(check(&crash(&disk))), "[] 4 4 2 false");
    store.compact(Revision(4)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(render(check(&disk)), "[] 4 2 2 true");
    assert_eq!(check(&disk).compact_revision, CompactRevision::at(Revision(4)));
}

#[tokio::test]
async fn a_transaction_that_a_crash_cut_short_is_no_damage() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("a"), "1").await;
    let disk = crash(&disk);
    drop(store);
    let directory = Directory::take(disk.path()).unwrap();
    let tree = Tree::open(&directory).unwrap();
    let (first, value) =
        rows::rows(&entries(&[creation("b", 10), creation("c", 10)], Revision(2))).unwrap().swap_remove(0);
    tree.insert(&first, &value).unwrap();
    tree.flush(Revision(1)).unwrap();
    drop((tree, directory));
    let report = check(&disk);
    assert!(report.is_sound() && report.newest == Revision(1), "{report:?}");
}

/// Chooses at random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit.max(1)
    }
}

/// Damages one of a store's files and returns a description of the damage.
fn damage(files: &mut [(PathBuf, Vec<u8>)], random: &mut Random) -> String {
    // Mostly the file with the data, and mostly its end, which is where sled repairs.
    let db = files.iter().position(|(path, _)| path.ends_with("db")).unwrap();
    let file = if random.below(10) < 8 { db } else { random.below(files.len()) };
    let (path, bytes) = &mut files[file];
    if bytes.is_empty() {
        bytes.push(1);
        return format!("{}: a byte more", path.display());
    }
    let from = match random.below(4) {
        0 => 0,
        _ => bytes.len().saturating_sub(400_000),
    };
    let at = from + random.below(bytes.len() - from);
    let end = (at + 1 + random.below(8192)).min(bytes.len());
    let what = match random.below(5) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 => {
            bytes[at..end].fill(0);
            "zeros"
        }
        2 => {
            bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            "noise"
        }
        _ => {
            for _ in 0..=random.below(8) {
                let bit = random.below(8);
                let at = at + random.below(end - at);
                bytes[at] ^= 1 << bit;
            }
            "flipped bits"
        }
    };
    format!("{}: {what} at {at} of {}, up to {end}", path.display(), bytes.len())
}

/// Checks that a store that was not closed and has damaged files opens with all acknowledged
/// writes, or not at all. `TORTURE_CASES` is the number of attempts.
#[tokio::test]
async fn damage_to_a_crashed_store_is_never_silent() {
    let cases: u64 = std::env::var("TORTURE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let disk = Disk::new();
    let history = crate::History { events: 300, ..Default::default() };
    let options = || Options { history, ..Options::default() };
    let store =
        Store::open(Box::new(SledLog::open(disk.path(), Durability::Sync).unwrap()), Marked, options())
            .unwrap();
    for n in 0..1500 {
        let name = key(&format!("n{:03}", n * 7 % 211));
        match n % 11 {
            3 => drop(store.delete(name, Expect::Any).await.unwrap()),
            5 => drop(put(&store, &name, &"x".repeat(n * 13 % 9_000)).await),
            _ => drop(put(&store, &name, &format!("{n} {}", "y".repeat(n % 700))).await),
        }
    }
    let (want, revision) = (render_bucket(&store.snapshot().bucket("things")), store.revision());
    let files = contents(disk.path());
    let (mut whole, mut refused) = (0, 0);
    for seed in 1..=cases {
        let mut files = files.clone();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let done = damage(&mut files, &mut random);
        let after = Disk::new();
        for (path, bytes) in files {
            let to = after.path().join(path.strip_prefix(disk.path()).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, bytes).unwrap();
        }
        let is_sound = check(&after).is_sound();
        let opened = SledLog::open(after.path(), Durability::Sync)
            .and_then(|log| Store::open(Box::new(log), Marked, options()));
        let error = opened.as_ref().err().map(ToString::to_string);
        assert_eq!(
            error.is_none(),
            is_sound,
            "case {seed}, {done}: a check says what opening does: {error:?}"
        );
        match opened {
            Ok(store) => {
                assert_eq!(store.revision(), revision, "case {seed}, {done}");
                assert_eq!(render_bucket(&store.snapshot().bucket("things")), want, "case {seed}, {done}");
                whole += 1;
            }
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "case {seed}, {done}: {error}");
                refused += 1;
            }
        }
    }
    eprintln!("{cases} cases: {whole} opened whole, {refused} refused");
    assert!(cases < 50 || (whole > 0 && refused > 0), "{whole} opened whole, {refused} refused");
}

/// Checks a full disk that the operating system reports, and that has free space later.
#[tokio::test]
async fn a_full_disk_takes_deletions_and_recovers() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    for durability in [Durability::Sync, SOON, Durability::None] {
        let disk = Disk::new();
        let free = Arc::new(AtomicU64::new(1 << 30));
        let asked = free.clone();
        // The part of the reserve that was given up counts as free.
        let reserve = disk.path().join("reserve");
        let held = move || fs::metadata(&reserve).map_or(0, |file| file.len());
        let available: Available = Box::new(move |_| Ok(asked.load(Relaxed) + (8 << 20) - held()));
        let log = SledLog::open_with(disk.path(), durability, available).unwrap();
        let store = Store::open(Box::new(log), Marked, Options::default()).unwrap();
        put(&store, &key("a"), &"x".repeat(10_000)).await;
        put(&store, &key("b"), "1").await;
        store.readiness().unwrap();
        free.store(0, Relaxed);
        for attempt in 0..3 {
            let refused = store.put(key("c"), Expect::Absent, "@").await.map(drop);
            assert!(matches!(refused, Err(StoreError::NoSpace)), "{durability:?}, attempt {attempt}");
            assert!(matches!(store.readiness(), Err(StoreError::NoSpace)));
        }
        store.health().unwrap();
        delete(&store, &key("a")).await;
        put(&store, &key("b"), "2").await;
        assert!(store.put(key("b"), Expect::Any, "x".repeat(9_000) + "@").await.is_err());
        free.store(1 << 30, Relaxed);
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.put(key("c"), Expect::Any, "@").await.is_err() {
            assert!(Instant::now() < deadline, "{durability:?}: recovers");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        store.readiness().unwrap();
        let want = render_bucket(&store.snapshot().bucket("things"));
        store.close().await.unwrap();
        assert_eq!(
            render_bucket(&open(&disk, durability).snapshot().bucket("things")),
            want,
            "{durability:?}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_may_read_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let disk = Disk::new();
    let path = disk.path().join("store");
    let open = || {
        Store::open(Box::new(SledLog::open(&path, Durability::Sync).unwrap()), Marked, Options::default())
            .unwrap()
    };
    let others = || {
        let mut paths = vec![path.clone(), path.join("log"), path.join("log/blobs")];
        paths.extend(contents(&path).into_iter().map(|(path, _)| path));
        assert!(paths.len() > 5);
        let loose = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o077 != 0;
        paths.into_iter().filter(loose).collect::<Vec<_>>()
    };
    let store = open();
    put(&store, &key("a"), "1").await;
    assert_eq!(others(), Vec::<PathBuf>::new());
    store.close().await.unwrap();
    for (path, _) in contents(&path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    drop(open());
    assert_eq!(others(), Vec::<PathBuf>::new(), "what was there before is restricted, too");
}

/// A file system of its own, if mounting one is permitted.
struct Tmpfs(Disk);

impl Tmpfs {
    fn mount(megabytes: u32) -> Option<Tmpfs> {
        let disk = Disk::new();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(disk.path())
            .output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Tmpfs(disk))
    }

    fn resize(&self, megabytes: u32) {
        let mut command = std::process::Command::new("mount");
        command.args(["-o", &format!("remount,size={megabytes}m")]).arg(self.0.path());
        assert!(command.status().unwrap().success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

/// Checks a full disk that is not reported beforehand: sled fails with it, and cannot be used until
/// its files are opened again.
#[tokio::test]
async fn a_sled_that_ran_into_a_full_disk_is_opened_again() {
    for durability in [Durability::Sync, SOON, Durability::None] {
        let Some(tmpfs) = Tmpfs::mount(24) else {
            eprintln!("skipped: mounting is not permitted");
            return;
        };
        let path = tmpfs.0.path().join("store");
        let open = || {
            let log = SledLog::open_with(&path, durability, Box::new(|_| Ok(1 << 40))).unwrap();
            Store::open(Box::new(log), Marked, Options::default()).unwrap()
        };
        let store = open();
        let mut stored = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        for n in 0.. {
            assert!(Instant::now() < deadline, "{durability:?}: it is never full");
            let name = key(&format!("n{n:03}"));
            match store.put(name.clone(), Expect::Absent, "x".repeat(200_000) + "@").await {
                Ok(_) => stored.push(name),
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{durability:?}: {error:?}"),
            }
        }
        assert!(stored.len() > 20, "{durability:?}: {} stored", stored.len());
        store.health().unwrap();
        for name in stored.drain(..10) {
            delete(&store, &name).await;
        }
        // Larger than the part of the reserve that was given up.
        let large = "x".repeat(1_400_000) + "@";
        assert!(store.put(key("more"), Expect::Any, large).await.is_err(), "{durability:?}");
        tmpfs.resize(128);
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.put(key("more"), Expect::Any, "@").await.is_err() {
            assert!(Instant::now() < deadline, "{durability:?}: recovers");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stored.push(key("more"));
        stored.sort();
        let (want, revision) = (render_bucket(&store.snapshot().bucket("things")), store.revision());
        assert_eq!(store.snapshot().len("things"), stored.len());
        store.close().await.unwrap();
        let store = open();
        assert_eq!((render_bucket(&store.snapshot().bucket("things")), store.revision()), (want, revision));
        store.close().await.unwrap();
    }
}
