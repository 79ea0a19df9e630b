//! The endpoints below `/coracle/v1alpha1/`, by which tests see and control what no Kubernetes API has.
//!
//! | path | |
//! | --- | --- |
//! | `POST settle` | waits until nothing is left to happen at this moment of the clock: [`SettleRequest`], [`Settled`] |
//! | `GET clock` | the time of the control plane, and the timers that it waits for: [`ClockStatus`] |
//! | `GET clock?watch=1` | a line of JSON for each time that the clock comes to: [`ClockEvent`] |
//! | `POST clock` | moves a manual clock on: [`ClockRequest`], [`ClockMoved`] |
//! | `POST clock/timers` | a timer of a client, at which an advance stops: [`TimerRequest`], [`TimerSet`] |
//! | `DELETE clock/timers/ID` | removes it |
//!
//! They are no resources: RBAC guards them by `nonResourceURLs`, and discovery and OpenAPI do not have them. [`guard`] keeps web pages
//! from using the credentials of the browser that shows them.
//!
//! [`Testing`] has all of this for code in the process of the control plane.
#![warn(missing_docs)]

mod advance;
mod clock;
mod guard;
mod read;
mod report;
mod rest;
mod settle;
pub mod timers;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::{Body, PathRequest, Paths, RespondToPath, Traffic};
use coracle_clock::{Clock, ManualClock};
use coracle_storage::Store;
use futures::StreamExt;
use http::{HeaderValue, Method, Response, header};
use jiff::Timestamp;

pub use advance::{ClockMoved, ClockRequest};
pub use clock::{ClockEvent, ClockMode, ClockStatus, NextTimer, TimerRequest, TimerSet};
use timers::CLOCK_RECORD;

pub use settle::{SettleRequest, Settled};
pub use turns::give_turns;

/// The time after which the time of a clock that runs by itself is recorded again.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// The prefix of all paths.
pub const PREFIX: &str = "/coracle/v1alpha1/";

/// The clock of a control plane, and its state of rest. Clones share them.
#[derive(Clone)]
pub struct Testing(Arc<Inner>);

struct Inner {
    clock: Clock,
    /// None: the clock is the machine's.
    manual: Option<ManualClock>,
    store: Store<ObjectIndex>,
    traffic: Arc<Traffic>,
    /// One advance at a time.
    turn: tokio::sync::Mutex<()>,
    client_timers: Arc<clock::ClientTimers>,
    moves: clock::Moves,
}

impl Testing {
    /// The clock and the state of rest of a control plane.
    ///
    /// - `manual`: the handle that advances the clock; None if it is the machine's
    /// - `traffic`: the requests under way
    pub fn new(
        clock: Clock,
        manual: Option<ManualClock>,
        store: Store<ObjectIndex>,
        traffic: Arc<Traffic>,
    ) -> Testing {
        let (turn, moves) = (tokio::sync::Mutex::default(), clock::Moves::new());
        let client_timers = Arc::new(clock::ClientTimers::new());
        Testing(Arc::new(Inner { clock, manual, store, traffic, turn, client_timers, moves }))
    }

    /// The same, and each time that a manual clock comes to is recorded.
    pub fn recording(self, record: impl Fn(Timestamp) + Send + Sync + 'static) -> Testing {
        self.0.moves.record(record);
        self
    }

    /// Records the time of a manual clock again and again while it runs by itself, until the future is dropped.
    pub async fn record_running(self) {
        loop {
            drop(self.0.clock.sleep(CLOCK_RECORD.after(RECORD_INTERVAL)).await);
            if self.0.manual.as_ref().is_some_and(ManualClock::is_running) {
                self.0.moves.record_now(self.0.clock.now());
            }
        }
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The endpoints of the control plane.
    ///
    /// - `names`: the names of the server, beside `localhost` and its addresses
    pub fn paths(self, names: Vec<String>) -> Paths {
        let names: Arc<[String]> = names.into();
        let respond: RespondToPath = Arc::new(move |request| {
            let (testing, names) = (self.clone(), names.clone());
            Box::pin(async move { testing.respond(&names, &request).await })
        });
        Paths { prefix: PREFIX, respond }
    }

    async fn respond(&self, names: &[String], request: &PathRequest<'_>) -> Result<Response<Body>> {
        guard::check(request, names)?;
        match (&request.parts.method, request.path.strip_prefix(PREFIX)) {
            (&Method::POST, Some("settle")) => json(&self.settle(&read::body(request)?).await?),
            (&Method::GET, Some("clock")) if request.query.flag("watch") == Some(true) => {
                Ok(stream(self.clock_events().map(|event| line(&event))))
            }
            (&Method::GET, Some("clock")) => json(&self.clock_status(ClockStatus::limit(request.query)?)),
            (&Method::POST, Some("clock")) => json(&self.move_clock(&read::body(request)?).await?),
            (&Method::POST, Some("clock/timers")) => json(&self.set_timer(&read::body(request)?)?),
            (_, Some("settle" | "clock" | "clock/timers")) => Err(Error::MethodNotAllowed),
            (method, Some(path)) => match path.strip_prefix("clock/timers/") {
                Some(id) if method == Method::DELETE => {
                    self.remove_timer(id).await?;
                    json(&serde_json::json!({}))
                }
                Some(_) => Err(Error::MethodNotAllowed),
                None => Err(Error::PageNotFound),
            },
            _ => Err(Error::PageNotFound),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<Response<Body>> {
    let text = serde_json::to_vec(value).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(with_headers(Body::from(Bytes::from(text))))
}

fn line(value: &impl serde::Serialize) -> Bytes {
    // What is written here has no keys that are no text.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

fn stream(lines: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    with_headers(Body::stream(lines))
}

fn with_headers(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
