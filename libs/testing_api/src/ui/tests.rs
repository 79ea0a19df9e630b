use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::{Body, PathRequest};
use coracle_clock::{Clock, MockClock};
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Expect, Key, Options, Store};
use coracle_ui::{SECURITY_HEADERS, Sessions};
use coracle_why::Objects;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::Testing;
use crate::why::StoredObjects;

/// A page over a store.
struct Page {
    testing: Testing,
    clock: MockClock,
}

impl Page {
    fn new() -> Page {
        let index = ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in()));
        let store =
            Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("an empty store");
        let (time, mock) = Clock::mock("2026-11-27T10:00:00Z".parse().expect("a time"));
        Page { testing: Testing::new(time, None, store, Arc::default()), clock: mock }
    }

    /// Writes an object of the namespace `shop`, and returns its revision.
    async fn write(&self, bucket: &str, name: &str, rest: Value) -> u64 {
        let mut object = json!({"apiVersion": "v1", "metadata": {"name": name, "namespace": "shop", "uid": format!("{bucket}-{name}"),
            "resourceVersion": "", "creationTimestamp": self.testing.0.clock.now().to_string()}});
        for (member, value) in rest.as_object().expect("members") {
            match value.as_object().filter(|_| member == "metadata") {
                Some(metadata) => {
                    metadata.clone().into_iter().for_each(|(name, value)| object["metadata"][name] = value)
                }
                None => object[member] = value.clone(),
            }
        }
        let key = Key::new(bucket, format!("shop/{name}"));
        drop(self.testing.0.store.put(key, Expect::Any, object.to_string()).await.expect("stored"));
        self.testing.0.store.revision().0
    }

    fn objects(&self) -> StoredObjects {
        StoredObjects::of(self.testing.0.store.clone(), self.testing.0.traffic.clone())
    }

    async fn get(&self, uri: &str) -> Response<Body> {
        let (parts, ()) = Request::get(uri).body(()).expect("a request").into_parts();
        let (user, body) = (UserInfo::new("admin", &["system:masters"]), Bytes::new());
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let sessions = Arc::new(Sessions::new(self.testing.0.clock.clone(), 6443));
        let paths = self.testing.clone().page(Vec::new(), sessions);
        let path = parts.uri.path();
        let request = PathRequest { parts: &parts, path, query: &query, user: &user, body: &body };
        (paths.respond)(request).await.expect("a response")
    }

    async fn read(&self, uri: &str) -> Value {
        let response = self.get(uri).await;
        assert_eq!(response.status(), 200, "{uri}");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&body).expect("JSON")
    }
}

#[tokio::test]
async fn errors_have_the_security_headers_too() {
    let page = Page::new();
    page.write("configmaps", "a", json!({})).await;
    for (uri, want) in [
        ("/ui/", 200),
        ("/ui/nothing.js", 404),
        ("/ui/data/picture?at=x", 422),
        ("/ui/data/picture?at=99", 410),
        ("/ui/login?token=x", 403),
        ("https://rebound.example/ui/", 403),
    ] {
        let response = page.get(uri).await;
        assert_eq!(response.status(), want, "{uri}");
        for (name, value) in SECURITY_HEADERS {
            assert_eq!(response.headers()[name], value, "{uri}");
        }
    }
}

#[tokio::test]
async fn an_explanation_at_an_earlier_revision_is_as_of_that_time() {
    let page = Page::new();
    let held = json!({"metadata": {"finalizers": ["example.com/hold"], "deletionTimestamp": "2026-11-27T09:59:00Z"}});
    let at = page.write("configmaps", "held", held).await;
    let uri = "/ui/data/why?resource=configmaps&namespace=shop&name=held";
    let then = page.read(uri).await;
    page.clock.advance(Duration::from_secs(3 * 24 * 3600));
    page.write("configmaps", "other", json!({})).await;
    assert_eq!(page.read(&format!("{uri}&at={at}")).await, then);
    assert_ne!(page.read(uri).await, then, "three days later it says the date");
}

#[tokio::test]
async fn a_read_that_stops_early_is_remembered() {
    let page = Page::new();
    let mut bytes = 0;
    for name in ["a", "b", "c"] {
        page.write("configmaps", name, json!({})).await;
    }
    for object in page.objects().snapshot.bucket("configmaps").iter() {
        bytes += object.bytes.len();
    }
    for (left, want) in [(bytes, 3), (bytes - 1, 2)] {
        let objects = page.objects().with_budget(left);
        let found = (objects.list("configmaps", None).len(), objects.is_truncated());
        assert_eq!(found, (want, want < 3), "{left} bytes");
        let objects = page.objects().with_budget(left);
        assert_eq!((objects.newest_first("configmaps").count(), objects.is_truncated()), found);
    }
    let objects = page.objects().with_budget(10);
    assert!(objects.get("configmaps", "shop", "a").is_none() && objects.is_truncated());
    assert_eq!(page.read("/ui/data/picture").await["isTruncated"], false);
}

#[tokio::test]
async fn a_list_of_too_many_objects_is_remembered() {
    let page = Page::new();
    for i in 0..crate::why::MAX_LISTED {
        page.write("configmaps", &format!("c{i}"), json!({})).await;
    }
    let objects = page.objects();
    assert!(objects.list("configmaps", None).len() == crate::why::MAX_LISTED && !objects.is_truncated());
    page.write("configmaps", "one-more", json!({})).await;
    let objects = page.objects();
    assert!(objects.list("configmaps", None).len() == crate::why::MAX_LISTED && objects.is_truncated());
}

#[tokio::test]
async fn the_newest_events_are_chosen() {
    let page = Page::new();
    let event = |uid: &str| json!({"reason": "Tested", "involvedObject": {"uid": uid}});
    page.write("events", "z", event("rare")).await;
    // By name the newest one is the first.
    for i in (0..500).rev() {
        page.write("events", &format!("e{i:03}"), event("often")).await;
    }
    let all = page.read("/ui/data/events").await;
    let names = all["events"].as_array().expect("Events");
    assert_eq!((names.len(), &names[0]["revision"], &all["isTruncated"]), (500, &json!("501"), &json!(true)));
    let rare = page.read("/ui/data/events?uid=rare").await;
    assert_eq!((&rare["events"][0]["revision"], &rare["isTruncated"]), (&json!("1"), &json!(false)));
}

/// Returns the next line of a stream.
async fn line(body: &mut Body) -> Value {
    let frame = body.frame().await.expect("a line").expect("a frame");
    serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_stream_gives_signs_of_life_while_it_waits_for_its_turn() {
    let page = Page::new();
    page.write("configmaps", "a", json!({})).await;
    let mut body = page.get("/ui/data/picture?watch=1").await.into_body();
    let turn = page.testing.0.reading_turn.clone().lock_owned().await;
    page.write("configmaps", "b", json!({})).await;
    for _ in 0..3 {
        let silent = line(&mut body).await;
        assert_eq!((&silent["changed"], &silent["resourceVersion"]), (&json!([]), &json!("1")));
        assert_eq!((&silent["oldest"], &silent["isTruncated"]), (&json!("0"), &json!(false)));
    }
    drop(turn);
    let change = line(&mut body).await;
    assert_eq!((&change["changed"][0]["name"], &change["resourceVersion"]), (&json!("b"), &json!("2")));
}
