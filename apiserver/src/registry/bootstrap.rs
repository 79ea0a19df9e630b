//! Objects that a server writes on its own account, such as those that are there from the start.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::bootstrap::{Identity, InitialObject};
use coracle_storage::{CommitOutcome, Expect, Key, Write};
use futures::future::join_all;
use serde_json::Value;
use tokio::task::unconstrained;

use super::deletion::rfc3339;
use super::write::{stored_bytes, tracked};
use super::{Origin, Registry, Target, parse};
use crate::fields::manage::FieldManager;
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
    pub async fn bootstrap(&self, objects: &[InitialObject], strategy: &dyn BootstrapStrategy) -> Result<()> {
        let now = rfc3339(self.now());
        for _ in 0..ATTEMPTS {
            if !self.reconcile_each(objects, strategy, &now).await? {
                return Ok(());
            }
        }
        Err(Error::Internal("another server writes the same objects".to_owned()))
    }

    /// Creates or reconciles objects in this order, each in a transaction of its own, so that each
    /// has a resourceVersion of its own. Returns `true` if another server wrote one of them.
    async fn reconcile_each(
        &self,
        objects: &[InitialObject],
        strategy: &dyn BootstrapStrategy,
        now: &str,
    ) -> Result<bool> {
        // The store writes one while the next is made.
        let commits = objects.iter().map(async |object| match self.reconciled(object, strategy, now)? {
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
    pub(crate) async fn create_as_server(&self, object: impl Into<InitialObject>) -> Result<()> {
        let now = rfc3339(self.now());
        let Some(write) = self.reconciled(&object.into(), &CreateOnly, &now)? else { return Ok(()) };
        // Where another write came first, the object is there.
        self.commit(vec![write], Origin::server(Verb::Create)).await.map(drop)
    }

    /// Creates an object on the server's own account, or updates the stored one of its name.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn publish(&self, object: Value, update: impl Fn(&mut Value) + Send) -> Result<()> {
        let object = InitialObject::New(object);
        let identity = object.identity()?;
        let (namespace, name) = (identity.namespace.to_owned(), identity.name.to_owned());
        let target = Target { info: self.served(&identity)?, namespace, name };
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
    fn served(&self, object: &Identity<'_>) -> Result<Arc<ResourceInfo>> {
        let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
        let resources = self.resources.load();
        let mut all = resources.iter();
        all.find(|info| info.group_kind.kind == object.kind && info.group_kind.group == group)
            .cloned()
            .ok_or_else(|| Error::Internal(format!("{} is not served", object.kind)))
    }

    /// Returns the write that creates or reconciles an object, if it needs one.
    fn reconciled(
        &self,
        initial: &InitialObject,
        strategy: &dyn BootstrapStrategy,
        now: &str,
    ) -> Result<Option<Write>> {
        let identity = initial.identity()?;
        let info = &*self.served(&identity)?;
        let key = Key::new(info.storage.bucket.clone(), info.storage_name(identity.namespace, identity.name));
        let created =
            |object: &Value| created_bytes(info, strategy, object, now, &self.new_uid(info, &identity));
        let Some(stored) = self.store.get(&key) else {
            let bytes = match initial {
                InitialObject::New(object) => created(object),
                InitialObject::Prepared(prepared) => prepared.with_uid(&self.new_uid(info, &identity)).into(),
            };
            return Ok(Some(Write::put(key, Expect::Absent, bytes)));
        };
        let wanted = initial.object()?;
        let bytes = match strategy.reconcile(&wanted, &parse(&stored)?) {
            ReconcileAction::Keep => return Ok(None),
            ReconcileAction::Update(object) => stored_bytes(info, object),
            ReconcileAction::Recreate(object) => created(&object),
        };
        Ok(Some(Write::put(key, Expect::Revision(stored.revision), bytes)))
    }

    /// Returns the uid of an object that is created now.
    fn new_uid(&self, info: &ResourceInfo, object: &Identity<'_>) -> String {
        let path = [&*info.storage.bucket, object.namespace, object.name];
        let uid = self.identities.uid(&path).to_string();
        self.identities.created(&path);
        uid
    }
}

/// Returns the bytes to store for a new object, with the metadata that the server sets.
pub fn created_bytes(
    info: &ResourceInfo,
    strategy: &dyn BootstrapStrategy,
    object: &Value,
    now: &str,
    uid: &str,
) -> Bytes {
    let manager = strategy.field_manager(&info.group_kind.group);
    let writer = FieldManager { manager, api_version: &info.api_version, subresource: "", now };
    let managed_fields = tracked(info, writer, &strategy.managed(object));
    let mut object = object.clone();
    object.set_meta("managedFields", managed_fields);
    object.set_meta("uid", uid);
    object.set_meta("creationTimestamp", now);
    stored_bytes(info, object)
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
        let objects: Vec<InitialObject> = (0..300).map(object).map(InitialObject::New).collect();
        registry.bootstrap(&objects, &CreateOnly).await.expect("written");
        fn identity(object: &InitialObject) -> Identity<'_> {
            object.identity().expect("an object")
        }
        let info = registry.served(&identity(&objects[0])).expect("a resource");
        let revision = |object: &InitialObject| {
            registry.current(&info, "default", identity(object).name).expect("an object").revision
        };
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
            registry.bootstrap(&[object.clone().into()], &Anew).await.expect("written");
            let info = registry.served(&InitialObject::from(object.clone()).identity().expect("an object"));
            let info = info.expect("a resource");
            let stored = registry.current(&info, "default", "c").expect("an object");
            let stored = parse(&stored).expect("JSON");
            assert!(stored["metadata"]["creationTimestamp"].is_string(), "{stored}");
            assert!(stored["metadata"]["managedFields"].is_array(), "{stored}");
            uids.push(stored["metadata"]["uid"].as_str().expect("a uid").to_owned());
        }
        assert_ne!(uids[0], uids[1]);
    }
}
