//! The endpoints below `/coracle/v1alpha1/`, by which tests see and control what no Kubernetes API
//! has.
//!
//! | path | |
//! | --- | --- |
//! | `POST settle` | waits until nothing is left to happen at this moment of the clock: [`SettleRequest`], [`Settled`] |
//! | `GET clock` | the time of the control plane, and the timers that it waits for: [`ClockStatus`] |
//! | `GET clock?watch=1` | a line of JSON for each time that the clock comes to: [`ClockEvent`] |
//! | `POST clock` | moves a manual clock on: [`ClockRequest`], [`ClockMoved`] |
//! | `POST clock/timers` | a timer of a client, at which an advance stops: [`TimerRequest`], [`TimerSet`] |
//! | `DELETE clock/timers/ID` | removes it |
//! | `POST forks` | makes a control plane that begins with the state of this one: [`ForkRequest`], [`Fork`] |
//! | `GET forks` | the forks: [`ForkList`] |
//! | `DELETE forks/NAME` | ends one |
//! | `GET why?resource=R&namespace=N&name=N` | why an object is still there, not ready, or gone: [`Explanation`] |
//! | `GET tree?resource=R&namespace=N&name=N` | an object with its owners and dependents: [`Tree`] |
//! | `GET log?resource=R&namespace=N&name=N&since=DURATION&userAgent=PATTERN&diff=true&limit=N` | versions with their authors, and refused requests: [`Log`] |
//! | `GET diff?fork=NAME&base=NAME`, `GET diff?from=REVISION&to=REVISION` | the objects that differ: [`Diff`] |
//!
//! [`Testing::page`] has the live page below `/ui/`, which shows the same.
//!
//! They are no resources: RBAC guards them by `nonResourceURLs`, and discovery and OpenAPI do not
//! have them. [`guard`] keeps web pages from using the credentials of the browser that shows them.
//!
//! [`Testing`] has all of this for code in the process of the control plane.
#![warn(missing_docs)]

mod advance;
mod clock;
mod diff;
mod forks;
mod former;
mod guard;
mod history;
mod log;
mod outline;
mod read;
mod report;
mod rest;
mod settle;
pub mod timers;
mod turns;
mod ui;
mod why;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::{Body, PathRequest, Paths, RespondToPath, Traffic};
use coracle_clock::{Clock, ManualClock};
use coracle_storage::{Revision, Store};
use futures::StreamExt;
use http::{HeaderValue, Method, Response, StatusCode, header};
use jiff::Timestamp;

pub use advance::{ClockMoved, ClockRequest};
pub use clock::{ClockEvent, ClockMode, ClockStatus, NextTimer, TimerRequest, TimerSet};
use timers::CLOCK_RECORD;

pub use coracle_ui::{LOGIN_PATH, PREFIX as PAGE, Sessions};
pub use coracle_why::{Explanation, Tree, Writer};
pub use diff::{Diff, FieldDiff, ObjectChange, ObjectDiff};
pub use forks::{FORK_PATHS, Fork, ForkList, ForkRequest, Forks};
use log::LogRequest;
pub use log::{Log, LogEntry};
pub use read::no_fork;
pub use settle::{SettleRequest, Settled};
pub use turns::give_turns;
pub use ui::PageAuthenticator;
use why::{ObjectName, StoredObjects};

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
    clock_events: clock::ClockEvents,
    forks: OnceLock<Arc<dyn Forks>>,
    /// The reason for which the clock stands still for ever; none for most.
    frozen: OnceLock<&'static str>,
    /// Whether the control plane is being stopped.
    is_ending: tokio::sync::watch::Sender<bool>,
    /// One at a time reads many objects: a comparison, or an explanation.
    reading_turn: Arc<tokio::sync::Mutex<()>>,
    /// The streams of pictures that may yet begin.
    picture_streams: Arc<tokio::sync::Semaphore>,
}

impl Testing {
    /// Creates the test interface of a control plane.
    ///
    /// - `manual`: the handle that advances the clock; None for the machine's clock
    /// - `traffic`: the requests in progress
    pub fn new(
        clock: Clock,
        manual: Option<ManualClock>,
        store: Store<ObjectIndex>,
        traffic: Arc<Traffic>,
    ) -> Testing {
        let (turn, clock_events) = (tokio::sync::Mutex::default(), clock::ClockEvents::new());
        let client_timers = Arc::new(clock::ClientTimers::new());
        let (forks, reading_turn) = (OnceLock::new(), Arc::default());
        let picture_streams = Arc::new(tokio::sync::Semaphore::new(ui::MAX_STREAMS));
        Testing(Arc::new(Inner {
            clock,
            manual,
            store,
            traffic,
            turn,
            client_timers,
            clock_events,
            forks,
            frozen: OnceLock::new(),
            is_ending: tokio::sync::watch::Sender::new(false),
            reading_turn,
            picture_streams,
        }))
    }

    /// Adds forks.
    pub fn with_forks(self, forks: Arc<dyn Forks>) -> Testing {
        // It has none yet.
        drop(self.0.forks.set(forks));
        self
    }

    /// Marks the clock as one that never moves.
    ///
    /// - `reason`: the reason why it cannot be moved
    pub fn frozen(self, reason: &'static str) -> Testing {
        // It is no other yet.
        let _ = self.0.frozen.set(reason);
        self
    }

    /// Ends what waits for the control plane, such as an advance of its clock, with an error: without
    /// controllers, no timers and no work would be left, and it would succeed at once.
    pub fn end(&self) {
        self.0.is_ending.send_replace(true);
    }

    /// Awaits work, unless the control plane is being stopped.
    ///
    /// # Errors
    /// The errors of the work; 409 if the control plane is being stopped.
    async fn unless_ending<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut is_ending = self.0.is_ending.subscribe();
        tokio::select! {
            biased;
            _ = is_ending.wait_for(|is_ending| *is_ending) => {
                Err(read::conflict("the control plane is being stopped"))
            }
            output = work => output,
        }
    }

    /// Records each time that a manual clock reaches.
    pub fn recording(self, record: impl Fn(Timestamp) + Send + Sync + 'static) -> Testing {
        self.0.clock_events.record(record);
        self
    }

    /// Records the time of a manual clock again and again while it runs by itself, until the future
    /// is dropped.
    pub async fn record_running(self) {
        loop {
            drop(self.0.clock.sleep(CLOCK_RECORD.after(RECORD_INTERVAL)).await);
            if self.0.manual.as_ref().is_some_and(ManualClock::is_running) {
                self.0.clock_events.record_now(self.0.clock.now());
            }
        }
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Returns the endpoints of the control plane.
    ///
    /// - `names`: the names of the server, besides `localhost` and its addresses
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
        let path = request.path.strip_prefix(PREFIX);
        if let Some((forks, name)) = self.0.forks.get().zip(path.and_then(fork_of)) {
            return respond_of_forks(&**forks, name, request).await;
        }
        match (&request.parts.method, path) {
            (&Method::POST, Some("settle")) => json(&self.settle(&read::body(request)?).await?),
            (&Method::GET, Some("clock")) if request.query.flag("watch") == Some(true) => {
                Ok(stream(self.clock_events().map(|event| line(&event))))
            }
            (&Method::GET, Some("clock")) => json(&self.clock_status(ClockStatus::limit(request.query)?)),
            (&Method::POST, Some("clock")) => json(&self.move_clock(&read::body(request)?).await?),
            (&Method::POST, Some("clock/timers")) => json(&self.set_timer(&read::body(request)?)?),
            (&Method::GET, Some("diff")) => json(&self.diff(request.query).await?),
            (&Method::GET, Some("why")) => {
                let (object, now) = (ObjectName::read(request.query)?, self.0.clock.now());
                json(&self.read(move |objects| objects.explain(&object, now)).await?)
            }
            (&Method::GET, Some("tree")) => {
                let object = ObjectName::read(request.query)?;
                json(&self.read(move |objects| objects.tree(&object)).await?)
            }
            (&Method::GET, Some("log")) => {
                let (log, now) = (LogRequest::read(request.query)?, self.0.clock.now());
                json(&self.read(move |objects| objects.log(&log, now)).await?)
            }
            (_, Some("settle" | "clock" | "clock/timers" | "diff" | "why" | "tree" | "log")) => {
                Err(Error::MethodNotAllowed)
            }
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

impl Testing {
    /// Returns the objects that differ from those of a fork, or from those at another revision.
    async fn diff(&self, query: &Query) -> Result<Diff> {
        let revision = |name: &str| -> Result<Option<Revision>> {
            let text = query.first(name).filter(|text| !text.is_empty());
            let number = text.map(|text| text.parse().map(Revision)).transpose();
            number.map_err(|_| read::invalid(name, "it is no revision"))
        };
        let (from, to) = (revision("from")?, revision("to")?);
        let namespace = query.first("namespace").unwrap_or_default().to_owned();
        let store = self.0.store.clone();
        let compare: Box<dyn FnOnce() -> Result<Diff> + Send> = match (query.first("fork"), from) {
            (Some(fork), None) if to.is_none() => {
                let other = self.0.forks.get().and_then(|forks| forks.store(fork));
                let other = other.ok_or_else(|| read::no_fork(fork))?;
                let store = match query.first("base") {
                    None => store,
                    Some(base) => {
                        let found = self.0.forks.get().and_then(|forks| forks.store(base));
                        found.ok_or_else(|| read::no_fork(base))?
                    }
                };
                Box::new(move || Ok(diff::of_stores(&store, &other, &namespace)))
            }
            (None, Some(from)) => Box::new(move || diff::of_revisions(&store, from, to, &namespace)),
            _ => {
                let detail = "either a fork, or a revision from which on, and perhaps one up to which";
                return Err(read::invalid("fork, from, to", detail));
            }
        };
        self.in_turn(compare).await
    }

    /// Reads the objects of the store as they are now.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoredObjects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (store, traffic) = (self.0.store.clone(), self.0.traffic.clone());
        self.in_turn(move || read(&StoredObjects::of(store, traffic))).await
    }

    /// Runs work that reads many objects: one piece at a time, outside the threads that serve all
    /// requests.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.0.reading_turn.clone().lock_owned().await;
        // The turn lasts as long as the work, which goes on if the client leaves.
        let work = move || {
            let _turn = turn;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Error::Internal(error.to_string()))?
    }
}

/// Returns the name of the fork in a path, "" for all of them; None for another path.
fn fork_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("forks")?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/').filter(|name| !name.is_empty()) }
}

async fn respond_of_forks(
    forks: &dyn Forks,
    name: &str,
    request: &PathRequest<'_>,
) -> Result<Response<Body>> {
    match (&request.parts.method, name) {
        (&Method::POST, "") => {
            let mut response = json(&forks.create(read::body(request)?).await?)?;
            *response.status_mut() = StatusCode::CREATED;
            Ok(response)
        }
        (&Method::GET, "") => json(&ForkList { forks: forks.list() }),
        (&Method::GET, name) => match forks.list().iter().find(|fork| fork.name == name) {
            Some(fork) => json(fork),
            None => Err(no_fork(name)),
        },
        (&Method::DELETE, name) if !name.is_empty() => {
            forks.delete(name).await?;
            json(&serde_json::json!({}))
        }
        _ => Err(Error::MethodNotAllowed),
    }
}

fn json(value: &impl serde::Serialize) -> Result<Response<Body>> {
    let text = serde_json::to_vec(value).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(with_headers(Body::from(Bytes::from(text))))
}

fn line(value: &impl serde::Serialize) -> Bytes {
    // The written types have text keys only, so that this cannot fail.
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
