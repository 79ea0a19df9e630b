//! Bootstrap: creates the objects that kube-apiserver creates at start.
//!
//! Missing objects are created at every start; existing ones are reconciled by [`StartStrategy`].

use coracle_apimachinery::Result;
use coracle_apimachinery::bootstrap::{self, InitialObject, Parameters};
use coracle_apimachinery::validation::ip::Cidr;
use coracle_apiserver::registry::Registry;
use coracle_apiserver::registry::deletion::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::strategy::StartStrategy;

/// Returns the objects of the start.
///
/// - `now`: the time of the start;
/// - `service_cidr`: the block of cluster IPs;
/// - `default_storage_class`: the name of the default class of the simulated CSI driver; None: the
///   driver has no classes;
/// - `is_selected`: whether a controller runs, by its name; what it adds to these objects is there
///   from the start.
pub fn initial_objects(
    now: Timestamp,
    secure_port: u16,
    service_cidr: Cidr,
    default_storage_class: Option<&str>,
    is_selected: &dyn Fn(&str) -> bool,
) -> Vec<InitialObject> {
    let mut objects = bootstrap::initial_objects(&Parameters {
        now: &rfc3339(now),
        secure_port,
        service_cidr: &service_cidr.network().to_string(),
        kubernetes_ip: &service_cidr.network().first_host().to_string(),
        is_selected,
    });
    objects.extend(default_storage_class.into_iter().flat_map(storage_classes).map(InitialObject::New));
    objects
}

/// Creates the objects of the start that are missing, and restores what must be as it was.
///
/// - `objects`: those of [`initial_objects`]
///
/// # Errors
/// The errors of the store.
pub async fn bootstrap(registry: &Registry, objects: &[InitialObject]) -> Result<()> {
    registry.bootstrap(objects, &StartStrategy).await
}

/// Builds the classes of the simulated CSI driver: the default one, and one that waits for a pod.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use coracle_apimachinery::bootstrap::objects;
    use coracle_apiserver::access::UserInfo;
    use coracle_apiserver::access::authorize::{RequestAttributes, ResourceTarget, Target};
    use coracle_apiserver::registry::created_bytes;

    use super::*;
    use crate::rbac::GROUP;
    use crate::rbac::testing::World;

    const PARAMETERS: Parameters<'_> = Parameters {
        now: "2026-01-02T03:04:05Z",
        secure_port: 6443,
        service_cidr: "10.0.0.0/24",
        kubernetes_ip: "10.0.0.1",
        is_selected: &|_| true,
    };

    fn id(object: &Value) -> String {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }

    /// Verifies that the embedded lines are what would be made of their objects.
    #[test]
    fn prepared_objects_are_as_they_would_be_stored() {
        let resources = coracle_resources::built_in();
        let made: Vec<String> = bootstrap::lines()
            .map(|line| {
                let object = line.object().expect("JSON").into_owned();
                let new = InitialObject::New(object.clone());
                let identity = new.identity().expect("an identity");
                let group = identity.api_version.split_once('/').map_or("", |(group, _)| group);
                let served = resources
                    .iter()
                    .find(|info| info.group_kind.kind == identity.kind && info.group_kind.group == group);
                let bytes =
                    created_bytes(served.expect("served"), &StartStrategy, &object, "${now}", "${uid}");
                String::from_utf8(bytes.to_vec()).expect("text")
            })
            .collect();
        const FILE: &str =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../apimachinery/src/bootstrap/objects.jsonl");
        if std::env::var_os("REGENERATE").is_some() {
            fs::write(FILE, made.concat()).expect("written");
        }
        assert!(
            fs::read_to_string(FILE).expect("a file") == made.concat(),
            "run this test with REGENERATE=1"
        );
        for line in bootstrap::lines() {
            let new = InitialObject::New(line.object().expect("JSON").into_owned());
            assert_eq!(line.identity().expect("as it is stored"), new.identity().expect("an identity"));
        }
    }

    #[test]
    fn each_object_is_listed_once() {
        let objects = objects(&PARAMETERS);
        let ids: BTreeSet<String> = objects.iter().map(id).collect();
        assert_eq!(ids.len(), objects.len());
        for wanted in [
            "Namespace /default",
            "Namespace /kube-system",
            "Namespace /kube-public",
            "Namespace /kube-node-lease",
            "Service default/kubernetes",
            "IPAddress /10.0.0.1",
            "ServiceCIDR /kubernetes",
            "PriorityClass /system-node-critical",
            "ClusterRole /cluster-admin",
            "ClusterRoleBinding /system:discovery",
            "Role kube-system/extension-apiserver-authentication-reader",
            "FlowSchema /catch-all",
            "PriorityLevelConfiguration /exempt",
            "APIService /v1.apps",
        ] {
            assert!(ids.contains(wanted), "{wanted}");
        }
        let bare = |o: &Value| {
            let metadata = o["metadata"].as_object().expect("metadata");
            o["apiVersion"].is_string()
                && !["uid", "resourceVersion", "managedFields"].iter().any(|m| metadata.contains_key(*m))
        };
        assert!(objects.iter().all(bare));
    }

    #[test]
    fn namespaces_precede_their_objects() {
        let mut made = BTreeSet::new();
        for object in objects(&PARAMETERS) {
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                assert!(made.contains(&format!("Namespace /{namespace}")), "{}", id(&object));
            }
            made.insert(id(&object));
        }
    }

    #[test]
    fn parameters_are_filled_in() {
        let objects = objects(&PARAMETERS);
        let find = |wanted: &str| objects.iter().find(|o| id(o) == wanted).expect("an object");
        assert_eq!(find("Service default/kubernetes")["spec"]["ports"][0]["targetPort"], 6443);
        let tracking = "ConfigMap kube-system/kube-apiserver-legacy-service-account-token-tracking";
        assert_eq!(find(tracking)["data"]["since"], "2026-01-02");
        assert_eq!(
            find("APIService /v1.apps")["status"]["conditions"][0]["lastTransitionTime"],
            PARAMETERS.now
        );
        assert!(!objects.iter().any(|o| o.to_string().contains("${")));
    }

    #[test]
    fn the_default_roles_allow_their_purpose() {
        let roles = World::default();
        for object in objects(&PARAMETERS) {
            if object["apiVersion"].as_str().is_some_and(|v| v.starts_with(GROUP)) {
                let plural = format!("{}s", object["kind"].as_str().expect("a kind").to_lowercase());
                roles.put(&plural, object);
            }
        }
        let authorizer = roles.authorizer();
        let resource = |group: &'static str, resource: &'static str, namespace: &'static str| {
            Target::Resource(ResourceTarget { group, resource, namespace, ..ResourceTarget::default() })
        };
        let anyone = ["system:authenticated"];
        for (user, groups, verb, target, want) in [
            ("system:anonymous", &["system:unauthenticated"][..], "get", Target::Path("/healthz"), true),
            ("system:anonymous", &["system:unauthenticated"], "get", Target::Path("/api"), false),
            ("alice", &anyone, "get", Target::Path("/apis/apps/v1"), true),
            ("alice", &anyone, "get", Target::Path("/metrics"), false),
            (
                "alice",
                &anyone,
                "create",
                resource("authorization.k8s.io", "selfsubjectaccessreviews", ""),
                true,
            ),
            ("alice", &anyone, "list", resource("", "pods", "default"), false),
            (
                "system:serviceaccount:kube-system:replicaset-controller",
                &anyone,
                "create",
                resource("", "pods", "x"),
                true,
            ),
            ("system:kube-scheduler", &anyone, "list", resource("", "pods", ""), true),
        ] {
            let allowed =
                authorizer.check(&UserInfo::new(user, groups), &RequestAttributes { verb, target }).is_ok();
            assert_eq!(allowed, want, "{user} {verb} {target:?}");
        }
    }

    #[test]
    fn objects_have_what_the_running_controllers_add() {
        for selected in [true, false] {
            let objects = objects(&Parameters { is_selected: &|_| selected, ..PARAMETERS });
            let find = |wanted: &str| objects.iter().find(|o| id(o) == wanted).expect("an object");
            assert_eq!(find("ClusterRole /view")["rules"].is_array(), selected);
            assert_eq!(find("ServiceCIDR /kubernetes")["metadata"]["finalizers"].is_array(), selected);
            // That of no controller.
            assert!(find("ClusterRole /cluster-admin")["rules"].is_array());
        }
    }

    #[test]
    fn building_all_objects_takes_milliseconds() {
        let start = std::time::Instant::now();
        let count = objects(&PARAMETERS).len();
        // The budget is 5 ms in a release build; this bound holds without optimization on a busy
        // machine.
        assert!(start.elapsed().as_millis() < 200, "{count} objects took {:?}", start.elapsed());
    }
}
