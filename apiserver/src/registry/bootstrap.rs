//! Objects that a server writes on its own account, such as those that are there from the start.

use std::borrow::Cow;
use std::sync::Arc;

use coracle_storage::{CommitOutcome, Expect, Key, Write};
use futures::future::join_all;
use serde_json::Value;
use tokio::task::{spawn_blocking, unconstrained};

use super::deletion::rfc3339;
use super::write::{stored_bytes, tracked};
use super::{Origin, Registry, Target, parse};
use crate::fields::manage::FieldManager;
use crate::names::GroupVersion;
use crate::object_meta::ObjectMeta;
use crate::request::info::Verb;
use crate::resource_info::ResourceInfo;
use crate::{Error, Result};

/// The number of attempts to write objects that another server writes, too.
const ATTEMPTS: usize = 20;

/// The strategy for objects that a server writes on its own account.
pub trait BootstrapStrategy: Sync {
    /// Returns the manager of the fields of a new object of an API group.
    fn field_manager(&self, _group: &str) -> &'static str {
        "kube-apiserver"
    }

    /// Returns the object without the fields that have no manager because the server or a
    /// controller decides them.
    fn managed<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        Cow::Borrowed(object)
    }

    /// Compares an object with the stored one of its name.
    fn reconcile(&self, _wanted: &Value, _stored: &Value) -> ReconcileAction {
        ReconcileAction::Keep
    }
}

/// The action on a stored object.
#[derive(Clone, Debug, PartialEq)]
pub enum ReconcileAction {
    /// Leave the stored object unchanged.
    Keep,
    /// Store this object instead.
    Update(Value),
    /// Delete the stored object and create this one.
    Recreate(Value),
}

/// Creates what is missing, and leaves stored objects unchanged.
pub struct CreateOnly;

impl BootstrapStrategy for CreateOnly {}

impl Registry {
    /// Creates the objects that are missing, in this order, and reconciles the stored ones.
    ///
    /// # Errors
    /// The errors of the store. Other objects may have been written then.
    pub async fn bootstrap(
        self: &Arc<Registry>,
        objects: Arc<[Value]>,
        strategy: &'static dyn BootstrapStrategy,
    ) -> Result<()> {
        let now: Arc<str> = rfc3339(self.now()).into();
        for _ in 0..ATTEMPTS {
            let (registry, all, time) = (self.clone(), objects.clone(), now.clone());
            let half = objects.len() / 2;
            // Another processor makes half of them, and the store writes one while the next is made.
            let making = spawn_blocking(move || {
                let make = |object| registry.reconciled(object, strategy, &time);
                all[half..].iter().map(make).collect::<Vec<_>>()
            });
            let now = &*now;
            let make = |object| move || self.reconciled(object, strategy, now);
            let is_overtaken = self.commit_each(objects[..half].iter().map(make)).await;
            // Where the first half fails, nothing is made afterwards.
            let made = making.await.map_err(|error| Error::Internal(error.to_string()))?;
            let is_overtaken = is_overtaken?;
            if !self.commit_each(made.into_iter().map(|write| move || write)).await? && !is_overtaken {
                return Ok(());
            }
        }
        Err(Error::Internal("another server writes the same objects".to_owned()))
    }

    /// Makes and commits writes in this order, each in a transaction of its own, so that each has a
    /// resourceVersion of its own. Returns `true` if another server wrote one of the objects.
    async fn commit_each<F>(&self, writes: impl Iterator<Item = F>) -> Result<bool>
    where
        F: FnOnce() -> Result<Option<Write>>,
    {
        let commits = writes.map(async |make| match make()? {
            Some(write) => self.commit(vec![write], Origin::server(Verb::Update)).await.map(Some),
            None => Ok(None),
        });
        // They begin in this order, which the budget of a task would change.
        let commits = unconstrained(join_all(commits)).await;
        let mut is_overtaken = false;
        for commit in commits {
            is_overtaken |= matches!(commit?, Some(CommitOutcome::Conflict { .. }));
        }
        Ok(is_overtaken)
    }

    /// Creates an object on the server's own account, if there is none of its name.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn create_as_server(&self, object: Value) -> Result<()> {
        let now = rfc3339(self.now());
        let Some(write) = self.reconciled(&object, &CreateOnly, &now)? else { return Ok(()) };
        // Where another write came first, the object is there.
        self.commit(vec![write], Origin::server(Verb::Create)).await.map(drop)
    }

    /// Creates an object on the server's own account, or updates the stored one of its name.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn publish(&self, object: Value, update: impl Fn(&mut Value) + Send) -> Result<()> {
        let info = self.served(&object)?;
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let target = Target { info, namespace, name };
        self.create_as_server(object).await?;
        let updated = |stored: &Value| {
            let mut updated = stored.clone();
            update(&mut updated);
            updated
        };
        // Another server may have been faster than the creation.
        match self.current(&target.info, &target.namespace, &target.name) {
            Some(stored) if parse(&stored).is_ok_and(|stored| updated(&stored) == stored) => Ok(()),
            _ => self.rewrite(&target, false, |stored| Ok(updated(stored))).await,
        }
    }

    /// Returns the resource of the kind of an object.
    fn served(&self, object: &Value) -> Result<Arc<ResourceInfo>> {
        let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or("");
        let group = GroupVersion::parse(text("apiVersion")).map(|v| v.group).unwrap_or_default();
        let kind = text("kind");
        let resources = self.resources.load();
        let mut all = resources.iter();
        all.find(|info| info.group_kind.kind == kind && info.group_kind.group == group)
            .cloned()
            .ok_or_else(|| Error::Internal(format!("{kind} is not served")))
    }

    /// Returns the write that creates or reconciles an object, if it needs one.
    fn reconciled(
        &self,
        object: &Value,
        strategy: &dyn BootstrapStrategy,
        now: &str,
    ) -> Result<Option<Write>> {
        let info = &*self.served(object)?;
        let key = Key::new(info.storage.bucket.clone(), info.storage_name(object.namespace(), object.name()));
        let (expect, object) = match self.store.get(&key) {
            None => (Expect::Absent, self.created(object, info, strategy, now)),
            Some(stored) => {
                let object = match strategy.reconcile(object, &parse(&stored)?) {
                    ReconcileAction::Keep => return Ok(None),
                    ReconcileAction::Update(object) => object,
                    ReconcileAction::Recreate(object) => self.created(&object, info, strategy, now),
                };
                (Expect::Revision(stored.revision), object)
            }
        };
        Ok(Some(Write::put(key, expect, stored_bytes(info, object))))
    }

    /// Completes a new object with the metadata that the server sets.
    fn created(
        &self,
        object: &Value,
        info: &ResourceInfo,
        strategy: &dyn BootstrapStrategy,
        now: &str,
    ) -> Value {
        let manager = strategy.field_manager(&info.group_kind.group);
        let writer = FieldManager { manager, api_version: &info.api_version, subresource: "", now };
        let managed_fields = tracked(info, writer, &strategy.managed(object));
        let mut object = object.clone();
        object.set_meta("managedFields", managed_fields);
        let path = [&*info.storage.bucket, object.namespace(), object.name()];
        let uid = self.identities.uid(&path).to_string();
        self.identities.created(&path);
        object.set_meta("uid", uid);
        object.set_meta("creationTimestamp", now);
        object
    }
}

#[cfg(test)]
mod tests {
    use coracle_clock::Clock;
    use coracle_storage::log::EphemeralLog;
    use coracle_storage::{Options, Store};
    use serde_json::json;

    use super::*;
    use crate::access::authorize::Authorizer;
    use crate::registry::{Config, ObjectIndex};
    use crate::resource_info::SharedResourceTable;

    /// A strategy that creates each object anew.
    struct Anew;

    impl BootstrapStrategy for Anew {
        fn reconcile(&self, wanted: &Value, _: &Value) -> ReconcileAction {
            ReconcileAction::Recreate(wanted.clone())
        }
    }

    fn registry() -> Arc<Registry> {
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let index = ObjectIndex::new(resources.clone());
        let store = Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("a store");
        let authorizer = Arc::new(Authorizer::always_allow());
        Arc::new(Registry::new(Config::new(store, resources, Clock::system(), authorizer)))
    }

    /// Verifies the order for more objects than a task may write without a pause.
    #[tokio::test]
    async fn objects_are_created_in_their_order() {
        let registry = registry();
        let object = |index: usize| {
            let metadata = json!({"namespace": "default", "name": format!("c{index}")});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        };
        let objects: Arc<[Value]> = (0..300).map(object).collect();
        registry.bootstrap(objects.clone(), &CreateOnly).await.expect("written");
        let info = registry.served(&objects[0]).expect("a resource");
        let revision =
            |object: &Value| registry.current(&info, "default", object.name()).expect("an object").revision;
        assert!(objects.iter().map(revision).is_sorted());
    }

    #[tokio::test]
    async fn a_recreated_object_is_another_one() {
        let registry = registry();
        let metadata = json!({"namespace": "default", "name": "c"});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}});
        let mut uids = Vec::new();
        for _ in 0..2 {
            registry.bootstrap([object.clone()].into(), &Anew).await.expect("written");
            let info = registry.served(&object).expect("a resource");
            let stored = registry.current(&info, "default", "c").expect("an object");
            let stored = parse(&stored).expect("JSON");
            assert!(stored["metadata"]["creationTimestamp"].is_string(), "{stored}");
            assert!(stored["metadata"]["managedFields"].is_array(), "{stored}");
            uids.push(stored["metadata"]["uid"].as_str().expect("a uid").to_owned());
        }
        assert_ne!(uids[0], uids[1]);
    }
}
