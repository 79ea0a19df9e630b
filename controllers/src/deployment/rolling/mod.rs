//! The progress of a rollout: the new ReplicaSet grows and the old ones shrink, within
//! `maxUnavailable` and `maxSurge`.

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{Deployment, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::replica_sets::{ReplicaSets, Resize, available, desired_replicas, replicas, reported, total};
use crate::workload::int_or_percent::{Round, scaled_value};

/// The next step of a rollout.
#[derive(Debug)]
pub(super) enum Step {
    /// ReplicaSets are resized; the next step is decided once these changes are observed.
    Resize(Vec<Resize>),
    /// The new ReplicaSet is created.
    CreateNew,
    /// The pods of old ReplicaSets have to be deleted first.
    AwaitOldPods,
    /// Every ReplicaSet has its desired size.
    Rest,
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
}

/// Returns `maxUnavailable` and `maxSurge` of a rolling update as numbers of pods.
///
/// Source: kube-controller-manager's `ResolveFenceposts`.
fn bounds(deployment: &Deployment) -> Bounds {
    if !is_rolling(deployment) {
        return Bounds { surge: 0, unavailable: 0 };
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let number = |field: fn(&RollingUpdateDeployment) -> &Option<IntOrString>, round| {
        let value = rolling.and_then(|rolling| field(rolling).as_ref());
        value.and_then(|value| scaled_value(value, desired_replicas(deployment), round)).unwrap_or(0)
    };
    let surge = number(|rolling| &rolling.max_surge, Round::Up);
    let unavailable = number(|rolling| &rolling.max_unavailable, Round::Down);
    // With both at zero no pod could ever be updated.
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Bounds { surge, unavailable: unavailable.min(desired_replicas(deployment)) }
}

struct Bounds {
    surge: i32,
    unavailable: i32,
}

/// Returns the largest total number of pods during a rollout.
pub(super) fn max_replicas(deployment: &Deployment) -> i32 {
    desired_replicas(deployment).saturating_add(bounds(deployment).surge)
}

/// Returns the smallest number of available pods during a rollout.
pub(super) fn min_available(deployment: &Deployment) -> i32 {
    desired_replicas(deployment).saturating_sub(bounds(deployment).unavailable)
}

/// Returns the next size of the new ReplicaSet, which may not exist yet. It grows as far as
/// `maxSurge` allows, up to the desired size.
pub(super) fn new_size(deployment: &Deployment, sets: &ReplicaSets) -> i32 {
    if !is_rolling(deployment) {
        return desired_replicas(deployment);
    }
    let own = sets.new.as_ref().map_or(0, |new| replicas(new));
    let room = max_replicas(deployment).saturating_sub(total(sets.all())).max(0);
    desired_replicas(deployment).min(own.saturating_add(room))
}

/// Returns the next step of a rolling update. It scales either up or down, so that no step relies
/// on pods that are not observed yet.
pub(super) fn rolling_update(deployment: &Deployment, sets: &ReplicaSets) -> Step {
    let Some(new) = &sets.new else { return Step::CreateNew };
    let size = new_size(deployment, sets);
    if let Some(resize) = Resize::unless_equal(new, size) {
        return Step::Resize(vec![resize]);
    }
    let resizes = scale_down_old(deployment, sets, replicas(new).saturating_sub(available(new)));
    if resizes.is_empty() { Step::Rest } else { Step::Resize(resizes) }
}

/// Scales down the old ReplicaSets: first by their unavailable pods, which costs no availability,
/// then by available ones as long as enough remain.
///
/// - `new_unavailable`: the number of unavailable pods of the new ReplicaSet
fn scale_down_old(deployment: &Deployment, sets: &ReplicaSets, new_unavailable: i32) -> Vec<Resize> {
    let mut resizes = Vec::new();
    let mut sizes: Vec<i32> = sets.old.iter().map(|set| replicas(set)).collect();
    if sizes.iter().all(|size| *size == 0) {
        return resizes;
    }
    let min_available = min_available(deployment);
    let mut left = total(sets.all()).saturating_sub(min_available).saturating_sub(new_unavailable);
    if left <= 0 {
        return resizes;
    }
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let unavailable = *size - available(set);
        if left <= 0 || *size == 0 || unavailable == 0 {
            continue;
        }
        if unavailable < 0 {
            // More pods are available than desired: the status is out of date.
            return resizes;
        }
        let less = left.min(unavailable);
        (*size, left) = (*size - less, left - less);
        resizes.push(Resize::new(set, *size));
    }
    let all_available = sets.all().fold(0i32, |sum, set| sum.saturating_add(available(set)));
    let mut surplus = all_available.saturating_sub(min_available);
    for (set, size) in sets.old.iter().zip(sizes) {
        if surplus <= 0 {
            break;
        }
        if size > 0 {
            let less = size.min(surplus);
            surplus -= less;
            resizes.push(Resize::new(set, size - less));
        }
    }
    resizes
}

/// Returns the next step of the strategy Recreate, which deletes all old pods before it creates the
/// new ReplicaSet.
///
/// - `old_pods`: the pods of the old ReplicaSets
pub(super) fn recreate<'a>(
    deployment: &Deployment,
    sets: &ReplicaSets,
    mut old_pods: impl Iterator<Item = &'a Pod>,
) -> Step {
    let down: Vec<Resize> = sets.old_active().map(|set| Resize::new(set, 0)).collect();
    if !down.is_empty() {
        return Step::Resize(down);
    }
    let is_reported = sets.old.iter().any(|set| reported(set, |status| Some(status.replicas)) > 0);
    if is_reported || old_pods.any(|pod| !pods::is_terminal(pod)) {
        return Step::AwaitOldPods;
    }
    let Some(new) = &sets.new else { return Step::CreateNew };
    Resize::unless_equal(new, desired_replicas(deployment))
        .map_or(Step::Rest, |resize| Step::Resize(vec![resize]))
}

#[cfg(test)]
mod tests;
