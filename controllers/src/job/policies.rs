//! Evaluation of `spec.podFailurePolicy` for a failed pod, and of `spec.successPolicy` for
//! succeeded indexes.

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    SuccessPolicyRule,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::indexes::Indexes;

/// The effect of a failed pod on its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The Job fails, with this message.
    FailJob(String),
    /// The index of the pod fails.
    FailIndex,
    /// The failure is not counted.
    Ignore,
    /// The failure is counted by a matching rule.
    Count,
    /// The failure is counted: no rule matches.
    Default,
}

impl FailureAction {
    /// Returns `true` if the failure counts towards the backoff limit.
    pub fn is_counted(&self) -> bool {
        *self != FailureAction::Ignore
    }

    /// Returns the name of the action in the spec, or `None` if no rule matched.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            FailureAction::FailJob(_) => Some("FailJob"),
            FailureAction::FailIndex => Some("FailIndex"),
            FailureAction::Ignore => Some("Ignore"),
            FailureAction::Count => Some("Count"),
            FailureAction::Default => None,
        }
    }
}

/// Returns the action of the first rule that matches a failed pod.
///
/// Source: kube-controller-manager's `pod_failure_policy.go`.
pub fn match_pod_failure_policy(spec: &JobSpec, pod: &Pod) -> FailureAction {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    let matches = rules.enumerate().filter_map(|(index, rule)| {
        let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(requirement), _) => matching_container(requirement, pod),
            (None, Some(patterns)) => matching_condition(patterns, pod),
            (None, None) => None,
        }?;
        match rule.action.as_str() {
            "FailJob" => {
                Some(FailureAction::FailJob(format!("{why} matching FailJob rule at index {index}")))
            }
            "FailIndex" => Some(FailureAction::FailIndex),
            "Ignore" => Some(FailureAction::Ignore),
            "Count" => Some(FailureAction::Count),
            // An action of a later version: the rule is skipped.
            _ => None,
        }
    });
    matches.take(1).next().unwrap_or(FailureAction::Default)
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn matching_container(requirement: &PodFailurePolicyOnExitCodesRequirement, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let (name, code) = statuses
        .filter(|status| requirement.container_name.as_ref().is_none_or(|name| *name == status.name))
        .filter_map(|status| {
            let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
            (code != 0).then_some((&status.name, code))
        })
        .find(|(_, code)| match requirement.operator.as_str() {
            "In" => requirement.values.contains(code),
            "NotIn" => !requirement.values.contains(code),
            _ => false,
        })?;
    Some(format!("Container {name} for pod {} failed with exit code {code}", full_name(pod)))
}

fn matching_condition(patterns: &[PodFailurePolicyOnPodConditionsPattern], pod: &Pod) -> Option<String> {
    let matches = |pattern: &&PodFailurePolicyOnPodConditionsPattern| {
        let status = pattern.status.as_deref().unwrap_or("True");
        coracle_kinds::pods::conditions(pod).any(|c| c.type_ == pattern.type_ && c.status == status)
    };
    let pattern = patterns.iter().find(matches)?;
    Some(format!("Pod {} has condition {}", full_name(pod), pattern.type_))
}

/// Returns the message of the first rule that makes a Job succeed.
pub fn match_success_policy(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    let rules = spec.success_policy.as_ref().map(|policy| &policy.rules)?;
    let is_met = |rule: &SuccessPolicyRule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(indexes), count) => {
            let required = Indexes::parse(indexes, spec.completions.unwrap_or(0));
            required.count_common(succeeded) >= count.unwrap_or(required.len())
        }
        (None, Some(count)) => succeeded.len() >= count,
        (None, None) => false,
    };
    let index = rules.iter().position(is_met).filter(|_| !succeeded.is_empty())?;
    Some(format!("Matched rules at index {index}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(fields: Value) -> JobSpec {
        let mut spec = json!({"template": {}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [1, 2]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [4]}},
            {"action": "FailJob", "onPodConditions": [{"type": "Broken", "status": "True"}]},
        ]);
        let spec = spec(json!({"podFailurePolicy": {"rules": rules}}));
        let fail = |text: &str| FailureAction::FailJob(text.to_owned());
        for (case, codes, init, condition, want) in [
            ("no code", &[("main", 0)][..], &[][..], "", FailureAction::Default),
            ("disrupted", &[("main", 1)], &[], "DisruptionTarget", FailureAction::Ignore),
            (
                "a code of the container",
                &[("main", 2)],
                &[],
                "",
                fail("Container main for pod n/p failed with exit code 2 matching FailJob rule at index 1"),
            ),
            ("of another container", &[("main", 0), ("side", 2)], &[], "", FailureAction::Count),
            ("of an init container", &[("main", 0)], &[("first", 3)], "", FailureAction::FailIndex),
            ("in no rule", &[("main", 4)], &[], "", FailureAction::Default),
            (
                "a condition",
                &[("main", 4)],
                &[],
                "Broken",
                fail("Pod n/p has condition Broken matching FailJob rule at index 4"),
            ),
        ] {
            let statuses = |codes: &[(&str, i32)]| -> Vec<Value> {
                let status = |(name, code): &(&str, i32)| {
                    let state = json!({"terminated": {"exitCode": code}});
                    json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                           "state": state})
                };
                codes.iter().map(status).collect()
            };
            let conditions: Vec<Value> = (!condition.is_empty())
                .then(|| json!({"type": condition, "status": "True"}))
                .into_iter()
                .collect();
            let status = json!({"containerStatuses": statuses(codes), "initContainerStatuses": statuses(init),
                                "conditions": conditions});
            let pod: Pod = serde_json::from_value(
                json!({"metadata": {"name": "p", "namespace": "n"}, "status": status}),
            )
            .unwrap();
            assert_eq!(match_pod_failure_policy(&spec, &pod), want, "{case}");
        }
    }

    #[test]
    fn the_first_met_rule_is_named() {
        for (rules, succeeded, want) in [
            (json!([{"succeededIndexes": "0,2"}]), "0", None),
            (json!([{"succeededIndexes": "0,2"}]), "0-3", Some(0)),
            (json!([{"succeededIndexes": "0-4", "succeededCount": 2}]), "1,7", None),
            (json!([{"succeededIndexes": "0-4", "succeededCount": 2}]), "1,4", Some(0)),
            (json!([{"succeededIndexes": "9"}, {"succeededCount": 2}]), "1,7", Some(1)),
            (json!([{"succeededCount": 0}]), "", None),
        ] {
            let spec = spec(json!({"completions": 10, "successPolicy": {"rules": rules}}));
            let found = match_success_policy(&spec, &Indexes::parse(succeeded, 10));
            assert_eq!(found, want.map(|index: i32| format!("Matched rules at index {index}")), "{rules}");
        }
        assert_eq!(match_success_policy(&spec(json!({"completions": 1})), &Indexes::parse("0", 1)), None);
    }
}
