//! An object that mutating admission has changed must fit the request as the body did.

use futures::future::BoxFuture;

use super::*;
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use crate::cluster::Cluster;

/// Merges a patch into every object, as a webhook may.
struct Mutating(Value);

impl AsyncAdmissionPlugin for Mutating {
    fn handles(&self, _: &AdmissionAttributes<'_>, _: &dyn Cluster) -> bool {
        true
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        _: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let patched = crate::patch::merge::apply(attributes.object.clone(), self.0.clone())?;
            attributes.replace_object(patched);
            Ok(())
        })
    }
}

impl Server {
    /// Makes admission change all objects from now on.
    fn mutate(&mut self, patch: Value) {
        self.registry.chain = AdmissionChain::default();
        self.registry.chain.add_async(Mutating(patch));
    }

    /// Writes an object with POST or PUT; returns the stored object and the warnings.
    async fn write(&self, plural: &str, is_put: bool, object: &Value) -> Result<(Value, Vec<String>)> {
        let (warnings, audit) = (Warnings::default(), AuditContext::default());
        let caller = caller(&self.user, &warnings, &audit);
        let body = RequestBody { bytes: object.to_string().into(), format: Format::Json };
        let api_version = object["apiVersion"].as_str().expect("a version");
        let options = Server::options();
        if is_put {
            let target = self.target(api_version, plural, object.name());
            self.registry.update(&target, Part::Main, &body, &options, caller).await?;
        } else {
            let target = self.target(api_version, plural, "");
            self.registry.create(&target, &body, &options, caller).await?;
        }
        let stored = self.stored(api_version, plural, object.name()).expect("stored under its name");
        Ok((parse(&stored)?, warnings.into_texts()))
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}})
}

#[tokio::test]
async fn an_object_cannot_be_mutated_into_another_namespace_or_under_another_name() {
    let mut server = Server::start().await;
    server.write("configmaps", false, &config_map("there")).await.expect("created");

    server.mutate(json!({"metadata": {"namespace": "kube-system"}}));
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    for (name, is_put) in [("new", false), ("there", true)] {
        let refused = server.write("configmaps", is_put, &config_map(name)).await.expect_err(name);
        assert_eq!((refused.code(), refused.to_string().as_str()), (400, text), "{name}");
    }

    server.mutate(json!({"metadata": {"name": "other"}}));
    let refused = server.write("leases", true, &lease("asked")).await.expect_err("another name");
    let text = "the name of the object (other) does not match the name on the URL (asked)";
    assert_eq!((refused.code(), refused.to_string().as_str()), (400, text));
    assert!(server.stored("coordination.k8s.io/v1", "leases", "other").is_none());
    let refused = server.write("configmaps", true, &config_map("there")).await.expect_err("renamed");
    assert_eq!(refused.code(), 422, "{refused}");
}

#[tokio::test]
async fn owners_that_a_mutation_repeats_are_named_once() {
    let mut server = Server::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    server.mutate(json!({"metadata": {"ownerReferences": [owner, owner]}}));
    for (name, is_put) in [("a", false), ("a", true)] {
        let (stored, warnings) = server.write("configmaps", is_put, &config_map(name)).await.expect(name);
        assert_eq!(stored["metadata"]["ownerReferences"], json!([owner]));
        let want = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups";
        assert!(warnings.iter().any(|warning| warning.starts_with(want)), "{warnings:?}");
    }
}

#[tokio::test]
async fn managed_fields_that_cannot_be_read_remain_as_they_were() {
    let mut server = Server::start().await;
    let mut object = config_map("a");
    object["data"] = json!({"k": "v"});
    for (entries, want) in [
        (json!([{"manager": "m"}]), "operation must be `Apply` or `Update`"),
        (json!([{}]), "operation must be `Apply` or `Update`"),
        (
            json!([{"manager": "m", "operation": "Update", "apiVersion": "v1"}]),
            "missing fieldsType in managed fields entry 0",
        ),
    ] {
        server.mutate(json!({"metadata": {"managedFields": entries}}));
        let is_put = server.stored("v1", "configmaps", "a").is_some();
        let (stored, warnings) = server.write("configmaps", is_put, &object).await.expect("written");
        let kept = &stored["metadata"]["managedFields"];
        assert_eq!(
            (&kept[0]["manager"], &kept[0]["operation"]),
            (&json!("test"), &json!("Update")),
            "{kept}"
        );
        let text = format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {want}"
        );
        assert!(warnings.contains(&text), "{warnings:?}");
    }
    server.mutate(json!({"metadata": {"managedFields": null}}));
    let (stored, warnings) = server.write("configmaps", true, &object).await.expect("written");
    assert_eq!((stored["metadata"].get("managedFields"), warnings), (None, vec![]));
}
