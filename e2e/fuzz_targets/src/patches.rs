//! Patches: the result is within the limits, and is what the patch says.

use coracle_apimachinery::codec::json;
use coracle_apimachinery::patch::{json as json_patch, merge, strategic};
use serde_json::{Map, Value, json};

use crate::{assert_within_limits, document, parts, type_of};

/// Tests an object and a JSON patch: the result passes a `test` of itself, and a `test` of anything
/// else refuses it.
pub fn json_patch(data: &[u8]) -> bool {
    let Some([target, patch]) = parts(data) else { return false };
    let (Some(target), Some(patch)) = (document(target), document(patch)) else { return false };
    json_patch::unknown_fields(&patch);
    let explained = json_patch::apply_or_explain(target.clone(), &patch);
    let patched = json_patch::apply(target.clone(), &patch);
    assert_eq!(explained.is_ok(), patched.is_ok(), "both of {explained:?} and {patched:?}");
    let Ok(object) = patched else { return false };
    assert_eq!(explained, Ok(object.clone()));
    assert_within_limits(&object);
    let Value::Array(mut operations) = patch else { return false };
    operations.push(json!({"op": "test", "path": "", "value": object}));
    let again = json_patch::apply(target.clone(), &Value::Array(operations.clone()));
    assert!(again.is_ok_and(|again| again == object), "{operations:?} of {target}");
    operations.push(json!({"op": "test", "path": "", "value": [object]}));
    assert!(json_patch::apply(target, &Value::Array(operations)).is_err(), "another value passes the test");
    true
}

/// Tests an object and a merge patch: merging twice is merging once.
pub fn merge_patch(data: &[u8]) -> bool {
    let Some([target, patch]) = parts(data) else { return false };
    let (Some(target), Some(patch)) = (document(target), document(patch)) else { return false };
    let Ok(once) = merge::apply(target, patch.clone()) else { return false };
    assert_within_limits(&once);
    let Ok(twice) = merge::apply(once.clone(), patch) else { panic!("the patch applies only once") };
    assert_eq!(without_nulls(twice), without_nulls(once));
    true
}

/// Tests an object of a built-in kind and a strategic merge patch: the result is an object that
/// decodes or a refusal, and merging an object into itself changes nothing.
pub fn strategic_merge_patch(data: &[u8]) -> bool {
    let Some([target, patch]) = parts(data) else { return false };
    let (Some(target), Some(patch)) = (document(target), document(patch)) else { return false };
    let Some(id) = type_of(&target) else { return false };
    let Ok(target) = json::normalize(&target, id) else { return false };
    let Ok(patched) = strategic::apply(target.value, patch, id) else { return false };
    assert_within_limits(&patched.object);
    let Ok(object) = json::normalize(&patched.object, id) else { return false };
    assert_within_limits(&object.value);
    true
}

/// Removes members that are null, also within lists.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, member)| !member.is_null());
            Value::Object(kept.map(|(name, member)| (name, without_nulls(member))).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
