//! Work that only the holder of the lease does.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coracle_clock::{Clock, MockClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Context;
use crate::leader::{LeaseLost, run_elected};
use crate::metrics::Metrics;

/// An API with one Lease, which other processes write too.
#[derive(Clone, Default)]
struct Leases {
    stored: Arc<Mutex<Option<Value>>>,
    /// Whether no request gets a response.
    is_silent: Arc<AtomicBool>,
}

impl Leases {
    fn context(&self) -> (Context<()>, MockClock) {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let leases = self.clone();
        let api = tower::service_fn(move |request: Request<Body>| {
            let leases = leases.clone();
            async move { Ok::<_, Infallible>(leases.respond(request).await) }
        });
        let metrics = Metrics::new(prometheus::Registry::new());
        (Context::new(Client::new(api, "default"), clock, metrics, ()), mock)
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        if self.is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let (parts, body) = request.into_parts();
        let sent: Option<Value> = serde_json::from_slice(&body.collect_bytes().await.unwrap()).ok();
        let (code, response) = match (parts.uri.path().contains("/leases"), sent) {
            // Events, of which nothing depends.
            (false, sent) => (201, sent.unwrap_or_default()),
            (true, Some(lease)) => self.write(&parts.method, lease),
            (true, None) => match self.stored.lock().clone() {
                Some(lease) => (200, lease),
                None => (404, status(404, "NotFound")),
            },
        };
        let body = Body::from(response.to_string().into_bytes());
        Response::builder().status(code).body(body).unwrap()
    }

    fn write(&self, method: &Method, mut lease: Value) -> (u16, Value) {
        let mut stored = self.stored.lock();
        let version = |lease: &Option<Value>| {
            lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone()).unwrap_or_default()
        };
        let is_expected = match *method {
            Method::POST => stored.is_none(),
            _ => version(&stored) == lease["metadata"]["resourceVersion"],
        };
        if !is_expected {
            return (409, status(409, "Conflict"));
        }
        let next = version(&stored).as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
        lease["metadata"]["resourceVersion"] = next.to_string().into();
        *stored = Some(lease.clone());
        (200, lease)
    }

    fn set_holder(&self, holder: &str) {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0});
        let metadata = json!({"name": "kube-controller-manager", "resourceVersion": "1"});
        *self.stored.lock() = Some(json!({"metadata": metadata, "spec": spec}));
    }

    fn holder(&self) -> Option<String> {
        let stored = self.stored.lock();
        stored.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason})
}

/// A process in an election.
struct Process {
    leases: Leases,
    clock: MockClock,
    /// Whether its work runs now.
    works: Arc<AtomicBool>,
    stop: oneshot::Sender<()>,
    outcome: JoinHandle<Result<(), LeaseLost>>,
}

/// Resets a flag when the work is dropped.
struct Working(Arc<AtomicBool>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Process {
    /// Creates a process that works until it is dropped.
    fn new(leases: &Leases) -> Process {
        Process::with_end(leases, std::future::pending().boxed())
    }

    /// Creates a process with work that ends with a future.
    fn with_end(leases: &Leases, end: BoxFuture<'static, ()>) -> Process {
        let (context, clock) = leases.context();
        let (works, (stop, stopped)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let working = works.clone();
        let lead = async move {
            working.store(true, Ordering::Relaxed);
            let _working = Working(working);
            end.await;
        };
        let outcome = tokio::spawn(async move {
            let stop = async move { drop(stopped.await) };
            run_elected(&context, "us".to_owned(), lead.boxed(), stop.boxed()).await
        });
        Process { leases: leases.clone(), clock, works, stop, outcome }
    }

    fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Lets time pass, in steps that no deadline is missed by.
    async fn advance(&self, seconds: u64) {
        settle().await;
        for _ in 0..2 * seconds {
            self.clock.advance(Duration::from_millis(500));
            settle().await;
        }
    }
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_holder_works_and_releases_the_lease_when_it_is_stopped() {
    let leases = Leases::default();
    let process = Process::new(&leases);
    process.advance(1).await;
    assert!(process.works());
    assert_eq!(leases.holder().as_deref(), Some("us"));
    process.advance(60).await;
    assert!(process.works(), "the lease is renewed");
    let Process { works, stop, outcome, .. } = process;
    stop.send(()).unwrap();
    assert!(outcome.await.unwrap().is_ok());
    assert!(!works.load(Ordering::Relaxed));
    assert_eq!(leases.holder().as_deref(), Some(""));
}

#[tokio::test]
async fn nobody_works_while_another_process_holds_the_lease() {
    let leases = Leases::default();
    leases.set_holder("another");
    let process = Process::new(&leases);
    process.advance(10).await;
    assert!(!process.works());
    process.advance(10).await;
    assert!(process.works(), "the other one did not renew it");
    assert_eq!(process.leases.holder().as_deref(), Some("us"));
}

#[tokio::test]
async fn a_process_that_never_worked_leaves_the_lease_of_another() {
    let leases = Leases::default();
    leases.set_holder("another");
    let process = Process::new(&leases);
    process.advance(3).await;
    process.stop.send(()).unwrap();
    assert!(process.outcome.await.unwrap().is_ok());
    assert_eq!(leases.holder().as_deref(), Some("another"));
}

#[tokio::test]
async fn the_work_ends_before_a_lease_that_is_not_renewed_expires() {
    let leases = Leases::default();
    let process = Process::new(&leases);
    process.advance(1).await;
    assert!(process.works());
    leases.is_silent.store(true, Ordering::Relaxed);
    process.advance(8).await;
    assert!(process.works(), "it may still be renewed in time");
    process.advance(6).await;
    assert!(!process.works());
    assert!(process.outcome.await.unwrap().is_err());
}

#[tokio::test]
async fn the_work_ends_when_another_process_takes_the_lease() {
    let leases = Leases::default();
    let process = Process::new(&leases);
    process.advance(1).await;
    leases.set_holder("another");
    process.advance(14).await;
    assert!(!process.works());
    assert!(process.outcome.await.unwrap().is_err());
    assert_eq!(leases.holder().as_deref(), Some("another"));
}

#[tokio::test]
async fn work_that_panics_loses_the_election() {
    let leases = Leases::default();
    let process = Process::with_end(&leases, async { panic!("as it does") }.boxed());
    settle().await;
    assert!(process.outcome.await.unwrap().is_err());
}

#[tokio::test]
async fn an_api_that_is_silent_does_not_keep_a_process_from_stopping() {
    let leases = Leases::default();
    let process = Process::new(&leases);
    process.advance(1).await;
    leases.is_silent.store(true, Ordering::Relaxed);
    let Process { clock, works, stop, outcome, .. } = process;
    stop.send(()).unwrap();
    settle().await;
    assert!(!works.load(Ordering::Relaxed) && !outcome.is_finished());
    clock.advance(Duration::from_secs(1));
    assert!(outcome.await.unwrap().is_ok());
}
