//! For tests: a cluster in a map, and requests to run plugins on.

use crate::audit::AuditContext;
use crate::request::{Verb, Warnings};
use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde_json::Value;

use super::generic::ReinvocationContext;
use super::json::text;
use super::{AdmissionAttributes, AdmissionPlugin, GroupVersionKind, Operation, OperationOptions};
use crate::Result;
use crate::access::UserInfo;
use crate::cluster::Cluster;
use crate::names::{GroupKind, GroupResource};
use crate::request::options::WriteOptions;

/// The objects of a test.
#[derive(Default)]
pub struct World(BTreeMap<(GroupResource, String, String), Value>);

impl World {
    /// Returns the world with an object.
    pub fn with(mut self, group: &str, resource: &str, object: Value) -> World {
        let metadata = &object["metadata"];
        let key = |field: &str| text(&metadata[field]).to_owned();
        self.0.insert((GroupResource::new(group, resource), key("namespace"), key("name")), object);
        self
    }
}

impl Cluster for World {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>> {
        Ok(self.0.get(&(resource.clone(), namespace.to_owned(), name.to_owned())).cloned())
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>> {
        let listed = |((r, n, _), _): &(&(GroupResource, String, String), &Value)| {
            r == resource && (namespace.is_empty() || n == namespace)
        };
        Ok(self.0.iter().filter(listed).map(|(_, object)| object.clone()).collect())
    }

    fn wait_for<'a>(&'a self, _: &'a GroupResource, _: &'a str, _: &'a str) -> BoxFuture<'a, ()> {
        // Objects are never created here.
        Box::pin(async {})
    }
}

/// A request, and everything that its attributes refer to.
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The resource.
    pub resource: GroupResource,
    /// The kind of the object.
    pub kind: GroupKind,
    /// The subresource; "" for the object itself.
    pub subresource: &'static str,
    /// The namespace; "" for objects of the cluster.
    pub namespace: String,
    /// The name in the path.
    pub name: String,
    /// The new object.
    pub object: Value,
    /// The object before.
    pub old: Option<Value>,
    /// The client.
    pub user: UserInfo,
    /// The warnings of the response.
    pub warnings: Warnings,
    /// The options of the request.
    pub options: WriteOptions,
    /// The audit event.
    pub audit: AuditContext,
}

impl Request {
    /// Creates a create request.
    pub fn new(group: &str, resource: &str, namespace: &str, object: Value) -> Request {
        Request {
            operation: Operation::Create,
            resource: GroupResource::new(group, resource),
            kind: GroupKind::new(group, text(&object["kind"])),
            subresource: "",
            namespace: namespace.to_owned(),
            name: text(&object["metadata"]["name"]).to_owned(),
            object,
            old: None,
            user: UserInfo::default(),
            warnings: Warnings::default(),
            options: WriteOptions::default(),
            audit: AuditContext::default(),
        }
    }

    /// Returns the request as an update.
    pub fn update(mut self, old: Value) -> Request {
        (self.operation, self.old) = (Operation::Update, Some(old));
        self
    }

    /// Returns the request as a deletion.
    pub fn delete(mut self) -> Request {
        (self.operation, self.object) = (Operation::Delete, Value::Null);
        self
    }

    /// Returns the request for a subresource.
    pub fn of(mut self, subresource: &'static str) -> Request {
        self.subresource = subresource;
        self
    }

    /// Returns the attributes that plugins get.
    pub fn attributes(&mut self) -> AdmissionAttributes<'_> {
        AdmissionAttributes {
            operation: self.operation,
            verb: match self.operation {
                Operation::Create | Operation::Connect => Verb::Create,
                Operation::Update => Verb::Update,
                Operation::Delete => Verb::Delete,
            },
            resource: &self.resource,
            kind: GroupVersionKind { group: &self.kind.group, version: "v1", kind: &self.kind.kind },
            subresource: self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            object: &mut self.object,
            old_object: self.old.as_ref(),
            user: &self.user,
            warnings: &self.warnings,
            version: "v1",
            options: OperationOptions::Write(&self.options),
            audit: &self.audit,
            reinvocation: ReinvocationContext::default(),
        }
    }

    /// Runs the first pass of a plugin.
    ///
    /// # Errors
    /// The plugin rejects the request.
    pub fn admit(&mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<()> {
        plugin.admit(&mut self.attributes(), world)
    }

    /// Runs the second pass of a plugin.
    ///
    /// # Errors
    /// The plugin rejects the request.
    pub fn validate(&mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<()> {
        plugin.validate(&self.attributes(), world)
    }

    /// Runs both passes; returns the resulting object, or the code and text of the rejection.
    pub fn run(mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<Value, String> {
        let outcome = self.admit(plugin, world).and_then(|()| self.validate(plugin, world));
        outcome.map(|()| self.object).map_err(|error| format!("{} {error}", error.code()))
    }
}
