//! The stream of the picture: one for all objects, with the changes that come together in one line.
#![expect(clippy::disallowed_methods, reason = "the pace of a page protects the server")]

use std::time::Duration;

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::serve::Body;
use coracle_storage::Revision;
use coracle_ui::{Changes, Picture};
use futures::future::BoxFuture;
use futures::stream;
use http::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{Testing, history, line, read, stream as stream_response};

/// The streams at a time.
pub const MAX_STREAMS: usize = 16;
/// The time in which changes are collected.
const COALESCING: Duration = Duration::from_millis(50);
/// The part of the time in which a stream may compute pictures: one in so many.
const PART: u32 = 4;
/// The time after which a line is sent though nothing changed, so that both sides know that the
/// other is there.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The time after which the revision is sent though no node changed.
const REVISION_INTERVAL: Duration = Duration::from_secs(1);

/// A page that follows the picture.
struct Follower {
    testing: Testing,
    picture: Picture,
    revision: Revision,
    /// The next picture, while it is waited for.
    pending: Option<BoxFuture<'static, (Result<Picture>, Duration)>>,
    /// The time that the last picture took.
    took: Duration,
    sent: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Testing {
    /// Streams the changes of the picture after a revision; None for now.
    ///
    /// # Errors
    /// 410 if history does not reach back so far, 429 if there are too many streams.
    pub(super) async fn picture_stream(&self, since: Option<Revision>) -> Result<Response<Body>> {
        let permit = self.0.picture_streams.clone().try_acquire_owned();
        let permit = permit.map_err(|_| {
            Error::plain(429, "TooManyRequests", format!("{MAX_STREAMS} pages follow the picture already"))
        })?;
        let picture = self.picture(since).await?;
        let revision = number(&picture)?;
        let (testing, took, sent) = (self.clone(), Duration::ZERO, Instant::now());
        let follower = Follower { testing, picture, revision, pending: None, took, sent, _permit: permit };
        Ok(stream_response(stream::unfold(follower, |mut follower| async {
            let changes = follower.next().await?;
            Some((line(&changes), follower))
        })))
    }
}

impl Follower {
    /// Returns the next changes, or empty ones as a heartbeat; None at the end, when the store is
    /// closed.
    async fn next(&mut self) -> Option<Changes> {
        loop {
            if self.pending.is_none() && self.wait().await {
                self.pending = Some(self.later_picture());
            }
            let due = self.sent + HEARTBEAT;
            let later = match &mut self.pending {
                Some(pending) => timeout_at(due, pending).await.ok(),
                None => None,
            };
            if let Some((picture, took)) = later {
                (self.pending, self.took) = (None, took);
                let picture = picture.ok()?;
                let changes = picture.changes_since(&self.picture);
                self.revision = number(&picture).ok()?;
                self.picture = picture;
                let is_empty = changes.changed.is_empty() && changes.deleted.is_empty();
                if is_empty && self.sent.elapsed() < REVISION_INTERVAL {
                    continue;
                }
                self.sent = Instant::now();
                return Some(changes);
            }
            self.testing.0.store.health().ok()?;
            self.sent = Instant::now();
            let now = self.testing.0.clock.now().to_string();
            let oldest = history::oldest(&self.testing.0.store.snapshot()).to_string();
            return Some(Changes { oldest, now, ..self.picture.without_changes() });
        }
    }

    /// Returns the picture after a pause, and the time that it took. The wait may be longer than
    /// the heartbeat interval.
    fn later_picture(&self) -> BoxFuture<'static, (Result<Picture>, Duration)> {
        let (testing, pause) = (self.testing.clone(), COALESCING.max(self.took * PART));
        Box::pin(async move {
            sleep(pause).await;
            let began = Instant::now();
            (testing.picture(None).await, began.elapsed())
        })
    }

    /// Waits for a later revision, or until a sign of life is due.
    async fn wait(&mut self) -> bool {
        let due = self.sent + HEARTBEAT;
        self.testing.0.store.wait_for(self.revision.next(), due).await.is_ok()
    }
}

fn number(picture: &Picture) -> Result<Revision> {
    let number = picture.resource_version.parse().map(Revision);
    number.map_err(|_| read::invalid("resourceVersion", "it is no revision"))
}
