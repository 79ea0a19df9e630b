//! The loop itself, on a mocked clock and a scripted API.

mod election;
mod lists;
mod selection;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::timers::RETRY;
use coracle_clock::{Clock, MockClock};
use futures::FutureExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::cache::{self, Cache, NamespacedName};
use super::metrics::Metrics;
use super::supervise::Supervisor;
use super::*;

/// Creates a context with an API that never responds.
fn context() -> (Context<()>, MockClock) {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let silent = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    let client = Client::new(silent, "default");
    let metrics = Metrics::new(prometheus::Registry::new());
    (Context::new(client, clock, metrics, ()), mock)
}

#[tokio::test]
async fn a_panic_starts_a_controller_again_later_each_time() {
    let (context, mock) = context();
    let (begun, mut starts) = mpsc::unbounded_channel();
    let panics = context.metrics.panics.with_label_values(&["fragile"]);
    tokio::spawn(async move {
        let start = || {
            let begun = begun.clone();
            async move {
                begun.send(()).unwrap();
                panic!("as it does");
            }
        };
        context.supervisor().run("fragile", start).await;
    });
    for (panicked, pause) in [(1.0, 1), (2.0, 2), (3.0, 4)] {
        starts.recv().await.unwrap();
        while panics.get() < panicked {
            tokio::task::yield_now().await;
        }
        // The pause has begun once the panic is counted; the clock may be turned then.
        tokio::task::yield_now().await;
        mock.advance(Duration::from_secs(pause) - Duration::from_millis(1));
        tokio::task::yield_now().await;
        assert!(starts.try_recv().is_err(), "{pause}");
        mock.advance(Duration::from_millis(1));
    }
    starts.recv().await.unwrap();
}

/// Counts its reconciliations: the first one fails, the second writes. Sends 0 when it had to wait
/// for a cache.
struct Counting {
    passes: Arc<AtomicUsize>,
    objects: Arc<Cache<ConfigMap>>,
    sender: mpsc::UnboundedSender<usize>,
}

impl Controller for Counting {
    const NAME: &'static str = "counting-controller";
    const QUEUE_NAME: &'static str = "counting";
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        sources.on(&self.objects, |_, queue| queue.add("all".to_owned()));
    }

    async fn reconcile(&self, _: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let pass = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        self.sender.send(pass).unwrap();
        match pass {
            1 => Err(Error::Unfinished("not yet".to_owned())),
            2 => {
                ctx.api(&self.objects).create(&object(7)).await?;
                Ok(Action::Requeue(RETRY.after(Duration::ZERO)))
            }
            _ => Ok(Action::AwaitChange),
        }
    }

    fn on_stale_cache(&self, group: &str, resource: &str) {
        assert_eq!((group, resource), ("", "configmaps"));
        self.sender.send(0).unwrap();
    }
}

fn object(revision: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("n".to_owned());
    object.metadata.name = Some("a".to_owned());
    object.metadata.uid = Some("u".to_owned());
    object.metadata.resource_version = Some(revision.to_string());
    object
}

#[tokio::test]
async fn a_key_is_worked_on_again_after_its_writes_are_seen() {
    let (mut context, mock) = context();
    context.unrecorded = answering(201, json!(object(7)));
    let (sender, mut passes) = mpsc::unbounded_channel();
    let objects = Arc::new(Cache::with([object(1)]));
    let controller = Counting { passes: Arc::default(), objects: objects.clone(), sender };
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    tokio::spawn(run(context.clone(), controller, move || ready.send(()).unwrap()));
    is_ready.await.unwrap();
    assert_eq!(passes.recv().await, Some(1));
    let retries = context.metrics.queue(Counting::QUEUE_NAME).retries;
    while retries.get() < 1.0 {
        tokio::task::yield_now().await;
    }
    mock.advance(Duration::from_millis(5));
    assert_eq!(passes.recv().await, Some(2));
    objects.observe(object(2));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(passes.try_recv().is_err(), "revision 7 was not seen yet");
    objects.observe(object(7));
    assert_eq!(passes.recv().await, Some(0));
    assert_eq!(passes.recv().await, Some(3));
}

/// Creates a client of an API that responds to each request with this response.
fn answering(code: u16, response: Value) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = Body::from(response.to_string().into_bytes());
        let response = Response::builder().status(code).body(response).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    Client::new(service, "default")
}

/// Deletes an object, and returns whether the key waits after it until the cache observes that the
/// object goes.
async fn waits_after_delete(code: u16, message: &str, params: &DeleteParams) -> bool {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message});
    let objects = Arc::new(Cache::with([object(1)]));
    let ctx = ReconcileContext::new(answering(code, status));
    let outcome = ctx.api(&objects).delete(&object(1), params).await;
    assert_eq!(outcome.is_ok(), code == 200, "{code}");
    let mut observed = pin!(ctx.wait_until_observed());
    let waits = observed.as_mut().now_or_never().is_none();
    let mut terminating = object(2);
    terminating.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    objects.observe(terminating);
    assert!(!waits || observed.now_or_never().is_some(), "{code}");
    waits
}

#[tokio::test]
async fn a_delete_waits_until_the_cache_observes_the_deletion() {
    let revision = Preconditions { uid: Some("u".to_owned()), resource_version: Some("1".to_owned()) };
    let uid = "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (u) does not match the UID in record (v). The object might have been deleted and then recreated";
    let this = || uid_precondition(&object(1));
    for (case, code, message, params, want) in [
        ("deleted", 200, "", DeleteParams::default(), true),
        ("deleted by others before", 404, "", DeleteParams::default(), true),
        ("another object of the name", 409, uid, this(), true),
        ("a conflict without a condition", 409, uid, DeleteParams::default(), false),
        ("changed meanwhile", 409, uid, DeleteParams::default().preconditions(revision), false),
        ("denied by a webhook", 409, "admission webhook \"w\" denied the request", this(), false),
        ("refused", 403, "", this(), false),
    ] {
        assert_eq!(waits_after_delete(code, message, &params).await, want, "{case}");
    }
}

#[tokio::test]
async fn a_name_without_its_namespace_is_asked_for_and_not_found() {
    let (paths, mut asked) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        paths.send(request.uri().path().to_owned()).unwrap();
        let status = json!({"kind": "Status", "status": "Failure", "code": 404}).to_string();
        let response = Response::builder().status(404).body(Body::from(status.into_bytes())).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let ctx = ReconcileContext::new(Client::new(service, "default"));
    let objects = Arc::new(Cache::<ConfigMap>::with([]));
    let found = ctx.api(&objects).get(&NamespacedName::new("", "a")).await;
    assert!(matches!(found, Ok(None)), "{found:?}");
    assert_eq!(asked.try_recv().as_deref(), Ok("/api/v1/namespaces//configmaps/a"));
}

#[tokio::test]
async fn a_write_is_waited_for_if_it_was_successful() {
    let conflict = json!({"kind": "Status", "status": "Failure", "code": 409});
    for (code, response, want) in [(200, json!(object(7)), true), (409, conflict, false)] {
        let (objects, metadata) = (Arc::new(Cache::with([object(1)])), Arc::new(Cache::with([])));
        let written = |ctx: ReconcileContext| ctx.wait_until_observed().now_or_never().is_none();
        let ctx = ReconcileContext::new(answering(code, response.clone()));
        assert_eq!(ctx.api(&objects).replace(&object(1)).await.is_ok(), want, "{code}");
        assert_eq!(written(ctx), want, "{code}");
        let ctx = ReconcileContext::new(answering(code, response.clone()));
        let api = ctx.api_of_metadata::<ConfigMap>(&metadata);
        assert_eq!(api.replace(&object(1)).await.is_ok(), want, "{code}");
        assert_eq!(written(ctx), want, "{code}");
        let ctx = ReconcileContext::new(answering(code, response));
        let name = NamespacedName::of(&object(1));
        let patched = ctx.api(&objects).patch_status_unread(&name, Patch::Merge(json!({}))).await;
        assert_eq!(patched.is_ok(), want, "{code}");
        assert_eq!(written(ctx), want, "{code}");
    }
}

/// Finds everything, but panics when it sees its first object.
struct Fragile;

static PANICS_LEFT: AtomicUsize = AtomicUsize::new(1);

impl cache::Index<ConfigMap> for Fragile {
    fn keys(object: &ConfigMap) -> Vec<NamespacedName> {
        let left = PANICS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "as it does");
        vec![NamespacedName::of(object)]
    }
}

/// Creates a context with an API where every streaming list has one object and then no events. In
/// the first lists the object cannot be decoded.
fn context_of_one(unreadable: usize) -> (Context<()>, MockClock) {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let lists = Arc::new(AtomicUsize::new(0));
    let api = tower::service_fn(move |request: Request<Body>| {
        let lists = lists.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            if !query.contains("sendInitialEvents=true") {
                std::future::pending::<()>().await;
            }
            let (mut sent, mut end) = (json!(object(7)), object(7));
            if lists.fetch_add(1, Ordering::Relaxed) < unreadable {
                sent["data"] = json!("no map");
            }
            let initial_end = ("k8s.io/initial-events-end".to_owned(), "true".to_owned());
            end.metadata.annotations = Some([initial_end].into());
            // In the order in which servers write it.
            let frames = [("ADDED", sent), ("BOOKMARK", json!(end))]
                .map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(frames.concat().into_bytes())))
        }
    });
    let metrics = Metrics::new(prometheus::Registry::new());
    (Context::new(Client::new(api, "default"), clock, metrics, ()), mock)
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_read_again_and_never_absent() {
    let (context, mock) = context_of_one(1);
    let objects = context.cache::<ConfigMap>();
    let mut waited = Duration::ZERO;
    while !objects.is_synced() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        mock.advance(Duration::from_secs(1));
        waited += Duration::from_secs(1);
    }
    assert!(waited > Duration::from_secs(30), "{waited:?}");
    assert_eq!(objects.all().len(), 1);
    drop(context);
}

#[tokio::test]
async fn a_panic_in_a_cache_starts_its_watch_again() {
    let (context, mock) = context_of_one(0);
    let objects = context.cache::<ConfigMap>();
    let mut changes = objects.subscribe();
    assert!(
        objects.by::<Fragile>(&NamespacedName::new("n", "a")).is_empty(),
        "the index is kept from now on"
    );
    let panics = context.metrics.panics.with_label_values(&["cache of configmaps"]);
    while panics.get() < 1.0 {
        tokio::task::yield_now().await;
    }
    assert!(objects.all().is_empty() && !objects.is_synced(), "nothing was half done");
    tokio::task::yield_now().await;
    mock.advance(Duration::from_secs(1));
    objects.synced().await;
    assert_eq!(objects.by::<Fragile>(&NamespacedName::new("n", "a")).len(), 1);
    let change = changes.recv().await.unwrap();
    assert_eq!(change.new.map(|object| cache::revision(object.as_ref())), Some(7));
    drop(context);
}

#[tokio::test]
async fn a_panic_costs_a_channel_no_more_than_what_was_handed_over() {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new(prometheus::Registry::new());
    let panics = metrics.panics.with_label_values(&["numbers"]);
    let (sender, receiver) = mpsc::channel(3);
    let (handled, mut seen) = mpsc::unbounded_channel();
    let handler = move || {
        let handled = handled.clone();
        move |number: u32| {
            let handled = handled.clone();
            async move {
                assert_ne!(number, 2, "as it does");
                handled.send(number).unwrap();
            }
        }
    };
    let consuming =
        tokio::spawn(
            async move { Supervisor::new(clock, metrics).consume("numbers", receiver, handler).await },
        );
    (1..=3).for_each(|number| sender.try_send(number).unwrap());
    assert_eq!(seen.recv().await, Some(1));
    while panics.get() < 1.0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    mock.advance(Duration::from_secs(1));
    assert_eq!(seen.recv().await, Some(3));
    drop(sender);
    consuming.await.unwrap();
}
