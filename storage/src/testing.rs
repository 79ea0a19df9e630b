//! What the tests share: an owner of stores, places to open stores in, and short words for what they do.

use std::{path::Path, sync::Arc};

use crate::{
    BucketSnapshot, Delete, Event, Expect, Index, Indexed, Key, Options, Put, Revision, Store, Unreadable,
    log::{Durability, EphemeralLog, Log, MemoryLog, SledLog},
};

/// An owner whose values are text with an `@`, after which the revision goes.
#[derive(Debug)]
pub struct Marked;

impl Index for Marked {
    /// The text before the mark.
    type Meta = String;
    type Frame = String;

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<String>, Unreadable> {
        let text = std::str::from_utf8(stored).map_err(|e| Unreadable(e.to_string()))?;
        let (before, _) = text.split_once('@').ok_or_else(|| Unreadable("no mark".into()))?;
        Ok(Indexed { meta: before.into(), stamp: before.len() + 1 })
    }
}

/// Where a store can be opened, and opened again.
pub trait Place {
    fn log(&self) -> impl Log;

    fn open(&self) -> Store<Marked> {
        self.open_with(Options::default())
    }

    fn open_with(&self, options: Options) -> Store<Marked> {
        Store::open(self.log(), Marked, options).unwrap()
    }
}

impl Place for MemoryLog {
    fn log(&self) -> impl Log {
        self.share()
    }
}

/// Remembers nothing, so it is for promises that need no second opening.
pub struct Nowhere;

impl Place for Nowhere {
    fn log(&self) -> impl Log {
        EphemeralLog::new()
    }
}

/// A directory that is deleted in the end.
pub struct Disk(tempfile::TempDir);

impl Disk {
    pub fn new() -> Disk {
        Disk(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Place for Disk {
    fn log(&self) -> impl Log {
        SledLog::open(self.path(), Durability::None).unwrap()
    }
}

pub fn key(name: &str) -> Key {
    Key::new("things", name)
}

pub async fn put(store: &Store<Marked>, key: &Key, text: &str) -> Revision {
    match store.put(key.clone(), Expect::Any, format!("{text}@")).await.unwrap() {
        Put::Stored(object) => object.revision,
        Put::Lost { .. } => panic!("{key} lost against nothing"),
    }
}

pub async fn delete(store: &Store<Marked>, key: &Key) -> Revision {
    match store.delete(key.clone(), Expect::Any).await.unwrap() {
        Delete::Deleted { revision, .. } => revision,
        Delete::Lost { .. } => panic!("{key} is not there"),
    }
}

/// Events as text: `+name=bytes` created, `~name=bytes` changed, `-name=bytes` deleted.
pub fn told(events: &[Arc<Event<Marked>>]) -> String {
    let tell = |event: &Arc<Event<Marked>>| {
        let (sign, bytes) = match (&event.before, &event.after) {
            (None, Some(after)) => ('+', after.bytes.clone()),
            (Some(_), Some(after)) => ('~', after.bytes.clone()),
            (Some(before), None) => ('-', before.restamped(event.revision)),
            (None, None) => panic!("an event of nothing"),
        };
        format!("{sign}{}={}", event.key.name(), String::from_utf8_lossy(&bytes))
    };
    events.iter().map(tell).collect::<Vec<_>>().join(" ")
}

/// A bucket as text: `name=bytes`.
pub fn shown(bucket: &BucketSnapshot<Marked>) -> String {
    let show = |object: &Arc<crate::Object<Marked>>| {
        format!("{}={}", object.key.name(), String::from_utf8_lossy(&object.bytes))
    };
    bucket.iter().map(show).collect::<Vec<_>>().join(" ")
}
