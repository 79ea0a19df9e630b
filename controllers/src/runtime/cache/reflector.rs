//! The watch that keeps a cache fresh.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};

use super::indexer::Indexer;
use super::object::{Decode, Object, RawObject};
use crate::runtime::clock::Clock;

/// After this time all objects are read again, if one of them could not be.
const UNREADABLE: Duration = Duration::from_secs(30);

/// Watches until dropped.
pub(in crate::runtime) async fn run(
    indexer: Arc<Indexer>,
    client: Client,
    clock: Clock,
    resource: ApiResource,
    decode: Decode,
) {
    loop {
        let config = watcher::Config::default().streaming_lists();
        let stream = watch(Api::<RawObject>::all_with(client.clone(), &resource), config).default_backoff();
        pin_mut!(stream);
        let mut relist = None;
        while let Some(event) = stream.next().await {
            match event.map(|event| read(event, decode)) {
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
        clock.sleep(UNREADABLE).await;
    }
}

fn read(event: Event<RawObject>, decode: Decode) -> serde_json::Result<Event<Arc<dyn Object>>> {
    let decode = |raw: RawObject| decode(raw.text.get());
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(decode(raw)?),
        Event::InitDone => Event::InitDone,
        Event::Apply(raw) => Event::Apply(decode(raw)?),
        Event::Delete(raw) => Event::Delete(decode(raw)?),
    })
}
