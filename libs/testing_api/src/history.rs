//! The events of a store's history, with their authors.

use std::sync::Arc;

use coracle_apiserver::registry::{Author, ObjectIndex};
use coracle_storage::{Event, Revision, Snapshot, Store};

/// The attempts to read a history that is compacted meanwhile.
const ATTEMPTS: usize = 3;

/// Returns the events of a bucket that history still has, the oldest first.
///
/// - `until`: the last revision
pub fn events(
    store: &Store<ObjectIndex>,
    bucket: &Arc<str>,
    until: Revision,
) -> impl Iterator<Item = Arc<Event<ObjectIndex>>> {
    // If history is compacted meanwhile, the rest of it is read.
    let mut history = (0..ATTEMPTS).find_map(|_| {
        let oldest = store.snapshot().compact_revision(bucket).revision();
        store.watch(bucket, oldest).ok()
    });
    let mut batch: std::vec::IntoIter<Arc<Event<ObjectIndex>>> = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(event) = batch.next() {
                if event.revision > until {
                    history = None;
                    batch = Vec::new().into_iter();
                    return None;
                }
                return Some(event);
            }
            batch = history.as_mut()?.try_next().ok()?.into_iter();
            if batch.as_slice().is_empty() {
                return None;
            }
        }
    })
}

/// Returns the oldest revision at which all buckets can still be read.
pub fn oldest(snapshot: &Snapshot<ObjectIndex>) -> Revision {
    let compacted = snapshot.buckets().map(|(name, _)| snapshot.compact_revision(name).revision());
    compacted.max().unwrap_or_default()
}

/// Returns the verb of a change: that of its author's request, or one that follows from the change
/// itself.
pub fn verb(event: &Event<ObjectIndex>) -> &'static str {
    match (&event.author, &event.before, &event.after) {
        (Some(Author { request, .. }), _, _) => request.verb.as_str(),
        (None, _, None) => "delete",
        (None, None, _) => "create",
        (None, Some(_), Some(_)) => "update",
    }
}
