//! The objects that are there from the start.

use std::sync::Arc;

use coracle_storage::{Commit, Expect, Key, Write};
use futures::future::join_all;
use serde_json::{Value, json};

use super::deletion::rfc3339;
use super::write::{store_failed, stored_bytes, track};
use super::{Registry, Target, parse};
use crate::bootstrap::{self, Parameters, ReconcileAction};
use crate::fields::manage::FieldManager;
use crate::names::GroupVersion;
use crate::object_meta::ObjectMeta;
use crate::resource_info::ResourceInfo;
use crate::validation::ip::Cidr;
use crate::{Error, Result};

/// How often the objects of the start are made anew because another server makes them, too.
const ATTEMPTS: usize = 20;

impl Registry {
    /// Makes what is missing of them, and restores what must be as it was.
    ///
    /// - `service_cidr`: the block of cluster IPs;
    /// - `is_selected`: whether a controller runs, by its name; what it adds to these objects is there from the start.
    pub async fn bootstrap(
        &self,
        secure_port: u16,
        service_cidr: Cidr,
        default_storage_class: Option<&str>,
        is_selected: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<()> {
        let now = rfc3339(self.now());
        let mut objects = bootstrap::objects(&Parameters {
            now: &now,
            secure_port,
            service_cidr: &service_cidr.network().to_string(),
            kubernetes_ip: &service_cidr.network().first_host().to_string(),
            is_selected,
        });
        objects.extend(default_storage_class.into_iter().flat_map(storage_classes));
        for _ in 0..ATTEMPTS {
            let mut writes = Vec::new();
            for object in &objects {
                writes.extend(self.reconciled(object.clone(), &now)?);
            }
            // A transaction for each object, so that each has a resourceVersion of its own.
            let commits = writes.into_iter().map(|write| self.store.commit(vec![write]));
            let mut is_overtaken = false;
            for commit in join_all(commits).await {
                is_overtaken |= matches!(commit.map_err(store_failed)?, Commit::Conflict { .. });
            }
            if !is_overtaken {
                return Ok(());
            }
        }
        Err(Error::Internal("another server writes the same objects".to_owned()))
    }

    /// Creates an object on the server's own account, if there is none of its name.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn create_as_server(&self, object: Value) -> Result<()> {
        let now = rfc3339(self.now());
        let Some(write) = self.reconciled(object, &now)? else { return Ok(()) };
        // Where another write came first, the object is there.
        self.store.commit(vec![write]).await.map(drop).map_err(store_failed)
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

    /// The resource of an object's kind.
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

    /// The write that makes or restores an object, if it needs one.
    fn reconciled(&self, mut object: Value, now: &str) -> Result<Option<Write>> {
        let info = &*self.served(&object)?;
        let key = Key::new(info.storage.bucket.clone(), info.storage_name(object.namespace(), object.name()));
        let Some(stored) = self.store.get(&key) else {
            let mut asked = without_decided(&object);
            track(info, writer(info, now), &mut asked);
            object.set_meta("managedFields", asked.meta("managedFields").cloned().unwrap_or_default());
            object.set_meta("uid", uuid::Uuid::new_v4().to_string());
            object.set_meta("creationTimestamp", now);
            return Ok(Some(Write::put(key, Expect::Absent, stored_bytes(info, object))));
        };
        let expect = Expect::Revision(stored.revision);
        Ok(match bootstrap::reconcile(&object, &parse(&stored)?) {
            ReconcileAction::Keep => None,
            ReconcileAction::Update(object) | ReconcileAction::Recreate(object) => {
                Some(Write::put(key, expect, stored_bytes(info, object)))
            }
        })
    }
}

/// The object as it is asked for: what the server or a controller decides of it is nobody's.
fn without_decided(object: &Value) -> Value {
    let (parent, members): (&str, &[&str]) = match object["kind"].as_str().unwrap_or("") {
        "Namespace" => ("/spec", &["finalizers"]),
        "Service" => ("/spec", &["clusterIPs", "ipFamilies"]),
        "ServiceCIDR" => ("/metadata", &["finalizers"]),
        "ClusterRole" if object["aggregationRule"].is_object() => ("", &["rules"]),
        _ => ("", &[]),
    };
    let mut asked = object.clone();
    if let Some(parent) = asked.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.retain(|member, _| !members.contains(&member.as_str()));
    }
    asked
}

/// Who makes them in a real control plane.
fn writer<'a>(info: &'a ResourceInfo, now: &'a str) -> FieldManager<'a> {
    let manager = match info.group_kind.group.as_str() {
        "flowcontrol.apiserver.k8s.io" => "api-priority-and-fairness-config-producer-v1",
        _ => "kube-apiserver",
    };
    FieldManager { manager, api_version: &info.api_version, subresource: "", now }
}

/// The classes of the simulated CSI driver: the default one, and one that waits for a pod.
fn storage_classes(name: &str) -> [Value; 2] {
    let class = |metadata: Value, mode: &str| {
        json!({
            "kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": metadata,
            "provisioner": "coracle.csi", "reclaimPolicy": "Delete", "volumeBindingMode": mode,
            "allowVolumeExpansion": true,
        })
    };
    let is_default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let waiting = json!({"name": format!("{name}-wait")});
    [
        class(json!({"name": name, "annotations": is_default}), "Immediate"),
        class(waiting, "WaitForFirstConsumer"),
    ]
}
