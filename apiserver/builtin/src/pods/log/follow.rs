//! Following a log: until the container ends, or the pod is deleted.

use std::sync::Arc;

use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{ObjectIndex, Registry, Stored, Target, parse};
use coracle_clock::Clock;
use coracle_storage::{Key, Revision, Store, Watcher};
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;

use super::{ContainerLog, Following, LogOptions, is_running, started, status, text};

/// What is appended to a log.
pub struct Follower {
    store: Store<ObjectIndex>,
    clock: Clock,
    key: Key,
    uid: String,
    /// None: changes were missed.
    watcher: Option<Watcher<ObjectIndex>>,
    options: LogOptions,
    following: Following,
    is_done: bool,
}

/// Follows a log that was read from a pod; None if there is nothing to follow.
///
/// - `revision`: that at which the pod was read, or an earlier one
pub fn follow(
    registry: &Registry,
    target: &Target,
    pod: &Value,
    log: &mut ContainerLog,
    options: LogOptions,
    revision: Revision,
) -> Option<Follower> {
    let following = log.following.take()?;
    Some(Follower {
        store: registry.store.clone(),
        clock: registry.clock().clone(),
        key: target.key_of(&target.name),
        uid: pod.uid().to_owned(),
        watcher: registry.store.watch(&target.info.storage.bucket, revision).ok(),
        options,
        following,
        is_done: false,
    })
}

impl Follower {
    /// Each text that is appended, as it is sent.
    pub fn into_stream(self) -> BoxStream<'static, String> {
        let next = |mut follower: Follower| async move { Some((follower.next().await?, follower)) };
        stream::unfold(self, next).boxed()
    }

    /// The text that was appended, as it is sent; None at the end.
    async fn next(&mut self) -> Option<String> {
        while !self.is_done && self.following.left != Some(0) {
            let sent = match self.changed().await {
                Some(pod) => self.observe(&pod),
                None => {
                    self.is_done = true;
                    String::new()
                }
            };
            if !sent.is_empty() {
                return Some(sent);
            }
        }
        None
    }

    /// The pod after its next change; None once it is deleted.
    async fn changed(&mut self) -> Option<Value> {
        loop {
            let stored: Option<Arc<Stored>> = match &mut self.watcher {
                Some(watcher) => match watcher.next().await {
                    Ok(events) => match events.into_iter().rfind(|event| event.key == self.key) {
                        Some(event) => event.after.clone(),
                        None => continue,
                    },
                    Err(_) => {
                        self.watcher = None;
                        continue;
                    }
                },
                None => {
                    // The watch is opened before the look, so that nothing falls between them.
                    self.watcher = self.store.watch(self.key.bucket(), self.store.revision()).ok();
                    self.store.get(&self.key)
                }
            };
            return parse(stored.as_deref()?).ok();
        }
    }

    /// What is to be sent after a change of the pod.
    fn observe(&mut self, pod: &Value) -> String {
        let Following { container, started_at, read, left } = &mut self.following;
        let status = status(pod, container)
            .filter(|status| pod.uid() == self.uid && started(status, "state") == Some(started_at.as_str()));
        // A restarted container has a log of its own.
        self.is_done = !status.is_some_and(is_running);
        if status.is_none() {
            return String::new();
        }
        let text = text(pod, container);
        // A log that was replaced is a new one.
        let appended = text.strip_prefix(read.as_str()).unwrap_or(&text).trim_start_matches('\n');
        let sent = self.options.render(appended.lines(), &rfc3339(self.clock.now()), left);
        *read = text;
        sent
    }
}
