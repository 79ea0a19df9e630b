//! Stabilization: computes the number of replicas to set from the recommended one, the
//! recommendations of the last minutes, the rates of `spec.behavior`, and the bounds.
//!
//! Source: kube-controller-manager's `pkg/controller/podautoscaler/horizontal.go`
//! (`normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors`).

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::conditions::Statement;

/// The time for which higher recommendations are followed, in seconds, if `spec.behavior` has no
/// window.
const DOWNSCALE_WINDOW: i32 = 300;

/// The history of an autoscaler, in memory only.
#[derive(Debug, Default)]
pub struct Memory {
    recommendations: Vec<(Timestamp, i32)>,
    /// The numbers of replicas that were added, by time.
    added: Vec<(Timestamp, i32)>,
    removed: Vec<(Timestamp, i32)>,
}

/// The numbers of replicas of one pass.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub current: i32,
    /// The number of replicas that the metrics recommend.
    pub recommended: i32,
    pub min: i32,
    pub max: i32,
    pub now: Timestamp,
}

const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);

impl Memory {
    /// Records the first observed number of replicas as a recommendation.
    pub fn observe_first(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Records that the target was scaled.
    pub fn observe_scaling(
        &mut self,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        from: i32,
        to: i32,
        now: Timestamp,
    ) {
        let Some(behavior) = behavior else { return };
        let (events, rules, by) = match to > from {
            true => (&mut self.added, &behavior.scale_up, to - from),
            false => (&mut self.removed, &behavior.scale_down, from - to),
        };
        let longest = policies(rules.as_ref()).iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
        events.retain(|(at, _)| *at > seconds_before(now, longest));
        events.push((now, by));
    }

    /// Limits a recommendation by the scaling behavior. Returns the number of replicas to set, and
    /// the conditions with the reasons.
    pub fn normalize(
        &mut self,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        request: Request,
    ) -> (i32, [Statement; 2]) {
        let (stabilized, why) = match behavior {
            None => (self.highest_recent(request), DOWN_STABILIZED),
            Some(behavior) => self.stabilized(behavior, request),
        };
        let able = match stabilized == request.recommended {
            true => ("ReadyForNewScale", "recommended size matches current size"),
            false => why,
        };
        let (desired, limit) = match behavior {
            None => within_bounds(request, stabilized),
            Some(behavior) => self.within_rates(behavior, request, stabilized),
        };
        let able = Statement::able_to_scale(true, able.0, able.1);
        (desired, [able, Statement::scaling_limited(desired != stabilized, limit.0, limit.1)])
    }

    fn highest_recent(&mut self, request: Request) -> i32 {
        let cutoff = seconds_before(request.now, DOWNSCALE_WINDOW);
        self.recommendations.retain(|(at, _)| *at >= cutoff);
        let highest = self.recommendations.iter().map(|(_, recommended)| *recommended).max();
        self.recommendations.push((request.now, request.recommended));
        highest.map_or(request.recommended, |highest| highest.max(request.recommended))
    }

    fn stabilized(
        &mut self,
        behavior: &HorizontalPodAutoscalerBehavior,
        request: Request,
    ) -> (i32, (&'static str, &'static str)) {
        let window = |rules: &Option<HPAScalingRules>, default: i32| {
            rules.as_ref().and_then(|rules| rules.stabilization_window_seconds).unwrap_or(default)
        };
        let up_cutoff = seconds_before(request.now, window(&behavior.scale_up, 0));
        let down_cutoff = seconds_before(request.now, window(&behavior.scale_down, DOWNSCALE_WINDOW));
        let (mut up, mut down) = (request.recommended, request.recommended);
        for (at, recommended) in &self.recommendations {
            if *at > up_cutoff {
                up = up.min(*recommended);
            }
            if *at > down_cutoff {
                down = down.max(*recommended);
            }
        }
        self.recommendations.retain(|(at, _)| *at >= up_cutoff || *at >= down_cutoff);
        self.recommendations.push((request.now, request.recommended));
        let why = if request.recommended >= request.current { UP_STABILIZED } else { DOWN_STABILIZED };
        (request.current.max(up).min(down), why)
    }

    fn within_rates(
        &self,
        behavior: &HorizontalPodAutoscalerBehavior,
        request: Request,
        desired: i32,
    ) -> (i32, (&'static str, &'static str)) {
        let Request { current, min, max, .. } = request;
        if desired > current {
            let limit = self.up_limit(behavior.scale_up.as_ref(), request).max(current);
            let (most, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > most {
                return (most, why);
            }
        } else if desired < current {
            let limit = self.down_limit(behavior.scale_down.as_ref(), request).min(current);
            let (least, why) = if min < limit { (limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < least {
                return (least, why);
            }
        }
        (desired, WITHIN)
    }

    fn up_limit(&self, rules: Option<&HPAScalingRules>, request: Request) -> i32 {
        let limits = policies(rules).iter().map(|policy| {
            let base = self.at_period_start(policy, request);
            match policy.type_.as_str() {
                "Pods" => base.saturating_add(policy.value),
                _ => (f64::from(base) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        });
        match select_policy(rules) {
            "Disabled" => request.current,
            "Min" => limits.min().unwrap_or(i32::MAX),
            _ => limits.max().unwrap_or(i32::MIN),
        }
    }

    fn down_limit(&self, rules: Option<&HPAScalingRules>, request: Request) -> i32 {
        let limits = policies(rules).iter().map(|policy| {
            let base = self.at_period_start(policy, request);
            match policy.type_.as_str() {
                "Pods" => base.saturating_sub(policy.value),
                _ => (f64::from(base) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        });
        match select_policy(rules) {
            "Disabled" => request.current,
            // The smallest change has the highest limit.
            "Min" => limits.max().unwrap_or(i32::MIN),
            _ => limits.min().unwrap_or(i32::MAX),
        }
    }

    /// Returns the number of replicas at the start of a policy's period.
    fn at_period_start(&self, policy: &HPAScalingPolicy, request: Request) -> i32 {
        let since = seconds_before(request.now, policy.period_seconds);
        let sum = |events: &[(Timestamp, i32)]| -> i32 {
            events.iter().filter(|(at, _)| *at > since).map(|(_, by)| *by).fold(0, i32::saturating_add)
        };
        request.current.saturating_sub(sum(&self.added)).saturating_add(sum(&self.removed))
    }
}

fn within_bounds(request: Request, desired: i32) -> (i32, (&'static str, &'static str)) {
    let rate = request.current.saturating_mul(2).max(4);
    let (most, why) = if request.max > rate { (rate, UP_LIMIT) } else { (request.max, TOO_MANY) };
    if desired < request.min {
        (request.min, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

fn policies(rules: Option<&HPAScalingRules>) -> &[HPAScalingPolicy] {
    rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default()
}

fn select_policy(rules: Option<&HPAScalingRules>) -> &str {
    rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max")
}

fn seconds_before(now: Timestamp, seconds: i32) -> Timestamp {
    now.saturating_sub(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    /// Runs passes, each at a time in seconds with the current and the recommended number; returns
    /// the numbers set and the reasons.
    fn passes(behavior: Value, bounds: (i32, i32), passes: &[(i64, i32, i32)]) -> Vec<String> {
        let behavior: Option<HorizontalPodAutoscalerBehavior> = serde_json::from_value(behavior).unwrap();
        let mut memory = Memory::default();
        let mut pass = |(second, current, recommended): &(i64, i32, i32)| {
            let now = at(*second);
            let request =
                Request { current: *current, recommended: *recommended, min: bounds.0, max: bounds.1, now };
            memory.observe_first(*current, now);
            let (desired, [able, limited]) = memory.normalize(behavior.as_ref(), request);
            if desired != *current {
                memory.observe_scaling(behavior.as_ref(), *current, desired, now);
            }
            format!("{desired} {} {}", able.reason, limited.reason)
        };
        passes.iter().map(&mut pass).collect()
    }

    #[test]
    fn without_behavior_the_highest_recommendation_of_five_minutes_counts() {
        let got = passes(
            Value::Null,
            (1, 10),
            &[(0, 2, 2), (15, 2, 9), (30, 4, 9), (60, 8, 1), (331, 9, 1), (700, 9, 0), (715, 1, 20)],
        );
        assert_eq!(
            got,
            [
                "2 ReadyForNewScale DesiredWithinRange",
                "4 ReadyForNewScale ScaleUpLimit",
                "8 ReadyForNewScale ScaleUpLimit",
                "9 ScaleDownStabilized DesiredWithinRange",
                "1 ReadyForNewScale DesiredWithinRange",
                "1 ReadyForNewScale TooFewReplicas",
                "4 ReadyForNewScale ScaleUpLimit",
            ]
        );
        assert_eq!(passes(Value::Null, (1, 3), &[(0, 2, 9)]), ["3 ReadyForNewScale TooManyReplicas"]);
    }

    #[test]
    fn behavior_limits_how_fast_and_when_targets_are_scaled() {
        let policy = |kind: &str, value: i32| json!([{"type": kind, "value": value, "periodSeconds": 60}]);
        let up = |rules: Value| json!({"scaleUp": rules, "scaleDown": {"policies": policy("Percent", 100), "stabilizationWindowSeconds": 0}});
        let down = |rules: Value| json!({"scaleDown": rules, "scaleUp": {"policies": policy("Percent", 100), "stabilizationWindowSeconds": 0}});
        for (case, behavior, passes_, want) in [
            (
                "so many pods a minute",
                up(json!({"policies": policy("Pods", 2)})),
                &[(0, 2, 9), (15, 4, 9), (61, 4, 9)][..],
                &[
                    "4 ReadyForNewScale ScaleUpLimit",
                    "4 ReadyForNewScale ScaleUpLimit",
                    "6 ReadyForNewScale ScaleUpLimit",
                ][..],
            ),
            (
                "a share, rounded up",
                up(json!({"policies": policy("Percent", 10)})),
                &[(0, 5, 9)],
                &["6 ReadyForNewScale ScaleUpLimit"],
            ),
            (
                "never",
                up(json!({"policies": policy("Pods", 2), "selectPolicy": "Disabled"})),
                &[(0, 2, 9)],
                &["2 ReadyForNewScale ScaleUpLimit"],
            ),
            (
                "not before the window is over",
                up(json!({"policies": policy("Pods", 20), "stabilizationWindowSeconds": 30})),
                &[(0, 2, 2), (15, 2, 5), (31, 2, 6)],
                &[
                    "2 ReadyForNewScale DesiredWithinRange",
                    "2 ScaleUpStabilized DesiredWithinRange",
                    "5 ScaleUpStabilized DesiredWithinRange",
                ],
            ),
            (
                "down by pods",
                down(json!({"policies": policy("Pods", 1), "stabilizationWindowSeconds": 0})),
                &[(0, 5, 1), (15, 4, 1)],
                &["4 ReadyForNewScale ScaleDownLimit", "4 ReadyForNewScale ScaleDownLimit"],
            ),
            (
                "down after five minutes by default",
                down(json!({"policies": policy("Percent", 100)})),
                &[(0, 5, 5), (15, 5, 1), (330, 5, 1)],
                &[
                    "5 ReadyForNewScale DesiredWithinRange",
                    "5 ScaleDownStabilized DesiredWithinRange",
                    "1 ReadyForNewScale DesiredWithinRange",
                ],
            ),
        ] {
            assert_eq!(passes(behavior, (1, 20), passes_), want, "{case}");
        }
    }
}
