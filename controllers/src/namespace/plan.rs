//! The conditions of a terminating namespace, and when to check again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NamespaceCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time within which a finalizer is expected to be removed, in seconds.
const FINALIZERS_TAKE: i64 = 15;

/// A condition's type, and reason and message while all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (DISCOVERY, "ResourcesDiscovered", "All resources successfully discovered"),
    // Discovery here has only group versions that parse, but clients read this condition as well.
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (DELETION, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    (CONTENT, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];
const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
const DELETION: &str = "NamespaceDeletionContentFailure";
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// The remaining objects of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingObjects {
    pub count: usize,
    /// The number of objects with each finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

impl RemainingObjects {
    /// Counts the remaining objects by their finalizers.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a [String]>) -> RemainingObjects {
        let mut remains = RemainingObjects::default();
        for finalizers in objects {
            remains.count += 1;
            for finalizer in finalizers {
                *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        remains
    }

    /// Returns the estimated time until the objects are deleted, in seconds. Returns `None` if
    /// nothing known keeps them.
    pub fn estimate(&self, grace: i64) -> Option<i64> {
        match () {
            () if self.count == 0 => Some(0),
            () if grace > 0 => Some(grace),
            () if !self.finalizers.is_empty() => Some(FINALIZERS_TAKE),
            () => None,
        }
    }
}

/// The findings of a pass over a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of unavailable group versions, and the error message.
    pub discovery: Option<(usize, String)>,
    pub failures: Vec<String>,
    /// By resource and group, such as `configmaps.` and `deployments.apps`. Empty while pods
    /// remain, as no other resource was processed.
    pub remains: BTreeMap<String, RemainingObjects>,
}

impl Findings {
    fn message(&self, condition: &str) -> Option<(&'static str, String)> {
        match condition {
            DISCOVERY => self.discovery.as_ref().map(|(count, why)| {
                ("DiscoveryFailed", format!("Discovery failed for some groups, {count} failing: {why}"))
            }),
            DELETION => {
                let why = listed(self.failures.iter().cloned())?;
                let count = self.failures.len();
                let message = format!("Failed to delete all resource types, {count} remaining: {why}");
                Some(("ContentDeletionFailed", message))
            }
            CONTENT => {
                let left = self.remains.iter().filter(|(_, remains)| remains.count > 0);
                let left =
                    left.map(|(name, remains)| format!("{name} has {} resource instances", remains.count));
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", listed(left)?)))
            }
            FINALIZERS => {
                let mut holding = BTreeMap::<&str, usize>::new();
                for (finalizer, count) in self.remains.values().flat_map(|remains| &remains.finalizers) {
                    *holding.entry(finalizer).or_default() += count;
                }
                let holding =
                    holding.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
                let message = listed(holding)?;
                let message = format!("Some content in the namespace has finalizers remaining: {message}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }

    /// Returns the new conditions, or `None` if nothing changes.
    pub fn conditions(&self, old: &[NamespaceCondition], now: Timestamp) -> Option<Vec<NamespaceCondition>> {
        let mut new = old.to_vec();
        for (r#type, reason, message) in CONDITIONS {
            let bad = self.message(r#type);
            let status = if bad.is_some() { "True" } else { "False" };
            let (reason, message) = bad.unwrap_or_else(|| (reason, message.to_owned()));
            let place = match new.iter().position(|condition| condition.type_ == r#type) {
                Some(place) => place,
                None => {
                    new.push(NamespaceCondition { type_: r#type.to_owned(), ..Default::default() });
                    new.len() - 1
                }
            };
            if let Some(condition) = new.get_mut(place) {
                if condition.status != status {
                    condition.status = status.to_owned();
                    condition.last_transition_time = Some(Time(now));
                }
                condition.reason = Some(reason.to_owned());
                condition.message = Some(message);
            }
        }
        (new != old).then_some(new)
    }
}

/// Joins the items; None if there are none.
fn listed(items: impl Iterator<Item = String>) -> Option<String> {
    let mut items: Vec<String> = items.collect();
    items.sort_unstable();
    (!items.is_empty()).then(|| items.join(", "))
}

/// Returns the longest grace period of the pods that have not ended, in seconds; 0 once that time
/// has passed since the deletion.
pub fn grace<'a>(pods: impl IntoIterator<Item = &'a Pod>, deleted: Timestamp, now: Timestamp) -> i64 {
    let is_over = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = pods.into_iter().filter(|pod| !is_over(pod));
    let longest = running
        .filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds)
        .max()
        .unwrap_or_default()
        .max(0);
    match now.duration_since(deleted) >= SignedDuration::from_secs(longest) {
        true => 0,
        false => longest,
    }
}

/// Returns the delay until the next check, for objects that should be deleted in `estimate`
/// seconds.
pub fn pause(estimate: i64) -> Duration {
    Duration::from_secs(u64::try_from(estimate / 2 + 1).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodSpec, PodStatus};

    fn remains(finalizers: &[&[&str]]) -> RemainingObjects {
        let objects: Vec<Vec<String>> =
            finalizers.iter().map(|list| list.iter().map(|f| (*f).to_owned()).collect()).collect();
        RemainingObjects::of(objects.iter().map(Vec::as_slice))
    }

    #[test]
    fn conditions_say_what_remains() {
        let now = Timestamp::UNIX_EPOCH;
        let said = |findings: &Findings| -> Vec<String> {
            let conditions = findings.conditions(&[], now).unwrap_or_default();
            let bad = conditions.iter().filter(|condition| condition.status == "True");
            bad.map(|c| format!("{}: {}", c.reason.as_deref().unwrap(), c.message.as_deref().unwrap()))
                .collect()
        };
        for (case, findings, want) in [
            ("nothing", Findings::default(), &[][..]),
            (
                "held objects, sorted by what is said",
                Findings {
                    remains: [
                        ("configmaps.".to_owned(), remains(&[&["x.io/b"], &["x.io/b", "x.io/a"]])),
                        ("deployments.apps".to_owned(), remains(&[&["x.io/b"]])),
                        ("secrets.".to_owned(), remains(&[])),
                    ]
                    .into(),
                    ..Findings::default()
                },
                &[
                    "SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, \
                     deployments.apps has 1 resource instances",
                    "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: x.io/a in 1 \
                     resource instances, x.io/b in 3 resource instances",
                ],
            ),
            (
                "failures",
                Findings {
                    discovery: Some((1, "g/v: why".to_owned())),
                    failures: vec!["b".to_owned(), "a".to_owned()],
                    ..Findings::default()
                },
                &[
                    "DiscoveryFailed: Discovery failed for some groups, 1 failing: g/v: why",
                    "ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b",
                ],
            ),
        ] {
            assert_eq!(said(&findings), want, "{case}");
        }
    }

    #[test]
    fn conditions_are_written_only_if_changed() {
        let first = Timestamp::UNIX_EPOCH;
        let later = Timestamp::from_second(60).unwrap();
        let fine = Findings::default();
        let written = fine.conditions(&[], first).unwrap();
        assert_eq!(written.len(), CONDITIONS.len());
        assert!(written.iter().all(|c| c.status == "False" && c.last_transition_time == Some(Time(first))));
        assert_eq!(fine.conditions(&written, later), None);

        let left =
            Findings { remains: [("secrets.".to_owned(), remains(&[&["x"]]))].into(), ..Findings::default() };
        let changed = left.conditions(&written, later).unwrap();
        let times: Vec<_> = changed.iter().map(|c| c.last_transition_time.clone().unwrap().0).collect();
        assert_eq!(times, [first, first, first, later, later], "only what changed changed then");
    }

    #[test]
    fn pods_are_given_their_time() {
        let pod = |phase: &str, grace| Pod {
            spec: Some(PodSpec { termination_grace_period_seconds: grace, ..Default::default() }),
            status: Some(PodStatus { phase: Some(phase.to_owned()), ..Default::default() }),
            ..Pod::default()
        };
        for (case, pods, after, want) in [
            ("none", vec![], 0, 0),
            ("the longest", vec![pod("Running", Some(30)), pod("Pending", Some(60))], 5, 60),
            ("over", vec![pod("Succeeded", Some(30)), pod("Failed", Some(30))], 0, 0),
            ("too late", vec![pod("Running", Some(30))], 30, 0),
            ("unknown", vec![pod("Running", None)], 5, 0),
        ] {
            let now = Timestamp::from_second(after).unwrap();
            assert_eq!(grace(&pods, Timestamp::UNIX_EPOCH, now), want, "{case}");
        }
    }

    #[test]
    fn estimates() {
        for (case, left, grace, want) in [
            ("nothing left", remains(&[]), 30, Some(0)),
            ("pods with grace", remains(&[&[]]), 30, Some(30)),
            ("held", remains(&[&["x"], &[]]), 0, Some(15)),
            ("nobody knows why", remains(&[&[]]), 0, None),
        ] {
            assert_eq!(left.estimate(grace), want, "{case}");
        }
        assert_eq!(pause(15), Duration::from_secs(8));
    }
}
