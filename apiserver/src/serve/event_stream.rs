//! The stream of a watch: its events in chunks, as the client takes them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, poll, stream};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::order::Place;
use super::poll_when_woken::poll_when_woken;
use super::traffic::{Beginning, Traffic};
use crate::registry::watch::{Notice, Watch};
use crate::representation::watch::Frames;
use crate::resource_info::ResourceInfo;
use crate::telemetry::metrics::{GaugeGuard, WatchEvents};

/// The time that events wait for others after a small chunk, since each chunk costs a system call
/// and a record of TLS, here and at the client. The first one after a rest does not wait.
const BATCH_DELAY: Duration = Duration::from_millis(1);
/// The maximum delay, where many watch a kind. Which objects they select does not matter.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(4);
/// The number of watches of a kind that adds one [`BATCH_DELAY`].
const WATCHES_PER_STEP: u32 = 25;
/// A chunk that is larger gains nothing by being larger still.
const SMALL: usize = 16 << 10;
/// Frames that are this long together are a chunk. Those that wait are shared with other watches,
/// while a chunk is a copy.
const CHUNK: usize = 16 << 10;

/// A watch on its way to a client.
pub struct EventStream {
    info: Arc<ResourceInfo>,
    watch: Watch,
    frames: Frames,
    counters: WatchEvents,
    /// Among the watches of the client, if that is not in this process: then events neither wait
    /// for each other nor for those of other watches.
    place: Option<Place>,
    /// Changes that are yet to be handed out.
    held: VecDeque<Notice>,
    /// Frames that may be handed out.
    ready: VecDeque<Bytes>,
    /// The earliest time at which the next chunk is made.
    not_before: Option<Instant>,
    /// The work until the client has what was there at the beginning.
    beginning: Option<Beginning>,
    /// Counts what it delivers, if the client is on a socket.
    traffic: Option<Arc<Traffic>>,
    /// Counts the watch for as long as it lasts.
    _lasting: Option<GaugeGuard>,
}

impl EventStream {
    /// Creates the stream of a watch.
    ///
    /// - `remote`: for a client on a socket, the place among its watches, and what counts the
    ///   deliveries.
    /// - `beginning`: the work that ends when the client has what was there at the beginning.
    /// - `lasting`: counts it for as long as it lasts.
    pub fn new(
        info: &Arc<ResourceInfo>,
        watch: Watch,
        frames: Frames,
        counters: WatchEvents,
        remote: Option<(Place, Arc<Traffic>)>,
        beginning: Beginning,
        lasting: Option<GaugeGuard>,
    ) -> EventStream {
        let (place, traffic) = remote.unzip();
        EventStream {
            beginning: Some(beginning),
            traffic,
            info: info.clone(),
            watch,
            frames,
            counters,
            place,
            held: VecDeque::new(),
            ready: VecDeque::new(),
            not_before: None,
            _lasting: lasting,
        }
    }

    /// Returns the chunks, until the watch or the server ends. When the next chunk is polled for,
    /// the previous one has reached the connection.
    pub fn chunks(self, mut closing: Receiver<bool>) -> impl Stream<Item = Bytes> + Send {
        let closed = poll_when_woken(async move { drop(closing.wait_for(|closing| *closing).await) });
        stream::unfold((self, closed), async |(mut stream, mut closed)| {
            if stream.ready.is_empty() {
                tokio::select! {
                    biased;
                    () = closed.select_next_some() => return None,
                    encoded = stream.encode_next() => encoded?,
                }
            }
            Some((next_chunk(&mut stream.ready), (stream, closed)))
        })
    }

    /// Makes the frames of the next changes that may be handed out. None if the watch is over.
    async fn encode_next(&mut self) -> Option<()> {
        if self.held.is_empty() {
            self.watch.handed_out();
            if let Some(place) = &mut self.place {
                place.wait();
            }
            self.held = self.next_changes().await?.into();
            self.enter();
            self.gather().await;
            // The time that others wait for it begins now.
            self.enter();
        } else {
            self.enter();
        }
        let notices = self.take_deliverable().await;
        self.ready = self.frames.encode(&self.info, &notices).await?.into();
        self.ready.iter().for_each(|frame| self.counters.sent(frame.len()));
        self.traffic.iter().for_each(|traffic| traffic.deliver());
        let is_small = self.ready.iter().map(Bytes::len).sum::<usize>() < SMALL;
        let waits = is_small && self.place.is_some();
        self.not_before = waits.then(|| Instant::now() + batch_delay(self.watch.watchers()));
        Some(())
    }

    /// Waits for the next changes. Once the watch waits for events, those count as work until it
    /// has handled them.
    async fn next_changes(&mut self) -> Option<Vec<Notice>> {
        let mut next = pin!(self.watch.next());
        if let Poll::Ready(changes) = poll!(next.as_mut()) {
            return changes;
        }
        self.beginning = None;
        next.await
    }

    /// Takes a ticket for the first change.
    fn enter(&mut self) {
        let revision = self.held.front().and_then(|notice| notice.revision);
        if let (Some(place), Some(revision)) = (&mut self.place, revision) {
            place.enter(revision);
        }
    }

    /// Waits a moment after a small chunk, and adds the changes that came meanwhile.
    async fn gather(&mut self) {
        if let Some(time) = self.not_before.filter(|time| *time > Instant::now()) {
            sleep_until(time).await;
            self.held.extend(self.watch.try_next().await);
        }
    }

    /// Waits until the first change may be delivered, and takes it with those that follow before
    /// any of another watch.
    async fn take_deliverable(&mut self) -> Vec<Notice> {
        let Some(place) = &mut self.place else { return std::mem::take(&mut self.held).into() };
        let window = place.delivery_window().await;
        let is_included = |notice: &&Notice| notice.revision.is_none_or(|revision| window.includes(revision));
        let count = self.held.iter().take_while(is_included).count();
        self.held.drain(..count.max(1)).collect()
    }
}

/// Returns the time that events wait for others, which grows with the number of watches of the
/// kind.
fn batch_delay(watches: usize) -> Duration {
    let watches = u32::try_from(watches).unwrap_or(u32::MAX);
    BATCH_DELAY.saturating_mul(1 + watches / WATCHES_PER_STEP).min(MAX_BATCH_DELAY)
}

/// Takes frames that make a chunk.
fn next_chunk(frames: &mut VecDeque<Bytes>) -> Bytes {
    let mut bytes = 0;
    let fitting = frames.iter().take_while(|frame| {
        let has_room = bytes < CHUNK;
        bytes += frame.len();
        has_room
    });
    match fitting.count() {
        0 | 1 => frames.pop_front().unwrap_or_default(),
        many => frames.drain(..many).collect::<Vec<_>>().concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_longer_where_many_watch() {
        let millis = [1, 24, 25, 50, 75, usize::MAX].map(|watches| batch_delay(watches).as_millis());
        assert_eq!(millis, [1, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn frames_go_together_up_to_a_chunk() {
        let chunks = |sizes: &[usize]| {
            let mut frames: VecDeque<Bytes> = sizes.iter().map(|size| vec![b'x'; *size].into()).collect();
            let mut chunks = Vec::new();
            while !frames.is_empty() {
                chunks.push(next_chunk(&mut frames).len());
            }
            chunks
        };
        let half = CHUNK / 2;
        assert_eq!(chunks(&[1, 2, 3]), [6]);
        assert_eq!(chunks(&[half, half, half]), [CHUNK, half]);
        assert_eq!(chunks(&[half, CHUNK, 1]), [half + CHUNK, 1]);
        assert_eq!(chunks(&[5 * CHUNK, 1, 1]), [5 * CHUNK, 2]);
    }
}
