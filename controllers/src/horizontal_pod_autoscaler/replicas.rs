//! The number of replicas for the usage of the pods.
//!
//! Source: kube-controller-manager's `pkg/controller/podautoscaler/replica_calculator.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coracle_kinds::pods::{conditions, is_ready, phase};
use coracle_kinds::resources::{amount, is_sidecar, resource_list};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time after a pod's start during which its CPU usage counts only while it is ready.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// The time after a pod's start within which it may become ready for the first time.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// The usage of a pod, in thousandths of a unit.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub usage: i64,
    pub at: Timestamp,
    /// The time over which it was measured, which ends at `at`.
    pub window: SignedDuration,
}

/// The relative deviations of the usage from its target, in both directions, that do not cause
/// scaling.
#[derive(Clone, Copy, Debug)]
pub struct Tolerances {
    pub down: f64,
    pub up: f64,
}

impl Tolerances {
    fn is_within(&self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The target of the usage.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Percent of the requests.
    Utilization(i32),
    /// The mean of all pods, in thousandths.
    AverageValue(i64),
}

/// A proposal by one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    pub replicas: i32,
    /// The utilization in percent, if that is the target.
    pub utilization: Option<i32>,
    /// The mean usage, in thousandths.
    pub average: i64,
}

/// The pods of a target and their usage of one resource.
pub struct Usage<'a> {
    /// The resource; empty for a metric of the pods themselves.
    pub resource: &'a str,
    /// The container; None for the sum of all containers.
    pub container: Option<&'a str>,
    pub pods: &'a [Arc<Pod>],
    pub samples: BTreeMap<String, Sample>,
    pub now: Timestamp,
}

#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Usage<'_> {
    /// Computes the recommended number of replicas.
    ///
    /// # Errors
    /// The reason why it cannot be computed, in kube-controller-manager's words.
    pub fn replicas(&self, current: i32, target: Target, tolerances: Tolerances) -> Result<Proposal, String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = self.group();
        let is_out = |name: &String| groups.ignored.contains(name) || groups.unready.contains(name);
        let used = self.samples.iter().filter(|(name, _)| !is_out(name));
        let mut used: BTreeMap<&str, i64> =
            used.map(|(name, sample)| (name.as_str(), sample.usage)).collect();
        if used.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let requests = match target {
            Target::Utilization(_) => self.requests()?,
            Target::AverageValue(_) => BTreeMap::new(),
        };
        let (ratio, utilization, average) = ratio(&used, &requests, target)?;
        let propose = |replicas| Ok(Proposal { replicas, utilization, average });
        let scales_up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !scales_up_with_unready && groups.missing.is_empty() {
            return match tolerances.is_within(ratio) {
                true => propose(current),
                false => propose(rounded_up(ratio, groups.ready)),
            };
        }
        if ratio != 1.0 {
            for name in &groups.missing {
                let assumed = match target {
                    _ if ratio > 1.0 => 0,
                    Target::Utilization(percent) => {
                        let request = requests.get(name.as_str()).copied().unwrap_or(0);
                        request.saturating_mul(percent.max(100).into()) / 100
                    }
                    Target::AverageValue(value) => value,
                };
                used.insert(name, assumed);
            }
        }
        if scales_up_with_unready {
            used.extend(groups.unready.iter().map(|name| (name.as_str(), 0)));
        }
        let (new_ratio, ..) = self::ratio(&used, &requests, target)?;
        let replicas = rounded_up(new_ratio, used.len());
        let turns = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        let is_against = (new_ratio < 1.0 && replicas > current) || (new_ratio > 1.0 && replicas < current);
        match tolerances.is_within(new_ratio) || turns || is_against {
            true => propose(current),
            false => propose(replicas),
        }
    }

    fn group(&self) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() || phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else {
                match self.samples.get(&name) {
                    None => {
                        groups.missing.insert(name);
                    }
                    Some(sample) if self.resource == "cpu" && is_unready(pod, sample, self.now) => {
                        groups.unready.insert(name);
                    }
                    Some(_) => groups.ready += 1,
                }
            }
        }
        groups
    }

    /// Returns the sum of each pod's requests, in thousandths.
    fn requests(&self) -> Result<BTreeMap<&str, i64>, String> {
        let mut requests = BTreeMap::new();
        for pod in self.pods {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let Some(spec) = &pod.spec else { continue };
            let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
            let mut sum: i64 = 0;
            for container in spec.containers.iter().chain(sidecars) {
                if self.container.is_some_and(|only| only != container.name) {
                    continue;
                }
                let of = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
                let list = resource_list(of);
                if !list.contains_key(self.resource) {
                    let (resource, container) = (self.resource, &container.name);
                    return Err(format!(
                        "missing request for {resource} in container {container} of Pod {name}"
                    ));
                }
                sum = sum.saturating_add(amount(&list, self.resource).milli_value());
            }
            requests.insert(name, sum);
        }
        Ok(requests)
    }
}

/// Returns `true` if the CPU usage of a pod does not count, since the pod has just started or was
/// never ready.
fn is_unready(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let ready = conditions(pod).find(|condition| condition.type_ == "Ready");
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(ready), Some(started)) = (ready, started) else { return true };
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let after = |time: Timestamp, by| time.saturating_add(by).unwrap_or(Timestamp::MAX);
    let is_not_ready = ready.status == "False";
    match after(started, CPU_INITIALIZATION) > now {
        true => is_not_ready || sample.at < after(changed, sample.window),
        false => is_not_ready && after(started, INITIAL_READINESS) > changed,
    }
}

/// Returns the ratio of the usage to the target, the utilization in percent if that is the target,
/// and the mean usage.
fn ratio(
    used: &BTreeMap<&str, i64>,
    requests: &BTreeMap<&str, i64>,
    target: Target,
) -> Result<(f64, Option<i32>, i64), String> {
    match target {
        Target::AverageValue(value) => {
            let sum: i64 = used.values().fold(0, |sum, usage| sum.saturating_add(*usage));
            let mean = sum / i64::try_from(used.len().max(1)).unwrap_or(1);
            Ok((mean as f64 / value as f64, None, mean))
        }
        Target::Utilization(percent) => {
            let known = used.iter().filter_map(|(name, usage)| Some((*usage, *requests.get(name)?)));
            let (count, usage, requested) =
                known.fold((0i64, 0i64, 0i64), |(count, usage, requested), (used, request)| {
                    (count + 1, usage.saturating_add(used), requested.saturating_add(request))
                });
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = i32::try_from(usage.saturating_mul(100) / requested).unwrap_or(i32::MAX);
            Ok((f64::from(utilization) / f64::from(percent), Some(utilization), usage / count.max(1)))
        }
    }
}

/// One value for all pods of a target, in thousandths, as of an object or of another system.
#[derive(Clone, Copy, Debug)]
pub struct Total {
    pub value: i64,
    pub tolerances: Tolerances,
}

impl Total {
    /// Computes the recommended number of replicas, if the value itself has a target, in
    /// thousandths. The ready pods are taken to have caused it.
    ///
    /// # Errors
    /// The reason why it cannot be computed, in kube-controller-manager's words.
    pub fn replicas(self, target: i64, current: i32, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let ratio = self.value as f64 / target as f64;
        if self.tolerances.is_within(ratio) {
            return Ok(current);
        }
        if pods.is_empty() {
            return Err("unable to calculate ready pods: no pods returned by selector while calculating replica count"
                .to_owned());
        }
        let ready = pods.iter().filter(|pod| phase(pod) == "Running" && is_ready(pod)).count();
        Ok(rounded_up(ratio, ready))
    }

    /// Computes the recommended number of replicas, if each of the existing ones may have a share
    /// of the value, in thousandths. Returns the share that each has, too.
    pub fn replicas_by_share(self, target: i64, existing: i32) -> (i32, i64) {
        let share = self.value as f64 / f64::from(existing);
        let replicas = match self.tolerances.is_within(share / target as f64) {
            true => existing,
            false => rounded_up(self.value as f64 / target as f64, 1),
        };
        (replicas, share.ceil() as i64)
    }
}

fn rounded_up(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// Returns a pod that requests 100m. Its state is given by a letter: `r` ready, `u` not ready
    /// since its start, `p` pending, `f` failed, `t` terminating.
    fn pod(index: usize, letter: char) -> Arc<Pod> {
        let phase = match letter {
            'p' => "Pending",
            'f' => "Failed",
            _ => "Running",
        };
        let status = if letter == 'u' { "False" } else { "True" };
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:01Z"});
        let mut pod = json!({
            "metadata": {"name": index.to_string()},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "conditions": [ready]},
        });
        if letter == 't' {
            pod["metadata"]["deletionTimestamp"] = json!(NOW);
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn replicas_follow_one_value() {
        let tolerances = Tolerances { down: 0.1, up: 0.1 };
        let no_pods =
            "unable to calculate ready pods: no pods returned by selector while calculating replica count";
        for (case, pods, value, want) in [
            ("as it should be", "rr", 100, Ok(2)),
            ("within the tolerance", "rr", 109, Ok(2)),
            ("twice as much", "rr", 200, Ok(4)),
            ("pods that are not ready do not count", "rup", 200, Ok(2)),
            ("nothing", "rr", 0, Ok(0)),
            ("too much", "rr", i64::MAX, Ok(i32::MAX)),
            ("no pods", "", 200, Err(no_pods)),
            ("no pods, but the value is right", "", 100, Ok(0)),
        ] {
            let count = i32::try_from(pods.len()).unwrap();
            let pods: Vec<Arc<Pod>> =
                pods.chars().enumerate().map(|(index, letter)| pod(index, letter)).collect();
            let got = Total { value, tolerances }.replicas(100, count, &pods);
            assert_eq!(got, want.map_err(str::to_owned), "{case}");
        }
        for (value, existing, want) in [
            (300, 3, (3, 100)),
            (320, 3, (3, 107)),
            (500, 3, (5, 167)),
            (501, 3, (6, 167)),
            (0, 3, (0, 0)),
            (500, 0, (5, i64::MAX)),
            (i64::MAX, 1, (i32::MAX, i64::MAX)),
        ] {
            let got = Total { value, tolerances }.replicas_by_share(100, existing);
            assert_eq!(got, want, "{value} for {existing}");
        }
    }

    #[test]
    fn replicas_follow_the_usage() {
        use Target::{AverageValue, Utilization};
        let too_few = "did not receive metrics for targeted pods (pods might be unready)";
        for (case, pods, usage, target, want) in [
            ("as it should be", "rr", &[Some(50), Some(50)][..], Utilization(50), Ok(2)),
            ("within the tolerance", "rr", &[Some(54), Some(54)], Utilization(50), Ok(2)),
            ("twice as much", "rr", &[Some(100), Some(100)], Utilization(50), Ok(4)),
            ("rounded up", "rrr", &[Some(60), Some(60), Some(60)], Utilization(50), Ok(4)),
            ("half of it", "rrrr", &[Some(25); 4], Utilization(50), Ok(2)),
            ("by value", "rr", &[Some(90), Some(30)], AverageValue(30), Ok(4)),
            ("ended and terminating pods", "rft", &[Some(100), Some(900), Some(900)], Utilization(50), Ok(2)),
            ("a missing one uses nothing when scaling up", "rr", &[Some(150), None], Utilization(50), Ok(3)),
            ("and all it may when scaling down", "rrr", &[Some(10), Some(10), None], Utilization(50), Ok(3)),
            ("a pending one uses nothing", "rp", &[Some(150), None], Utilization(50), Ok(3)),
            ("one that was never ready", "ru", &[Some(150), Some(900)], Utilization(50), Ok(3)),
            ("none is known", "rr", &[None, None], Utilization(50), Err(too_few)),
        ] {
            let pods: Vec<Arc<Pod>> =
                pods.chars().enumerate().map(|(index, letter)| pod(index, letter)).collect();
            let now: Timestamp = NOW.parse().unwrap();
            let sample = |usage| Sample { usage, at: now, window: SignedDuration::from_secs(30) };
            let samples = usage.iter().enumerate();
            let samples =
                samples.filter_map(|(index, usage)| Some((index.to_string(), sample((*usage)?)))).collect();
            let usage = Usage { resource: "cpu", container: None, pods: &pods, samples, now };
            let current = i32::try_from(pods.len()).unwrap();
            let got = usage.replicas(current, target, Tolerances { down: 0.1, up: 0.1 });
            assert_eq!(got.map(|proposal| proposal.replicas), want.map_err(str::to_owned), "{case}");
        }
    }
}
