//! The objects of a store, as explanations read them.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::{ResourceInfo, ResourceTable};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::{BucketSnapshot, Object, Revision, Snapshot, Store};
use coracle_why::{Explanation, Objects, Refusal, Resource, Tree, Version};
use serde_json::Value;

use crate::outline;
use crate::read::{expired, invalid};

/// The most objects of a resource that an explanation reads.
const MOST_LISTED: usize = 10_000;
/// The most bytes of objects that an answer reads. Parsed they take several times as much.
const MOST_BYTES: usize = 32 << 20;
/// The same of outlines, which are parsed in part.
const MOST_OUTLINED: usize = 128 << 20;
/// The most versions of an object that an explanation reads.
const MOST_VERSIONS: usize = 1000;
/// The attempts to read a history that is compacted meanwhile.
const ATTEMPTS: usize = 3;

/// The name of an object in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    resource: String,
    namespace: String,
    name: String,
}

impl ObjectName {
    /// Reads `resource`, `namespace` and `name` of a query.
    ///
    /// # Errors
    /// 422 without a resource or a name.
    pub fn read(query: &Query) -> Result<ObjectName> {
        let text = |member: &str| query.first(member).unwrap_or_default().to_owned();
        let object =
            ObjectName { resource: text("resource"), namespace: text("namespace"), name: text("name") };
        match (object.resource.is_empty(), object.name.is_empty()) {
            (true, _) => {
                Err(invalid("resource", "the name of a resource, such as pods or statefulsets.apps"))
            }
            (_, true) => Err(invalid("name", "the name of an object")),
            _ => Ok(object),
        }
    }
}

/// The objects of a store at one moment, and their history.
pub struct StoredObjects {
    store: Store<ObjectIndex>,
    snapshot: Snapshot<ObjectIndex>,
    /// The buckets at an earlier revision; None for the newest objects.
    past: Option<PastBuckets>,
    resources: Arc<ResourceTable>,
    /// The bytes that may still be read.
    left: Cell<usize>,
    /// Whether objects are read without data and managed fields, and without their past.
    is_outline: bool,
}

/// All buckets at a revision.
struct PastBuckets {
    revision: Revision,
    buckets: HashMap<Arc<str>, BucketSnapshot<ObjectIndex>>,
}

impl StoredObjects {
    /// The objects of a store as they are now.
    pub fn of(store: Store<ObjectIndex>) -> StoredObjects {
        let (snapshot, resources) = (store.snapshot(), store.index().resources());
        let left = Cell::new(MOST_BYTES);
        StoredObjects { store, snapshot, past: None, resources, left, is_outline: false }
    }

    /// The objects of a store at a revision; None for those of now.
    ///
    /// # Errors
    /// 410 if history does not reach back so far, or the revision is yet to come, as after a restart.
    pub fn at(store: Store<ObjectIndex>, revision: Option<Revision>) -> Result<StoredObjects> {
        let objects = StoredObjects::of(store);
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

    /// The same without what states do not depend on: data, managed fields, and the past of single objects.
    pub fn outline(self) -> StoredObjects {
        StoredObjects { left: Cell::new(MOST_OUTLINED), is_outline: true, ..self }
    }

    /// The revision of the objects.
    pub fn revision(&self) -> Revision {
        self.past.as_ref().map_or_else(|| self.snapshot.revision(), |past| past.revision)
    }

    /// The oldest revision at which all objects can be read.
    pub fn oldest(&self) -> Revision {
        let buckets = self.snapshot.buckets();
        let oldest = buckets.map(|(name, _)| self.snapshot.compact_revision(name).revision());
        oldest.max().unwrap_or(Revision(0))
    }

    fn bucket(&self, name: &Arc<str>) -> BucketSnapshot<ObjectIndex> {
        let past = self.past.as_ref().and_then(|past| past.buckets.get(name));
        past.cloned().unwrap_or_else(|| self.snapshot.bucket(name))
    }

    /// The object that was written last.
    pub fn newest(&self) -> Option<Value> {
        let buckets = self.snapshot.buckets().map(|(name, _)| self.bucket(name));
        let newest = buckets.filter_map(|bucket| bucket.iter().max_by_key(|object| object.revision).cloned());
        let newest = newest.max_by_key(|object| object.revision)?;
        serde_json::from_slice(newest.bytes.as_ref()).ok()
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

    /// Reads the past of an object, newest first, and the name of its resource and its namespace.
    ///
    /// # Errors
    /// 404 for an unknown resource.
    pub fn versions(&self, object: &ObjectName) -> Result<(String, String, Vec<Version>)> {
        let (info, namespace) = self.place(object)?;
        let resource = info.group_resource.to_string();
        let versions = self.past(&resource, namespace, &object.name);
        Ok((resource, namespace.to_owned(), versions))
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

    /// The resource that a request names as kubectl does, and the namespace of its object.
    fn place<'a>(&'a self, object: &'a ObjectName) -> Result<(&'a Arc<ResourceInfo>, &'a str)> {
        let (name, group) = match object.resource.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (object.resource.to_lowercase(), None),
        };
        let is_named = |info: &&Arc<ResourceInfo>| {
            let names = [&*info.plural, &*info.singular].into_iter();
            let mut names = names.chain(info.short_names.iter().map(|short| &**short));
            group.is_none_or(|group| info.group == *group)
                && (names.any(|known| known == name) || info.kind.to_lowercase() == name)
        };
        // The group of the core comes first, then those of Kubernetes.
        let place = |info: &&Arc<ResourceInfo>| (info.is_custom(), info.group.to_string());
        let found = self.resources.iter().filter(is_named).min_by_key(place);
        let info = found.ok_or_else(|| {
            Error::plain(404, "NotFound", format!("nothing is known of resource {:?}", object.resource))
        })?;
        let namespace = match (info.namespaced, &*object.namespace) {
            (false, _) => "",
            (true, "") => "default",
            (true, namespace) => namespace,
        };
        Ok((info, namespace))
    }

    /// An object as it is stored, what cannot be read without members; None once too much was read.
    fn parse(&self, object: &Object<ObjectIndex>) -> Option<Value> {
        let bytes: &[u8] = object.bytes.as_ref();
        self.left.set(self.left.get().checked_sub(bytes.len())?);
        match self.is_outline {
            true => Some(outline::read(bytes)),
            false => Some(serde_json::from_slice(bytes).unwrap_or_default()),
        }
    }

    fn info(&self, resource: &str) -> Option<&Arc<ResourceInfo>> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.resources.by_resource(&GroupResource::new(group, plural))
    }
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
        let objects = bucket.prefix(prefix.as_deref().unwrap_or_default()).take(MOST_LISTED);
        objects.map_while(|object| self.parse(object)).collect()
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
                });
            }
        }
        resources
    }

    fn past(&self, resource: &str, namespace: &str, name: &str) -> Vec<Version> {
        let Some(info) = self.info(resource).filter(|_| !self.is_outline) else { return Vec::new() };
        let (bucket, name) = (&info.storage.bucket, info.storage_name(namespace, name));
        // If history is compacted meanwhile, the rest of it is read.
        let watched = (0..ATTEMPTS).find_map(|_| {
            let oldest = self.store.snapshot().compact_revision(bucket).revision();
            self.store.watch(bucket, oldest).ok()
        });
        let Some(mut history) = watched else { return Vec::new() };
        let mut versions = Vec::new();
        while let Ok(events) = history.try_next() {
            let is_over = events.last().is_none_or(|last| last.revision > self.revision());
            let events = events.iter().filter(|event| event.revision <= self.revision());
            for event in events.filter(|event| **event.key.name() == *name) {
                let Some(version) = event.after.as_ref().or(event.before.as_ref()) else { continue };
                let Some(object) = self.parse(version) else { break };
                let is_deletion = event.after.is_none();
                let revision = event.revision.0;
                versions.push(Version { revision, time: None, writer: None, object, is_deletion });
            }
            if is_over {
                break;
            }
        }
        versions.reverse();
        versions.truncate(MOST_VERSIONS);
        versions
    }

    fn refusals(&self, _: &str, _: &str, _: &str) -> Vec<Refusal> {
        Vec::new()
    }
}

fn unknown(resource: &str, namespace: &str, name: &str) -> Error {
    let within = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
    let message = format!(
        "nothing is known of {resource} {name:?}{within}: it does not exist, and history has no version of it"
    );
    Error::plain(404, "NotFound", message)
}
