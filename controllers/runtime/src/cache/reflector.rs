//! The reflector: the watch that keeps a cache up to date.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use kube::Client;
use kube::core::ApiResource;
use serde_json::value::RawValue;

use super::follow::{Event, follow};
use super::indexer::{Indexer, revision};
use super::object::{Decode, Object};
use super::shared::SharedObjects;
use super::watched::{Followed, Identified};
use crate::timers::RELIST;

/// After this time all objects are read again, if one of them could not be.
const UNREADABLE: Duration = Duration::from_secs(30);

/// The selection of objects of a kind that are watched; all of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListScope {
    /// The namespace to watch; None for all namespaces.
    pub namespace: Option<&'static str>,
    /// The field selector of the watch; None for all objects.
    pub field_selector: Option<&'static str>,
}

/// Watches until dropped.
///
/// - `shared`: objects that need not be read again
pub(crate) async fn run(
    indexer: Arc<Indexer>,
    client: Client,
    (resource, scope): (ApiResource, ListScope),
    clock: Clock,
    decode: Decode,
    shared: Option<SharedObjects>,
) {
    let mut known = shared.as_ref().and_then(SharedObjects::all);
    loop {
        let mut relist = None;
        let from = known.take().map(|(objects, revision)| {
            let listed = objects.into_iter().map(Event::InitApply);
            let events = [Event::Init].into_iter().chain(listed).chain([Event::InitDone(revision)]);
            events.for_each(|event| indexer.handle(event, &mut relist));
            revision
        });
        let read = |object: &RawValue| Ok(read(object, decode, shared.as_ref()));
        let handle = |event: Result<Event<Decoded>, kube::Error>| {
            match event.map(Event::transpose) {
                Ok(Ok(event)) => indexer.handle(event, &mut relist),
                // The object may have a finalizer or own others, so the cache is wrong without it.
                Ok(Err(error)) => {
                    tracing::error!(kind = resource.kind, %error, "an object cannot be read");
                    return ControlFlow::Break(());
                }
                Err(error) => {
                    tracing::debug!(kind = resource.kind, %error, "a watch has to be started again");
                }
            }
            ControlFlow::Continue(())
        };
        follow(&client, (&resource, scope), &clock, from, (read, handle)).await;
        drop(clock.sleep(RELIST.after(UNREADABLE)).of(resource.plural.clone()).await);
    }
}

/// The result of decoding an object. A failure reaches the handler of events, too.
type Decoded = serde_json::Result<Arc<dyn Object>>;

impl Followed for Decoded {
    const IS_METADATA: bool = false;

    fn revision(&self) -> u64 {
        self.as_ref().map_or(0, |object| revision(object.metadata()))
    }
}

fn read(object: &RawValue, decode: Decode, shared: Option<&SharedObjects>) -> Decoded {
    if let Some(shared) = shared
        && let Some(known) = shared.get(Identified::read(object)?.meta())
    {
        return Ok(known);
    }
    decode(object.get())
}
