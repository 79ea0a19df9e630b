//! The health of a node. Pure: from its status, its Lease, its previous health, and the time.

use std::time::Duration;

use coracle_kinds::nodes::{STATUS_NEVER_UPDATED, STATUS_UNKNOWN, condition};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::MONITOR_PERIOD;

/// kube-controller-manager's `--node-monitor-grace-period` and `--node-startup-grace-period`.
const GRACE_PERIOD: Duration = Duration::from_secs(50);
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Checks that are further apart have others between them that were skipped.
const SKIPPED: SignedDuration = SignedDuration::from_secs(2 * MONITOR_PERIOD.as_secs() as i64);

/// The conditions that become unknown with a silent kubelet.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The observed health of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHealth {
    /// The time at which it was last observed to be alive, by this process's clock.
    pub probe: Timestamp,
    /// The heartbeat of its condition Ready. None: it has no such condition.
    heartbeat: Option<Option<Timestamp>>,
    renewal: Option<Timestamp>,
    /// The time of this observation.
    checked: Timestamp,
}

impl NodeHealth {
    /// Returns the health after another observation. A heartbeat or a renewal that differs from the
    /// last one shows that the node is alive: now, or at the time of the heartbeat or the renewal if
    /// checks that would have seen it were skipped, as an advance of the clock does.
    pub fn observe(
        known: Option<&NodeHealth>,
        node: &Node,
        lease: Option<&Lease>,
        now: Timestamp,
    ) -> NodeHealth {
        let heartbeat =
            condition(node, "Ready").map(|ready| ready.last_heartbeat_time.as_ref().map(|time| time.0));
        let renewal = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
        let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let is_alive = match known {
            // A node without a status counts as alive since its creation.
            None => heartbeat.is_some(),
            Some(known) => known.heartbeat != heartbeat,
        };
        let is_renewed = renewal.is_some() && known.and_then(|known| known.renewal) < renewal;
        let probe = match known {
            Some(NodeHealth { checked, .. })
                if (is_alive || is_renewed) && now.duration_since(*checked) > SKIPPED =>
            {
                let beat = heartbeat.flatten().filter(|_| is_alive);
                beat.max(renewal.filter(|_| is_renewed)).map_or(now, |sign| sign.clamp(*checked, now))
            }
            _ if is_alive || is_renewed => now,
            Some(known) => known.probe,
            None => created,
        };
        NodeHealth {
            probe,
            heartbeat,
            renewal: renewal.max(known.and_then(|known| known.renewal)),
            checked: now,
        }
    }

    /// Returns the health of a node that another controller has observed until now. It was last alive
    /// at its last heartbeat or renewal.
    pub fn resume(node: &Node, lease: Option<&Lease>, now: Timestamp) -> NodeHealth {
        let health = NodeHealth::observe(None, node, lease, now);
        let sign = health.heartbeat.flatten().max(health.renewal);
        NodeHealth { probe: sign.map_or(health.probe, |sign| sign.min(now)), ..health }
    }

    /// Returns the time at which the grace period of a silent node ends, or `None` if its condition
    /// Ready is unknown already.
    pub fn end_of_grace(&self, node: &Node) -> Option<Timestamp> {
        let is_written = condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown");
        let end = self.probe.saturating_add(self.grace()).unwrap_or(Timestamp::MAX);
        let end = end.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MAX);
        (!is_written).then_some(end)
    }

    fn grace(&self) -> SignedDuration {
        let grace = if self.heartbeat.is_some() { GRACE_PERIOD } else { STARTUP_GRACE_PERIOD };
        SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX)
    }

    /// Returns the conditions to write for a node that has been silent for too long; `None` if it
    /// was not, or if its condition Ready is unknown already.
    pub fn overdue(&self, node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
        if self.end_of_grace(node).is_none_or(|end| now < end) {
            return None;
        }
        let unknown = |r#type: &&str| {
            let known = condition(node, r#type);
            if known.is_some_and(|known| known.status == "Unknown") {
                return None;
            }
            let (reason, message) = match known {
                Some(_) => (STATUS_UNKNOWN, "Kubelet stopped posting node status."),
                None => (STATUS_NEVER_UPDATED, "Kubelet never posted node status."),
            };
            let heartbeat = match known {
                Some(known) => known.last_heartbeat_time.clone(),
                None => node.metadata.creation_timestamp.clone(),
            };
            Some(NodeCondition {
                type_: (*r#type).to_owned(),
                status: "Unknown".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: heartbeat,
                last_transition_time: Some(Time(now)),
            })
        };
        Some(CONDITIONS.iter().filter_map(unknown).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(ready: Option<(&str, i64)>) -> Node {
        let conditions: Vec<Value> = ready
            .into_iter()
            .map(|(status, beat)| json!({"type": "Ready", "status": status, "lastHeartbeatTime": at(beat).to_string()}))
            .collect();
        let created = at(100).to_string();
        let node = json!({"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions}});
        serde_json::from_value(node).unwrap()
    }

    fn lease(renewal: i64) -> Lease {
        serde_json::from_value(json!({"spec": {"renewTime": at(renewal).to_string()}})).unwrap()
    }

    #[test]
    fn a_node_that_was_observed_is_as_old_as_its_last_sign() {
        for (case, beat, renewal, want) in [
            ("a heartbeat", Some(("True", 110)), None, 110),
            ("a renewal after it", Some(("True", 110)), Some(115), 115),
            ("from the future", Some(("True", 110)), Some(200), 130),
            ("neither", None, None, 100),
        ] {
            let lease = renewal.map(lease);
            let health = NodeHealth::resume(&node(beat), lease.as_ref(), at(130));
            assert_eq!(health.probe, at(want), "{case}");
            let later = NodeHealth::observe(Some(&health), &node(beat), lease.as_ref(), at(132));
            assert_eq!(later.probe, at(want), "{case}: nothing new");
        }
    }

    #[test]
    fn heartbeats_and_renewals_are_signs_of_life() {
        let ready = |beat| node(Some(("True", beat)));
        for (case, before, after, want) in [
            ("at first", None, (ready(1), None), 405),
            ("at first, no status", None, (node(None), None), 100),
            ("nothing", Some((ready(1), Some(3))), (ready(1), Some(3)), 400),
            ("a heartbeat", Some((ready(1), Some(3))), (ready(2), Some(3)), 405),
            ("an older heartbeat", Some((ready(2), None)), (ready(1), None), 405),
            ("a renewal", Some((ready(1), Some(3))), (ready(1), Some(4)), 405),
            ("an older renewal", Some((ready(1), Some(4))), (ready(1), Some(3)), 400),
            ("the first renewal", Some((ready(1), None)), (ready(1), Some(3)), 405),
            ("the lease is deleted", Some((ready(1), Some(3))), (ready(1), None), 400),
            ("the first status", Some((node(None), None)), (ready(1), None), 405),
            ("no status any more", Some((ready(1), None)), (node(None), None), 405),
        ] {
            let before = before.map(|(node, renewal)| {
                let mut health = NodeHealth::observe(None, &node, renewal.map(lease).as_ref(), at(400));
                health.probe = at(400);
                health
            });
            let (node, renewal) = after;
            let health = NodeHealth::observe(before.as_ref(), &node, renewal.map(lease).as_ref(), at(405));
            assert_eq!(health.probe, at(want), "{case}");
        }
    }

    #[test]
    fn skipped_checks_would_have_seen_signs_of_life() {
        let node = node(Some(("True", 1)));
        let before = NodeHealth::observe(None, &node, Some(&lease(3)), at(400));
        for (beat, renewal, now, want) in [
            (1, 402, 405, 405),
            (1, 402, 410, 410),
            (1, 402, 411, 402),
            (1, 440, 450, 440),
            (430, 3, 450, 430),
            (430, 440, 450, 440),
            (440, 430, 450, 440),
            // The clock of the node is slow, or fast.
            (1, 4, 450, 400),
            (1, 460, 450, 450),
        ] {
            let node = self::node(Some(("True", beat)));
            let health = NodeHealth::observe(Some(&before), &node, Some(&lease(renewal)), at(now));
            assert_eq!(health.probe, at(want), "beat {beat}, renewed {renewal}, checked {now}");
        }
    }

    #[test]
    fn silence_makes_conditions_unknown() {
        let never = STATUS_NEVER_UPDATED;
        for (case, ready, silent, want) in [
            ("in time", Some(("True", 1)), 50, None),
            ("too long", Some(("True", 1)), 51, Some(vec![STATUS_UNKNOWN, never, never, never])),
            ("not ready", Some(("False", 1)), 51, Some(vec![STATUS_UNKNOWN, never, never, never])),
            ("written", Some(("Unknown", 1)), 500, None),
            ("about to start", None, 60, None),
            ("never started", None, 61, Some(vec![never; 4])),
        ] {
            let node = node(ready);
            let health = NodeHealth::observe(None, &node, None, at(100));
            let conditions = health.overdue(&node, at(100 + silent));
            let reasons = conditions.as_ref().map(|conditions| {
                conditions.iter().filter_map(|condition| condition.reason.as_deref()).collect::<Vec<_>>()
            });
            assert_eq!(reasons, want, "{case}");
            for condition in conditions.into_iter().flatten() {
                assert_eq!(condition.status, "Unknown", "{case}");
                let beat = if condition.reason.as_deref() == Some(never) { 100 } else { 1 };
                assert_eq!(condition.last_heartbeat_time, Some(Time(at(beat))), "{case}");
            }
        }
    }
}
