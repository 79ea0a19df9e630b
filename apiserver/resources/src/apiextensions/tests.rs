use coracle_apimachinery::field::{Errors, Field};
use serde_json::json;

use super::rules::validate_rules;
use crate::corpus;

#[test]
fn the_group_matches_the_real_server() {
    corpus::check(include_str!("corpus.json"));
}

/// Checks, as in kube-apiserver, that a rule that costs less than a hundredth of the limit is not
/// reported for the total cost.
#[test]
fn cheap_rules_are_not_blamed_for_the_cost_of_all() {
    let rule = json!({"rule": "true", "messageExpression": "'too small: ' + string(self)"});
    let number = json!({"type": "integer", "x-kubernetes-validations": [rule]});
    let schema = json!({"type": "object", "properties": {"a": number}});
    let mut errors = Errors::new();
    validate_rules(&Field::root(&schema), &Errors::new(), &mut errors);
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    let message = "properties[a].x-kubernetes-validations[0].messageExpression";
    assert_eq!(fields, [message, message, ""], "{}", errors.summary());
}
