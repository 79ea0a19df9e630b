//! The locality of images: nodes that have the images of a pod score higher, the more nodes have
//! them and the larger they are.
//!
//! Source: kube-scheduler's plugin ImageLocality.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, PodSpec};

use super::candidate::Candidate;
use super::node_info::NodeInfo;

const MEBIBYTE: i64 = 1 << 20;
/// The sizes below which, and above which for each container, the score does not change.
const LEAST: i64 = 23 * MEBIBYTE;
const MOST_OF_CONTAINER: i64 = 1000 * MEBIBYTE;
const HIGHEST: i64 = 100;

/// Returns the scores of the feasible `nodes`; None if no node reports an image.
///
/// - `all`: the nodes of the cluster
pub fn scores(candidate: &Candidate, all: &[NodeInfo], nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    if all.iter().all(|node| images(&node.node).next().is_none()) {
        return None;
    }
    let wanted = wanted(candidate.spec);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in all {
        let names: BTreeSet<&str> = images(&node.node).map(|(name, _)| name).collect();
        for name in wanted.iter().filter(|name| names.contains(name.as_str())).collect::<BTreeSet<_>>() {
            *counts.entry(name).or_default() += 1;
        }
    }
    let containers =
        candidate.spec.containers.len() + candidate.spec.init_containers.iter().flatten().count();
    let score = |node: &&NodeInfo| {
        let sizes: BTreeMap<&str, i64> = images(&node.node).collect();
        let of_image = |name: &String| {
            let size = sizes.get(name.as_str()).copied().unwrap_or(0);
            scaled(size, counts.get(name.as_str()).copied().unwrap_or(0), all.len())
        };
        normalized(wanted.iter().map(of_image).fold(0, i64::saturating_add), containers)
    };
    Some(nodes.iter().map(score).collect())
}

/// Returns the images of a pod's containers and volumes, each as often as it is named.
fn wanted(spec: &PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = containers.filter_map(|container| container.image.as_deref());
    let volumes =
        spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    of_containers.chain(volumes).map(with_tag).collect()
}

/// Iterates over the names of a node's images, with their sizes in bytes.
fn images(node: &Node) -> impl Iterator<Item = (&str, i64)> {
    let images = node.status.iter().flat_map(|status| status.images.iter().flatten());
    images.flat_map(|image| {
        let names = image.names.iter().flatten();
        names.map(|name| (name.as_str(), image.size_bytes.unwrap_or(0)))
    })
}

/// Returns the name of an image as a node reports it.
fn with_tag(name: &str) -> String {
    let has_tag = name.rfind(':') > name.rfind('/');
    if has_tag { name.to_owned() } else { format!("{name}:latest") }
}

/// Returns the size of an image, in proportion to the nodes that have it, so that pods are not all
/// drawn to one node.
fn scaled(size: i64, nodes: usize, all: usize) -> i64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let scaled = (size as f64 * (nodes as f64 / all.max(1) as f64)) as i64;
    scaled
}

fn normalized(sum: i64, containers: usize) -> i64 {
    let most = MOST_OF_CONTAINER.saturating_mul(i64::try_from(containers).unwrap_or(i64::MAX)).max(LEAST + 1);
    HIGHEST.saturating_mul(sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_tag_have_the_latest() {
        for (name, want) in [
            ("app", "app:latest"),
            ("app:1", "app:1"),
            ("registry:5000/app", "registry:5000/app:latest"),
            ("registry:5000/app:1", "registry:5000/app:1"),
        ] {
            assert_eq!(with_tag(name), want);
        }
    }

    #[test]
    fn large_images_on_many_nodes_score_higher() {
        let mebibytes = |count: i64| count * MEBIBYTE;
        for (case, size, nodes, containers, want) in [
            ("small", mebibytes(20), 2, 1, 0),
            ("large", mebibytes(1000), 2, 1, 100),
            ("on one of two nodes", mebibytes(1000), 1, 1, 48),
            ("of two containers", mebibytes(1000), 2, 2, 49),
            ("larger than counts", mebibytes(5000), 2, 1, 100),
        ] {
            assert_eq!(normalized(scaled(size, nodes, 2), containers), want, "{case}");
        }
    }
}
