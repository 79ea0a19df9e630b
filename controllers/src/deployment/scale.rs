//! Scaling of a Deployment, also while it is paused: ReplicaSets are resized, but no rollout
//! progresses.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

use super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS, size};
use super::replica_sets::{ReplicaSets, Resize, available, desired_replicas, replicas, total};
use super::rolling::{is_rolling, max_replicas};

/// Returns `true` if the ReplicaSets were last resized for another size of the Deployment.
pub(super) fn is_scaling_event(deployment: &Deployment, sets: &ReplicaSets) -> bool {
    sets.active()
        .any(|set| size(set, DESIRED_REPLICAS).is_some_and(|size| size != desired_replicas(deployment)))
}

/// Returns the sizes of the ReplicaSets that follow from the size of the Deployment. It also lists
/// a ReplicaSet that has its size already, if its annotations are out of date.
pub(super) fn plan(deployment: &Deployment, sets: &ReplicaSets) -> Vec<Resize> {
    let desired = desired_replicas(deployment);
    let active: Vec<_> = sets.active().cloned().collect();
    let only = match active.as_slice() {
        [] => sets.new.as_ref().or(sets.old.last()),
        [only] => Some(only),
        _ => None,
    };
    if let Some(only) = only {
        return Resize::unless_equal(only, desired).into_iter().collect();
    }
    if sets.new.as_ref().is_some_and(|new| is_saturated(new, desired)) {
        return sets.old_active().map(|set| Resize::new(set, 0)).collect();
    }
    if is_rolling(deployment) { proportional(deployment, active) } else { Vec::new() }
}

fn is_saturated(new: &ReplicaSet, desired: i32) -> bool {
    replicas(new) == desired && size(new, DESIRED_REPLICAS) == Some(desired) && available(new) == desired
}

/// Distributes an increase or decrease over several ReplicaSets in proportion to their sizes; the
/// remainder of rounding goes to the largest.
fn proportional(deployment: &Deployment, mut active: Vec<Arc<ReplicaSet>>) -> Vec<Resize> {
    let allowed = if desired_replicas(deployment) > 0 { max_replicas(deployment) } else { 0 };
    let to_add = allowed.saturating_sub(total(active.iter()));
    // From the oldest to the youngest.
    active.sort_by_cached_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| Reverse(replicas(set)));
    let mut left = to_add;
    let mut resizes: Vec<Resize> = active
        .iter()
        .map(|set| {
            let share = share(deployment, set);
            let share = if to_add > 0 { share.min(left) } else { share.max(left) };
            let share = if left == 0 { 0 } else { share };
            left = left.saturating_sub(share);
            Resize::new(set, replicas(set).saturating_add(share))
        })
        .collect();
    if let Some(largest) = resizes.first_mut() {
        largest.to = largest.to.saturating_add(left).max(0);
    }
    resizes
}

/// Returns the number of pods that a ReplicaSet gains, in proportion to its share of the total.
fn share(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    if desired_replicas(deployment) == 0 {
        return -replicas(set);
    }
    let stored = deployment.status.as_ref().and_then(|status| status.replicas);
    let before = size(set, MAX_REPLICAS).filter(|size| *size != 0).or(stored).unwrap_or(0);
    if before == 0 {
        return 0;
    }
    let grown = f64::from(replicas(set)) * f64::from(max_replicas(deployment)) / f64::from(before);
    // Halves are rounded away from zero; values out of range are clamped.
    #[allow(clippy::cast_possible_truncation)]
    let grown = grown.round() as i32;
    grown.saturating_sub(replicas(set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i32, strategy: &str, stored: i32) -> Deployment {
        let mut strategy = json!({"type": strategy});
        if strategy["type"] == "RollingUpdate" {
            strategy["rollingUpdate"] = json!({"maxSurge": 3, "maxUnavailable": 2});
        }
        let spec = json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy});
        serde_json::from_value(json!({"spec": spec, "status": {"replicas": stored}})).unwrap()
    }

    /// Parses `name:size[/max][=desired][!available]`; the last set is the new one if its name is
    /// `new`.
    fn sets(text: &str) -> ReplicaSets {
        let set = |(age, text): (usize, &str)| -> Arc<ReplicaSet> {
            let (name, rest) = text.split_once(':').unwrap();
            let number = |mark: char| {
                let (_, rest) = rest.split_once(mark)?;
                Some(rest.split(['/', '=', '!']).next().unwrap().to_owned())
            };
            let replicas: i32 = rest.split(['/', '=', '!']).next().unwrap().parse().unwrap();
            let available: i32 = number('!').map_or(0, |number| number.parse().unwrap());
            let mut set: ReplicaSet = serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{age}Z")},
                "spec": {"replicas": replicas, "selector": {}},
                "status": {"replicas": replicas, "availableReplicas": available},
            }))
            .unwrap();
            for (mark, key) in [('/', MAX_REPLICAS), ('=', DESIRED_REPLICAS)] {
                if let Some(value) = number(mark) {
                    set.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value);
                }
            }
            Arc::new(set)
        };
        let mut old: Vec<_> = text.split_whitespace().enumerate().map(set).collect();
        let new = old.pop_if(|set| set.name_any() == "new");
        ReplicaSets { new, old }
    }

    #[test]
    fn sizes_follow_the_size_of_the_deployment() {
        for (case, replicas, strategy, replica_sets, want) in [
            ("only the new one", 5, "RollingUpdate", "old:0 new:3", "new:5"),
            ("only an old one", 5, "RollingUpdate", "old:3 new:0", "old:5"),
            ("none is active, the new one", 5, "RollingUpdate", "old:0 new:0", "new:5"),
            ("none is active, the youngest old one", 5, "RollingUpdate", "a:0 b:0", "b:5"),
            ("no ReplicaSet at all", 5, "RollingUpdate", "", ""),
            ("one as it should be", 5, "RollingUpdate", "new:5", ""),
            ("the new one has all", 5, "RollingUpdate", "old:1 new:5=5!5", "old:0"),
            ("the new one is not available", 5, "Recreate", "old:1 new:5=5!4", ""),
            ("up in proportion", 15, "RollingUpdate", "old:8/13 new:5/13", "old:11 new:7"),
            ("down in proportion", 5, "RollingUpdate", "old:11/18 new:7/18", "old:5 new:3"),
            ("to nothing", 0, "RollingUpdate", "old:8/13 new:5/13", "old:0 new:0"),
            ("by the stored size, without annotations", 10, "RollingUpdate", "old:5 new:3", "old:8 new:5"),
            ("of equal ones the younger grows first", 6, "RollingUpdate", "old:3/9 new:3/9", "new:6 old:3"),
            ("of equal ones the older shrinks first", 2, "RollingUpdate", "old:4/8 new:4/8", "old:2 new:3"),
            ("nothing to add", 5, "RollingUpdate", "old:3/8 new:5/8", "new:5 old:3"),
        ] {
            let deployment = deployment(replicas, strategy, 8);
            let plan = plan(&deployment, &sets(replica_sets));
            let text: Vec<_> =
                plan.iter().map(|resize| format!("{}:{}", resize.set.name_any(), resize.to)).collect();
            assert_eq!(text.join(" "), want, "{case}");
        }
    }

    #[test]
    fn another_size_than_noted_is_a_scaling_event() {
        for (case, replica_sets, want) in [
            ("as noted", "old:1=5 new:4=5", false),
            ("another", "old:1=4 new:4=5", true),
            ("of an inactive one", "old:0=4 new:4=5", false),
            ("not noted", "old:1 new:4", false),
            ("noted badly", "old:1=x new:4=5", false),
        ] {
            assert_eq!(
                is_scaling_event(&deployment(5, "RollingUpdate", 5), &sets(replica_sets)),
                want,
                "{case}"
            );
        }
    }
}
