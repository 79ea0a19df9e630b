//! Tests of the spans that an exporter sends and drops.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coracle_otlp::proto::{KeyValue, Span};
use coracle_otlp::testing::Collector;
use coracle_otlp::{BATCH, Exporter, QUEUE, Service};
use tokio::net::TcpListener;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

fn service() -> Service {
    Service { name: "apiserver".to_owned(), instance: "one".to_owned(), version: "1".to_owned() }
}

fn span(name: usize) -> Span {
    Span { name: name.to_string(), ..Span::default() }
}

/// Creates an exporter, and a counter of the spans that it has dropped.
fn exporter(endpoint: &str) -> (Exporter, Arc<AtomicU64>) {
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = dropped.clone();
    let count = move |spans| {
        counter.fetch_add(spans, Ordering::Relaxed);
    };
    (Exporter::new(endpoint, &service(), Box::new(count)).expect("an address"), dropped)
}

#[tokio::test]
async fn spans_arrive_in_batches() {
    let mut collector = Collector::start().await.expect("a collector");
    let (exporter, dropped) = exporter(&collector.address.to_string());
    for number in 0..BATCH + 1 {
        exporter.export(span(number));
    }
    exporter.flush().await;
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < BATCH + 1 {
        let request = timeout(DEADLINE, collector.requests.recv()).await.expect("in time").expect("a batch");
        let [spans] = request.resource_spans.as_slice() else { panic!("{request:?}") };
        let attributes = spans.resource.clone().expect("a resource").attributes;
        assert_eq!(attributes[0], KeyValue::string("service.name", "apiserver"));
        sizes.push(spans.scope_spans.iter().map(|scope| scope.spans.len()).sum());
    }
    assert_eq!(sizes, [BATCH, 1]);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_a_slow_collector_leaves_is_dropped_and_counted() {
    // A collector that accepts connections, and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (exporter, dropped) = exporter(&listener.local_addr().expect("an address").to_string());
    // This runtime has one thread, so nothing is taken from the queue before the next await.
    for number in 0..QUEUE + 10 {
        exporter.export(span(number));
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    // Neither does a flush wait for it longer than a moment.
    assert!(timeout(DEADLINE, exporter.flush()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn spans_that_cannot_be_sent_are_dropped_and_counted() {
    let address = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
    // The collector no longer listens.
    let (exporter, dropped) = exporter(&address.expect("an address").to_string());
    exporter.export(span(1));
    let counted = async {
        while dropped.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(timeout(DEADLINE, counted).await.is_ok());
}

#[test]
fn an_endpoint_is_an_address() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _guard = runtime.enter();
    assert!(Exporter::new("local host:4317", &service(), Box::new(|_| {})).is_err());
}
