//! Events as client-go's recorders make them.
//!
//! Events of kube-controller-manager and kubelet are of the core group: repeated ones are counted,
//! similar ones combined, and floods dropped. Events of kube-scheduler are of `events.k8s.io`: they
//! have an [`Action`], and equal ones are a series, whatever their message is.
//!
//! A [`Recorder`] never waits: events go through a channel to one task, where a [`Correlator`]
//! decides what to write. Events that do not fit into the channel are lost, as in client-go.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::timers::EVENT_RETRY;
use coracle_clock::{Clock, Work};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Event, EventSeries, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use lru::LruCache;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::current::{current_controller, for_controller};
use super::requests::{self, ignore_not_found, ignore_status};
use super::supervise::Supervisor;

/// client-go's limits.
const REMEMBERED: usize = 4096;
/// The number of different messages from which events of one reason about one object are combined
/// ...
const SIMILAR: usize = 10;
/// ... unless the last one is longer ago than this.
const SIMILAR_PERIOD: SignedDuration = SignedDuration::from_secs(600);
/// The number of events about one object that are written at once, and the interval after which
/// another one is, in seconds.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// While the server cannot be reached everything waits for one event, so often and so long.
const TRIES: usize = 12;
const PAUSE: Duration = Duration::from_secs(10);
/// Capacity of the queue of events to write. client-go has a thousand for each component, and here
/// each simulated kubelet is a component.
const MAX_QUEUED: usize = 1 << 15;

/// client-go's `finishTime` and `refreshTime` of a series.
const SERIES_END: SignedDuration = SignedDuration::from_mins(6);
const SERIES_REFRESH: SignedDuration = SignedDuration::from_mins(30);

/// The host that instances of components are named after.
const HOST: &str = "coracle";

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

/// The member of an event of `events.k8s.io` that those of the core group do not have.
#[derive(Clone, Debug)]
pub struct Action {
    /// The action that was taken, or failed, such as `Binding`.
    pub name: &'static str,
    /// Another object that the action is about.
    pub related: Option<ObjectReference>,
}

impl From<&'static str> for Action {
    fn from(name: &'static str) -> Action {
        Action { name, related: None }
    }
}

/// Records events in the name of one component.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    host: Option<Arc<str>>,
    clock: Clock,
    events: mpsc::Sender<Recorded>,
}

/// The arguments of a recorded event, from which the object is made later.
struct Recorded {
    component: Arc<str>,
    host: Option<Arc<str>>,
    about: ObjectReference,
    r#type: EventType,
    reason: Box<str>,
    message: Box<str>,
    /// None for an event of the core group.
    action: Option<Action>,
    at: Timestamp,
    /// The controller that recorded it, by which the user agent names the field manager.
    controller: Option<&'static str>,
    /// Ends once the event is written.
    work: Work,
}

impl Recorder {
    /// Returns a recorder of the same component on this host.
    pub fn on(&self, host: &str) -> Recorder {
        Recorder { host: Some(host.into()), ..self.clone() }
    }

    /// Records an event of type Normal.
    pub fn normal(&self, about: &impl Resource<DynamicType = ()>, reason: &str, message: impl Into<String>) {
        self.event(reference(about), EventType::Normal, reason, message);
    }

    /// Records an event of type Warning.
    pub fn warning(&self, about: &impl Resource<DynamicType = ()>, reason: &str, message: impl Into<String>) {
        self.event(reference(about), EventType::Warning, reason, message);
    }

    /// Records an event about an object that is known by its reference.
    pub fn event(&self, about: ObjectReference, r#type: EventType, reason: &str, message: impl Into<String>) {
        self.record(about, r#type, reason, message.into(), None);
    }

    /// Records an event of `events.k8s.io`.
    pub fn action(
        &self,
        about: &impl Resource<DynamicType = ()>,
        r#type: EventType,
        reason: &str,
        action: impl Into<Action>,
        message: impl Into<String>,
    ) {
        let note = shortened(message.into());
        self.record(reference(about), r#type, reason, note, Some(action.into()));
    }

    fn record(
        &self,
        about: ObjectReference,
        r#type: EventType,
        reason: &str,
        message: String,
        action: Option<Action>,
    ) {
        let recorded = Recorded {
            component: self.component.clone(),
            host: self.host.clone(),
            about,
            r#type,
            reason: reason.into(),
            message: message.into_boxed_str(),
            action,
            at: self.clock.now(),
            controller: current_controller(),
            work: self.clock.activity().begin(),
        };
        if let Err(TrySendError::Full(lost)) = self.events.try_send(recorded) {
            tracing::debug!(reason = %lost.reason, "an event was lost: too many wait to be written");
        }
    }
}

impl Recorded {
    /// Converts a recorded event to the API's object. The returned work ends once that is written.
    ///
    /// - `named_at`: the time in the event's name, which no other event may share
    fn into_event(self, named_at: Timestamp) -> (Event, Work) {
        let mut event = Event { involved_object: self.about, ..Event::default() };
        event.metadata.namespace = event.involved_object.namespace.clone().or(Some("default".to_owned()));
        event.metadata.name = Some(name_of(&event.involved_object, named_at));
        event.type_ = Some(format!("{:?}", self.r#type));
        event.reason = Some(self.reason.into());
        event.message = Some(self.message.into());
        let host = self.host.as_deref().map(str::to_owned);
        let component = Some(self.component.as_ref().to_owned());
        if let Some(action) = self.action {
            event.action = Some(action.name.to_owned());
            event.related = action.related;
            event.event_time = Some(MicroTime(self.at));
            event.reporting_instance = Some(format!("{}-{HOST}", self.component));
            event.reporting_component = component;
            return (event, self.work);
        }
        event.source = Some(EventSource { component: component.clone(), host: host.clone() });
        event.reporting_instance = host;
        event.reporting_component = component;
        event.count = Some(1);
        event.first_timestamp = Some(Time(self.at));
        event.last_timestamp = Some(Time(self.at));
        (event, self.work)
    }
}

/// Shortens the note of an event of `events.k8s.io` to its limit.
fn shortened(mut note: String) -> String {
    const LIMIT: usize = 1024;
    const END: &str = " ...";
    if note.len() > LIMIT {
        let end = (0..=LIMIT - END.len()).rev().find(|end| note.is_char_boundary(*end));
        note.truncate(end.unwrap_or_default());
        note.push_str(END);
    }
    note
}

/// Returns a reference to an object, with the resource version that the event is about.
fn reference(about: &impl Resource<DynamicType = ()>) -> ObjectReference {
    let resource_version = about.meta().resource_version.clone();
    ObjectReference { resource_version, ..about.object_ref(&()) }
}

fn name_of(about: &ObjectReference, now: Timestamp) -> String {
    let name =
        |of: &Option<String>| format!("{}.{:x}", of.as_deref().unwrap_or_default(), now.as_nanosecond());
    let like_the_object = name(&about.name);
    let is_fit = like_the_object.len() <= 253
        && like_the_object.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    // Some valid names of objects are not valid as the name of an event.
    if is_fit { like_the_object } else { name(&about.uid) }
}

/// The events of one instant: under a manual clock an object may have many.
#[derive(Default)]
struct Moment {
    at: Timestamp,
    /// The number of events so far, by the object's namespace and name and by the microseconds
    /// derived from the event's content.
    counts: HashMap<(Option<String>, Option<String>, i64), i64>,
}

impl Moment {
    /// The number of events after which the counts are reset.
    const MAX_EVENTS: usize = 10_000;

    /// Returns a unique time for an event's name: no other event of the object has it.
    ///
    /// - `is_still`: whether the clock is manual. The time is then derived from the content of the
    ///   event, so that it does not depend on the order in which several are recorded.
    fn next(&mut self, event: &Recorded, is_still: bool) -> Timestamp {
        if event.at != self.at || self.counts.len() >= Moment::MAX_EVENTS {
            *self = Moment { at: event.at, counts: HashMap::new() };
        }
        let mut micros = 0;
        if is_still {
            let mut hasher = DefaultHasher::new();
            (&event.component, &event.reason, &event.message).hash(&mut hasher);
            micros = i64::try_from(hasher.finish() % 1_000_000).unwrap_or_default();
        }
        let key = (event.about.namespace.clone(), event.about.name.clone(), micros);
        let count = self.counts.entry(key).or_default();
        let nanos = SignedDuration::from_nanos(1000 * micros + *count);
        *count += 1;
        event.at.saturating_add(nanos).unwrap_or(event.at)
    }
}

/// The channel for the events of all components.
#[derive(Clone)]
pub(super) struct Broadcaster {
    clock: Clock,
    events: mpsc::Sender<Recorded>,
}

impl Broadcaster {
    /// Starts the task, which ends with the last recorder.
    pub(super) fn start(client: Client, clock: Clock, supervisor: Supervisor) -> Broadcaster {
        let (sender, events) = mpsc::channel::<Recorded>(MAX_QUEUED);
        let broadcaster = Broadcaster { clock: clock.clone(), events: sender };
        let handler = move || {
            let (client, clock) = (client.clone(), clock.clone());
            let mut correlator = Correlator::new();
            let mut moment = Moment::default();
            move |recorded: Recorded| {
                let named_at = moment.next(&recorded, clock.turns().is_some());
                let controller = recorded.controller;
                let (event, work) = recorded.into_event(named_at);
                let event = correlator.correlate(event, clock.now());
                let delivery = deliver(client.clone(), clock.clone(), event).map(|()| drop(work));
                async move {
                    match controller {
                        Some(name) => for_controller(name, delivery).await,
                        None => delivery.await,
                    }
                }
            }
        };
        tokio::spawn(async move { supervisor.consume("events", events, handler).await });
        broadcaster
    }

    pub(super) fn recorder(&self, component: &str) -> Recorder {
        Recorder {
            component: component.into(),
            host: None,
            clock: self.clock.clone(),
            events: self.events.clone(),
        }
    }
}

/// Writes an event, if there is one. Failures are ignored.
async fn deliver(client: Client, clock: Clock, event: Option<Event>) {
    let Some(event) = event else { return };
    for _ in 0..TRIES {
        match write(&client, &event).await {
            Ok(()) => return,
            // A rejected event would be rejected again.
            Err(error @ kube::Error::Api(_)) => {
                tracing::debug!(%error, "an event was not written");
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "an event was not written yet");
                drop(clock.sleep(EVENT_RETRY.after(PAUSE)).await);
            }
        }
    }
}

async fn write(client: &Client, event: &Event) -> kube::Result<()> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    if event.count > Some(1) || event.series.is_some() {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let patch = match &event.series {
            Some(series) => json!({"series": series}),
            None => json!({
                "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message,
            }),
        };
        let patched = events.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if ignore_not_found(patched)?.is_some() {
            return Ok(());
        }
    }
    // The namespace may be terminating.
    ignore_status(403, requests::create(&events, event).await).map(|_| ())
}

/// Decides, from earlier events, whether and how an event is written.
struct Correlator {
    /// The written events, by the key under which events are equal.
    written: Remembered<Written>,
    similar: Remembered<Similar>,
    budgets: Remembered<Budget>,
    /// The events with an action, by the key of their series.
    series: Remembered<Series>,
}

/// The last [`REMEMBERED`] entries. An empty one allocates no memory.
struct Remembered<T>(LruCache<String, T>);

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered(LruCache::unbounded())
    }
}

impl<T> Remembered<T> {
    fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        self.0.get_mut(key)
    }

    fn put(&mut self, key: String, value: T) {
        self.make_room(&key);
        self.0.put(key, value);
    }

    fn get_or_insert_mut(&mut self, key: String, value: impl FnOnce() -> T) -> &mut T {
        self.make_room(&key);
        self.0.get_or_insert_mut(key, value)
    }

    fn make_room(&mut self, key: &str) {
        if self.0.len() >= REMEMBERED && !self.0.contains(key) {
            self.0.pop_lru();
        }
    }
}

struct Written {
    name: String,
    count: i32,
    first: Option<Time>,
}

struct Series {
    name: String,
    count: i32,
    /// The time of the last event.
    last: Timestamp,
    /// The time at which the number was written.
    written: Timestamp,
}

struct Similar {
    messages: HashSet<String>,
    last: Timestamp,
}

struct Budget {
    left: f64,
    at: Timestamp,
}

impl Correlator {
    fn new() -> Correlator {
        Correlator {
            written: Remembered::default(),
            similar: Remembered::default(),
            budgets: Remembered::default(),
            series: Remembered::default(),
        }
    }

    /// Returns the event to write: a new one with a count of 1, or an earlier one with a higher
    /// count. Returns `None` if there are too many events.
    fn correlate(&mut self, event: Event, now: Timestamp) -> Option<Event> {
        if event.action.is_some() {
            return self.correlate_action(event, now);
        }
        let budget = about(&event);
        let (mut event, key) = self.combine(event, now);
        if let Some(written) = self.written.get_mut(&key) {
            written.count += 1;
            event.metadata.name = Some(written.name.clone());
            event.count = Some(written.count);
            event.first_timestamp = written.first.clone();
        } else {
            let name = event.metadata.name.clone().unwrap_or_default();
            self.written.put(key, Written { name, count: 1, first: event.first_timestamp.clone() });
        }
        self.spend(budget, now).then_some(event)
    }

    /// Returns the first event of a series, and the second one, which makes it a series. Of later
    /// ones only the number is written, every [`SERIES_REFRESH`]. A series ends after a pause of
    /// [`SERIES_END`].
    fn correlate_action(&mut self, mut event: Event, now: Timestamp) -> Option<Event> {
        let key = series_key(&event);
        let going_on = self.series.get_mut(&key).filter(|known| now.duration_since(known.last) <= SERIES_END);
        let Some(series) = going_on else {
            let name = event.metadata.name.clone().unwrap_or_default();
            self.series.put(key, Series { name, count: 1, last: now, written: now });
            return Some(event);
        };
        series.count = series.count.saturating_add(1);
        series.last = now;
        if series.count > 2 && now.duration_since(series.written) < SERIES_REFRESH {
            return None;
        }
        series.written = now;
        event.metadata.name = Some(series.name.clone());
        event.series =
            Some(EventSeries { count: Some(series.count), last_observed_time: Some(MicroTime(now)) });
        Some(event)
    }

    /// Returns the event, or after many similar ones an event that stands for all of them; and the
    /// key by which equal events are found.
    fn combine(&mut self, mut event: Event, now: Timestamp) -> (Event, String) {
        let group = format!("{} {}", about(&event), event.reason.as_deref().unwrap_or_default());
        let part = event.involved_object.field_path.clone().unwrap_or_default();
        let message = event.message.clone().unwrap_or_default();
        let similar =
            self.similar.get_or_insert_mut(group.clone(), || Similar { messages: HashSet::new(), last: now });
        if now.duration_since(similar.last) > SIMILAR_PERIOD {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR {
            return (event, format!("{group} {part} {message}"));
        }
        similar.messages.remove(&message);
        event.metadata.name = Some(name_of(&event.involved_object, now));
        event.message = Some(format!("(combined from similar events): {message}"));
        event.reporting_component = None;
        event.reporting_instance = None;
        (event, group)
    }

    fn spend(&mut self, key: String, now: Timestamp) -> bool {
        let budget = self.budgets.get_or_insert_mut(key, || Budget { left: BURST, at: now });
        let refilled = now.duration_since(budget.at).as_secs_f64() / REFILL_SECONDS;
        budget.left = (budget.left + refilled).min(BURST);
        budget.at = now;
        let enough = budget.left >= 1.0;
        if enough {
            budget.left -= 1.0;
        }
        enough
    }
}

/// Returns the component, the object and the type of an event, as the key by which floods are
/// counted.
fn about(event: &Event) -> String {
    let object = &event.involved_object;
    let component = event.source.as_ref().and_then(|source| source.component.as_ref());
    let parts = [
        component,
        event.reporting_instance.as_ref(),
        object.api_version.as_ref(),
        object.kind.as_ref(),
        object.namespace.as_ref(),
        object.name.as_ref(),
        object.uid.as_ref(),
        event.type_.as_ref(),
    ];
    parts.map(|part| part.map(String::as_str).unwrap_or_default()).join(" ")
}

/// Returns the key of the events of a series.
fn series_key(event: &Event) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let object = |object: &ObjectReference| {
        [&object.kind, &object.namespace, &object.name, &object.uid, &object.resource_version]
            .map(part)
            .join(" ")
    };
    let related = event.related.as_ref().map(object).unwrap_or_default();
    let [instance, class, action, reason] =
        [&event.reporting_instance, &event.type_, &event.action, &event.reason].map(part);
    format!("{instance} {class} {action} {reason} {} {related}", object(&event.involved_object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, message: &str, now: Timestamp) -> Event {
        let about = ObjectReference { name: Some("web".to_owned()), ..ObjectReference::default() };
        let mut event = Event { involved_object: about, ..Event::default() };
        event.metadata.name = Some(name_of(&event.involved_object, now));
        event.reason = Some(reason.to_owned());
        event.message = Some(message.to_owned());
        event
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn repeated_events_are_counted() {
        let mut correlator = Correlator::new();
        let counts = |correlator: &mut Correlator, message, second| {
            correlator
                .correlate(event("R", message, at(second)), at(second))
                .map(|e| (e.count.unwrap_or(1), e.metadata.name.unwrap()))
        };
        let first = counts(&mut correlator, "a", 1);
        assert_eq!(first.as_ref().map(|f| f.0), Some(1));
        let name = first.unwrap().1;
        assert_eq!(counts(&mut correlator, "a", 2), Some((2, name.clone())));
        assert_eq!(counts(&mut correlator, "b", 3).map(|e| e.0), Some(1));
        assert_eq!(counts(&mut correlator, "a", 4), Some((3, name)));
    }

    #[tokio::test]
    async fn actions_are_a_series_whatever_their_message_is() {
        let (clock, _mock) = Clock::mock(at(7));
        let (events, mut queued) = mpsc::channel(9);
        let recorder = Recorder { component: "default-scheduler".into(), host: None, clock, events };
        let mut pod = k8s_openapi::api::core::v1::Pod::default();
        pod.metadata.name = Some("web".to_owned());
        let long = "é".repeat(600);
        for message in [&*long, "two", "three", "four"] {
            recorder.action(&pod, EventType::Warning, "FailedScheduling", "Scheduling", message);
        }
        let mut correlator = Correlator::new();
        let mut next = |second| {
            let (event, _) = queued.try_recv().unwrap().into_event(at(7));
            correlator.correlate(event, at(second))
        };
        let first = next(8).unwrap();
        assert_eq!(first.message.as_deref(), Some(&*format!("{} ...", "é".repeat(510))));
        let got =
            json!([first.action, first.event_time, first.count, first.source, first.reporting_instance]);
        assert_eq!(
            got,
            json!(["Scheduling", "1970-01-01T00:00:07.000000Z", null, null, "default-scheduler-coracle"])
        );
        let second = next(8).unwrap();
        assert_eq!(second.metadata.name, first.metadata.name);
        assert_eq!(second.series.and_then(|series| series.count), Some(2));
        assert!(next(9).is_none());
        let after_a_pause = next(9 + 361).unwrap();
        assert_eq!(after_a_pause.series, None);
    }

    #[test]
    fn events_are_about_an_object_as_it_was() {
        let mut pod = k8s_openapi::api::core::v1::Pod::default();
        pod.metadata.name = Some("web".to_owned());
        pod.metadata.uid = Some("u".to_owned());
        pod.metadata.resource_version = Some("7".to_owned());
        let about =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "resourceVersion": "7"});
        assert_eq!(json!(reference(&pod)), about);
    }

    #[tokio::test]
    async fn events_beyond_the_queue_are_lost() {
        let (clock, _mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let (events, mut queued) = mpsc::channel(2);
        let recorder = Recorder { component: "kubelet".into(), host: None, clock, events };
        for message in ["one", "two", "three"] {
            recorder.on("node-0").event(ObjectReference::default(), EventType::Warning, "R", message);
        }
        let (first, _) =
            queued.recv().await.map(|recorded| recorded.into_event(Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!((first.message.as_deref(), first.type_.as_deref()), (Some("one"), Some("Warning")));
        assert_eq!(first.source.and_then(|source| source.host).as_deref(), Some("node-0"));
        assert_eq!(queued.len(), 1);
    }

    #[test]
    fn events_are_named_after_the_object_if_they_can() {
        for (object, want) in
            [("web", "web.3b9aca00"), ("system:node", "u.3b9aca00"), (&"x".repeat(250), "u.3b9aca00")]
        {
            let about = ObjectReference {
                name: Some(object.to_owned()),
                uid: Some("u".to_owned()),
                ..ObjectReference::default()
            };
            assert_eq!(name_of(&about, at(1)), want);
        }
    }

    #[test]
    fn similar_events_are_combined_and_floods_stopped() {
        let mut correlator = Correlator::new();
        let mut written_events = Vec::new();
        for i in 0..30 {
            let now = at(i);
            let written = correlator.correlate(event("R", &format!("message {i}"), now), now);
            written_events.push(written.map(|e| (e.message.unwrap_or_default(), e.count.unwrap_or(1))));
        }
        assert_eq!(written_events[8], Some(("message 8".to_owned(), 1)));
        assert_eq!(written_events[9], Some(("(combined from similar events): message 9".to_owned(), 1)));
        assert_eq!(written_events[10], Some(("(combined from similar events): message 10".to_owned(), 2)));
        assert_eq!(written_events.iter().flatten().count(), 25);
        let later = at(30 + 601);
        let fresh = correlator.correlate(event("R", "again", later), later);
        assert_eq!(fresh.and_then(|e| e.message), Some("again".to_owned()));
    }
}
