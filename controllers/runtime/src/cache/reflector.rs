//! The reflector: the watch that keeps a cache up to date.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use kube::core::ApiResource;
use kube::{Client, Resource};

use super::follow::{Event, follow};
use super::indexer::Indexer;
use super::object::{Decode, Object};
use super::shared::SharedObjects;
use super::watched::RawObject;
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
        let handle = |event: Result<Event<RawObject>, kube::Error>| {
            match event.map(|event| read(event, decode, shared.as_ref())) {
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
        follow(&client, (&resource, scope), &clock, from, handle).await;
        drop(clock.sleep(RELIST.after(UNREADABLE)).of(resource.plural.clone()).await);
    }
}

fn read(
    event: Event<RawObject>,
    decode: Decode,
    shared: Option<&SharedObjects>,
) -> serde_json::Result<Event<Arc<dyn Object>>> {
    let decode = |raw: RawObject| match shared.and_then(|shared| shared.get(raw.meta())) {
        Some(object) => Ok(object),
        None => decode(raw.content.get()),
    };
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(decode(raw)?),
        Event::InitDone(revision) => Event::InitDone(revision),
        Event::Bookmark(revision) => Event::Bookmark(revision),
        Event::Apply(raw) => Event::Apply(decode(raw)?),
        Event::Delete(raw) => Event::Delete(decode(raw)?),
    })
}
