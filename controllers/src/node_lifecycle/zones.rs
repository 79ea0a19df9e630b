//! Zones: the share of their nodes that are down, and the rate at which other nodes may be tainted
//! because of that. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

/// kube-controller-manager's `--node-eviction-rate` and `--secondary-node-eviction-rate`, in nodes
/// a second.
const RATE: f64 = 0.1;
const SECONDARY_RATE: f64 = 0.01;
/// kube-controller-manager's `--large-cluster-size-threshold` and `--unhealthy-zone-threshold`.
const LARGE: usize = 50;
const UNHEALTHY: f64 = 0.55;

/// Returns the name of a node's zone: its region and its zone.
pub fn zone_of(node: &Node) -> String {
    let label = |keys: [&str; 2]| {
        let labels = node.metadata.labels.as_ref();
        keys.iter().find_map(|key| labels?.get(*key)).map(String::as_str).unwrap_or_default()
    };
    let region = label(["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"]);
    let zone = label(["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"]);
    match (region, zone) {
        ("", "") => String::new(),
        // kube-controller-manager's separator, which occurs in no label.
        _ => format!("{region}:\0:{zone}"),
    }
}

/// All zones, with the nodes that wait for a taint.
#[derive(Debug, Default)]
pub struct Zones(BTreeMap<String, Zone>);

#[derive(Debug)]
struct Zone {
    state: ZoneState,
    limiter: RateLimiter,
    queue: VecDeque<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneState {
    Initial,
    Normal,
    /// Many of the nodes are down.
    PartialDisruption,
    /// All of them are.
    FullDisruption,
}

/// The change of the disruption of all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    Unchanged,
    /// No node of any zone is ready any more: nothing may be evicted.
    Begins,
    Ends,
}

impl Zones {
    /// Iterates over the names of the zones.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Sets the rates of all zones from the readiness of their nodes. Zones that are not listed
    /// have no nodes any more.
    pub fn observe(&mut self, ready_by_zone: &BTreeMap<String, Vec<bool>>, now: Timestamp) -> Disruption {
        self.0.retain(|name, _| ready_by_zone.contains_key(name));
        let mut all_are_down = true;
        let was_down = self.0.values().all(|zone| zone.state == ZoneState::FullDisruption);
        let has_new = ready_by_zone.keys().any(|name| !self.0.contains_key(name));
        let all_were_down = was_down && !has_new;
        for (name, ready) in ready_by_zone {
            self.0.entry(name.clone()).or_insert_with(|| Zone::new(now));
            all_are_down &= ZoneState::of(ready) == ZoneState::FullDisruption;
        }
        match (all_are_down, all_were_down) {
            (true, true) => return Disruption::Unchanged,
            (true, false) => {
                for zone in self.0.values_mut() {
                    zone.state = ZoneState::FullDisruption;
                    zone.limiter.swap(0.0, now);
                    // The nodes count as reachable from now on.
                    zone.queue.clear();
                }
                return Disruption::Begins;
            }
            (false, _) => {}
        }
        for (name, ready) in ready_by_zone {
            let Some(zone) = self.0.get_mut(name) else { continue };
            let state = ZoneState::of(ready);
            if all_were_down || zone.state != state {
                zone.state = state;
                zone.limiter.swap(state.rate(ready.len()), now);
            }
        }
        if all_were_down { Disruption::Ends } else { Disruption::Unchanged }
    }

    /// Queues a node for its taint.
    pub fn enqueue(&mut self, zone: &str, node: &str, now: Timestamp) {
        let zone = self.0.entry(zone.to_owned()).or_insert_with(|| Zone::new(now));
        if !zone.queue.iter().any(|waiting| waiting == node) {
            zone.queue.push_back(node.to_owned());
        }
    }

    /// Removes a node from its queue.
    pub fn remove(&mut self, node: &str) {
        self.0.values_mut().for_each(|zone| zone.queue.retain(|waiting| waiting != node));
    }

    /// Returns `true` if any node waits for its taint.
    pub fn has_queued(&self) -> bool {
        self.0.values().any(|zone| !zone.queue.is_empty())
    }

    /// Removes the next node to taint from its queue, and returns it with its zone, if the rate
    /// permits it.
    pub fn next(&mut self, now: Timestamp) -> Option<(String, String)> {
        let waiting = self.0.iter_mut().filter(|(_, zone)| !zone.queue.is_empty());
        for (name, zone) in waiting {
            if zone.limiter.try_accept(now) {
                return zone.queue.pop_front().map(|node| (name.clone(), node));
            }
        }
        None
    }

    /// Returns the time until another node may be tainted, or `None` if no node waits or the rate
    /// is zero.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        let waiting = self.0.values().filter(|zone| !zone.queue.is_empty());
        waiting.filter_map(|zone| zone.limiter.wait(now)).min()
    }
}

impl Zone {
    fn new(now: Timestamp) -> Zone {
        let limiter = RateLimiter { rate: RATE, tokens: 1.0, at: now };
        Zone { state: ZoneState::Initial, limiter, queue: VecDeque::new() }
    }
}

impl ZoneState {
    /// Returns the state of a zone by the readiness of its nodes.
    fn of(ready: &[bool]) -> ZoneState {
        let down = ready.iter().filter(|ready| !**ready).count();
        let share = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
        match down {
            0 => ZoneState::Normal,
            _ if down == ready.len() => ZoneState::FullDisruption,
            _ if down > 2 && share(down) / share(ready.len()) >= UNHEALTHY => ZoneState::PartialDisruption,
            _ => ZoneState::Normal,
        }
    }

    fn rate(self, size: usize) -> f64 {
        match self {
            ZoneState::PartialDisruption if size > LARGE => SECONDARY_RATE,
            ZoneState::PartialDisruption => 0.0,
            _ => RATE,
        }
    }
}

/// A bucket of one token, which refills at a rate.
#[derive(Debug)]
struct RateLimiter {
    /// Tokens a second.
    rate: f64,
    tokens: f64,
    /// The time at which `tokens` was computed.
    at: Timestamp,
}

impl RateLimiter {
    fn try_accept(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        // The least part of a token is lost in the arithmetic.
        let is_accepted = self.rate > 0.0 && self.tokens > 0.999_999;
        if is_accepted {
            self.tokens = 0.0;
        }
        is_accepted
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.tokens = (self.tokens + passed * self.rate).min(1.0);
        self.at = now;
    }

    /// Sets a new rate, with a full bucket unless the old one was empty.
    fn swap(&mut self, rate: f64, now: Timestamp) {
        if self.rate != rate {
            let tokens = if self.try_accept(now) { 1.0 } else { 0.0 };
            *self = RateLimiter { rate, tokens, at: now };
        }
    }

    fn wait(&self, now: Timestamp) -> Option<Duration> {
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        let missing = (1.0 - self.tokens - passed * self.rate).max(0.0);
        (self.rate > 0.0).then(|| Duration::from_secs_f64(missing / self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn zone(name: &str, up: usize, down: usize) -> (String, Vec<bool>) {
        (name.to_owned(), [vec![true; up], vec![false; down]].concat())
    }

    #[test]
    fn states_of_zones() {
        for (up, down, state, rate) in [
            (1, 0, ZoneState::Normal, RATE),
            (0, 1, ZoneState::FullDisruption, RATE),
            (1, 2, ZoneState::Normal, RATE),
            (1, 3, ZoneState::PartialDisruption, 0.0),
            (9, 11, ZoneState::PartialDisruption, 0.0),
            (10, 11, ZoneState::Normal, RATE),
            (20, 31, ZoneState::PartialDisruption, SECONDARY_RATE),
        ] {
            let (_, ready) = zone("", up, down);
            assert_eq!(
                (ZoneState::of(&ready), ZoneState::of(&ready).rate(ready.len())),
                (state, rate),
                "{up} {down}"
            );
        }
    }

    #[test]
    fn nodes_are_taken_at_the_rate_of_their_zone() {
        let mut zones = Zones::default();
        zones.observe(&BTreeMap::from([zone("a", 2, 2), zone("b", 1, 0)]), at(0));
        for (zone, node) in [("a", "1"), ("a", "2"), ("a", "2"), ("b", "3")] {
            zones.enqueue(zone, node, at(0));
        }
        let mut taken = |second| {
            let next = zones.next(at(second)).map(|(_, node)| node);
            (next, zones.wait(at(second)).map(|wait| wait.as_secs()))
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(taken(0), (some("1"), Some(0)));
        assert_eq!(taken(0), (some("3"), Some(10)));
        assert_eq!(taken(9), (None, Some(1)));
        assert_eq!(taken(10), (some("2"), None));
    }

    #[test]
    fn nothing_is_evicted_while_everything_is_down() {
        let mut zones = Zones::default();
        for (case, now, state, want) in [
            ("one zone is up", 0, vec![zone("a", 1, 0), zone("b", 0, 1)], Disruption::Unchanged),
            ("all are down", 5, vec![zone("a", 0, 1), zone("b", 0, 1)], Disruption::Begins),
            ("still", 10, vec![zone("a", 0, 1), zone("b", 0, 1)], Disruption::Unchanged),
            ("one zone is left", 15, vec![zone("a", 0, 1)], Disruption::Unchanged),
            ("a node returns", 20, vec![zone("a", 1, 1)], Disruption::Ends),
            ("and stays", 25, vec![zone("a", 1, 1)], Disruption::Unchanged),
        ] {
            assert_eq!(zones.observe(&state.into_iter().collect(), at(now)), want, "{case}");
            zones.enqueue("a", "n", at(now));
            let is_stopped = (5..20).contains(&now);
            assert_eq!(zones.wait(at(now)).is_none(), is_stopped, "{case}");
        }
        assert_eq!(Zones::default().observe(&BTreeMap::new(), at(0)), Disruption::Unchanged);
    }
}
