//! For tests: roles and bindings in a store in memory, and who may do what by them.

use std::sync::Arc;

use coracle_apimachinery::resource_info::{ResourceInfo, ResourceTable, SharedResourceTable};
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authorize::{Authorizer, Decision, RequestAttributes, RuleResolver};
use coracle_apiserver::registry::{ObjectIndex, stored_bytes};
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Expect, History, Key, Options, Store};
use futures::executor::block_on;
use serde_json::Value;

use super::{GROUP, RbacAuthorizer};

/// A store in memory, and an authorizer by it.
pub struct World {
    table: ResourceTable,
    store: Store<ObjectIndex>,
    rbac: Arc<RbacAuthorizer>,
}

impl Default for World {
    fn default() -> World {
        World::with(History::default())
    }
}

impl World {
    /// Creates an empty store with this history.
    pub fn with(history: History) -> World {
        let table = coracle_resources::built_in();
        let index = ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in()));
        let options = Options { history, ..Options::default() };
        let store = Store::open(Box::new(EphemeralLog::new()), index, options).expect("an empty store");
        let rbac = Arc::new(RbacAuthorizer::new(store.clone(), &table));
        World { table, store, rbac }
    }

    /// Creates a store with these roles and bindings, by their plural names.
    pub fn of<const N: usize>(objects: [(&str, Value); N]) -> World {
        let world = World::default();
        objects.into_iter().for_each(|(resource, object)| world.put(resource, object));
        world
    }

    /// Decides by the roles and bindings that there are now.
    pub fn authorizer(&self) -> Arc<Authorizer> {
        Arc::new(Authorizer::new(self.refreshed().clone()))
    }

    /// Returns the authorizer, refreshed to the current objects.
    pub fn refreshed(&self) -> &Arc<RbacAuthorizer> {
        self.rbac.refresh();
        &self.rbac
    }

    /// Returns the authorizer as it is.
    pub fn rbac(&self) -> &RbacAuthorizer {
        &self.rbac
    }

    /// Decides about a request, as at its start.
    pub fn authorize(
        &self,
        user: &UserInfo,
        request: &RequestAttributes<'_>,
        is_explained: bool,
    ) -> Decision {
        self.refreshed().authorize(user, request, is_explained)
    }

    /// Creates or replaces an object.
    pub fn put(&self, resource: &str, object: Value) {
        let info = self.find(resource);
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or("");
        let key = key(info, text("namespace"), text("name"));
        block_on(self.store.put(key, Expect::Any, stored_bytes(info, object))).expect("written");
    }

    /// Deletes an object.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        let key = key(self.find(resource), namespace, name);
        block_on(self.store.delete(key, Expect::Any)).expect("deleted");
    }

    fn find(&self, resource: &str) -> &ResourceInfo {
        self.table.find(GROUP, "v1", resource).expect(resource)
    }
}

fn key(info: &ResourceInfo, namespace: &str, name: &str) -> Key {
    Key::new(info.storage.bucket.clone(), info.storage_name(namespace, name))
}
