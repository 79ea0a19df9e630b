//! ServiceAccount: assigns each pod a service account, which must exist, and adds its token volume
//! and its pull secrets.

use std::collections::BTreeSet;
use std::sync::Arc;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::admission::json::{items, list_at, object_at, refused_name, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, AsyncAdmissionPlugin, Operation};
use coracle_seed::Identities;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::pod_spec::{ALL_CONTAINERS, MIRROR, containers};

const DEFAULT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// One hour and seven seconds. Upstream recognises by the seven seconds the tokens that clients may
/// use beyond their expiration.
const TOKEN_SECONDS: i64 = 3607;
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

pub(super) struct ServiceAccount {
    /// The source of the ends of the volumes' names.
    pub identities: Arc<Identities>,
}

impl AdmissionPlugin for ServiceAccount {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is("", "pods") || attributes.operation != Operation::Create {
            return Ok(());
        }
        if is_mirror(attributes.object) {
            // Nothing is added, and what it may not have is refused before other errors are found.
            return self.validate(attributes, cluster);
        }
        let name = match text(&attributes.object["spec"]["serviceAccountName"]) {
            "" => DEFAULT.to_owned(),
            name => name.to_owned(),
        };
        let account = account(attributes, cluster, &name)?;
        let suffix = self.suffix(attributes);
        let Some(spec) = object_at(attributes.object, "spec") else { return Ok(()) };
        // The second one is the deprecated name of the field.
        spec["serviceAccountName"] = name.as_str().into();
        spec["serviceAccount"] = name.into();
        let mounts = [&*spec, &account].iter().find_map(|o| o["automountServiceAccountToken"].as_bool());
        if mounts.unwrap_or(true) {
            mount_token(spec, &suffix);
        }
        let secrets = items(&account["imagePullSecrets"]);
        if !secrets.is_empty() && items(&spec["imagePullSecrets"]).is_empty() {
            spec["imagePullSecrets"] = secrets.iter().map(|s| json!({"name": text(&s["name"])})).collect();
        }
        Ok(())
    }

    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let create = attributes.is("", "pods") && attributes.operation == Operation::Create;
        let debug = attributes.is_any("", "pods")
            && attributes.subresource == "ephemeralcontainers"
            && attributes.operation == Operation::Update;
        if !create && !debug {
            return Ok(());
        }
        let pod = &attributes.object;
        if create && is_mirror(pod) {
            return refuse_mirror(pod).map_or(Ok(()), |detail| Err(attributes.forbidden(detail)));
        }
        let name = text(&pod["spec"]["serviceAccountName"]);
        if name.is_empty() {
            let pod = text(&pod["metadata"]["name"]);
            let detail = format!("no service account specified for pod {}/{pod}", attributes.namespace);
            return Err(attributes.forbidden(detail));
        }
        let account = account(attributes, cluster, name)?;
        if !enforces_secrets(&account) {
            return Ok(());
        }
        if debug {
            let problem =
                container_secret(&pod["spec"], "ephemeralContainers", "ephemeral container", &account);
            // kube-apiserver returns this error without making it a 403.
            return problem.map_or(Ok(()), |detail| Err(Error::Unclassified(detail)));
        }
        secret_problem(&pod["spec"], &account).map_or(Ok(()), |detail| Err(attributes.forbidden(detail)))
    }
}

fn accounts() -> GroupResource {
    GroupResource::new("", "serviceaccounts")
}

fn account(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster, name: &str) -> Result<Value> {
    let refused = refused_name(name);
    let account = match refused {
        Some(_) => None,
        None => cluster.get(&accounts(), attributes.namespace, name)?,
    };
    account.ok_or_else(|| {
        let missing = || Error::not_found(&GroupResource::new("", "serviceaccount"), name).to_string();
        let error = refused.unwrap_or_else(missing);
        attributes
            .forbidden(format!("error looking up service account {}/{name}: {error}", attributes.namespace))
    })
}

/// Waits until the service account controller has created the `default` account of a new namespace,
/// as kube-apiserver does. It precedes [`ServiceAccount`] in the chain, under the same name.
pub struct DefaultServiceAccountWait;

impl AsyncAdmissionPlugin for DefaultServiceAccountWait {
    fn handles(&self, attributes: &AdmissionAttributes<'_>, _: &dyn Cluster) -> bool {
        let name = text(&attributes.object["spec"]["serviceAccountName"]);
        attributes.is("", "pods")
            && attributes.operation == Operation::Create
            && matches!(name, "" | DEFAULT)
            && !is_mirror(attributes.object)
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let accounts = accounts();
            if cluster.get(&accounts, attributes.namespace, DEFAULT)?.is_none() {
                cluster.wait_for(&accounts, attributes.namespace, DEFAULT).await;
            }
            Ok(())
        })
    }
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

impl ServiceAccount {
    /// Returns the suffix for the name of the volume of a pod.
    fn suffix(&self, attributes: &AdmissionAttributes<'_>) -> String {
        let metadata = &attributes.object["metadata"];
        let owner = text(&metadata["ownerReferences"][0]["uid"]);
        let name = format!("{}{}", text(&metadata["name"]), text(&metadata["generateName"]));
        self.identities.suffix(&["volumes", attributes.namespace, owner, &name], false)
    }
}

/// Mounts the token into every container that mounts nothing else at its path.
fn mount_token(spec: &mut Value, suffix: &str) {
    let existing =
        items(&spec["volumes"]).iter().map(|v| text(&v["name"])).find(|n| n.starts_with(VOLUME_PREFIX));
    let has_volume = existing.is_some();
    let name = existing.map_or_else(|| format!("{VOLUME_PREFIX}{suffix}"), str::to_owned);
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if items(&container["volumeMounts"]).iter().any(|m| m["mountPath"] == MOUNT_PATH) {
                continue;
            }
            if let Some(mounts) = list_at(container, "volumeMounts") {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                mounted = true;
            }
        }
    }
    if mounted
        && !has_volume
        && let Some(volumes) = list_at(spec, "volumes")
    {
        volumes.push(token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}

/// Returns the reason to reject a mirror pod, which must not refer to API objects; None if it
/// refers to none.
fn refuse_mirror(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    if !text(&spec["serviceAccountName"]).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if references_secrets(spec) {
        return Some("a mirror pod may not reference secrets");
    }
    let projected = items(&spec["volumes"]).iter().flat_map(|volume| items(&volume["projected"]["sources"]));
    projected
        .into_iter()
        .any(|source| !source["serviceAccountToken"].is_null())
        .then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// The paths at which volumes name secrets.
const VOLUME_SECRETS: [&[&str]; 11] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["secret", "name"],
];

fn references_secrets(spec: &Value) -> bool {
    let at = |value: &Value, path: &[&str]| !text(path.iter().fold(value, |v, name| &v[name])).is_empty();
    let any = |value: &Value| VOLUME_SECRETS.iter().any(|path| at(value, path));
    let in_volume = |volume: &Value| any(volume) || items(&volume["projected"]["sources"]).iter().any(any);
    items(&spec["imagePullSecrets"]).iter().any(|s| at(s, &["name"]))
        || containers(spec, &ALL_CONTAINERS).any(|c| env_secrets(c).next().is_some())
        || items(&spec["volumes"]).iter().any(in_volume)
}

/// Iterates over the secrets in the environment of a container; with the name of the variable if a
/// variable refers to the secret.
fn env_secrets(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let variables = items(&container["env"])
        .iter()
        .map(|env| (Some(text(&env["name"])), text(&env["valueFrom"]["secretKeyRef"]["name"])));
    let whole = items(&container["envFrom"]).iter().map(|env| (None, text(&env["secretRef"]["name"])));
    variables.chain(whole).filter(|(_, secret)| !secret.is_empty())
}

fn enforces_secrets(account: &Value) -> bool {
    let value = text(&account["metadata"]["annotations"][ENFORCE_SECRETS]);
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Returns the first secret that a pod uses and its account does not list.
fn secret_problem(spec: &Value, account: &Value) -> Option<String> {
    let name = text(&account["metadata"]["name"]);
    let mountable = names(&account["secrets"]);
    let volume = items(&spec["volumes"]).iter().filter(|v| v["secret"].is_object()).find_map(|v| {
        let secret = text(&v["secret"]["secretName"]);
        (!mountable.contains(secret)).then(|| format!(
            "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
        ))
    });
    let pull_secrets = names(&account["imagePullSecrets"]);
    volume
        .or_else(|| container_secret(spec, "initContainers", "init container", account))
        .or_else(|| container_secret(spec, "containers", "container", account))
        .or_else(|| {
            items(&spec["imagePullSecrets"]).iter().enumerate().find_map(|(i, s)| {
                let secret = text(&s["name"]);
                (!pull_secrets.contains(secret)).then(|| format!(
                    "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
                ))
            })
        })
}

fn container_secret(spec: &Value, list: &str, title: &str, account: &Value) -> Option<String> {
    let name = text(&account["metadata"]["name"]);
    let mountable = names(&account["secrets"]);
    items(&spec[list]).iter().find_map(|container| {
        let (variable, secret) = env_secrets(container).find(|(_, secret)| !mountable.contains(secret))?;
        let how = variable.map_or("envFrom".to_owned(), |variable| format!("envVar {variable}"));
        Some(format!(
            "{title} {} with {how} referencing secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret",
            text(&container["name"])
        ))
    })
}

fn names(list: &Value) -> BTreeSet<&str> {
    items(list).iter().map(|entry| text(&entry["name"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use coracle_seed::Seed;

    fn plugin() -> ServiceAccount {
        ServiceAccount { identities: Arc::new(Identities::new(Some(Seed(1)), 0)) }
    }

    fn world(account: Value) -> World {
        let mut account = account;
        account["metadata"]["name"] = "default".into();
        account["metadata"]["namespace"] = "ns".into();
        World::default().with("", "serviceaccounts", account)
    }

    fn pod(spec: Value) -> Request {
        Request::new("", "pods", "ns", json!({"metadata": {"name": "p"}, "spec": spec}))
    }

    #[test]
    fn the_token_is_mounted_into_every_container() {
        let own = json!({"name": "v", "mountPath": MOUNT_PATH});
        let spec = json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [own]}], "initContainers": [{"name": "i"}]});
        let got = pod(spec).run(&plugin(), &world(json!({}))).expect("a pod");
        let spec = &got["spec"];
        let volume = text(&spec["volumes"][0]["name"]);
        assert!(volume.len() == VOLUME_PREFIX.len() + 5 && volume.starts_with(VOLUME_PREFIX), "{volume}");
        let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
        assert_eq!(
            (&spec["serviceAccountName"], &spec["serviceAccount"]),
            (&json!("default"), &json!("default"))
        );
        assert_eq!(spec["volumes"], json!([token_volume(volume)]));
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
        assert_eq!(spec["containers"][1]["volumeMounts"], json!([own]));
        assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([mount]));
    }

    #[test]
    fn the_token_is_not_mounted_where_pod_or_account_decline() {
        for (case, account, spec, want) in [
            ("the pod", json!({}), json!({"automountServiceAccountToken": false}), false),
            ("the account", json!({"automountServiceAccountToken": false}), json!({}), false),
            (
                "the pod against the account",
                json!({"automountServiceAccountToken": false}),
                json!({"automountServiceAccountToken": true}),
                true,
            ),
        ] {
            let mut spec = spec;
            spec["containers"] = json!([{"name": "a"}]);
            let got = pod(spec).run(&plugin(), &world(account)).expect(case);
            assert_eq!(got["spec"]["volumes"].is_array(), want, "{case}");
        }
        let volume = json!({"name": "kube-api-access-mine", "emptyDir": {}});
        let got = pod(json!({"containers": [{"name": "a"}], "volumes": [volume]}))
            .run(&plugin(), &world(json!({})));
        let got = got.expect("a pod");
        assert_eq!(got["spec"]["volumes"], json!([volume]), "an old volume is used again");
        assert_eq!(got["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-mine");
    }

    #[test]
    fn pull_secrets_come_from_the_account() {
        let account = json!({"imagePullSecrets": [{"name": "a"}], "automountServiceAccountToken": false});
        for (given, want) in
            [(json!([]), json!([{"name": "a"}])), (json!([{"name": "b"}]), json!([{"name": "b"}]))]
        {
            let got = pod(json!({"imagePullSecrets": given})).run(&plugin(), &world(account.clone()));
            assert_eq!(got.expect("a pod")["spec"]["imagePullSecrets"], want);
        }
    }

    #[test]
    fn pods_of_missing_accounts_or_with_foreign_secrets_are_rejected() {
        let strict = json!({"metadata": {"annotations": {ENFORCE_SECRETS: "true"}}, "secrets": [{"name": "ok"}], "automountServiceAccountToken": false});
        let mirror = |spec: Value| {
            let pod = json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}}, "spec": spec});
            Request::new("", "pods", "ns", pod)
        };
        let env = |name: &str| json!({"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": name}}}]});
        for (case, request, account, want) in [
            (
                "no such account",
                pod(json!({"serviceAccountName": "nobody"})),
                json!({}),
                r#"error looking up service account ns/nobody: serviceaccount "nobody" not found"#,
            ),
            (
                "a name that is no segment of a path",
                pod(json!({"serviceAccountName": "a/b"})),
                json!({}),
                r#"error looking up service account ns/a/b: invalid resource name "a/b": [may not contain '/']"#,
            ),
            (
                "mirror with an account",
                mirror(json!({"serviceAccountName": "default"})),
                json!({}),
                "a mirror pod may not reference service accounts",
            ),
            (
                "mirror with a secret",
                mirror(json!({"volumes": [{"secret": {"secretName": "s"}}]})),
                json!({}),
                "a mirror pod may not reference secrets",
            ),
            (
                "mirror with a projected secret",
                mirror(json!({"volumes": [{"projected": {"sources": [{"secret": {"name": "s"}}]}}]})),
                json!({}),
                "a mirror pod may not reference secrets",
            ),
            (
                "mirror with a token",
                mirror(json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]})),
                json!({}),
                "a mirror pod may not use ServiceAccountToken volume projections",
            ),
            (
                "a secret not listed",
                pod(json!({"containers": [env("no")]})),
                strict.clone(),
                r#"container c with envVar E referencing secret.secretName="no" is not allowed because service account default does not reference that secret"#,
            ),
            (
                "a pull secret not listed",
                pod(json!({"containers": [env("ok")], "imagePullSecrets": [{"name": "x"}]})),
                strict.clone(),
                r#"imagePullSecrets[0].name="x" is not allowed because service account default does not reference that imagePullSecret"#,
            ),
        ] {
            let got = request.run(&plugin(), &world(account)).expect_err(case);
            assert_eq!(got, format!("403 pods \"p\" is forbidden: {want}"), "{case}");
        }
        let plain = mirror(json!({"containers": [{"name": "c"}]}))
            .run(&plugin(), &World::default())
            .expect("a mirror pod");
        assert!(plain["spec"]["serviceAccountName"].is_null());
    }
}
