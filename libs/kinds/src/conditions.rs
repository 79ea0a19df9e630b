//! Changes of some of the conditions in a status, of pods and nodes for example.

use serde::Serialize;
use serde_json::{Value, json};

/// Returns the strategic merge patch of a status that sets conditions. Those that the object has
/// keep their places, and new ones come last, as in the patches of kube-controller-manager. Without
/// the order in it, the server puts new ones first.
///
/// - `known`: the types of the object's conditions
/// - `changed`: the conditions, or of known ones the members that change
pub fn status_patch<'a>(known: impl Iterator<Item = &'a str>, changed: &[impl Serialize]) -> Value {
    let mut changed: Vec<Value> = changed.iter().map(|condition| json!(condition)).collect();
    let mut types: Vec<Value> = known.map(Value::from).collect();
    for condition in &changed {
        if !types.contains(&condition["type"]) {
            types.push(condition["type"].clone());
        }
    }
    // The server refuses a list in another order.
    changed.sort_by_key(|condition| types.iter().position(|known| *known == condition["type"]));
    let order: Vec<Value> = types.iter().map(|known| json!({"type": known})).collect();
    json!({"conditions": changed, "$setElementOrder/conditions": order})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_conditions_keep_their_places_and_new_ones_come_last() {
        for (known, changed, order, sorted) in [
            ("", "A", "A", "A"),
            ("A B", "C", "A B C", "C"),
            ("A B", "A", "A B", "A"),
            ("A B C", "C A", "A B C", "A C"),
            ("A B", "D B C", "A B D C", "B D C"),
        ] {
            let conditions: Vec<Value> =
                changed.split(' ').map(|r#type| json!({"type": r#type, "status": "True"})).collect();
            let patch = status_patch(known.split_whitespace(), &conditions);
            let types = |list: &Value| {
                let types = list.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap());
                types.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(types(&patch["$setElementOrder/conditions"]), order, "{known}: {changed}");
            assert_eq!(types(&patch["conditions"]), sorted, "{known}: {changed}");
            assert!(patch["conditions"].as_array().unwrap().iter().all(|item| item["status"] == "True"));
            assert_eq!(patch["$setElementOrder/conditions"][0].get("status"), None, "only the keys");
        }
    }
}
