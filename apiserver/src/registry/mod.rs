//! The generic verbs over the store: the same code for every kind.
//!
//! ```text
//! create, update, patch:  decode ─► default ─► admit ─► prepare ─► validate ─► admission validates ─► commit
//! ```
//!
//! | file | owns |
//! | --- | --- |
//! | `body.rs` | from a request's bytes to an object of its kind |
//! | `write/` | create, update and patch: the pipeline above, and the retry when another write came first |
//! | `deletion.rs`, `delete.rs` | the decision what a DELETE means; carrying it out |
//! | `read.rs`, `watch.rs` | get, list, watch |
//! | `expiry.rs` | the deletion of objects that were not written for a while, such as Events |
//! | `computed.rs` | reads of objects that are computed |
//! | `allocation.rs`, `quota.rs`, `locks.rs` | what a write takes from a common stock or a quota; locks by name |
//! | `layout/` | names and values of objects in a store that kube-apiserver may share |
//! | `author.rs` | the authors of writes, as history keeps them |
//! | `bootstrap.rs` | objects that a server writes on its own account |
//! | `index.rs` | what the store keeps beside the bytes, for selectors |
//! | `scale.rs` | the number of replicas as a Scale |
//!
//! Nothing here knows HTTP: the verbs take what a request asks for and give objects back, `answer`
//! makes bytes of them. Start at [`Registry`].

mod allocation;
mod apply;
mod author;
mod body;
mod bootstrap;
mod computed;
mod delete;
pub mod deletion;
mod expiry;
mod index;
mod layout;
mod locks;
mod quota;
pub mod read;
mod reconcile;
mod scale;
pub mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_seed::Identities;
use coracle_storage::{Key, Store};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use author::Authors;

pub use allocation::{Allocated, AllocationRequest, Allocator, Reservation};
pub use apply::apply_creates;
pub use author::{Author, AuthorRequest, Origin};
pub(crate) use author::{MAX_TEXT_LENGTH, cut};
pub use body::RequestBody;
pub use bootstrap::{BootstrapStrategy, CreateOnly, ReconcileAction, created_bytes};
pub use delete::check_preconditions;
pub use index::{ObjectIndex, fork_store, open_recorded_store, open_store};
pub use layout::{RANGES, RegistryLayout};
pub use reconcile::Reconcile;
pub use write::{clear_system_fields, fit_namespace, same_uid, stored_bytes};

use crate::access::authenticate::UserInfo;
use crate::access::authorize::Authorizer;
use crate::admission::AdmissionChain;
use crate::audit::AuditContext;
use crate::cluster::{Cluster, NamespacePhase};
use crate::codec::{json, zero};
use crate::features::FeatureGates;
use crate::flow_control;
use crate::names::GroupResource;
use crate::request::Warnings;
use crate::request::info::{ResourceRequest, Verb};
use crate::resource_info::{ResourceInfo, SharedResourceTable};
use crate::schema::{StructId, Type, TypeRef, schema};
use crate::telemetry::metrics::StoredObjects;
use crate::webhook::{ClientManager, ConversionMetrics};
use crate::{Error, Result};

/// The maximum number of retries of a write that conflicts with another one. Each conflict means
/// that another write succeeded, so a client that sent no resource version sees a conflict only
/// under extreme contention.
const RETRIES: usize = 100;

/// The maximum time that an admission plugin waits for an object that a controller creates.
const MAX_WAIT: Duration = Duration::from_millis(1500);

/// One stored version of an object.
pub type Stored = coracle_storage::Object<ObjectIndex>;

/// The generic verbs.
pub struct Registry {
    /// The store of the objects.
    pub store: Store<ObjectIndex>,
    /// The resources of now.
    pub resources: Arc<SharedResourceTable>,
    chain: AdmissionChain,
    webhook_clients: Arc<ClientManager>,
    conversion_metrics: Arc<ConversionMetrics>,
    features: Arc<FeatureGates>,
    authorizer: Arc<Authorizer>,
    clock: Clock,
    allocator: Option<Box<dyn Allocator>>,
    identities: Arc<Identities>,
    authors: Authors,
    /// The locks of namespaces; each is held while its quotas are reserved for an object.
    quota_locks: locks::NamedLocks,
    /// The locks of keys; each is held, always before that one, by a write that is made anew because
    /// another came first.
    retrying: locks::NamedLocks,
}

/// The body of a response to a write, or to a read of something other than a stored object.
pub enum Payload {
    /// A stored object.
    Stored(Arc<Stored>),
    /// An object as its type prints it.
    Object {
        /// The object, in the version of its type.
        value: Value,
        /// Its type.
        type_ref: TypeRef,
    },
    /// The list of what was there.
    List(read::Page),
    /// A list of objects that are nowhere stored.
    Objects {
        /// The objects, in the stored version.
        items: Vec<Value>,
        /// The list's own metadata.
        metadata: Value,
    },
    /// `Success`, with details.
    Status(Value),
}

/// The outcome of a write.
pub struct Outcome {
    /// The status code.
    pub code: u16,
    /// The body.
    pub payload: Payload,
}

impl Outcome {
    /// Returns plain success, for an endpoint that has no object to return.
    pub fn success(code: u16) -> Outcome {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
        Outcome { code, payload: Payload::Status(status) }
    }
}

/// The object or collection that a request refers to, and its resource.
#[derive(Clone)]
pub struct Target {
    /// The resource, in the version of the request.
    pub info: Arc<ResourceInfo>,
    /// "" for what has no namespace, and for the collection of all namespaces.
    pub namespace: String,
    /// "" for the collection.
    pub name: String,
}

impl Target {
    /// Returns the key of the object with this name.
    pub fn key_of(&self, name: &str) -> Key {
        Key::new(self.info.storage.bucket.clone(), self.info.storage_name(&self.namespace, name))
    }
}

/// The client of a request, as hooks see it.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The user, after impersonation.
    pub user: &'a UserInfo,
    /// The `User-Agent`; "" if there is none.
    pub user_agent: &'a str,
    /// The verb.
    pub verb: Verb,
    /// The subresource; "" for the object itself.
    pub subresource: &'a str,
    /// The warnings for the response.
    pub warnings: &'a Warnings,
    /// The audit event of the request.
    pub audit: &'a AuditContext,
}

impl<'a> Caller<'a> {
    /// Returns the origin of the request, as recorded for the author of a write.
    pub fn origin(&self) -> Origin<'a> {
        let Caller { user, user_agent, verb, subresource, .. } = *self;
        Origin { user: &user.name, user_agent, verb, subresource }
    }
}

/// The parts that a registry is made of.
pub struct Config {
    /// The store.
    pub store: Store<ObjectIndex>,
    /// The resources of now.
    pub resources: Arc<SharedResourceTable>,
    /// The time.
    pub clock: Clock,
    /// Decides whether an update may create.
    pub authorizer: Arc<Authorizer>,
    /// The feature gates.
    pub features: Arc<FeatureGates>,
    /// The admission plugins.
    pub chain: AdmissionChain,
    /// The clients of webhooks and aggregated API servers.
    pub webhook_clients: Arc<ClientManager>,
    /// The metrics of conversion webhooks.
    pub conversion_metrics: Arc<ConversionMetrics>,
    /// The stock that some objects take from.
    pub allocator: Option<Box<dyn Allocator>>,
    /// The source of UIDs, names and addresses.
    pub identities: Arc<Identities>,
}

impl Config {
    /// Creates the minimal configuration of a registry: without admission, rejection and metrics.
    pub fn new(
        store: Store<ObjectIndex>,
        resources: Arc<SharedResourceTable>,
        clock: Clock,
        authorizer: Arc<Authorizer>,
    ) -> Config {
        Config {
            store,
            resources,
            clock,
            authorizer,
            features: Arc::default(),
            chain: AdmissionChain::default(),
            webhook_clients: Arc::default(),
            conversion_metrics: Arc::default(),
            allocator: None,
            identities: Arc::default(),
        }
    }
}

impl Registry {
    /// Creates a registry.
    pub fn new(config: Config) -> Registry {
        let Config { store, resources, clock, authorizer, features, chain, .. } = config;
        Registry {
            chain,
            webhook_clients: config.webhook_clients,
            conversion_metrics: config.conversion_metrics,
            features,
            authorizer,
            store,
            resources,
            clock,
            allocator: config.allocator,
            identities: config.identities,
            authors: Authors::default(),
            quota_locks: locks::NamedLocks::default(),
            retrying: locks::NamedLocks::default(),
        }
    }

    /// Returns the source of UIDs, names and addresses.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Returns the metrics of conversion webhooks.
    pub fn conversion_metrics(&self) -> &ConversionMetrics {
        &self.conversion_metrics
    }

    /// Returns the clients of webhooks and aggregated API servers.
    pub fn webhook_clients(&self) -> &Arc<ClientManager> {
        &self.webhook_clients
    }

    /// Returns the current resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceInfo>> {
        self.resources.load().find(group, version, plural).cloned()
    }

    /// Returns the current resource in the version in which it is stored.
    pub fn by_resource(&self, resource: &GroupResource) -> Option<Arc<ResourceInfo>> {
        self.resources.load().by_resource(resource).cloned()
    }

    /// Returns the size in bytes of the object that a request names; 0 if it does not exist.
    pub fn size_of(&self, request: &ResourceRequest) -> usize {
        let info = self.find(&request.group, &request.version, &request.resource);
        let stored = info.and_then(|info| self.current(&info, &request.namespace, &request.name));
        stored.map_or(0, |stored| stored.bytes.len())
    }

    /// Returns the number of stored objects of each resource.
    pub fn stored_objects(&self) -> Vec<StoredObjects> {
        let snapshot = self.store.snapshot();
        let count = |info: &Arc<ResourceInfo>| StoredObjects {
            group: info.group_resource.group.clone(),
            resource: info.group_resource.resource.clone(),
            objects: snapshot.len(&info.storage.bucket) as u64,
        };
        let resources = self.resources.load();
        // Objects that are served in several groups or versions are stored, and counted, once.
        let is_stored = |info: &Arc<ResourceInfo>| {
            info.has_verb("list")
                && info.behavior.computed.is_none()
                && resources.by_bucket(&info.storage.bucket).is_some_and(|known| Arc::ptr_eq(known, info))
        };
        resources.iter().filter(|info| is_stored(info)).map(count).collect()
    }

    /// Returns the feature gates.
    pub fn features(&self) -> &FeatureGates {
        &self.features
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits for the turn of a write to an object that another write has overtaken. Without turns
    /// every write would be made anew for every other one that gets on, and many at once to a large
    /// object would be the work of their square.
    async fn retry_turn(&self, target: &Target) -> locks::NamedGuard<'_> {
        let key = target.key_of(&target.name);
        self.retrying.lock(&format!("{}/{}", key.bucket(), key.name())).await
    }

    /// Returns the current object.
    pub fn current(&self, info: &ResourceInfo, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&Key::new(info.storage.bucket.clone(), info.storage_name(namespace, name)))
    }

    /// Returns a timeout between 30 and 60 minutes, so that clients do not reconnect all at once.
    fn default_watch_timeout(&self) -> Duration {
        Duration::from_secs(1800 + u64::from(uuid::Uuid::new_v4().as_fields().0) % 1800)
    }
}

/// Parses the bytes of a stored version, normalized as if they had come in a request.
///
/// # Errors
/// [`Error::Internal`](crate::Error::Internal) if they do not parse, which is logged. Such an
/// object is never treated as empty: that would free what it holds, and lift what it forbids.
pub fn parse(stored: &Stored) -> Result<Value> {
    let mut object = json::parse_own(&stored.bytes).map_err(|error| {
        let (bucket, name) = (stored.key.bucket(), stored.key.name());
        tracing::error!(%bucket, %name, revision = %stored.revision, %error, "a stored object cannot be read");
        Error::Internal(format!("the stored object {bucket} {name} cannot be read: {error}"))
    })?;
    if has_nulls(&stored.bytes)
        && let Some(type_id) = built_in_type(&object)
    {
        zero::drop_nulls(&mut object, &Type::Struct(type_id));
    }
    Ok(object)
}

fn has_nulls(json: &[u8]) -> bool {
    memchr::memmem::find(json, b":null").is_some()
}

fn built_in_type(object: &Value) -> Option<StructId> {
    let version = object["apiVersion"].as_str()?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    schema().kind(group, version, object["kind"].as_str()?)
}

impl Cluster for Registry {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>> {
        let Some(info) = self.by_resource(resource) else { return Ok(None) };
        self.current(&info, namespace, name).map(|o| parse(&o)).transpose()
    }

    fn label(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        label: &str,
    ) -> Result<Option<String>> {
        let stored = self.by_resource(resource).and_then(|info| self.current(&info, namespace, name));
        Ok(stored.and_then(|stored| stored.meta.label(label).map(str::to_owned)))
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>> {
        let Some(info) = self.by_resource(resource) else { return Ok(Vec::new()) };
        let filter = read::Filter { namespace: namespace.to_owned(), ..read::Filter::default() };
        let bucket = self.store.snapshot().bucket(&info.storage.bucket);
        bucket.iter().filter(|o| filter.matches(o)).map(|o| parse(o)).collect()
    }

    fn count(&self, resource: &GroupResource) -> Result<usize> {
        let info = self.by_resource(resource);
        Ok(info.map_or(0, |info| self.store.snapshot().len(&info.storage.bucket)))
    }

    fn list_containing(&self, resource: &GroupResource, namespace: &str, text: &str) -> Result<Vec<Value>> {
        let Some(info) = self.by_resource(resource) else { return Ok(Vec::new()) };
        let filter = read::Filter { namespace: namespace.to_owned(), ..read::Filter::default() };
        let bucket = self.store.snapshot().bucket(&info.storage.bucket);
        let finder = memchr::memmem::Finder::new(text);
        let found = bucket.iter().filter(|o| filter.matches(o) && finder.find(&o.bytes).is_some());
        found.map(|o| parse(o)).collect()
    }

    fn last_change(&self, resource: &GroupResource) -> Option<u64> {
        let resources = self.resources.load();
        Some(self.store.last_change(&resources.by_resource(resource)?.storage.bucket).0)
    }

    fn namespace(&self, name: &str) -> Result<Option<NamespacePhase>> {
        let info = self.find("", "v1", "namespaces");
        let stored = info.and_then(|info| self.current(&info, "", name));
        Ok(stored.map(|stored| match stored.meta.terminating {
            true => NamespacePhase::Terminating,
            false => NamespacePhase::Active,
        }))
    }

    #[expect(clippy::disallowed_methods, reason = "a request waits for a bounded time")]
    fn wait_for<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, ()> {
        let comes = async move {
            let Some(info) = self.by_resource(resource) else { return };
            let exists = || self.current(&info, namespace, name).is_some();
            loop {
                // The watch is opened before the look, so that nothing falls between them; where
                // history was lost, anew.
                let watcher = self.store.watch(&info.storage.bucket, self.store.revision());
                if exists() {
                    return;
                }
                match watcher {
                    Ok(mut watcher) => while watcher.next().await.is_ok() && !exists() {},
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        // Too late is as good as never.
        Box::pin(async { _ = tokio::time::timeout(MAX_WAIT, comes).await })
    }
}

impl flow_control::ConfigurationSource for Registry {
    fn flow_configuration(&self) -> (Vec<Value>, Vec<Value>) {
        let snapshot = self.store.snapshot();
        // One that cannot be read is left out.
        let read = |object: &Arc<Stored>| {
            let sparse = json::parse_own_sparse(&object.bytes, flow_control::MEMBERS.to_vec());
            sparse.or_else(|_| parse(object)).ok()
        };
        let list = |resource: &str| {
            let resource = GroupResource::new(flow_control::GROUP, resource);
            let bucket = self.by_resource(&resource).map(|info| snapshot.bucket(&info.storage.bucket));
            bucket.iter().flat_map(|bucket| bucket.iter()).filter_map(read).collect()
        };
        (list(flow_control::FLOW_SCHEMAS), list(flow_control::PRIORITY_LEVELS))
    }

    fn flow_revisions(&self) -> Option<[u64; 2]> {
        let of = |resource| self.last_change(&GroupResource::new(flow_control::GROUP, resource));
        Some([of(flow_control::FLOW_SCHEMAS)?, of(flow_control::PRIORITY_LEVELS)?])
    }
}

#[cfg(test)]
mod tests;
