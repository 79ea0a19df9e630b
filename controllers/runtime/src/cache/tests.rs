use std::collections::BTreeSet;

use super::*;
use futures::FutureExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

fn object(namespace: &str, name: &str, revision: u64, owner: Option<&str>) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("{namespace}-{name}"));
    object.metadata.resource_version = Some(revision.to_string());
    object.metadata.owner_references =
        owner.map(|uid| vec![OwnerReference { uid: uid.to_owned(), ..Default::default() }]);
    object
}

fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
    objects.iter().map(|object| NamespacedName::of(object.as_ref()).to_string()).collect()
}

struct ByOwner;

impl Index<ConfigMap> for ByOwner {
    fn keys(object: &ConfigMap) -> Vec<NamespacedName> {
        let owners = object.metadata.owner_references.iter().flatten();
        owners.map(|owner| NamespacedName::new("", &owner.uid)).collect()
    }
}

#[test]
fn objects_are_found_by_namespace_and_index() {
    let owned = |cache: &Cache<ConfigMap>| names(&cache.by::<ByOwner>(&NamespacedName::new("", "o")));
    let cache = Cache::with([
        object("a", "1", 1, Some("o")),
        object("a", "2", 2, None),
        object("b", "1", 3, Some("o")),
    ]);
    assert_eq!(names(&cache.in_namespace("a")), ["a/1", "a/2"]);
    assert_eq!(["", "a", "aa", "b"].map(|namespace| cache.any_in(namespace)), [false, true, false, true]);
    assert_eq!(owned(&cache), ["a/1", "b/1"]);
    cache.observe(object("a", "1", 4, None));
    assert_eq!(owned(&cache), ["b/1"]);
    cache.indexer.remove(&object("b", "1", 5, None).metadata);
    assert_eq!(owned(&cache), [""; 0]);
    assert_eq!(names(&cache.all()), ["a/1", "a/2"]);
}

#[test]
fn a_subscriber_receives_what_exists_and_what_changes() {
    let cache = Cache::with([object("a", "1", 1, None)]);
    let mut changes = cache.subscribe();
    let revisions = |change: Change<ConfigMap>| {
        (change.old.map(|o| revision(o.as_ref())), change.new.map(|o| revision(o.as_ref())))
    };
    let mut next = || changes.recv().now_or_never().flatten().map(revisions);
    assert_eq!(next(), Some((None, Some(1))));
    cache.observe(object("a", "1", 1, None));
    assert_eq!(next(), None, "nothing new");
    cache.observe(object("a", "1", 2, None));
    assert_eq!(next(), Some((Some(1), Some(2))));
    cache.indexer.keep(&BTreeSet::new());
    assert_eq!(next(), Some((Some(2), None)));
}

#[test]
fn a_relist_replaces_what_was_known() {
    let cache = Cache::of(Arc::default());
    let mut relist = None;
    let mut see = |events: Vec<Event<Arc<dyn Object>>>| {
        events.into_iter().for_each(|event| cache.indexer.handle(event, &mut relist));
    };
    let init = |object| Event::InitApply(object::erase(object));
    let changes = |receiver: &mut Changes<ConfigMap>| {
        let uid = |object: &Arc<ConfigMap>| object.metadata.uid.clone().unwrap_or_default();
        std::iter::from_fn(|| receiver.recv().now_or_never().flatten())
            .map(|change| (change.old.as_ref().map(uid), change.new.as_ref().map(uid)))
            .collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    see(vec![Event::Init, init(object("a", "1", 3, None)), init(object("a", "2", 4, None))]);
    assert!(!cache.is_synced());
    see(vec![Event::InitDone(4)]);
    assert!(cache.is_synced());
    let mut events = cache.subscribe();
    assert_eq!(changes(&mut events).len(), 2);
    // A relist that is cut short removes nothing, though history was lost.
    see(vec![Event::Init, init(object("a", "2", 9, None))]);
    assert_eq!(names(&cache.all()), ["a/1", "a/2"]);
    let seen = |revision| {
        cache.indexer().clone().wait_until_observed(Write::Revision(revision)).now_or_never().is_some()
    };
    assert!(!seen(9), "what else has a revision up to 9 is yet to come");
    let mut again = object("a", "2", 9, None);
    again.metadata.uid = some("another");
    see(vec![Event::Init, init(again), init(object("b", "1", 8, None))]);
    assert!(!seen(8));
    see(vec![Event::InitDone(9)]);
    assert!(seen(9));
    assert_eq!(names(&cache.all()), ["a/2", "b/1"]);
    assert_eq!(
        changes(&mut events),
        [
            (some("a-2"), some("a-2")),
            (some("a-2"), None),
            (None, some("another")),
            (None, some("b-1")),
            (some("a-1"), None),
        ]
    );
}

#[test]
fn own_writes_are_waited_for() {
    let cache = Cache::with([object("a", "1", 5, None)]);
    let name = NamespacedName::new("a", "1");
    let seen = |write: Write| cache.indexer().clone().wait_until_observed(write).now_or_never().is_some();
    assert!(seen(Write::Revision(5)));
    assert!(!seen(Write::Revision(6)));
    assert!(!seen(Write::Deleted(name.clone(), "a-1".to_owned())));
    assert!(seen(Write::Deleted(name.clone(), "another".to_owned())));
    cache.indexer.remove(&object("a", "1", 7, None).metadata);
    assert!(seen(Write::Deleted(name, "a-1".to_owned())));
    assert!(seen(Write::Revision(6)), "the deletion had revision 7");
}

#[test]
fn times_beyond_the_calendar_count_as_the_latest_one() {
    let lease = |time: &str| {
        let metadata = json!({"name": "a", "annotations": {"until": time}});
        let spec = json!({"renewTime": time, "holderIdentity": time});
        let text = json!({"metadata": metadata, "spec": spec}).to_string();
        let lease = object::decode::<Lease>(&text).ok().and_then(object::downcast::<Lease>);
        lease.map(|lease| (lease.spec.as_ref().unwrap().renew_time.clone().unwrap().0, lease))
    };
    for (time, want) in [
        ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-30T22:00:00Z"),
        ("9999-12-30T22:00:01.000000Z", "9999-12-30T22:00:00Z"),
    ] {
        let (renewed, lease) = lease(time).expect(time);
        assert_eq!(renewed, want.parse::<Timestamp>().unwrap(), "{time}");
        assert_eq!(lease.metadata.annotations.as_ref().unwrap()["until"], time);
        assert_eq!(lease.spec.as_ref().unwrap().holder_identity.as_deref(), Some(time), "it is no time");
    }
    assert!(lease("soon").is_none());
}
