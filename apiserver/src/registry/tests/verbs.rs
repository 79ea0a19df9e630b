//! The verbs over a store in memory: responses, and the events they leave.

use coracle_storage::log::EphemeralLog;
use coracle_storage::{Options, Watcher};
use serde_json::{Value, json};

use super::super::*;
use crate::Result;
use crate::audit::AuditContext;
use crate::object_meta::ObjectMeta;
use crate::request::Format;
use crate::request::options::{DeleteOptions, Query, WriteKind, WriteOptions};
use crate::resource_info::{Part, SharedResourceTable};

const NOW: &str = "2026-01-01T00:00:00Z";

/// A registry in memory with a namespace `n` and its default ServiceAccount.
struct Fixture {
    registry: Registry,
    user: UserInfo,
    warnings: Warnings,
    audit: AuditContext,
}

impl Fixture {
    async fn new() -> Fixture {
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Options::default(),
        )
        .expect("a store");
        let (clock, _mock) = Clock::mock(NOW.parse().expect("a time"));
        let authorizer = Arc::new(Authorizer::always_allow());
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let registry = Registry::new(Config::new(store, resources, clock, authorizer));
        let fixture = Fixture {
            registry,
            user: UserInfo::new("u", &["system:masters"]),
            warnings: Warnings::default(),
            audit: AuditContext::default(),
        };
        fixture
            .create("", "v1", "namespaces", json!({"metadata": {"name": "n"}}), "")
            .await
            .expect("a namespace");
        let account = json!({"metadata": {"name": "default"}});
        fixture.create("", "v1", "serviceaccounts", account, "").await.expect("an account");
        fixture
    }

    fn target(&self, group: &str, version: &str, plural: &str, name: &str) -> Target {
        let info = self.registry.find(group, version, plural).expect(plural);
        let namespace = if info.namespaced { "n" } else { "" };
        Target { info, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn caller(&self) -> Caller<'_> {
        super::caller(&self.user, &self.warnings, &self.audit)
    }

    async fn create(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        object: Value,
        query: &str,
    ) -> Result<Value> {
        let options = WriteOptions::parse(&Query::parse(query), WriteKind::Create)?;
        let target = self.target(group, version, plural, "");
        let outcome = self.registry.create(&target, &body(&object), &options, self.caller()).await?;
        assert_eq!(outcome.code, 201);
        Ok(response_object(outcome.payload))
    }

    async fn put(&self, target: &Target, part: Part, object: Value, query: &str) -> Result<(u16, Value)> {
        let options = WriteOptions::parse(&Query::parse(query), WriteKind::Update)?;
        let outcome = self.registry.update(target, part, &body(&object), &options, self.caller()).await?;
        Ok((outcome.code, response_object(outcome.payload)))
    }

    async fn delete(&self, target: &Target, query: &str) -> Result<Value> {
        let options = DeleteOptions::from_query(&Query::parse(query))?;
        Ok(response_object(self.registry.delete(target, &options, self.caller()).await?.payload))
    }

    fn watch(&self, target: &Target) -> Watcher<ObjectIndex> {
        self.registry
            .store
            .watch(&target.info.storage.bucket, self.registry.store.revision())
            .expect("a watch")
    }

    /// Creates a pod that is bound to a node and runs.
    async fn running_pod(&self) -> Target {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i:1"}]},
        });
        self.create("", "v1", "pods", pod, "").await.expect("a pod");
        self.target("", "v1", "pods", "p")
    }
}

fn body(object: &Value) -> RequestBody {
    RequestBody { bytes: object.to_string().into(), format: Format::Json }
}

fn response_object(payload: Payload) -> Value {
    match payload {
        Payload::Stored(stored) => parse(&stored).expect("readable"),
        Payload::Object { value, .. } | Payload::Status(value) => value,
        Payload::List(_) | Payload::Objects { .. } => Value::Null,
    }
}

/// Returns the events since the watch was opened: whether the object exists after it, its grace
/// period and its generation.
fn events(watcher: &mut Watcher<ObjectIndex>) -> Vec<(bool, Option<i64>, i64)> {
    let seen = |event: Arc<coracle_storage::Event<ObjectIndex>>| {
        let object =
            event.after.as_ref().or(event.before.as_ref()).map(|stored| parse(stored).expect("readable"));
        let object = object.expect("an object before or after");
        (event.after.is_some(), object.grace_period(), object.generation())
    };
    watcher.try_next().expect("no gap").into_iter().map(seen).collect()
}

#[tokio::test]
async fn a_forced_pod_deletion_is_a_modified_and_a_deleted_event() {
    for (case, before, query, want) in [
        ("at once", None, "gracePeriodSeconds=0", vec![(true, Some(0), 2), (false, Some(0), 2)]),
        ("by its kubelet", Some(""), "gracePeriodSeconds=0", vec![(true, Some(0), 2), (false, Some(0), 2)]),
        ("gracefully", None, "", vec![(true, Some(30), 2)]),
        ("again", Some(""), "", vec![]),
        ("dry", None, "gracePeriodSeconds=0&dryRun=All", vec![]),
    ] {
        let fixture = Fixture::new().await;
        let target = fixture.running_pod().await;
        if let Some(query) = before {
            fixture.delete(&target, query).await.expect(case);
        }
        let mut watcher = fixture.watch(&target);
        let answer = fixture.delete(&target, query).await.expect(case);
        assert_eq!(events(&mut watcher), want, "{case}");
        let is_there = fixture.registry.get(&target.info, "n", "p", "").await.is_ok();
        assert_eq!(is_there, want.last().is_none_or(|(there, ..)| *there), "{case}");
        assert!(!answer.meta_str("deletionTimestamp").is_empty(), "{case}");
        if !is_there {
            assert_eq!(answer.resource_version(), fixture.registry.store.revision().to_string(), "{case}");
        }
    }
}

#[tokio::test]
async fn deleting_an_unscheduled_pod_is_a_modified_and_a_deleted_event() {
    let fixture = Fixture::new().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    fixture.create("", "v1", "pods", pod, "").await.expect("a pod");
    let target = fixture.target("", "v1", "pods", "p");
    let mut watcher = fixture.watch(&target);
    fixture.delete(&target, "").await.expect("a deletion");
    assert_eq!(events(&mut watcher), [(true, Some(0), 2), (false, Some(0), 2)]);
}

#[tokio::test]
async fn deleting_again_completes_a_deletion_whose_second_write_was_lost() {
    let fixture = Fixture::new().await;
    let target = fixture.running_pod().await;
    fixture
        .registry
        .rewrite(&target, false, |pod| {
            let mut pod = pod.clone();
            deletion::mark(&mut pod, NOW.parse().expect("a time"));
            Ok(pod)
        })
        .await
        .expect("a mark");
    let mut watcher = fixture.watch(&target);
    fixture.delete(&target, "").await.expect("an end");
    assert_eq!(events(&mut watcher), [(false, Some(0), 2)]);
}

#[tokio::test]
async fn rewriting_an_object_as_it_is_writes_nothing() {
    let fixture = Fixture::new().await;
    let target = fixture.running_pod().await;
    let before = fixture.registry.store.revision();
    fixture.registry.rewrite(&target, false, |pod| Ok(pod.clone())).await.expect("nothing to do");
    assert_eq!(fixture.registry.store.revision(), before);
}

#[tokio::test]
async fn kinds_without_graceful_deletion_have_a_deleted_event_only() {
    let fixture = Fixture::new().await;
    fixture
        .create("", "v1", "serviceaccounts", json!({"metadata": {"name": "s"}}), "")
        .await
        .expect("an account");
    let target = fixture.target("", "v1", "serviceaccounts", "s");
    let mut watcher = fixture.watch(&target);
    let answer = fixture.delete(&target, "gracePeriodSeconds=0").await.expect("a deletion");
    assert_eq!(events(&mut watcher), [(false, None, 0)]);
    assert_eq!(answer.meta("deletionTimestamp"), None);
    assert_eq!(answer.name(), "s");
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
}

#[tokio::test]
async fn a_create_with_a_resource_version_fails_unless_it_is_a_dry_run() {
    let fixture = Fixture::new().await;
    let map = |name: &str, version: &str| json!({"metadata": {"name": name, "resourceVersion": version}});
    fixture.create("", "v1", "configmaps", map("taken", ""), "").await.expect("a map");
    for (case, name, version, query, want) in [
        ("numeric", "a", "7", "", Err((500, "resourceVersion should not be set on objects to be created"))),
        (
            "numeric, and the name is taken",
            "taken",
            "7",
            "",
            Err((500, "resourceVersion should not be set on objects to be created")),
        ),
        ("zero", "b", "0", "", Ok(None)),
        ("no number", "c", "abc", "", Ok(None)),
        ("dry", "d", "7", "dryRun=All", Ok(Some("7"))),
        ("dry, no number", "d", "abc", "dryRun=All", Ok(Some("abc"))),
        ("dry, without", "d", "", "dryRun=All", Ok(Some(""))),
        (
            "dry, and the name is taken",
            "taken",
            "7",
            "dryRun=All",
            Err((409, "configmaps \"taken\" already exists")),
        ),
    ] {
        let created = fixture.create("", "v1", "configmaps", map(name, version), query).await;
        match (created, want) {
            (Ok(object), Ok(want)) => {
                let now = fixture.registry.store.revision().to_string();
                assert_eq!(object.resource_version(), want.unwrap_or(&now), "{case}");
            }
            (Err(error), Err((code, message))) => {
                assert_eq!((error.code(), error.to_string().as_str()), (code, message), "{case}");
            }
            (got, want) => panic!("{case}: {:?} instead of {want:?}", got.map_err(|e| e.to_string())),
        }
    }
}

#[tokio::test]
async fn a_self_link_is_shown_by_a_dry_run_alone() {
    let fixture = Fixture::new().await;
    let map = json!({"metadata": {"name": "a", "selfLink": "/a"}});
    for query in ["dryRun=All", ""] {
        let created = fixture.create("", "v1", "configmaps", map.clone(), query).await.expect("a map");
        assert_eq!(created.meta("selfLink"), None, "{query}");
    }
    let target = fixture.target("", "v1", "configmaps", "a");
    for (query, want) in [("dryRun=All", Some(&json!("/a"))), ("", None)] {
        let revision = fixture.registry.store.revision();
        let (code, updated) = fixture.put(&target, Part::Main, map.clone(), query).await.expect(query);
        assert_eq!((code, updated.meta("selfLink")), (200, want), "{query}");
        assert_eq!(fixture.registry.store.revision(), revision, "nothing is written");
    }
}

#[tokio::test]
async fn create_on_update_ignores_the_resource_version() {
    let fixture = Fixture::new().await;
    let lease = |name: &str, version: &str, uid: &str| json!({"metadata": {"name": name, "resourceVersion": version, "uid": uid}, "spec": {"holderIdentity": "h"}});
    let not_a_number = "strconv.ParseUint: parsing \"abc\": invalid syntax";
    let foreign = "Operation cannot be fulfilled on leases.coordination.k8s.io \"c\": StorageError: invalid object, Code: 4, Key: /registry/leases/n/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u, UID in object meta: ";
    for (case, name, version, uid, query, want) in [
        ("stored", "a", "7", "", "", Ok(None)),
        ("dry", "b", "7", "", "dryRun=All", Ok(Some("7"))),
        ("no number", "c", "abc", "", "", Err((500, not_a_number))),
        ("another object", "c", "", "u", "", Err((409, foreign))),
    ] {
        let target = fixture.target("coordination.k8s.io", "v1", "leases", name);
        match (fixture.put(&target, Part::Main, lease(name, version, uid), query).await, want) {
            (Ok((code, object)), Ok(want)) => {
                let now = fixture.registry.store.revision().to_string();
                assert_eq!((code, object.resource_version()), (201, want.unwrap_or(&now)), "{case}");
            }
            (Err(error), Err((code, message))) => {
                assert_eq!((error.code(), error.to_string().as_str()), (code, message), "{case}");
            }
            (got, want) => panic!("{case}: {:?} instead of {want:?}", got.map_err(|e| e.to_string())),
        }
    }
}

#[tokio::test]
async fn put_status_creates_a_missing_service_and_no_other_kind() {
    let fixture = Fixture::new().await;
    let target = fixture.target("", "v1", "services", "s");
    let mut balanced = service("s");
    balanced["spec"]["type"] = "LoadBalancer".into();
    let (code, created) = fixture.put(&target, Part::Status, balanced.clone(), "").await.expect("created");
    assert_eq!(code, 201);
    assert_eq!(created["status"], json!({"loadBalancer": {}}), "nobody creates a status");
    assert_eq!(created.pointer("/spec/clusterIP"), None, "addresses are given by the main endpoint");
    let (code, changed) = fixture.put(&target, Part::Status, balanced, "").await.expect("changed");
    assert_eq!((code, changed.pointer("/status/loadBalancer/ingress/0/ip")), (200, Some(&json!("1.2.3.4"))));
    for (group, version, plural) in [("", "v1", "pods"), ("apps", "v1", "deployments"), ("", "v1", "nodes")] {
        let target = fixture.target(group, version, plural, "x");
        let missing = fixture.put(&target, Part::Status, json!({"metadata": {"name": "x"}}), "").await;
        assert_eq!(missing.err().map(|e| e.code()), Some(404), "{plural}");
    }
}
