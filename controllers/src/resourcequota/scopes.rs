//! Scopes, which restrict the objects that a quota counts.

use k8s_openapi::api::core::v1::{ResourceQuotaSpec, ScopedResourceSelectorRequirement};

/// Returns `true` if a quota has no scopes, and so counts all objects.
pub(super) fn are_none(spec: &ResourceQuotaSpec) -> bool {
    all(spec, |_| false)
}

/// Returns `true` if an object is in all scopes of a quota.
pub(super) fn all(
    spec: &ResourceQuotaSpec,
    is_in: impl Fn(&ScopedResourceSelectorRequirement) -> bool,
) -> bool {
    let plain = spec.scopes.iter().flatten().map(|name| ScopedResourceSelectorRequirement {
        operator: "Exists".to_owned(),
        scope_name: name.clone(),
        values: None,
    });
    let selected = spec.scope_selector.iter().flat_map(|selector| &selector.match_expressions).flatten();
    plain.chain(selected.cloned()).all(|scope| is_in(&scope))
}

/// Returns `true` if a scope selects one of these names. An empty or absent name does not count as
/// one; `DoesNotExist` and `NotIn` also select an object without any name.
pub(super) fn selects(scope: &ScopedResourceSelectorRequirement, names: &[Option<&str>]) -> bool {
    let listed = |name: &str| scope.values.iter().flatten().any(|value| value == name);
    let mut present = names.iter().flatten().filter(|name| !name.is_empty()).peekable();
    let none = present.peek().is_none();
    match scope.operator.as_str() {
        "Exists" => !none,
        "DoesNotExist" => none,
        "In" => present.any(|name| listed(name)),
        "NotIn" => none || present.any(|name| !listed(name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_are_selected() {
        for (operator, names, want) in [
            ("Exists", vec![None, Some("high")], true),
            ("Exists", vec![Some("")], false),
            ("DoesNotExist", vec![None], true),
            ("In", vec![Some("high")], true),
            ("In", vec![Some("low")], false),
            ("In", vec![None], false),
            ("NotIn", vec![Some("high")], false),
            ("NotIn", vec![Some("low")], true),
            ("NotIn", vec![None], true),
        ] {
            let scope = json!({"operator": operator, "scopeName": "PriorityClass", "values": ["high"]});
            assert_eq!(
                selects(&serde_json::from_value(scope).unwrap(), &names),
                want,
                "{operator} {names:?}"
            );
        }
    }
}
