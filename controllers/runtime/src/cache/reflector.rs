//! The watch that keeps a cache fresh.

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use futures::{StreamExt, pin_mut};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};

use super::indexer::Indexer;
use super::object::{Decode, Object};
use super::shared::SharedObjects;
use super::watched::RawObject;
use crate::timers::RELIST;

/// After this time all objects are read again, if one of them could not be.
const UNREADABLE: Duration = Duration::from_secs(30);

/// Which objects of a kind are watched; all by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListScope {
    /// Those of one namespace.
    pub namespace: Option<&'static str>,
    /// Those that a field selector selects.
    pub field_selector: Option<&'static str>,
}

impl ListScope {
    /// What watches these objects.
    fn watch(self, client: Client, resource: &ApiResource) -> (Api<RawObject>, watcher::Config) {
        let api = match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        let config = watcher::Config::default().streaming_lists();
        (api, self.field_selector.iter().fold(config, |config, selector| config.fields(selector)))
    }
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
    let read = |event| read(event, decode, shared.as_ref());
    let (api, config) = scope.watch(client, &resource);
    loop {
        let stream = watch(api.clone(), config.clone()).default_backoff();
        pin_mut!(stream);
        let mut relist = None;
        while let Some(event) = stream.next().await {
            match event.map(read) {
                Ok(Ok(event)) => indexer.handle(event, &mut relist),
                // It may hold a finalizer or own others: nothing is right without it.
                Ok(Err(error)) => {
                    tracing::error!(kind = resource.kind, %error, "an object cannot be read");
                    break;
                }
                Err(error) => {
                    tracing::debug!(kind = resource.kind, %error, "a watch has to be started again");
                }
            }
        }
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
        Event::InitDone => Event::InitDone,
        Event::Apply(raw) => Event::Apply(decode(raw)?),
        Event::Delete(raw) => Event::Delete(decode(raw)?),
    })
}
