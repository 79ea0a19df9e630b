//! What only the log on disk promises.

use std::fs;

use super::*;
use crate::{
    Expect, Key, Options, Put, Store, Write,
    log::Change,
    testing::{Disk, Marked, delete, key, put, shown},
};

const SOON: Durability = Durability::Interval(Duration::from_millis(1));

fn open(disk: &Disk, durability: Durability) -> Store<Marked> {
    Store::open(SledLog::open(disk.path(), durability).unwrap(), Marked, Options::default()).unwrap()
}

fn refused(disk: &Disk) -> LogError {
    let opened = SledLog::open(disk.path(), Durability::Sync);
    match opened.and_then(|log| Store::open(log, Marked, Options::default())) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

fn unheard() -> Tap {
    Tap::new(|signal| panic!("{signal:?}"))
}

fn creation(name: &str, size: usize) -> Proposal {
    let change = Change::Put { created: None, stored: "@".repeat(size).into() };
    Proposal { key: key(name), previous: None, change }
}

/// All files of a directory with their contents.
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

/// Leaves the directory as a crash would: what was flushed is there, but nothing was closed.
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
    assert_eq!(shown(&open(&disk, Durability::Sync).snapshot().bucket("things")), "a=2@2");
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
    assert_eq!(shown(&reopened.snapshot().bucket("things")), shown(&store.snapshot().bucket("things")));
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
    // Whether the write survived or not: clients may have seen it.
    let reopened = open(&after, SOON);
    assert!(reopened.revision() > given);
    let floor = reopened.revision();
    assert_eq!(reopened.snapshot().floor("things").revision(), floor, "nobody resumes from what may be lost");
    let second = put(&reopened, &key("b"), "2").await;
    assert_eq!(second, floor.next());
    reopened.close().await.unwrap();
    let again = open(&after, Durability::Sync);
    assert_eq!(again.revision(), second, "a store that was closed goes on where it was");
    assert_eq!(again.snapshot().floor("things").revision(), floor);
}

#[tokio::test]
async fn an_interval_passes_and_all_is_on_disk() {
    let disk = Disk::new();
    let store = open(&disk, SOON);
    for n in 0..50 {
        put(&store, &key(&n.to_string()), "").await;
    }
    let survived = || open(&crash(&disk), Durability::Sync).snapshot().len("things");
    let deadline = Instant::now() + Duration::from_secs(30);
    while survived() < 50 {
        assert!(Instant::now() < deadline, "flushed in the background");
    }
}

#[test]
fn a_transaction_cut_short_is_not_there() {
    let disk = Disk::new();
    let mut log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    log.start(unheard()).unwrap();
    log.append(&[vec![creation("a", 1)], vec![creation("b", 5_000), creation("c", 1)]]).unwrap();
    let rows: Vec<_> = log.tree.db.scan_prefix(rows::PREFIX).keys().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1 + 4 + 1);
    for left in (1..rows.len()).rev() {
        log.tree.db.remove(&rows[left]).unwrap();
        log.tree.flush().unwrap();
        let after = crash(&disk);
        let mut log = SledLog::open(after.path(), Durability::Sync).unwrap();
        assert_eq!(log.start(unheard()).unwrap().newest, Revision(1), "{left} rows left");
        let mut names = Vec::new();
        log.load(&mut |entry| {
            names.push(entry.key);
            Ok(())
        })
        .unwrap();
        assert_eq!(names, [key("a")], "{left} rows left");
        assert_eq!(log.append(&[vec![creation("d", 1)]]).unwrap(), Appended::Done(vec![Revision(2)]));
    }
}

/// Compaction deletes the second half of a transaction: the first is not to be taken for one that was cut short.
#[tokio::test]
async fn half_a_transaction_below_the_floor_is_whole() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("b"), "1").await;
    let writes = vec![Write::put(key("a"), Expect::Any, "2@"), Write::delete(key("b"), Expect::Any)];
    store.commit(writes).await.unwrap();
    store.compact(store.revision()).await.unwrap();
    store.close().await.unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(shown(&store.snapshot().bucket("things")), "a=2@2");
    assert_eq!(store.revision(), Revision(3));
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
    assert_eq!(log.tree.db.scan_prefix(rows::PREFIX).count(), 0, "no part is left behind");
}

#[tokio::test]
async fn damage_is_told_with_the_path() {
    type Harm = fn(&Tree);
    let cases: [(&str, Harm, &str); 7] = [
        ("a hole", |tree| drop(tree.remove(&rows::key(Revision(3), 0)).unwrap()), "between 2 and 4"),
        ("the end gone", |tree| drop(tree.remove(&rows::key(Revision(5), 0)).unwrap()), "after revision 4"),
        (
            "a foreign row",
            |tree| tree.insert(&rows::key(Revision(3), 0), b"?".into()).unwrap(),
            "after revision 2",
        ),
        ("a value unreadable", |tree| unreadable(tree, Revision(3)), "things/c at revision 3: no mark"),
        ("a row too long", |tree| tree.insert(b"log/12345678+", b"\0\0\x01".into()).unwrap(), "unreadable"),
        ("marks of another size", |tree| tree.insert(FLOOR, b"7".into()).unwrap(), "marks"),
        ("no marks", |tree| drop(tree.remove(RESERVED).unwrap()), "empty"),
    ];
    for (case, harm, want) in cases {
        let disk = Disk::new();
        let store = open(&disk, Durability::Sync);
        for name in ["a", "b", "c", "d", "e"] {
            put(&store, &key(name), "").await;
        }
        store.close().await.unwrap();
        let mut directory = Directory::take(disk.path()).unwrap();
        let tree = Tree::open(&directory).unwrap();
        harm(&tree);
        tree.flush().unwrap();
        drop(tree);
        wait_for_sled(&directory).unwrap();
        directory.seal().unwrap();
        drop(directory);
        let error = refused(&disk);
        assert!(matches!(error, LogError::Damaged { .. }), "{case}: {error}");
        let told = error.to_string();
        assert!(told.contains(disk.path().to_str().unwrap()) && told.contains(want), "{case}: {told}");
    }
}

fn unreadable(tree: &Tree, revision: Revision) {
    let change = Change::Put { created: None, stored: "unmarked".into() };
    for (key, value) in rows::rows(&[Entry { revision, key: Key::new("things", "c"), change }]).unwrap() {
        tree.insert(&key, value).unwrap();
    }
}

/// A crash in the middle of a sweep leaves the later parts of a value whose first part is gone.
#[tokio::test]
async fn a_sweep_cut_short_does_no_harm() {
    let disk = Disk::new();
    let store = open(&disk, Durability::Sync);
    put(&store, &key("a"), &"x".repeat(30_000)).await;
    put(&store, &key("a"), "small").await;
    store.close().await.unwrap();
    let mut log = SledLog::open(disk.path(), Durability::Sync).unwrap();
    log.tree.set_mark(FLOOR, Revision(2)).unwrap();
    log.tree.remove(&rows::key(Revision(1), 0)).unwrap();
    log.tree.remove(&rows::key(Revision(1), 1)).unwrap();
    log.start(unheard()).unwrap();
    Box::new(log).close().unwrap();
    let store = open(&disk, Durability::Sync);
    assert_eq!(shown(&store.snapshot().bucket("things")), "a=small@2");
    assert!(matches!(store.put(key("b"), Expect::Absent, "@").await.unwrap(), Put::Stored(_)));
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
    for (case, closed, harm) in [
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
        harm(&disk.path().join("log/db"));
        let error = refused(&disk);
        assert!(matches!(error, LogError::Damaged { .. }), "{case}: {error}");
    }
}
