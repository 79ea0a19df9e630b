//! The two passes of admission over a write, and over a request that stores no object.

use serde_json::Value;

use super::Writing;
use super::metadata::dedup_admitted_owners;
use crate::Result;
use crate::admission::generic::ReinvocationContext;
use crate::admission::{AdmissionAttributes, GroupVersionKind, Operation, OperationOptions};
use crate::object_meta::ObjectMeta;
use crate::registry::{Caller, Registry, Target};
use crate::request::options::WriteOptions;
use crate::resource_info::{ResourceInfo, Subresource};

/// An object of another kind that stands for one that is written through a subresource, as a Scale
/// does for a Deployment. Admission sees that one.
pub(in crate::registry) struct Projection<'a> {
    pub subresource: &'a Subresource,
    /// The object of the subresource's kind.
    pub project: &'a (dyn Fn(&Value) -> Value + Sync),
    /// Takes over what admission has made of it.
    pub restore: &'a (dyn Fn(&Value, &mut Value) + Sync),
}

impl Registry {
    /// Runs both passes of admission for a request that stores no object: an eviction, a binding, a
    /// token request, or without a subresource a review.
    ///
    /// - `object`: the body, of the subresource's kind.
    pub async fn admit_subresource(
        &self,
        target: &Target,
        subresource: &str,
        object: &mut Value,
        caller: Caller<'_>,
        options: &WriteOptions,
    ) -> Result<()> {
        if let Some(subresource) = target.info.subresource(subresource) {
            caller.audit.log_request_object(object, &subresource.type_ref);
        }
        let operation = OperationOptions::Write(options);
        let mut attributes = subresource_attributes(target, subresource, object, caller);
        (attributes.operation, attributes.options) = (Operation::Create, operation);
        self.chain.admit(&mut attributes, self).await?;
        self.chain.validate(&attributes, self).await
    }

    /// Runs both passes of admission for a request that opens a connection.
    ///
    /// - `object`: the options of the connection, such as PodExecOptions.
    pub async fn admit_connect(
        &self,
        target: &Target,
        subresource: &str,
        object: &mut Value,
        caller: Caller<'_>,
    ) -> Result<()> {
        let mut attributes = subresource_attributes(target, subresource, object, caller);
        self.chain.admit(&mut attributes, self).await?;
        self.chain.validate(&attributes, self).await
    }

    /// Runs the first pass of admission.
    pub(in crate::registry) async fn admit(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let name = writing.admitted_name(operation, object);
        let Some(projection) = writing.projection else {
            self.chain.admit(&mut writing.attributes(operation, &name, object, old), self).await?;
            dedup_admitted_owners(object, writing.caller.warnings);
            return Ok(());
        };
        let old = old.map(projection.project);
        let mut projected = (projection.project)(object);
        let before = projected.clone();
        self.chain
            .admit(&mut writing.attributes(operation, &name, &mut projected, old.as_ref()), self)
            .await?;
        if projected != before {
            (projection.restore)(&projected, object);
        }
        Ok(())
    }

    /// Returns `true` if admission may take long, so that it must not run while other writes wait
    /// for this one.
    pub(in crate::registry) fn waits(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> bool {
        self.chain.waits(&writing.attributes(operation, &writing.target.name, object, old), self)
    }

    /// Runs the second pass of admission.
    pub(in crate::registry) async fn validate_admission(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let name = writing.admitted_name(operation, object);
        let Some(projection) = writing.projection else {
            return self.chain.validate(&writing.attributes(operation, &name, object, old), self).await;
        };
        let old = old.map(projection.project);
        let mut projected = (projection.project)(object);
        let attributes = writing.attributes(operation, &name, &mut projected, old.as_ref());
        self.chain.validate(&attributes, self).await
    }
}

impl Writing<'_> {
    /// Returns the name in the attributes of an operation. The name of a created object may differ
    /// from that in the path, or may not exist yet.
    pub fn admitted_name(&self, operation: Operation, object: &Value) -> String {
        match operation {
            Operation::Create => object.name().to_owned(),
            _ if self.is_collection => String::new(),
            _ => self.target.name.clone(),
        }
    }

    /// Returns the attributes of the write for admission.
    pub fn attributes<'w>(
        &'w self,
        operation: Operation,
        name: &'w str,
        object: &'w mut Value,
        old_object: Option<&'w Value>,
    ) -> AdmissionAttributes<'w> {
        let info = &self.target.info;
        AdmissionAttributes {
            operation,
            verb: self.caller.verb,
            resource: &info.group_resource,
            kind: match self.projection {
                Some(Projection { subresource: sub, .. }) => kind_of_subresource(sub),
                None => kind_of(info),
            },
            version: &info.version,
            subresource: self.projection.map_or(self.part.name(), |projection| &projection.subresource.name),
            namespace: &self.target.namespace,
            name,
            object,
            old_object,
            options: self.options,
            user: self.caller.user,
            warnings: self.caller.warnings,
            audit: self.caller.audit,
            reinvocation: ReinvocationContext::default(),
        }
    }
}

/// Returns the attributes of a request for a subresource that is not part of an object.
fn subresource_attributes<'a>(
    target: &'a Target,
    subresource: &'a str,
    object: &'a mut Value,
    caller: Caller<'a>,
) -> AdmissionAttributes<'a> {
    let info = &target.info;
    AdmissionAttributes {
        operation: Operation::Connect,
        verb: caller.verb,
        resource: &info.group_resource,
        kind: info.subresource(subresource).map_or_else(|| kind_of(info), kind_of_subresource),
        version: &info.version,
        subresource,
        namespace: &target.namespace,
        name: &target.name,
        object,
        old_object: None,
        options: OperationOptions::None,
        user: caller.user,
        warnings: caller.warnings,
        audit: caller.audit,
        reinvocation: ReinvocationContext::default(),
    }
}

fn kind_of(info: &ResourceInfo) -> GroupVersionKind<'_> {
    GroupVersionKind { group: &info.group, version: &info.version, kind: &info.kind }
}

fn kind_of_subresource(sub: &Subresource) -> GroupVersionKind<'_> {
    GroupVersionKind { group: &sub.group, version: &sub.version, kind: &sub.kind }
}
