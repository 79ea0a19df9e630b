//! PriorityClass. Its value is immutable; names that begin with `system-` are reserved for the two
//! system classes.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::strategy::defaulting::fill;
use coracle_apimachinery::validation::immutable::immutable;
use serde_json::{Value, json};

const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
/// The system classes and their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// The strategy of PriorityClass.
pub struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            fill(object, [("preemptionPolicy", json!("PreemptLowerPriority"))]);
        }
    }

    fn validate_delete(&self, name: &str) -> Option<&'static str> {
        let system = SYSTEM_CLASSES.iter().any(|(known, _)| *known == name);
        system.then_some("this is a system priority class and cannot be deleted")
    }

    /// Returns false: the generation stays the initial one, as in kube-apiserver.
    fn is_new_generation(&self, _: &Value, _: &Value) -> bool {
        false
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let (name, value) = (object.walk("metadata.name"), object.get("value"));
        if name.str().starts_with(SYSTEM_PREFIX) {
            if let Err(error) = check_system_class(object) {
                errors.push(name.forbidden(format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {error}"
                )));
            }
        } else {
            errors.push_if(value.int().is_some_and(|value| value > HIGHEST_OF_USERS), || {
                value.forbidden(format!(
                    "maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"
                ))
            });
        }
        let policy = object.get("preemptionPolicy");
        match policy.str() {
            "PreemptLowerPriority" | "Never" => {}
            "" => errors.push_if(policy.exists(), || policy.required("")),
            _ => errors.push(policy.not_supported(&["PreemptLowerPriority", "Never"])),
        }
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let value = |object: &Field<'_>| object.get("value").int().unwrap_or(0);
        errors.push_if(value(object) != value(old), || {
            object.get("value").forbidden("may not be changed in an update.")
        });
        immutable(&object.get("preemptionPolicy"), &old.get("preemptionPolicy"), errors);
    }
}

fn check_system_class(class: &Field<'_>) -> Result<(), String> {
    let name = class.walk("metadata.name").str();
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    if class.get("value").int() != Some(*value) {
        return Err(format!("value of {name} PriorityClass must be {value}"));
    }
    if class.get("globalDefault").bool() {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}
