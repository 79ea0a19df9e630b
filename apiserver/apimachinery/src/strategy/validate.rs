//! The validation of an object: its metadata, then the rules of its strategy.

use coracle_cel::Meter;
use serde_json::Value;

use super::{Behavior, Part};
use crate::features::FeatureGates;
use crate::field::{Errors, Field};
use crate::validation::metadata::{self, Identity, MetadataChecks};

/// Returns the errors in a new object, which must have its defaults and its name.
///
/// - `meter`: counts what the kind's expressions do.
pub fn create(
    object: &Value,
    behavior: &Behavior,
    namespaced: bool,
    features: &FeatureGates,
    meter: &Meter,
) -> Errors {
    let (object, mut errors) = (Field::root(object), Errors::new());
    let identity = Identity { namespaced, name: behavior.name };
    let is_kind = behavior.strategy.is_kind(&object);
    if is_kind {
        metadata::validate_create(&object, identity, &behavior.metadata, &mut errors);
    }
    behavior.strategy.validate_gated(&object, None, features, &mut errors);
    behavior.strategy.validate(&object, &mut errors);
    behavior.strategy.validate_expressions(&object, None, meter, &mut errors);
    if is_kind {
        metadata::validate_create_generic(&object, identity, &behavior.metadata, &mut errors);
    }
    errors
}

/// Returns the errors in a changed object, which has been defaulted and prepared.
pub fn update(
    new: &Value,
    old: &Value,
    behavior: &Behavior,
    namespaced: bool,
    features: &FeatureGates,
    meter: &Meter,
) -> Errors {
    let mut errors = changed(new, old, behavior, namespaced, behavior.metadata.on_update);
    let (new, old) = (Field::root(new), Field::root(old));
    behavior.strategy.validate_gated(&new, Some(&old), features, &mut errors);
    behavior.strategy.validate_update(&new, &old, &mut errors);
    behavior.strategy.validate_expressions(&new, Some(&old), meter, &mut errors);
    errors
}

/// Returns the errors in an object after an update of its status.
pub fn status_update(
    new: &Value,
    old: &Value,
    behavior: &Behavior,
    namespaced: bool,
    meter: &Meter,
) -> Errors {
    let mut errors = changed(new, old, behavior, namespaced, behavior.metadata.on_status_update);
    let (new, old) = (Field::root(new), Field::root(old));
    behavior.strategy.validate_status_update(&new, &old, &mut errors);
    behavior.strategy.validate_expressions(&new, Some(&old), meter, &mut errors);
    errors
}

/// Returns the errors in an object after an update of another subresource.
pub fn subresource_update(
    part: Part,
    new: &Value,
    old: &Value,
    behavior: &Behavior,
    namespaced: bool,
) -> Errors {
    let mut errors = changed(new, old, behavior, namespaced, behavior.metadata.on_status_update);
    behavior.strategy.validate_subresource_update(part, &Field::root(new), &Field::root(old), &mut errors);
    errors
}

/// Returns the errors in the metadata of a changed object.
pub fn changed(
    new: &Value,
    old: &Value,
    behavior: &Behavior,
    namespaced: bool,
    checks: MetadataChecks,
) -> Errors {
    let mut errors = Errors::new();
    let identity = Identity { namespaced, name: behavior.name };
    let (new, old) = (Field::root(new), Field::root(old));
    if !behavior.strategy.is_kind(&new) {
        return errors;
    }
    metadata::validate_update(&new, &old, identity, behavior.metadata.finalizers, checks, &mut errors);
    errors
}
