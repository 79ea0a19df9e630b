//! Binding: binds a pod to a node. It is posted and never stored.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;

/// The strategy of Binding.
pub struct BindingStrategy;

impl Strategy for BindingStrategy {
    fn validate(&self, binding: &Field<'_>, errors: &mut Errors) {
        let (kind, node) = (binding.walk("target.kind"), binding.walk("target.name"));
        let known = kind.is_empty() || kind.str() == "Node";
        errors.push_if(!known, || kind.not_supported(&["Node", "<empty>"]));
        errors.push_if(node.is_empty(), || node.required(""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_nodes_are_valid_targets() {
        for (case, target, want) in [
            ("a node", json!({"name": "n"}), vec![]),
            ("nothing", json!({}), vec!["target.name: Required value"]),
            (
                "a pod",
                json!({"kind": "Pod", "name": "n"}),
                vec![r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#],
            ),
        ] {
            let mut errors = Errors::new();
            BindingStrategy.validate(&Field::root(&json!({ "target": target })), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{case}");
        }
    }
}
