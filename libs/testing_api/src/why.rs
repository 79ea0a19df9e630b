//! The objects of a store, as explanations read them.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::{ResourceInfo, ResourceTable};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::{AuthorRequest, ObjectIndex};
use coracle_apiserver::serve::{self, Traffic};
use coracle_storage::{BucketSnapshot, Object, Revision, Snapshot, Store};
use coracle_why::{Explanation, Objects, Refusal, Resource, Tree, Version, Writer};
use serde_json::Value;

use crate::former;
use crate::history::{self, events};
use crate::outline;
use crate::read::{expired, invalid};

/// The maximum number of objects of a resource that an explanation reads.
pub(crate) const MAX_LISTED: usize = 10_000;
/// The maximum number of bytes of objects that an answer reads. Parsed they take several times as
/// much.
const MAX_BYTES: usize = 32 << 20;
/// The same of outlines, which are parsed in part.
const MAX_OUTLINED: usize = 128 << 20;
/// The maximum number of versions of an object that an explanation reads.
const MAX_VERSIONS: usize = 1000;

/// The name of an object in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// As kubectl names it; empty for any.
    pub resource: String,
    /// Empty for the default one of an object, and for all of several objects.
    pub namespace: String,
    /// Empty for several objects.
    pub name: String,
}

impl ObjectName {
    /// Reads `resource`, `namespace` and `name` of a query.
    ///
    /// # Errors
    /// 422 without a resource or a name.
    pub fn read(query: &Query) -> Result<ObjectName> {
        let object = ObjectName::of(query);
        match (object.resource.is_empty(), object.name.is_empty()) {
            (true, _) => {
                Err(invalid("resource", "the name of a resource, such as pods or statefulsets.apps"))
            }
            (_, true) => Err(invalid("name", "the name of an object")),
            _ => Ok(object),
        }
    }

    /// Reads the same, and any of them may be absent.
    pub fn of(query: &Query) -> ObjectName {
        let text = |member: &str| query.first(member).unwrap_or_default().to_owned();
        ObjectName { resource: text("resource"), namespace: text("namespace"), name: text("name") }
    }
}

/// The objects of a store at one moment, and their history.
pub struct StoredObjects {
    pub(crate) store: Store<ObjectIndex>,
    pub(crate) snapshot: Snapshot<ObjectIndex>,
    pub(crate) traffic: Arc<Traffic>,
    resources: Arc<ResourceTable>,
    /// The resources of deleted definitions, once something is not found among the others.
    former: OnceCell<Vec<Arc<ResourceInfo>>>,
    /// The buckets at an earlier revision; None for the newest objects.
    past: Option<PastBuckets>,
    /// The bytes that may still be read.
    left: Cell<usize>,
    /// Whether a read stopped early.
    is_truncated: Cell<bool>,
    /// Whether objects are read without their data, their managed fields and their past.
    is_outline: bool,
}

/// All buckets at a revision.
struct PastBuckets {
    revision: Revision,
    buckets: HashMap<Arc<str>, BucketSnapshot<ObjectIndex>>,
}

impl StoredObjects {
    /// Creates a view of the current objects of a store.
    ///
    /// - `traffic`: the requests that were refused
    pub fn of(store: Store<ObjectIndex>, traffic: Arc<Traffic>) -> StoredObjects {
        let (snapshot, resources) = (store.snapshot(), store.index().resources());
        let (left, is_truncated) = (Cell::new(MAX_BYTES), Cell::new(false));
        StoredObjects {
            store,
            snapshot,
            traffic,
            resources,
            former: OnceCell::new(),
            past: None,
            left,
            is_truncated,
            is_outline: false,
        }
    }

    /// Creates a view of the objects of a store at a revision; None for the current ones.
    ///
    /// # Errors
    /// 410 if history does not reach back so far, or the revision is in the future, as after a
    /// restart.
    pub fn at(
        store: Store<ObjectIndex>,
        traffic: Arc<Traffic>,
        revision: Option<Revision>,
    ) -> Result<StoredObjects> {
        let objects = StoredObjects::of(store, traffic);
        let Some(revision) = revision.filter(|revision| *revision != objects.snapshot.revision()) else {
            return Ok(objects);
        };
        let names: Vec<Arc<str>> = objects.snapshot.buckets().map(|(name, _)| name.clone()).collect();
        let at = |name: Arc<str>| {
            let bucket = objects.store.snapshot_at(&name, revision);
            let oldest = objects.oldest();
            let message = |error| format!("{error}; the oldest revision that is kept is {oldest}");
            Ok((name, bucket.map_err(|error| expired(&message(error)))?))
        };
        let buckets = names.into_iter().map(at).collect::<Result<_>>()?;
        Ok(StoredObjects { past: Some(PastBuckets { revision, buckets }), ..objects })
    }

    /// Returns the same objects without the parts that states do not depend on: data, managed
    /// fields, and the past of single objects.
    pub fn outline(self) -> StoredObjects {
        StoredObjects { left: Cell::new(MAX_OUTLINED), is_outline: true, ..self }
    }

    /// Returns the same objects with a limit of `bytes` bytes read.
    #[cfg(test)]
    pub(crate) fn with_budget(self, bytes: usize) -> StoredObjects {
        StoredObjects { left: Cell::new(bytes), ..self }
    }

    /// Returns the revision of the objects.
    pub fn revision(&self) -> Revision {
        self.past.as_ref().map_or_else(|| self.snapshot.revision(), |past| past.revision)
    }

    /// Returns the oldest revision at which all objects can be read.
    pub fn oldest(&self) -> Revision {
        history::oldest(&self.snapshot)
    }

    fn bucket(&self, name: &Arc<str>) -> BucketSnapshot<ObjectIndex> {
        let past = self.past.as_ref().and_then(|past| past.buckets.get(name));
        past.cloned().unwrap_or_else(|| self.snapshot.bucket(name))
    }

    /// Returns the object that was written last.
    pub fn newest(&self) -> Option<Value> {
        let buckets = self.snapshot.buckets().map(|(name, _)| self.bucket(name));
        let newest = buckets.filter_map(|bucket| bucket.iter().max_by_key(|object| object.revision).cloned());
        newest.max_by_key(|object| object.revision).map(|object| parsed(&object))
    }

    /// Reads the objects of a resource, the one that was written last first; none once too much was
    /// read.
    pub fn newest_first(&self, resource: &str) -> impl Iterator<Item = Value> {
        let bucket = self.info(resource).map(|info| self.bucket(&info.storage.bucket));
        let mut objects: Vec<_> = bucket.iter().flat_map(BucketSnapshot::iter).cloned().collect();
        objects.sort_by_key(|object| Reverse(object.revision));
        objects.into_iter().map_while(|object| self.parse(&object))
    }

    /// Reads an object, and the name of its resource.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub fn read(&self, object: &ObjectName) -> Result<(String, Value)> {
        let (info, namespace) = self.place(object)?;
        let resource = info.group_resource.to_string();
        let found = self.get(&resource, namespace, &object.name);
        let found = found.ok_or_else(|| unknown(&resource, namespace, &object.name))?;
        Ok((resource, found))
    }

    /// Explains an object.
    ///
    /// # Errors
    /// 404 if nothing is known of it.
    pub fn explain(&self, object: &ObjectName, now: jiff::Timestamp) -> Result<Explanation> {
        let (info, namespace) = self.place(object)?;
        let resource = info.group_resource.to_string();
        coracle_why::explain(self, &resource, namespace, &object.name, now)
            .ok_or_else(|| unknown(&resource, namespace, &object.name))
    }

    /// Reads the tree of owners around an object.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub fn tree(&self, object: &ObjectName) -> Result<Tree> {
        let (info, namespace) = self.place(object)?;
        let resource = info.group_resource.to_string();
        coracle_why::tree(self, &resource, namespace, &object.name)
            .ok_or_else(|| unknown(&resource, namespace, &object.name))
    }

    /// Resolves the resource that a request names as kubectl does, and the namespace of its object.
    pub(crate) fn place<'a>(&'a self, object: &'a ObjectName) -> Result<(&'a Arc<ResourceInfo>, &'a str)> {
        let (name, group) = match object.resource.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (object.resource.to_lowercase(), None),
        };
        let is_named = |info: &&Arc<ResourceInfo>| {
            let names = [&*info.plural, &*info.singular].into_iter();
            let mut names = names.chain(info.short_names.iter().map(|short| &**short));
            group.is_none_or(|group| is_of(info, group))
                && (names.any(|known| known == name) || info.kind.to_lowercase() == name)
        };
        // The group of the core comes first, then those of Kubernetes.
        let place = |info: &&Arc<ResourceInfo>| (info.is_custom(), info.group.to_string());
        let found = self.resources.iter().filter(is_named).min_by_key(place);
        let info = found.or_else(|| self.former().iter().find(is_named)).ok_or_else(|| {
            Error::plain(404, "NotFound", format!("nothing is known of resource {:?}", object.resource))
        })?;
        let namespace = match (info.namespaced, &*object.namespace) {
            (false, _) => "",
            (true, "") => "default",
            (true, namespace) => namespace,
        };
        Ok((info, namespace))
    }

    /// Parses a stored object, an invalid one without members; None once too much was read.
    fn parse(&self, object: &Object<ObjectIndex>) -> Option<Value> {
        let Some(left) = self.left.get().checked_sub(object.bytes.len()) else {
            self.is_truncated.set(true);
            return None;
        };
        self.left.set(left);
        Some(if self.is_outline { outline::read(object.bytes.as_ref()) } else { parsed(object) })
    }

    fn info(&self, resource: &str) -> Option<&Arc<ResourceInfo>> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let resource = GroupResource::new(group, plural);
        let former = || self.former().iter().find(|info| info.group_resource == resource);
        self.resources.by_resource(&resource).or_else(former)
    }

    fn former(&self) -> &[Arc<ResourceInfo>] {
        self.former.get_or_init(|| former::resources(&self.store, &self.resources, self.revision()))
    }
}

/// Returns `true` if a resource is of a group, which a user may name with a version before it:
/// `apps`, `v1.apps`.
fn is_of(info: &ResourceInfo, group: &str) -> bool {
    let is_version = |(version, group): (&str, &str)| info.version == *version && info.group == *group;
    info.group == *group || group.split_once('.').is_some_and(is_version)
}

impl Objects for StoredObjects {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let info = self.info(resource)?;
        let bucket = self.bucket(&info.storage.bucket);
        bucket.get(&info.storage_name(namespace, name)).and_then(|object| self.parse(object))
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let Some(info) = self.info(resource) else { return Vec::new() };
        let bucket = self.bucket(&info.storage.bucket);
        let prefix = namespace.filter(|_| info.namespaced).map(|namespace| format!("{namespace}/"));
        let mut objects = bucket.prefix(prefix.as_deref().unwrap_or_default());
        let listed = objects.by_ref().take(MAX_LISTED).map_while(|object| self.parse(object)).collect();
        if objects.next().is_some() {
            self.is_truncated.set(true);
        }
        listed
    }

    fn is_truncated(&self) -> bool {
        self.is_truncated.get()
    }

    fn resources(&self) -> Vec<Resource> {
        let mut infos: Vec<_> = self.resources.iter().filter(|info| info.has_verb("list")).collect();
        infos.sort_by_key(|info| (info.is_custom(), &info.group, &info.plural));
        // Resources that show the same objects are one.
        let mut seen = HashSet::new();
        let mut resources = Vec::new();
        for info in infos {
            if seen.insert(&info.storage.bucket) {
                resources.push(Resource {
                    name: info.group_resource.to_string(),
                    kind: info.kind.to_string(),
                    api_version: info.api_version.clone(),
                    namespaced: info.namespaced,
                    is_custom: info.is_custom(),
                });
            }
        }
        resources
    }

    fn past(&self, resource: &str, namespace: &str, name: &str) -> Vec<Version> {
        let Some(info) = self.info(resource).filter(|_| !self.is_outline) else { return Vec::new() };
        let (bucket, name) = (&info.storage.bucket, info.storage_name(namespace, name));
        let mut versions = Vec::new();
        for event in events(&self.store, bucket, self.revision()) {
            let Some(version) = event.after.as_ref().or(event.before.as_ref()) else { continue };
            if **event.key.name() != *name {
                continue;
            }
            let Some(object) = self.parse(version) else { break };
            versions.push(Version {
                revision: event.revision.0,
                time: event.author.as_ref().map(|author| author.time.to_string()),
                writer: event.author.as_ref().map(|author| writer(&author.request)),
                object,
                is_deletion: event.after.is_none(),
            });
        }
        versions.reverse();
        versions.truncate(MAX_VERSIONS);
        versions
    }

    fn refusals(&self, resource: &str, namespace: &str, name: &str) -> Vec<Refusal> {
        // They have a time and no revision.
        let is_now = self.past.is_none() && !self.is_outline;
        let Some(info) = self.info(resource).filter(|_| is_now) else { return Vec::new() };
        let GroupResource { group, resource } = &info.group_resource;
        let is_about = |refusal: &serve::Refusal| {
            (&*refusal.name, &*refusal.namespace) == (name, namespace)
                && (&refusal.group, &refusal.resource) == (group, resource)
        };
        let refusals = self.traffic.refusals().select(is_about).into_iter();
        let described = refusals.map(|refusal| Refusal {
            time: refusal.time.to_string(),
            revision: refusal.revision,
            writer: writer(&refusal.request),
            code: refusal.code,
            reason: refusal.reason,
            message: refusal.message,
        });
        described.collect()
    }
}

/// Describes the author of a request for explanations.
fn writer(request: &AuthorRequest) -> Writer {
    Writer {
        user: request.user.to_string(),
        user_agent: request.user_agent.to_string(),
        verb: request.verb.as_str().to_owned(),
    }
}

/// Parses an object as it is stored; what cannot be read has no members.
pub(crate) fn parsed(object: &Object<ObjectIndex>) -> Value {
    serde_json::from_slice(object.bytes.as_ref()).unwrap_or_default()
}

fn unknown(resource: &str, namespace: &str, name: &str) -> Error {
    let within = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
    let message = format!(
        "nothing is known of {resource} {name:?}{within}: it does not exist, and history has no version of it"
    );
    Error::plain(404, "NotFound", message)
}
