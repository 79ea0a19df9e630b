//! The objects that are there from the start.

use coracle_storage::{Commit, Expect, Key, Write};
use serde_json::{Value, json};

use super::deletion::rfc3339;
use super::object::ObjectMeta;
use super::write::{store_failed, stored_bytes};
use super::{Registry, parse};
use crate::bootstrap::{self, Facts, Reconciled};
use crate::names::GroupVersion;
use crate::{Error, Result};

impl Registry {
    /// Makes what is missing of them, and restores what must be as it was.
    pub async fn bootstrap(&self, secure_port: u16, default_storage_class: Option<&str>) -> Result<()> {
        let now = rfc3339(self.now());
        let mut objects = bootstrap::objects(&Facts { now: &now, secure_port });
        objects.extend(default_storage_class.map(storage_class));
        let mut writes = Vec::new();
        for object in objects {
            writes.extend(self.reconciled(object, &now)?);
        }
        if writes.is_empty() {
            return Ok(());
        }
        match self.store.commit(writes).await.map_err(store_failed)? {
            Commit::Done(_) => Ok(()),
            Commit::Lost { .. } => Err(Error::Internal("another server writes the same objects".to_owned())),
        }
    }

    /// The write that makes or restores an object, if it needs one.
    fn reconciled(&self, mut object: Value, now: &str) -> Result<Option<Write>> {
        let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or("");
        let group = GroupVersion::parse(text("apiVersion")).map(|v| v.group).unwrap_or_default();
        let kind = text("kind");
        let served = self
            .table
            .iter()
            .find(|s| s.group_kind.kind == kind && s.group_kind.group == group)
            .ok_or_else(|| Error::Internal(format!("{kind} is not served")))?;
        let key = Key::new(served.bucket.clone(), served.storage_name(object.namespace(), object.name()));
        let Some(stored) = self.store.get(&key) else {
            object.set_meta("uid", uuid::Uuid::new_v4().to_string());
            object.set_meta("creationTimestamp", now);
            return Ok(Some(Write::put(key, Expect::Absent, stored_bytes(served, object))));
        };
        let expect = Expect::Revision(stored.revision);
        Ok(match bootstrap::reconcile(&object, &parse(&stored)) {
            Reconciled::Keep => None,
            Reconciled::Update(object) | Reconciled::Recreate(object) => {
                Some(Write::put(key, expect, stored_bytes(served, object)))
            }
        })
    }
}

/// A class whose volumes the simulated host-path provisioner makes.
fn storage_class(name: &str) -> Value {
    json!({
        "kind": "StorageClass", "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/host-path", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    })
}
