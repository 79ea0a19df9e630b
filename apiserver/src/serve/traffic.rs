//! The requests under way, the recent writes and the recent refusals, by which the state of a
//! control plane is explained.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use coracle_clock::Work;
use http::header;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::exchange::RequestContext;
use super::refusals::{Refusal, Refusals};
use crate::access::authenticate::ANONYMOUS;
use crate::registry::{AuthorRequest, MAX_TEXT_LENGTH, cut};

/// The largest number of writers that are distinguished.
const MAX_WRITERS: usize = 1000;

/// The most user agents that are remembered.
const MAX_USER_AGENTS: usize = 1000;

/// The requests under way, and the writes since somebody observes them.
#[derive(Default)]
pub struct Traffic {
    requests: Mutex<Requests>,
    observers: AtomicUsize,
    writes: Mutex<BTreeMap<Writer, u64>>,
    /// The number of times that a client on a socket got events of a watch.
    delivered: AtomicU64,
    refusals: Refusals,
}

#[derive(Default)]
struct Requests {
    under_way: HashMap<usize, Weak<RequestContext>>,
    /// The watches whose clients have not yet received the initial objects: their names.
    beginnings: BTreeMap<u64, String>,
    last_beginning: u64,
    /// The user agents of requests that succeeded.
    user_agents: HashSet<Box<str>>,
}

/// A client that writes, and the resource that it writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The user agent.
    pub user_agent: String,
    /// The resource, such as `pods/status` or `deployments.apps`.
    pub resource: String,
}

/// Observes writes: they are counted until this is dropped.
pub struct Observation(Arc<Traffic>);

/// The work of a watch until its client has taken what was there at the beginning.
pub struct Beginning {
    traffic: Arc<Traffic>,
    number: u64,
    _work: Work,
}

/// A request in progress.
pub struct RequestUnderWay {
    traffic: Arc<Traffic>,
    context: Arc<RequestContext>,
    has_succeeded: bool,
}

impl Traffic {
    /// Lists a request until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>, context: &Arc<RequestContext>) -> RequestUnderWay {
        self.requests.lock().under_way.insert(key(context), Arc::downgrade(context));
        RequestUnderWay { traffic: self.clone(), context: context.clone(), has_succeeded: false }
    }

    /// Lists a watch until the result is dropped.
    pub(super) fn begin_watch(self: &Arc<Self>, name: String, work: Work) -> Beginning {
        let mut requests = self.requests.lock();
        requests.last_beginning += 1;
        let number = requests.last_beginning;
        requests.beginnings.insert(number, name);
        Beginning { traffic: self.clone(), number, _work: work }
    }

    /// Returns the watches whose clients have not yet received the initial objects.
    pub fn beginnings(&self, limit: usize) -> Vec<String> {
        self.requests.lock().beginnings.values().take(limit).cloned().collect()
    }

    /// Returns the requests in progress: the user agent, the method and the path of each.
    pub fn under_way(&self, limit: usize) -> Vec<String> {
        let requests: Vec<_> =
            self.requests.lock().under_way.values().filter_map(Weak::upgrade).take(limit).collect();
        let mut lines: Vec<String> = requests.iter().map(|context| describe(context)).collect();
        lines.sort_unstable();
        lines
    }

    /// Returns `true` if a request came from a client with a user agent that satisfies a condition.
    pub fn has_seen(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        self.requests.lock().user_agents.iter().any(|user_agent| is_wanted(user_agent))
    }

    /// Returns the number of times that events of a watch were delivered to a client on a socket.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::SeqCst)
    }

    /// Returns the requests that were refused recently.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Counts a delivery of events to a client on a socket.
    pub fn deliver(&self) {
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts writes until the result is dropped.
    pub fn observe(self: &Arc<Self>) -> Observation {
        self.observers.fetch_add(1, Ordering::SeqCst);
        Observation(self.clone())
    }

    fn count(&self, context: &RequestContext) {
        let Some(request) = context.resource() else { return };
        let subresource = Some(&*request.subresource).filter(|name| !name.is_empty());
        let group = Some(&*request.group).filter(|group| !group.is_empty());
        let resource = subresource
            .map_or_else(|| request.resource.to_string(), |name| format!("{}/{name}", request.resource));
        let resource = group.map_or_else(|| resource.clone(), |group| format!("{resource}.{group}"));
        let writer = Writer { user_agent: user_agent(context).to_owned(), resource };
        let mut writes = self.writes.lock();
        if writes.len() < MAX_WRITERS || writes.contains_key(&writer) {
            *writes.entry(writer).or_default() += 1;
        }
    }
}

impl RequestUnderWay {
    /// Records that the request succeeded.
    pub(super) fn succeeded(&mut self) {
        self.has_succeeded = true;
        let is_write = self.context.resource().is_some_and(|request| request.verb.has_body());
        if is_write && self.traffic.observers.load(Ordering::Relaxed) > 0 {
            self.traffic.count(&self.context);
        }
    }
}

impl RequestUnderWay {
    /// Records that the request was refused, if it would have changed a resource.
    ///
    /// - `at`: the time of the response, and the newest revision of the store
    /// - `is_own`: whether the client is a part of the control plane
    pub(super) fn refused(&self, at: (Timestamp, u64), is_own: bool) {
        let context = &self.context;
        let Some((request, status)) = context.resource().zip(context.refusal.get()) else { return };
        // Conflicts of controllers are part of their work, and anonymous requests need no
        // explanation.
        if (is_own && status.code == 409) || context.user_name() == ANONYMOUS {
            return;
        }
        let author = AuthorRequest {
            user: cut(context.user_name(), MAX_TEXT_LENGTH).into(),
            user_agent: cut(user_agent(context), MAX_TEXT_LENGTH).into(),
            verb: request.verb,
            subresource: (*request.subresource).into(),
        };
        self.traffic.refusals.add(Refusal::new(request, author, status, at));
    }
}

impl Observation {
    /// Returns the writes since the first observation that is still active, by writer, most first.
    pub fn writes(&self) -> Vec<(Writer, u64)> {
        let mut writes: Vec<_> = self.0.writes.lock().clone().into_iter().collect();
        writes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        writes
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if self.0.observers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.writes.lock().clear();
        }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        self.traffic.requests.lock().beginnings.remove(&self.number);
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        let mut requests = self.traffic.requests.lock();
        requests.under_way.remove(&key(&self.context));
        let user_agent = user_agent(&self.context);
        if self.has_succeeded
            && !requests.user_agents.contains(user_agent)
            && requests.user_agents.len() < MAX_USER_AGENTS
        {
            requests.user_agents.insert(user_agent.into());
        }
    }
}

fn key(context: &Arc<RequestContext>) -> usize {
    Arc::as_ptr(context).addr()
}

fn user_agent(context: &RequestContext) -> &str {
    context.parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

fn describe(context: &RequestContext) -> String {
    format!("{} {} by {:?}", context.parts.method, context.parts.uri.path(), user_agent(context))
}
