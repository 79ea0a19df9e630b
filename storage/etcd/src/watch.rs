//! The one watch of the prefix. When it ends, it is resumed after the last revision that was
//! received completely.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use tokio::time::Instant;
use tonic::Status;

use crate::{
    client::Client,
    proto::{
        Event, EventType, KeyValue, PutRequest, Request, RequestOp, TxnRequest, WatchCommand,
        WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, header_revision, prefix_end,
        revision, to_wire,
    },
    tail::{Tail, WatchEvent},
};

/// The pauses between attempts to resume the watch.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The number of failed resumptions above which there is an outage. The restart of a member, or an
/// election, causes fewer.
const OUTAGE: u32 = 3;

/// Timeout for creating the watch.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest interval between changes that are written to find out the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The watch ID in the response to a progress request.
const PROGRESS_RESPONSE: i64 = -1;

/// The reason for which a stream ended.
enum End {
    /// The watch was interrupted. It can be resumed, perhaps with another member.
    Interrupted(String),
    /// The revision to resume from is compacted.
    Compacted(u64),
}

/// The watch of a prefix.
pub(crate) struct Watch {
    pub client: Arc<Client>,
    pub tail: Arc<Tail>,
    pub prefix: Bytes,
    /// The name, within the prefix, of the key that is written where etcd cannot be asked for the
    /// progress of its watch.
    pub progress_name: Bytes,
}

impl Watch {
    /// Watches until it is dropped. If the revision to resume from is compacted, the watch
    /// continues after the store has listed all objects.
    pub async fn run(self) {
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        loop {
            let before = self.tail.progress();
            match self.stream().await {
                End::Compacted(compact_revision) => {
                    let after = self.tail.progress();
                    tracing::warn!(
                        after,
                        compact_revision,
                        "the changes that the watch of etcd would show are compacted"
                    );
                    self.tail.lose_history().await;
                    pause = FIRST_PAUSE;
                }
                End::Interrupted(reason) => {
                    if self.tail.progress() > before {
                        pause = FIRST_PAUSE;
                        failures = 0;
                    }
                    failures += 1;
                    // An outage is reported once.
                    if failures <= OUTAGE + 1 {
                        let after = self.tail.progress();
                        tracing::warn!(%reason, after, "the watch of etcd was interrupted and is resumed");
                    }
                    if failures > OUTAGE {
                        self.tail.set_interruption(Some(reason));
                    }
                    self.client.leave_current();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// Follows one stream to its end.
    async fn stream(&self) -> End {
        let reports_progress = match self.client.status().await {
            Ok(status) => reports_progress(&status.version),
            Err(status) => return interrupted(&status),
        };
        // One command may be queued, in addition to one for each sender.
        let (mut commands, requests) = mpsc::channel(1);
        let create = WatchCreateRequest {
            key: self.prefix.clone(),
            range_end: prefix_end(&self.prefix),
            start_revision: to_wire(self.tail.progress() + 1),
            progress_notify: true,
            fragment: true,
        };
        if commands.try_send(WatchRequest { command: Some(WatchCommand::Create(create)) }).is_err() {
            return End::Interrupted("no request can be sent".to_owned());
        }
        let mut responses = match self.client.watch(requests).await {
            Ok(responses) => responses,
            Err(status) => return interrupted(&status),
        };
        let mut pending = Vec::new();
        let mut is_created = false;
        let mut last_written = None;
        loop {
            let next = async {
                match is_created {
                    true => responses.next().await,
                    false => tokio::time::timeout(CREATE_TIMEOUT, responses.next()).await.unwrap_or(None),
                }
            };
            let response = tokio::select! {
                response = next => response,
                () = self.tail.progress_requested() => {
                    if reports_progress {
                        let progress = WatchCommand::Progress(WatchProgressRequest {});
                        // If a request is already queued, its response will arrive soon.
                        drop(commands.try_send(WatchRequest { command: Some(progress) }));
                    } else if last_written.is_none_or(|at: Instant| at.elapsed() >= PROGRESS_INTERVAL) {
                        last_written = Some(Instant::now());
                        tokio::spawn(write_progress(self.client.clone(), self.progress_name.clone()));
                    }
                    continue;
                }
            };
            match response {
                None => return End::Interrupted("the stream has ended".to_owned()),
                Some(Err(status)) => return interrupted(&status),
                Some(Ok(response)) => {
                    if !is_created {
                        is_created = true;
                        self.tail.set_interruption(None);
                    }
                    if let Some(end) = self.receive(response, &mut pending, reports_progress).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Processes one response. A revision is never split between responses except for fragments,
    /// which are reassembled.
    async fn receive(
        &self,
        response: WatchResponse,
        pending: &mut Vec<Event>,
        reports_progress: bool,
    ) -> Option<End> {
        if response.compact_revision > 0 {
            return Some(End::Compacted(revision(response.compact_revision)));
        }
        if response.canceled {
            return Some(End::Interrupted(format!("the watch was canceled: {}", response.cancel_reason)));
        }
        if !response.events.is_empty() || !pending.is_empty() {
            pending.extend(response.events);
            if !response.fragment {
                let known = self.tail.progress();
                let events = watch_events(std::mem::take(pending));
                self.tail.push(events.into_iter().filter(|event| event.revision > known).collect()).await;
            }
        } else if !response.created && (response.watch_id != PROGRESS_RESPONSE || reports_progress) {
            // The watch reports its progress after all earlier changes.
            self.tail.advance(header_revision(response.header.as_ref()));
        }
        None
    }
}

/// Makes a change within the prefix, which the watch shows after all earlier changes.
async fn write_progress(client: Arc<Client>, name: Bytes) {
    let put = PutRequest { key: name, ..PutRequest::default() };
    let success = vec![RequestOp { request: Some(Request::Put(put)) }];
    if let Err(status) = client.txn(&TxnRequest { success, ..TxnRequest::default() }).await {
        tracing::warn!(%status, "the progress of the watch of etcd is unknown");
    }
}

fn interrupted(status: &Status) -> End {
    End::Interrupted(format!("{}: {}", status.code(), status.message()))
}

/// Numbers the changes of each revision.
fn watch_events(events: Vec<Event>) -> Vec<WatchEvent> {
    let mut last = (0, 0);
    let number = |event: Event| {
        let is_delete = event.r#type == EventType::Delete as i32;
        let KeyValue { key, create_revision, mod_revision, value, .. } = event.kv?;
        let at = revision(mod_revision);
        last = if last.0 == at { (at, last.1 + 1) } else { (at, 0) };
        Some(WatchEvent {
            revision: at,
            index: last.1,
            created: revision(create_revision),
            name: key,
            value: (!is_delete).then_some(value),
        })
    };
    events.into_iter().filter_map(number).collect()
}

/// Returns whether a version of etcd reports progress only after all earlier changes. Older
/// versions may report it too soon, so that Kubernetes does not rely on it either.
fn reports_progress(version: &str) -> bool {
    let numbers: Vec<u64> =
        version.split(['.', '-', '+']).take(3).map_while(|number| number.parse().ok()).collect();
    match numbers[..] {
        [3, 4, patch] => patch >= 25,
        [3, 5, patch] => patch >= 8,
        [3, minor, _] => minor > 5,
        [major, _, _] => major > 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_trusted_from_the_versions_that_order_it() {
        for (version, want) in [
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.6.0-rc.1", true),
            ("3.3.99", false),
            ("4.0.0", true),
            ("", false),
            ("unknown", false),
        ] {
            assert_eq!(reports_progress(version), want, "{version}");
        }
    }

    #[test]
    fn changes_of_one_revision_are_numbered() {
        let event = |revision, name: &'static str| Event {
            r#type: EventType::Put as i32,
            kv: Some(KeyValue {
                key: Bytes::from_static(name.as_bytes()),
                mod_revision: revision,
                ..KeyValue::default()
            }),
        };
        let events =
            watch_events(vec![event(3, "b"), event(3, "a"), event(4, "c"), event(6, "a"), event(6, "d")]);
        let ids: Vec<_> = events.iter().map(|event| (event.revision, event.index)).collect();
        assert_eq!(ids, [(3, 0), (3, 1), (4, 0), (6, 0), (6, 1)]);
    }
}
