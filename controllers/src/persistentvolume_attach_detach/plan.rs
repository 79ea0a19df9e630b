//! The decision about a volume's attachments: the nodes to attach it to and to detach it from.
//! Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use coracle_kinds::storage::VolumeExt;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;

pub struct Observed<'a> {
    /// The volume; None if it was deleted or needs no attachment.
    pub volume: Option<&'a PersistentVolume>,
    /// The nodes of pods that use it.
    pub nodes: BTreeSet<&'a str>,
    /// The attachments of the volume.
    pub attachments: &'a [Arc<VolumeAttachment>],
}

#[derive(Debug, Default)]
pub struct Plan<'a> {
    pub attach: Vec<&'a str>,
    pub detach: Vec<&'a VolumeAttachment>,
    /// The nodes that have to wait, for another has a volume that only one may have.
    pub refuse: Vec<&'a str>,
}

pub fn plan<'a>(observed: &Observed<'a>) -> Plan<'a> {
    let mut plan = Plan::default();
    for attachment in observed.attachments {
        let is_terminating = attachment.metadata.deletion_timestamp.is_some();
        if !is_terminating && !observed.nodes.contains(attachment.spec.node_name.as_str()) {
            plan.detach.push(attachment);
        }
    }
    let Some(volume) = observed.volume else { return plan };
    let mut is_taken = !observed.attachments.is_empty() && !is_for_many(volume);
    for node in &observed.nodes {
        match observed.attachments.iter().any(|attachment| attachment.spec.node_name == *node) {
            // A terminating attachment has to be deleted first.
            true => {}
            false if is_taken => plan.refuse.push(node),
            false => {
                plan.attach.push(node);
                is_taken = !is_for_many(volume);
            }
        }
    }
    plan
}

/// Returns `true` if a volume may be attached to several nodes. Without access modes the driver
/// decides.
fn is_for_many(volume: &PersistentVolume) -> bool {
    let modes = volume.access_modes();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// Returns the message for a pod that waits for a volume, since pods on other nodes use it. The
/// message does not contain names from other namespaces.
pub fn refusal(volume: &str, pod: &Pod, others: &[&Arc<Pod>]) -> String {
    let is_near = |other: &&&Arc<Pod>| other.metadata.namespace == pod.metadata.namespace;
    let (near, far): (Vec<&Arc<Pod>>, Vec<_>) = others.iter().partition(is_near);
    let near = near.iter().map(|pod| pod.name_any()).collect::<Vec<_>>().join(", ");
    let far = far.len();
    let why = match (near.as_str(), far) {
        ("", 0) => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        ("", _) => format!("Volume is already used by {far} pod(s) in different namespaces"),
        (_, 0) => format!("Volume is already used by pod(s) {near}"),
        _ => format!("Volume is already used by pod(s) {near} and {far} pod(s) in different namespaces"),
    };
    format!("Multi-Attach error for volume {volume:?} {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plans() {
        const ONCE: &[&str] = &["ReadWriteOnce"];
        const MANY: &[&str] = &["ReadWriteOnce", "ReadOnlyMany"];
        type Names<'a> = &'a [&'a str];
        /// The case, the volume's modes, the nodes and the attachments; then the nodes to attach,
        /// detach and refuse.
        type Case<'a> = (&'a str, Option<Names<'a>>, Names<'a>, Names<'a>, [Names<'a>; 3]);
        let cases: [Case; 10] = [
            ("nobody wants it", Some(ONCE), &[], &[], [&[], &[], &[]]),
            ("to be attached", Some(ONCE), &["a"], &[], [&["a"], &[], &[]]),
            ("attached", Some(ONCE), &["a"], &["a"], [&[], &[], &[]]),
            ("to be detached", Some(ONCE), &[], &["a"], [&[], &["a"], &[]]),
            ("moves: first away", Some(ONCE), &["b"], &["a"], [&[], &["a"], &["b"]]),
            ("one at a time", Some(ONCE), &["a", "b"], &[], [&["a"], &[], &["b"]]),
            ("shared", Some(MANY), &["a", "b"], &["b"], [&["a"], &[], &[]]),
            ("says nothing", Some(&[]), &["a", "b"], &[], [&["a", "b"], &[], &[]]),
            ("still terminating", Some(ONCE), &["a"], &["-a"], [&[], &[], &[]]),
            ("gone", None, &[], &["a", "-b"], [&[], &["a"], &[]]),
        ];
        for (case, modes, nodes, attachments, [attach, detach, refuse]) in cases {
            let volume =
                modes.map(|modes| serde_json::from_value(json!({"spec": {"accessModes": modes}})).unwrap());
            let attachments: Vec<_> = attachments.iter().map(|node| Arc::new(attachment(node))).collect();
            let nodes = nodes.iter().copied().collect();
            let got = plan(&Observed { volume: volume.as_ref(), nodes, attachments: &attachments });
            assert_eq!(got.attach, attach, "{case}: attach");
            let detached: Vec<_> = got.detach.iter().map(|gone| gone.spec.node_name.as_str()).collect();
            assert_eq!(detached, detach, "{case}: detach");
            assert_eq!(got.refuse, refuse, "{case}: refuse");
        }
    }

    /// Returns an attachment to a node. A leading dash in `node` marks a terminating attachment.
    fn attachment(node: &str) -> VolumeAttachment {
        let (node, terminating) =
            node.strip_prefix('-').map_or((node, None), |node| (node, Some("2026-01-01T00:00:00Z")));
        serde_json::from_value(json!({
            "metadata": {"deletionTimestamp": terminating}, "spec": {"nodeName": node, "attacher": "d", "source": {}},
        }))
        .unwrap()
    }
}
