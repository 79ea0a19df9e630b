//! NamespaceLifecycle: rejects creation in a namespace that does not exist or is terminating, and
//! the deletion of the namespaces that the system needs.

use super::{AdmissionAttributes, AdmissionPlugin, Operation};
use crate::cluster::{Cluster, NamespacePhase};
use crate::error::Cause;
use crate::names::GroupResource;
use crate::{Error, Result};

/// The plugin NamespaceLifecycle.
pub struct NamespaceLifecycle;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl AdmissionPlugin for NamespaceLifecycle {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if attributes.is_any("", "namespaces") {
            return match attributes.operation {
                Operation::Delete if IMMORTAL.contains(&attributes.name) => Err(Error::forbidden(
                    attributes.resource,
                    attributes.name,
                    "this namespace may not be deleted",
                )),
                _ => Ok(()),
            };
        }
        let free = attributes.namespace.is_empty()
            || !matches!(attributes.operation, Operation::Create | Operation::Update)
            // An access review must not reveal which namespaces exist.
            || attributes.is_any("authorization.k8s.io", "localsubjectaccessreviews");
        if free {
            return Ok(());
        }
        match (cluster.namespace(attributes.namespace)?, attributes.operation) {
            (None, _) => Err(Error::not_found(&GroupResource::new("", "namespaces"), attributes.namespace)),
            (Some(NamespacePhase::Terminating), Operation::Create) => Err(terminating(attributes)),
            (Some(_), _) => Ok(()),
        }
    }
}

fn terminating(attributes: &AdmissionAttributes<'_>) -> Error {
    let namespace = attributes.namespace;
    Error::Forbidden {
        resource: Some(attributes.resource.clone()),
        name: attributes.shown_name().to_owned(),
        detail: format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
        causes: vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{Request, World};
    use serde_json::{Value, json};

    fn world() -> World {
        World::default()
            .with("", "namespaces", json!({"metadata": {"name": "here"}, "status": {"phase": "Active"}}))
            .with(
                "",
                "namespaces",
                json!({"metadata": {"name": "terminating"}, "status": {"phase": "Terminating"}}),
            )
    }

    #[test]
    fn creation_requires_a_namespace_that_is_not_terminating() {
        let object = || json!({"metadata": {"name": "c"}});
        let generated = || json!({"metadata": {"generateName": "gen-"}});
        let config_map = |namespace: &str, object: Value| Request::new("", "configmaps", namespace, object);
        let namespace = |name: &str| Request::new("", "namespaces", "", json!({"metadata": {"name": name}}));
        for (case, request, want) in [
            ("create", config_map("here", object()), "ok"),
            ("no namespace", config_map("x", object()), r#"404 namespaces "x" not found"#),
            (
                "update without a namespace",
                config_map("x", object()).update(object()),
                r#"404 namespaces "x" not found"#,
            ),
            ("delete without a namespace", config_map("x", object()).delete(), "ok"),
            (
                "create in a terminating one",
                config_map("terminating", object()),
                r#"403 configmaps "c" is forbidden: unable to create new content in namespace terminating because it is being terminated"#,
            ),
            (
                "generated name",
                config_map("terminating", generated()),
                r#"403 configmaps "gen-" is forbidden: unable to create new content in namespace terminating because it is being terminated"#,
            ),
            ("update in a terminating one", config_map("terminating", object()).update(object()), "ok"),
            ("cluster-scoped", Request::new("", "nodes", "", object()), "ok"),
            (
                "a review",
                Request::new("authorization.k8s.io", "localsubjectaccessreviews", "x", object()),
                "ok",
            ),
            (
                "an immortal one",
                namespace("kube-public").delete(),
                r#"403 namespaces "kube-public" is forbidden: this namespace may not be deleted"#,
            ),
            ("a mortal one", namespace("kube-node-lease").delete(), "ok"),
            ("a new one", namespace("x"), "ok"),
        ] {
            let got = request.run(&NamespaceLifecycle, &world()).map_or_else(|e| e, |_| "ok".to_owned());
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn the_rejection_has_a_cause() {
        let mut request = Request::new("", "secrets", "terminating", json!({"metadata": {"name": "s"}}));
        let error = request.admit(&NamespaceLifecycle, &world()).expect_err("terminating");
        assert_eq!(
            error.status().details.expect("details"),
            json!({"name": "s", "kind": "secrets", "causes": [{"reason": "NamespaceTerminating",
                "message": "namespace terminating is being terminated", "field": "metadata.namespace"}]})
        );
    }
}
