//! The selection of controllers and of the simulation: kube-controller-manager's names, and the
//! syntax of its `--controllers`.

use coracle_seed::Identities;

/// Returns the identity in the Lease of the leader election: the host's name and a random suffix,
/// as in kube-controller-manager.
pub fn identity(identities: &Identities) -> String {
    format!("{}_{}", hostname(), identities.of_process("kube-controller-manager"))
}

/// Returns the host's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The controllers that simulate nodes, by the names of the programs of a real cluster.
const NODE_COMPONENTS: [&str; 2] = ["kube-scheduler", "kubelet"];

/// All controllers of kube-controller-manager. An unlisted name is an error in the flag; a listed
/// one may be selected whether or not Coracle implements it.
const NAMES: &[&str] = &[
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "namespace-controller",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "podcertificaterequest-cleaner-controller",
    "podgroup-protection-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourceclaim-controller",
    "resourcepoolstatusrequest-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "selinux-warning-controller",
    "service-cidr-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "taint-eviction-controller",
    "token-cleaner-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// The controllers that `*` does not select, as in kube-controller-manager.
const DISABLED_BY_DEFAULT: [&str; 2] = ["bootstrap-signer-controller", "token-cleaner-controller"];

/// The error for a name in a selection that no controller has: the name, with the `-` before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers")]
pub struct UnknownController(pub String);

/// Validates a selection such as `["*", "-foo"]`.
///
/// # Errors
/// The first unknown controller.
pub fn check_selection(selection: &[String]) -> Result<(), UnknownController> {
    let known = |name: &str| {
        name.is_empty() || name == "*" || NAMES.contains(&name) || NODE_COMPONENTS.contains(&name)
    };
    match selection.iter().find(|item| !known(item.strip_prefix('-').unwrap_or(item))) {
        Some(unknown) => Err(UnknownController(unknown.clone())),
        None => Ok(()),
    }
}

/// Returns `true` if a controller is selected by its name, or by `*` unless `-NAME` excludes it or
/// it is disabled by default.
pub fn is_selected(selection: &[String], name: &str) -> bool {
    let is_excluded = |item: &&String| item.strip_prefix('-') == Some(name);
    if selection.iter().any(|item| item == name) {
        return true;
    }
    !selection.iter().any(|item| is_excluded(&item))
        && !DISABLED_BY_DEFAULT.contains(&name)
        && selection.iter().any(|item| item == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_can_be_selected() {
        let controllers = coracle_controllers::CONTROLLERS.iter().map(|known| known.name);
        let simulated = coracle_simulation::CONTROLLERS.iter().map(|known| known.name);
        for name in controllers.chain(simulated) {
            assert_eq!(check_selection(&[name.to_owned()]), Ok(()), "{name} is not in NAMES");
        }
    }

    #[test]
    fn controllers_are_selected_by_name_or_wildcard() {
        for (selection, name, want) in [
            ("*", "job-controller", true),
            ("*,-job-controller", "job-controller", false),
            ("job-controller", "job-controller", true),
            ("namespace-controller", "job-controller", false),
            ("", "job-controller", false),
            ("-*", "job-controller", false),
            ("*,-kube-scheduler", "kube-scheduler", false),
            ("*,-kube-scheduler", "kubelet", true),
            ("-*,kubelet", "kubelet", true),
            ("*", "token-cleaner-controller", false),
            ("*,token-cleaner-controller", "token-cleaner-controller", true),
        ] {
            let list: Vec<String> = selection.split(',').map(str::to_owned).collect();
            assert_eq!(check_selection(&list), Ok(()), "{selection}");
            assert_eq!(is_selected(&list, name), want, "{selection}");
        }
        let unknown = "-nosuch".to_owned();
        assert_eq!(check_selection(std::slice::from_ref(&unknown)), Err(UnknownController(unknown)));
    }
}
