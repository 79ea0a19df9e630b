//! For tests: a cluster in a map, and requests to run plugins on.

use crate::audit::AuditContext;
use crate::request::Warnings;
use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde_json::Value;

use super::generic::ReinvocationContext;
use super::{AdmissionAttributes, AdmissionPlugin, GroupVersionKind, Operation, OperationOptions, text};
use crate::Result;
use crate::access::UserInfo;
use crate::cluster::Cluster;
use crate::names::{GroupKind, GroupResource};
use crate::request::options::WriteOptions;

/// The objects of a test.
#[derive(Default)]
pub(crate) struct World(BTreeMap<(GroupResource, String, String), Value>);

impl World {
    pub(crate) fn with(mut self, group: &str, resource: &str, object: Value) -> World {
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
pub(crate) struct Request {
    pub operation: Operation,
    pub resource: GroupResource,
    pub kind: GroupKind,
    pub subresource: &'static str,
    pub namespace: String,
    pub name: String,
    pub object: Value,
    pub old: Option<Value>,
    pub user: UserInfo,
    pub warnings: Warnings,
    pub options: WriteOptions,
    pub audit: AuditContext,
}

impl Request {
    /// A create.
    pub(crate) fn new(group: &str, resource: &str, namespace: &str, object: Value) -> Request {
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

    pub(crate) fn update(mut self, old: Value) -> Request {
        (self.operation, self.old) = (Operation::Update, Some(old));
        self
    }

    pub(crate) fn delete(mut self) -> Request {
        (self.operation, self.object) = (Operation::Delete, Value::Null);
        self
    }

    pub(crate) fn sub(mut self, subresource: &'static str) -> Request {
        self.subresource = subresource;
        self
    }

    pub(crate) fn attributes(&mut self) -> AdmissionAttributes<'_> {
        AdmissionAttributes {
            operation: self.operation,
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

    pub(crate) fn admit(&mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<()> {
        plugin.admit(&mut self.attributes(), world)
    }

    pub(crate) fn validate(&mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<()> {
        plugin.validate(&self.attributes(), world)
    }

    /// Runs both passes; returns the resulting object, or the code and text of the rejection.
    pub(crate) fn run(mut self, plugin: &dyn AdmissionPlugin, world: &World) -> Result<Value, String> {
        let outcome = self.admit(plugin, world).and_then(|()| self.validate(plugin, world));
        outcome.map(|()| self.object).map_err(|error| format!("{} {error}", error.code()))
    }
}
