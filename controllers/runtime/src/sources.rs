//! The sources of a controller's keys.

use std::future::Future;
use std::sync::Arc;

use coracle_clock::{Clock, Delay};
use futures::channel::mpsc::UnboundedReceiver;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;

use super::cache::{Cache, Cached, Change, NamespacedName, Object, Sent};
use super::current::inherited;
use super::queue::{Key, Queue};

/// The sources that enqueue a controller's keys.
pub struct Sources<K> {
    queue: Queue<K>,
    pumps: JoinSet<()>,
}

impl<K: Key> Sources<K> {
    pub(super) fn new(queue: Queue<K>) -> Sources<K> {
        Sources { queue, pumps: JoinSet::new() }
    }

    /// Returns the tasks that add keys.
    pub(super) fn into_tasks(self) -> JoinSet<()> {
        self.pumps
    }

    /// Calls `enqueue` with each change of a kind; objects that exist at the start come as
    /// additions.
    pub fn on<T: Cached>(
        &mut self,
        cache: &Arc<Cache<T>>,
        enqueue: impl Fn(&Change<T>, &Queue<K>) + Send + 'static,
    ) -> &mut Sources<K> {
        let enqueue = move |change: Change<dyn Object>, queue: &Queue<K>| enqueue(&change.downcast(), queue);
        self.pumps.spawn(pump(cache.indexer().subscribe(), Box::new(enqueue), self.queue.clone()));
        self
    }

    /// Returns the queue, for a controller that enqueues keys while it reconciles others.
    pub fn queue(&self) -> Queue<K> {
        self.queue.clone()
    }

    /// Enqueues these keys at the start.
    pub fn at_first(&mut self, keys: impl IntoIterator<Item = K>) -> &mut Sources<K> {
        keys.into_iter().for_each(|key| self.queue.add(key));
        self
    }

    /// Runs a task that adds keys, concurrently with the workers.
    pub fn spawn<F>(&mut self, task: impl FnOnce(Queue<K>) -> F) -> &mut Sources<K>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.pumps.spawn(inherited(task(self.queue.clone())).boxed());
        self
    }

    /// Enqueues a key at the start and periodically.
    pub fn every(&mut self, period: Delay, clock: &Clock, key: K) -> &mut Sources<K> {
        let (queue, mut interval) = (self.queue.clone(), clock.interval(period, key.to_string()));
        self.pumps.spawn(async move {
            loop {
                queue.add(key.clone());
                interval.tick().await;
            }
        });
        self
    }

    /// Calls `enqueue` periodically.
    pub fn periodically(
        &mut self,
        period: Delay,
        clock: &Clock,
        enqueue: impl Fn(&Queue<K>) + Send + 'static,
    ) -> &mut Sources<K> {
        let (queue, mut interval) = (self.queue.clone(), clock.interval(period, ""));
        self.pumps.spawn(async move {
            loop {
                interval.tick().await;
                enqueue(&queue);
            }
        });
        self
    }
}

/// The handler of a source for a change.
type Enqueue<K> = Box<dyn Fn(Change<dyn Object>, &Queue<K>) + Send>;

/// Passes changes to a handler. The code is shared by all sources of a type of keys: see
/// [`Object`].
async fn pump<K: Key>(mut changes: UnboundedReceiver<Sent>, enqueue: Enqueue<K>, queue: Queue<K>) {
    // The keys are in the queue before the work of the change ends.
    while let Some((change, _work)) = changes.next().await {
        enqueue(change, &queue);
        // A long list leaves the thread to others in between.
        tokio::task::consume_budget().await;
    }
}

impl Sources<NamespacedName> {
    /// Enqueues each object of a kind that changes.
    pub fn on_each<T: Cached>(&mut self, cache: &Arc<Cache<T>>) -> &mut Sources<NamespacedName> {
        self.on_each_if(cache, |_| true)
    }

    /// Enqueues each object of a kind whose change satisfies a predicate.
    pub fn on_each_if<T: Cached>(
        &mut self,
        cache: &Arc<Cache<T>>,
        concerns: impl Fn(&Change<T>) -> bool + Send + 'static,
    ) -> &mut Sources<NamespacedName> {
        self.on(cache, move |change, queue| {
            change.name().filter(|_| concerns(change)).into_iter().for_each(|name| queue.add(name));
        })
    }
}
