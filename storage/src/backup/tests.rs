use super::{format::MAGIC, *};
use crate::{
    Expect, Key, Revision, Store,
    log::{Durability, Log, MemoryLog, SledLog},
    testing::{Marked, TestLog, delete, key, put, render_bucket},
};

/// Creates a store with some history: three of five objects remain.
async fn store() -> Store<Marked> {
    let store = MemoryLog::new().open();
    for name in ["b", "a", "gone"] {
        put(&store, &key(name), name).await;
    }
    put(&store, &key("b"), "again").await;
    delete(&store, &key("gone")).await;
    put(&store, &Key::new("others", "large"), &"x".repeat(200_000)).await;
    store
}

fn file(store: &Store<Marked>) -> Vec<u8> {
    Chunks::new(&store.snapshot()).flatten().collect()
}

fn describe(file: &[u8]) -> String {
    match verify(file) {
        Ok(Summary { revision, objects }) => format!("{objects} objects at {revision}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_backup_has_the_live_objects_of_one_revision() {
    let store = store().await;
    let file = file(&store);
    assert_eq!(describe(&file), "3 objects at 6");
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut objects = Vec::new();
    while let Some(object) = reader.next_object().unwrap() {
        objects.push((
            object.key.to_string(),
            object.created.0,
            object.revision.0,
            object.stored.len().min(10),
        ));
    }
    let want = [("things/b", 1, 4, 6), ("things/a", 2, 2, 2), ("others/large", 6, 6, 10)];
    assert_eq!(objects, want.map(|(key, created, revision, size)| (key.to_owned(), created, revision, size)));
    assert!(Chunks::new(&store.snapshot()).all(|chunk| chunk.len() < 300_000));
    let empty = MemoryLog::new().open();
    assert_eq!(describe(&self::file(&empty)), "0 objects at 0");
}

#[tokio::test]
async fn a_restored_log_continues_above_the_backup() {
    let store = store().await;
    let file = file(&store);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let log = SledLog::begin_at(&path, Revision(1000)).unwrap();
    let (summary, newest) = restore(&file[..], Box::new(log), Monotonicity::Required).unwrap();
    assert_eq!(summary, Summary { revision: Revision(6), objects: 3 });
    assert!(newest > summary.revision);
    let restored =
        Store::open(Box::new(SledLog::open(&path, Durability::Sync).unwrap()), Marked, Default::default())
            .unwrap();
    assert_eq!(render_bucket(&restored.snapshot().bucket("things")), "a=a@1002 b=again@1001");
    assert_eq!(restored.get(&key("b")).unwrap().created, Revision(1), "the order of creation is kept");
    assert_eq!(restored.revision(), Revision(1003));
    assert!(restored.watch(&"things".into(), Revision(999)).is_err(), "no watch resumes from before");
    let conflict = restored.put(key("b"), Expect::Revision(Revision(4)), "lost@").await.unwrap();
    assert!(matches!(conflict, crate::PutOutcome::Conflict { .. }), "what a client has seen is old");
    restored.close().await.unwrap();

    let refused =
        |log: Box<dyn Log>| restore(&file[..], log, Monotonicity::Required).unwrap_err().to_string();
    let log = || Box::new(SledLog::open(&path, Durability::Sync).unwrap());
    assert!(refused(log()).ends_with("is not empty"));
    let low = SledLog::begin_at(&dir.path().join("low"), Revision(5)).unwrap();
    assert!(refused(Box::new(low)).contains("below the backup's 6"));
}

#[tokio::test]
async fn what_is_not_a_sound_backup_is_refused() {
    let small = MemoryLog::new().open();
    for name in ["a", "b"] {
        put(&small, &key(name), name).await;
    }
    let file = file(&small);
    assert_eq!(describe(&file), "2 objects at 2");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = file.clone();
        change(&mut changed);
        describe(&changed)
    };
    type Edit = fn(&mut Vec<u8>);
    let cases: [(&str, Edit, &str); 8] = [
        ("nothing", |file| file.clear(), "it is not a backup"),
        ("another file", |file| file[..4].copy_from_slice(b"CORA"), "it is not a backup"),
        ("a version to come", |file| file[15] = b'2', "version \"2\""),
        ("something after the end", |file| file.push(0), "something follows its end"),
        ("a huge length", |file| file[18..22].fill(0xff), "longer than any"),
        (
            "a long length",
            |file| file[18..22].copy_from_slice(&(34u32 << 20).to_be_bytes()),
            "longer than any",
        ),
        ("a length beyond the end", |file| file[20] = 1, "cut short"),
        ("twice", |file| file.extend(file.clone()), "something follows its end"),
    ];
    for (case, edit, want) in cases {
        let described = with(&edit);
        assert!(described.contains(want), "{case}: {described}");
    }
    for at in 0..file.len() {
        assert!(!with(&|file: &mut Vec<u8>| file.truncate(at)).contains("objects at"), "cut at {at}");
        for bit in 0..8 {
            let described = with(&|file: &mut Vec<u8>| file[at] ^= 1 << bit);
            assert!(!described.contains("objects at"), "bit {bit} of byte {at}: {described}");
        }
    }
}

#[tokio::test]
async fn frames_that_are_sound_in_themselves_are_checked_too() {
    let small = MemoryLog::new().open();
    for name in ["a", "b"] {
        put(&small, &key(name), name).await;
    }
    let file = file(&small);
    let mut frames = Vec::new();
    let mut rest = &file[MAGIC.len()..];
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let (frame, after) = rest.split_at(length + 9);
        frames.push(frame.to_vec());
        rest = after;
    }
    let [header, a, b, end] = &frames[..] else { panic!("{} frames", frames.len()) };
    for (case, frames, want) in [
        ("as it was", vec![header, a, b, end], "2 objects at 2"),
        ("another order", vec![header, b, a, end], "checksum"),
        ("one is missing", vec![header, a, end], "number of objects"),
        ("one twice", vec![header, a, b, b, end], "more objects"),
        ("no header", vec![a, b, end], "no header"),
        ("two headers", vec![header, header, a, b, end], "unknown kind"),
        ("no end", vec![header, a, b], "cut short after 2 objects"),
    ] {
        let file: Vec<u8> = MAGIC.iter().chain(frames.into_iter().flatten()).copied().collect();
        let described = describe(&file);
        assert!(described.contains(want), "{case}: {described}");
    }
}
