//! The view: every live object and the recent events, in persistent maps, with one immutable state
//! for each published revision.
//!
//! The sequencer owns the newest [`State`] and changes it; readers hold published states for as
//! long as they like. An exact older state is not kept but rebuilt, by undoing the events after it.

use std::{ops::Bound, sync::Arc};

use imbl::OrdMap;

use crate::{
    CompactRevision, Compacted, EntryId, Event, Future, Index, Key, Object, Revision, RevisionError,
    log::UnreadableEntry,
};

type Objects<I> = OrdMap<Arc<str>, Arc<Object<I>>>;

/// All buckets at one revision. Costs a pointer.
pub struct Snapshot<I: Index>(pub(crate) Arc<State<I>>);

/// One bucket at one revision, in the order of names. Its size is two pointers.
pub struct BucketSnapshot<I: Index> {
    revision: Revision,
    objects: Objects<I>,
}

pub(crate) struct State<I: Index> {
    revision: Revision,
    /// The compact revision of buckets without dropped events since the store was opened.
    compact_revision: CompactRevision,
    buckets: OrdMap<Arc<str>, Arc<Bucket<I>>>,
    /// The memory of all live objects, in bytes.
    bytes: u64,
    quarantine: Quarantine,
}

/// The unreadable entries of other writers, which are kept out of the buckets.
#[derive(Clone, Default)]
struct Quarantine {
    /// The newest entry of each key, if it is unreadable.
    entries: OrdMap<Key, Arc<UnreadableEntry>>,
    /// The number of entries found since the store was opened.
    total: u64,
}

pub(crate) struct Bucket<I: Index> {
    compact_revision: CompactRevision,
    objects: Objects<I>,
    /// The changes after the compact revision: all of them.
    events: OrdMap<EntryId, Arc<Event<I>>>,
}

impl<I: Index> Snapshot<I> {
    /// Returns the revision of the snapshot.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Returns the live object with a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Object<I>>> {
        self.0.get(key)
    }

    /// Returns one bucket of this snapshot; an empty one if it was never used.
    pub fn bucket(&self, bucket: &str) -> BucketSnapshot<I> {
        let objects = self.0.buckets.get(bucket).map(|b| b.objects.clone()).unwrap_or_default();
        BucketSnapshot { revision: self.0.revision, objects }
    }

    /// Iterates over all buckets ever used, in order, each with the number of its live objects.
    pub fn buckets(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.0.buckets.iter().map(|(name, bucket)| (name, bucket.objects.len()))
    }

    /// Returns the number of live objects in a bucket.
    pub fn len(&self, bucket: &str) -> usize {
        self.0.buckets.get(bucket).map_or(0, |b| b.objects.len())
    }

    /// Returns the total size of all live objects in bytes, as computed by [`Object::cost`].
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the oldest revision from which the bucket can be watched, and at which it can be
    /// read.
    pub fn compact_revision(&self, bucket: &str) -> CompactRevision {
        self.0.compact_revision(bucket)
    }

    /// Iterates over the keys with an unreadable version by another writer, in order, each with
    /// that entry. This snapshot has the last readable version of such a key, if there was one, and
    /// the store refuses to write it.
    pub fn quarantined(&self) -> impl Iterator<Item = &UnreadableEntry> {
        self.0.quarantine.entries.values().map(|entry| &**entry)
    }

    /// Returns the number of unreadable entries found since the store was opened.
    pub fn quarantined_total(&self) -> u64 {
        self.0.quarantine.total
    }
}

impl<I: Index> BucketSnapshot<I> {
    /// Returns the revision of the snapshot.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the live object with a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Object<I>>> {
        self.objects.get(name)
    }

    /// Returns the number of live objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether the bucket has no live objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Iterates over the live objects, in the byte order of their names.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Object<I>>> {
        self.objects.values()
    }

    /// Iterates over the objects from a name on: `Included` starts a prefix such as `ns/`,
    /// `Excluded` the page after a name.
    pub fn range(&self, from: Bound<&str>) -> impl DoubleEndedIterator<Item = &Arc<Object<I>>> {
        self.objects.range::<_, str>((from, Bound::Unbounded)).map(|(_, object)| object)
    }

    /// Iterates over the objects with names that start with `prefix`. Close a namespace with its
    /// slash, so that `a/` never matches `ab/`.
    pub fn prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Object<I>>> {
        self.prefix_from(Bound::Included(prefix), prefix)
    }

    /// Iterates over the objects whose names start with the prefix, from a name on that starts with
    /// it as well. The end is found without reading objects, unless the prefix ends with a
    /// non-ASCII character.
    pub fn prefix_from<'a>(
        &'a self,
        from: Bound<&str>,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object<I>>> {
        let end = prefix_end(prefix);
        let is_bounded = prefix.is_empty() || end.is_some();
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range::<_, str>((from, to)).map(|(_, object)| object);
        objects.take_while(move |object| is_bounded || object.key.name().starts_with(prefix))
    }

    /// Returns the number of objects after `name` whose names start with `prefix`. `name` must
    /// start with `prefix`.
    pub fn count_after(&self, name: &str, prefix: &str) -> usize {
        self.prefix_from(Bound::Excluded(name), prefix).count()
    }
}

/// Returns the first name after all names that start with a prefix; None if the prefix does not end
/// with an ASCII character that has a successor.
fn prefix_end(prefix: &str) -> Option<String> {
    let (last, rest) = prefix.as_bytes().split_last()?;
    let next = last.checked_add(1).filter(u8::is_ascii)?;
    let rest = std::str::from_utf8(rest).ok()?;
    Some(format!("{rest}{}", char::from(next)))
}

impl<I: Index> State<I> {
    pub fn new(compact_revision: CompactRevision) -> State<I> {
        State {
            revision: Revision::ZERO,
            compact_revision,
            buckets: OrdMap::new(),
            bytes: 0,
            quarantine: Quarantine::default(),
        }
    }

    /// Creates an empty state that replaces another one, for a list of all objects.
    pub fn following(other: &State<I>) -> State<I> {
        let quarantine = Quarantine { entries: OrdMap::new(), total: other.quarantine.total };
        State { quarantine, ..State::new(CompactRevision::default()) }
    }

    /// Iterates over the buckets that were ever in use.
    pub fn bucket_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.buckets.keys()
    }

    /// Returns all changes that history has, oldest first.
    pub fn events(&self) -> Vec<Arc<Event<I>>> {
        let events = self.buckets.values().flat_map(|bucket| bucket.events.values());
        // The sort keys are copied next to each other, since the events are spread over memory.
        let mut events: Vec<_> = events.map(|event| (event.entry_id(), event.clone())).collect();
        events.sort_unstable_by_key(|(id, _)| *id);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// Moves on to a revision without a change.
    pub fn advance(&mut self, to: Revision) {
        self.revision = self.revision.max(to);
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Object<I>>> {
        self.buckets.get(&**key.bucket())?.objects.get(&**key.name())
    }

    pub fn compact_revision(&self, bucket: &str) -> CompactRevision {
        self.buckets.get(bucket).map_or(self.compact_revision, |b| b.compact_revision)
    }

    /// Implements [`Store::last_change`](crate::Store::last_change).
    pub fn last_change(&self, bucket: &str) -> Revision {
        let Some(bucket) = self.buckets.get(bucket) else { return self.compact_revision.revision() };
        let newest = bucket.events.get_max().map(|(id, _)| id.revision);
        newest.unwrap_or_default().max(bucket.compact_revision.revision())
    }

    /// Returns the newest entry of a key, if it is unreadable.
    pub fn quarantined(&self, key: &Key) -> Option<&Arc<UnreadableEntry>> {
        self.quarantine.entries.get(key)
    }

    /// Returns all changes of a bucket after a revision, oldest first.
    pub fn events_after(
        &self,
        bucket: &str,
        after: Revision,
    ) -> Result<impl Iterator<Item = &Arc<Event<I>>>, Compacted> {
        let bucket = self.buckets.get(bucket);
        bucket.map_or(self.compact_revision, |b| b.compact_revision).admit(after)?;
        // Most buckets have no later event: reading the newest event costs less than starting a
        // range.
        let is_later = |b: &&Arc<Bucket<I>>| b.events.get_max().is_some_and(|(id, _)| id.revision > after);
        let later = (Bound::Excluded(EntryId::end(after)), Bound::Unbounded);
        let events = bucket.filter(is_later).into_iter().flat_map(move |b| b.events.range(later));
        Ok(events.map(|(_, event)| event))
    }

    /// Returns whether history has events of a bucket after a revision.
    pub fn has_events_after(&self, bucket: &str, after: Revision) -> bool {
        let bucket = self.buckets.get(bucket);
        bucket.and_then(|bucket| bucket.events.get_max()).is_some_and(|(id, _)| id.revision > after)
    }

    /// Returns whether history has events after a revision in any bucket other than this one.
    pub fn has_events_outside(&self, bucket: &str, after: Revision) -> bool {
        let others = self.buckets.keys().filter(|name| ***name != *bucket);
        others.into_iter().any(|name| self.has_events_after(name, after))
    }

    /// Returns the bucket as it was at a revision, and the number of events that had to be undone
    /// for that.
    pub fn bucket_at(&self, bucket: &str, at: Revision) -> Result<(BucketSnapshot<I>, usize), RevisionError> {
        if at > self.revision {
            return Err(Future { asked: at, newest: self.revision }.into());
        }
        self.compact_revision(bucket).admit(at)?;
        let Some(bucket) = self.buckets.get(bucket) else {
            return Ok((BucketSnapshot { revision: at, objects: OrdMap::new() }, 0));
        };
        let mut objects = bucket.objects.clone();
        let mut undone = 0;
        for (_, event) in bucket.events.range((Bound::Excluded(EntryId::end(at)), Bound::Unbounded)).rev() {
            match &event.before {
                Some(before) => objects.insert(before.key.name().clone(), before.clone()),
                None => objects.remove(&**event.key.name()),
            };
            undone += 1;
        }
        Ok((BucketSnapshot { revision: at, objects }, undone))
    }

    /// Returns an equal key that shares the memory of the stored keys.
    pub fn intern(&self, key: Key) -> Key {
        let Some((name, bucket)) = self.buckets.get_key_value(&**key.bucket()) else { return key };
        match bucket.objects.get(&**key.name()) {
            Some(object) => object.key.clone(),
            None => Key::new(name.clone(), key.name().clone()),
        }
    }

    /// Applies one change from the log, which is newer than all before it, or of the same
    /// transaction. While the log is loaded the live objects at the compact revision come first, in
    /// any order.
    pub fn apply(
        &mut self,
        key: Key,
        id: EntryId,
        after: Option<Arc<Object<I>>>,
        author: Option<I::Author>,
    ) -> Arc<Event<I>> {
        self.quarantine.entries.remove(&key);
        let bucket = self.bucket_mut(key.bucket());
        let before = match &after {
            Some(object) => bucket.objects.insert(key.name().clone(), object.clone()),
            None => bucket.objects.remove(&**key.name()),
        };
        let cost = |object: &Option<Arc<Object<I>>>| object.as_ref().map_or(0, |object| object.cost());
        let (freed, taken) = (cost(&before), cost(&after));
        let event = Arc::new(Event::new(key, id, before, after, author));
        bucket.events.insert(id, event.clone());
        self.bytes = (self.bytes + taken).saturating_sub(freed);
        self.advance(id.revision);
        event
    }

    /// Adds an unreadable entry from the log. The last readable version of its key stays.
    pub fn quarantine(&mut self, entry: UnreadableEntry) {
        self.advance(entry.id.revision);
        self.quarantine.entries.insert(entry.key.clone(), Arc::new(entry));
        self.quarantine.total += 1;
    }

    /// Takes the deletion of a key that has no readable version.
    pub fn lift_quarantine(&mut self, key: &Key, deleted: Revision) {
        self.advance(deleted);
        self.quarantine.entries.remove(key);
    }

    /// Drops the oldest event of its bucket, and so every state before it.
    pub fn forget(&mut self, event: &Event<I>) {
        let bucket = self.bucket_mut(event.key.bucket());
        bucket.events.remove(&event.entry_id());
        bucket.compact_revision.raise(event.revision);
    }

    /// Raises the compact revision of every bucket to a revision up to which all events were
    /// dropped.
    pub fn raise_compact_revision(&mut self, to: Revision) {
        self.compact_revision.raise(to);
        let raised = |(name, bucket): (&Arc<str>, &Arc<Bucket<I>>)| {
            let mut bucket = Bucket::clone(bucket);
            bucket.compact_revision.raise(to);
            (name.clone(), Arc::new(bucket))
        };
        self.buckets = self.buckets.iter().map(raised).collect();
    }

    fn bucket_mut(&mut self, name: &Arc<str>) -> &mut Bucket<I> {
        let compact_revision = self.compact_revision;
        let new = || Arc::new(Bucket { compact_revision, objects: OrdMap::new(), events: OrdMap::new() });
        Arc::make_mut(self.buckets.entry(name.clone()).or_insert_with(new))
    }
}

// Derived impls would ask the index itself to be Clone.

impl<I: Index> Clone for Snapshot<I> {
    fn clone(&self) -> Self {
        Snapshot(self.0.clone())
    }
}

impl<I: Index> Clone for BucketSnapshot<I> {
    fn clone(&self) -> Self {
        BucketSnapshot { revision: self.revision, objects: self.objects.clone() }
    }
}

impl<I: Index> Clone for State<I> {
    fn clone(&self) -> Self {
        State {
            revision: self.revision,
            compact_revision: self.compact_revision,
            buckets: self.buckets.clone(),
            bytes: self.bytes,
            quarantine: self.quarantine.clone(),
        }
    }
}

impl<I: Index> Clone for Bucket<I> {
    fn clone(&self) -> Self {
        Bucket {
            compact_revision: self.compact_revision,
            objects: self.objects.clone(),
            events: self.events.clone(),
        }
    }
}
