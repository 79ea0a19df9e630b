//! The changes of EndpointSlices, and their execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Change, Index, NamespacedName};
use coracle_controller_runtime::{
    Error, ReconcileContext, ignore_not_found, is_namespace_terminating, uid_precondition,
};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::{Resource, ResourceExt};
use prometheus::CounterVec;

/// The label with the name of a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of the controller that writes a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Finds slices by their Service.
pub struct ByService;

impl Index<EndpointSlice> for ByService {
    fn keys(slice: &EndpointSlice) -> Vec<NamespacedName> {
        let service = label(slice, SERVICE_NAME);
        let namespace = slice.metadata.namespace.clone().unwrap_or_default();
        service.map(|name| NamespacedName::new(namespace, name)).into_iter().collect()
    }
}

/// Returns the value of a label.
pub fn label<'a>(slice: &'a EndpointSlice, key: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns the slices of a Service that have this manager and are not terminating.
pub fn slices_of(
    service: &NamespacedName,
    manager: &str,
    slices: &Cache<EndpointSlice>,
) -> Vec<Arc<EndpointSlice>> {
    let mut slices = slices.by::<ByService>(service);
    slices.retain(|slice| {
        label(slice, MANAGED_BY) == Some(manager) && slice.metadata.deletion_timestamp.is_none()
    });
    slices
}

/// Returns the Services affected by a write of another client to a manager's slice, before and
/// after it.
pub fn foreign_changes(change: &Change<EndpointSlice>, manager: &str) -> Vec<NamespacedName> {
    let service = |slice: &EndpointSlice| {
        let name = label(slice, SERVICE_NAME).filter(|_| label(slice, MANAGED_BY) == Some(manager))?;
        Some(NamespacedName::new(slice.metadata.namespace.clone().unwrap_or_default(), name))
    };
    let matters = |slice: &EndpointSlice| (slice.metadata.generation, service(slice));
    match change.changed(matters) {
        true => change.states().filter_map(|slice| service(slice)).collect(),
        false => Vec::new(),
    }
}

/// Identifies a set of ports, independent of their order.
pub type PortKey = Vec<(Option<String>, Option<i32>, Option<String>, Option<String>)>;

/// Returns a key that is equal for equal sets of ports.
pub fn port_key(ports: &[EndpointPort]) -> PortKey {
    let key = |port: &EndpointPort| {
        (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
    };
    let mut keys: PortKey = ports.iter().map(key).collect();
    keys.sort();
    keys
}

/// The changes of the slices of one owner.
#[derive(Debug, Default)]
pub struct SliceChanges {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

impl SliceChanges {
    /// Returns the number of slices to create, update and delete.
    pub fn len(&self) -> usize {
        self.create.len() + self.update.len() + self.delete.len()
    }

    /// Replaces deletions and creations of the same address type by updates, which reuse the names
    /// of slices.
    ///
    /// - `may_be_reused`: whether a slice may get another content
    pub fn reuse_names(&mut self, may_be_reused: impl Fn(&EndpointSlice) -> bool) {
        let mut deleted = Vec::new();
        for slice in self.delete.drain(..) {
            let fits = |new: &EndpointSlice| may_be_reused(&slice) && new.address_type == slice.address_type;
            match self.create.iter().rposition(fits) {
                Some(index) => {
                    let mut new = self.create.remove(index);
                    new.metadata.name = slice.metadata.name.clone();
                    self.update.push(new);
                }
                None => deleted.push(slice),
            }
        }
        self.delete = deleted;
    }
}

/// Executes changes of slices.
pub struct SliceWriter {
    pub slices: Arc<Cache<EndpointSlice>>,
    /// Counts the requests by operation.
    pub changes: CounterVec,
}

impl SliceWriter {
    /// Creates, updates and deletes slices, in this order, until a request fails.
    ///
    /// - `annotations`: set on the written slices; those without a value are removed
    ///
    /// # Errors
    /// The first failure. A terminating namespace is not an error.
    pub async fn apply<O: Resource<DynamicType = ()>>(
        &self,
        owner: &O,
        changes: SliceChanges,
        annotations: &BTreeMap<&str, Option<String>>,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let NamespacedName { namespace, name } = NamespacedName::of(owner);
        let api = ctx.api(&self.slices);
        let of = format!("for {} {namespace}/{name}", O::kind(&()));
        let failed = |what: String, error: kube::Error| {
            Error::Unfinished(format!("failed to {what} {of}: {}", Error::from(error).message()))
        };
        let creations = if owner.meta().deletion_timestamp.is_some() { Vec::new() } else { changes.create };
        for mut slice in creations {
            annotate(&mut slice, annotations);
            match api.create(&slice).await {
                Ok(_) => self.count("create"),
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => return Err(failed("create EndpointSlice".to_owned(), error)),
            }
        }
        for mut slice in changes.update {
            annotate(&mut slice, annotations);
            let updated = api.replace(&slice).await;
            updated.map_err(|error| failed(format!("update {} EndpointSlice", slice.name_any()), error))?;
            self.count("update");
        }
        for slice in changes.delete {
            let deleted = self.delete_slice(&slice, ctx).await;
            deleted.map_err(|error| failed(format!("delete {} EndpointSlice", slice.name_any()), error))?;
        }
        Ok(())
    }

    /// Deletes slices.
    ///
    /// # Errors
    /// The first failure.
    pub async fn delete(&self, slices: Vec<Arc<EndpointSlice>>, ctx: &ReconcileContext) -> Result<(), Error> {
        for slice in slices {
            self.delete_slice(&slice, ctx).await?;
        }
        Ok(())
    }

    async fn delete_slice(&self, slice: &EndpointSlice, ctx: &ReconcileContext) -> kube::Result<()> {
        let deleted = ctx.api(&self.slices).delete(slice, &uid_precondition(slice)).await;
        if ignore_not_found(deleted)?.is_some() {
            self.count("delete");
        }
        Ok(())
    }

    fn count(&self, operation: &str) {
        self.changes.with_label_values(&[operation]).inc();
    }
}

fn annotate(slice: &mut EndpointSlice, annotations: &BTreeMap<&str, Option<String>>) {
    let all = slice.metadata.annotations.get_or_insert_default();
    for (key, value) in annotations {
        match value {
            Some(value) => drop(all.insert((*key).to_owned(), value.clone())),
            None => drop(all.remove(*key)),
        }
    }
    if all.is_empty() {
        slice.metadata.annotations = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_object_meta::is_controlled_by;
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    #[test]
    fn a_new_slice_takes_the_name_of_one_that_would_be_deleted() {
        let owner: Service = serde_json::from_value(json!({"metadata": {"name": "s", "uid": "u"}})).unwrap();
        let slice = |name: Option<&str>, kind: &str, owner: &str| -> EndpointSlice {
            let owner =
                json!({"apiVersion": "v1", "kind": "Service", "name": "s", "uid": owner, "controller": true});
            let meta = json!({"name": name, "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": meta, "addressType": kind, "endpoints": []})).unwrap()
        };
        let mut changes = SliceChanges {
            create: vec![slice(None, "IPv4", "u"), slice(None, "IPv4", "u")],
            update: vec![],
            delete: [("six", "IPv6", "u"), ("another's", "IPv4", "x"), ("four", "IPv4", "u")]
                .map(|(name, kind, owner)| Arc::new(slice(Some(name), kind, owner)))
                .into(),
        };
        changes.reuse_names(|slice| is_controlled_by(&slice.metadata, &owner));
        let updated: Vec<String> = changes.update.iter().map(|slice| slice.name_any()).collect();
        let deleted: Vec<String> = changes.delete.iter().map(|slice| slice.name_any()).collect();
        assert_eq!(
            (changes.create.len(), updated, deleted),
            (1, vec!["four".into()], vec!["six".into(), "another's".into()])
        );
    }
}
