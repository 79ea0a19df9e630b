//! The tracking of a controller's own writes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::cache::{self, Cache, Cached, NamespacedName, Write};
use super::clock::Clock;

/// One pass over a key: remembers what was written, by however many requests at the same time, to be seen before the next pass.
#[derive(Default)]
pub struct Turn {
    writes: Mutex<Vec<OwnWrite>>,
}

type GroupResource = (Cow<'static, str>, Cow<'static, str>);

/// The kind of what was written, and the end of the wait for it.
type OwnWrite = (GroupResource, BoxFuture<'static, ()>);

impl Turn {
    /// Remembers an answer to a create, an update or a patch.
    pub fn wrote<T: Cached>(&self, cache: &Arc<Cache<T>>, answer: &T) {
        self.remember(cache, Write::Revision(cache::revision(answer)));
    }

    /// Remembers a delete that was not refused.
    pub fn deleted<T: Cached>(&self, cache: &Arc<Cache<T>>, object: &T) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.remember(cache, Write::Deleted(NamespacedName::of(object), uid));
    }

    fn remember<T: Cached>(&self, cache: &Arc<Cache<T>>, write: Write) {
        let cache = cache.clone();
        let seen = async move { cache.saw(&write).await }.boxed();
        // No code that can panic runs under the lock.
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(((T::group(&()), T::plural(&())), seen));
    }

    /// Waits until all was seen, and returns what that took a while for. A watch that broke at the wrong time must not hold the key
    /// for ever.
    pub(super) async fn settle(self, clock: &Clock) -> BTreeSet<GroupResource> {
        const LONGEST: Duration = Duration::from_secs(10);
        let writes = self.writes.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter();
        let unseen = writes.filter_map(|(resource, mut write)| {
            (&mut write).now_or_never().is_none().then_some((resource, write))
        });
        let (late, unseen): (_, Vec<_>) = unseen.unzip();
        // One after the other, so that what is seen wakes one of them, not all.
        let all = async {
            for write in unseen {
                write.await;
            }
        };
        tokio::select! {
            () = all => {}
            () = clock.sleep(LONGEST) => tracing::debug!("own writes were not seen in time"),
        }
        late
    }
}
