//! Following a log until the container ends or the pod is deleted.

use std::sync::Arc;

use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apiserver::registry::{ObjectIndex, Registry, Stored, Target, parse};
use coracle_clock::Clock;
use coracle_storage::{Key, Revision, Store, Watcher};
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;

use super::{ContainerLog, ContainerRun, Following, LogLine, LogOptions, status};
use crate::timers::FOLLOWED_LOG;

/// Waits for text that is appended to a log.
pub struct Follower {
    store: Store<ObjectIndex>,
    clock: Clock,
    key: Key,
    uid: String,
    /// The watcher of the pod; None if changes were missed.
    watcher: Option<Watcher<ObjectIndex>>,
    options: LogOptions,
    following: Following,
    is_done: bool,
}

/// Follows a log that was read from a pod; None if there is nothing to follow.
///
/// - `revision`: the revision at which the pod was read, or an earlier one
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
    /// Streams the appended text, in pieces.
    pub fn into_stream(self) -> BoxStream<'static, String> {
        let next = |mut follower: Follower| async move { Some((follower.next().await?, follower)) };
        stream::unfold(self, next).boxed()
    }

    /// Waits for the next text that the log gets, and returns it; None at the end of the log.
    async fn next(&mut self) -> Option<String> {
        loop {
            let sent = self.due();
            if !sent.is_empty() {
                return Some(sent);
            }
            if self.is_done || self.following.left == Some(0) {
                return None;
            }
            let clock = self.clock.clone();
            let next = self.following.lines.get(self.following.passed).map(|line| line.time);
            let due = async move {
                match next {
                    Some(time) => drop(clock.until(&FOLLOWED_LOG, time).await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                pod = self.changed() => match pod {
                    Some(pod) => self.observe(&pod),
                    None => self.is_done = true,
                },
                () = due => {}
            }
        }
    }

    /// Returns the text of the lines that are due by now, and moves past them.
    fn due(&mut self) -> String {
        let now = self.clock.now();
        let Following { lines, passed, left, .. } = &mut self.following;
        let due: Vec<&LogLine> = lines[*passed..].iter().take_while(|line| line.time <= now).collect();
        *passed += due.len();
        self.options.render(due.into_iter(), left)
    }

    /// Waits for the next change of the pod, and returns the pod; None once it is deleted.
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
                    // The watch is opened before the pod is read, so that no change is missed
                    // between them.
                    self.watcher = self.store.watch(self.key.bucket(), self.store.revision()).ok();
                    self.store.get(&self.key)
                }
            };
            return parse(stored.as_deref()?).ok();
        }
    }

    /// Takes notice of a change of the pod.
    fn observe(&mut self, pod: &Value) {
        let now = self.clock.now();
        let Following { writer, container, started_at, lines, passed, .. } = &mut self.following;
        let status = status(pod, container).filter(|_| pod.uid() == self.uid);
        // A restarted container has a log of its own.
        let mut runs =
            ["state", "lastState"].into_iter().filter_map(|state| ContainerRun::of(status?, state));
        let Some(run) = runs.find(|run| run.started_at == started_at) else {
            lines.truncate(*passed);
            self.is_done = true;
            return;
        };
        let changed = writer.lines(pod, container, run.started);
        let texts = |lines: &[LogLine]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        let is_appended = texts(&changed).starts_with(&texts(lines));
        // A log that was replaced is a new one, and nothing is written in the past.
        let known = if is_appended { lines.len() } else { 0 };
        if !is_appended {
            (*passed, *lines) = (0, Vec::new());
        }
        lines
            .extend(changed.into_iter().skip(known).map(|line| LogLine { time: line.time.max(now), ..line }));
        if run.finished.is_some() {
            let written = lines.iter().take_while(|line| run.has_written(line, now)).count().max(*passed);
            lines.truncate(written);
            lines[*passed..].iter_mut().for_each(|line| line.time = line.time.min(now));
            self.is_done = true;
        }
    }
}
