//! Changes of objects, as the subscribers of a cache receive them.

use std::marker::PhantomData;
use std::sync::Arc;

use coracle_clock::Work;
use coracle_object_meta::NamespacedName;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use kube::Resource;

use super::indexer::Sent;
use super::object::{self, Cached, Object};

/// An object before and after.
#[derive(Debug)]
pub struct Change<K: ?Sized> {
    /// None: it is new, at least to the subscriber.
    pub old: Option<Arc<K>>,
    /// None: it was deleted.
    pub new: Option<Arc<K>>,
}

impl<K: ?Sized> Clone for Change<K> {
    fn clone(&self) -> Change<K> {
        Change { old: self.old.clone(), new: self.new.clone() }
    }
}

impl Change<dyn Object> {
    /// Converts the change to one of an object of a kind.
    pub(crate) fn downcast<K: Cached>(self) -> Change<K> {
        let of_kind = |object: Option<Arc<dyn Object>>| object.and_then(object::downcast);
        Change { old: of_kind(self.old), new: of_kind(self.new) }
    }
}

impl<K> Change<K> {
    /// Returns the current object, or its last state if it was deleted.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Returns `true` if this property of the object has changed, or if the object was added or
    /// deleted.
    pub fn changed<T: PartialEq>(&self, what: impl Fn(&K) -> T) -> bool {
        self.old.as_deref().map(&what) != self.new.as_deref().map(&what)
    }

    /// Iterates over the states before and after the change.
    pub fn states(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

impl<K: Resource> Change<K> {
    /// Returns the name of the object.
    pub fn name(&self) -> Option<NamespacedName> {
        self.object().map(|object| NamespacedName::of(object.as_ref()))
    }
}

/// The changes that a subscriber of a cache receives. It has followed one when it asks for the
/// next.
pub struct Changes<K> {
    receiver: UnboundedReceiver<Sent>,
    /// The work of what it has received last.
    following: Option<Work>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Cached> Changes<K> {
    /// Returns the changes that an indexer of the kind sends.
    pub(super) fn of(receiver: UnboundedReceiver<Sent>) -> Changes<K> {
        Changes { receiver, following: None, kind: PhantomData }
    }

    /// Receives the next change; None if the cache no longer exists.
    pub async fn recv(&mut self) -> Option<Change<K>> {
        self.following = None;
        let (change, work) = self.receiver.next().await?;
        self.following = Some(work);
        Some(change.downcast())
    }

    /// Takes the waiting changes.
    pub fn take_waiting(&mut self) -> Vec<Change<K>> {
        let mut waiting = Vec::new();
        while let Ok((change, work)) = self.receiver.try_recv() {
            self.following = Some(work);
            waiting.push(change.downcast());
        }
        waiting
    }
}
