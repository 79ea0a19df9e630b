//! Validation: the rules that an object must satisfy before it is stored, those of metadata and of the kind together,
//! in the real server's order.
//!
//! Start at [`create`], [`update`], [`status_update`] and [`subresource_update`]. The other modules hold the rules
//! that many kinds share.

pub mod conditions;
pub mod content;
pub mod immutable;
pub mod ip;
pub mod labels;
pub mod member;
pub mod metadata;
pub mod node_selector;
pub mod numbers;
pub mod paths;
pub mod printed;
pub mod resource_list;
pub mod volume_sources;
pub mod webhook;

use serde_json::Value;

use crate::field::{Errors, Field};
use crate::resources::Behaviour;
use metadata::{Identity, MetadataChecks};

/// The errors in a new object, which is defaulted and prepared and has its name.
pub fn create(object: &Value, behaviour: &Behaviour, namespaced: bool) -> Errors {
    let (object, mut errors) = (Field::root(object), Errors::new());
    let identity = Identity { namespaced, name: behaviour.name };
    metadata::validate_create(&object, identity, &behaviour.metadata, &mut errors);
    behaviour.strategy.validate(&object, &mut errors);
    metadata::validate_create_generic(&object, namespaced, &mut errors);
    errors
}

/// The errors in a changed object, which is defaulted and prepared.
pub fn update(new: &Value, old: &Value, behaviour: &Behaviour, namespaced: bool) -> Errors {
    let mut errors = changed(new, old, behaviour, namespaced, behaviour.metadata.on_update);
    behaviour.strategy.validate_update(&Field::root(new), &Field::root(old), &mut errors);
    errors
}

/// The errors in an object after an update of its status.
pub fn status_update(new: &Value, old: &Value, behaviour: &Behaviour, namespaced: bool) -> Errors {
    let mut errors = changed(new, old, behaviour, namespaced, behaviour.metadata.on_status_update);
    behaviour.strategy.validate_status_update(&Field::root(new), &Field::root(old), &mut errors);
    errors
}

/// The errors in an object after an update of another subresource.
pub fn subresource_update(
    part: &str,
    new: &Value,
    old: &Value,
    behaviour: &Behaviour,
    namespaced: bool,
) -> Errors {
    let mut errors = changed(new, old, behaviour, namespaced, behaviour.metadata.on_status_update);
    behaviour.strategy.validate_subresource_update(part, &Field::root(new), &Field::root(old), &mut errors);
    errors
}

fn changed(
    new: &Value,
    old: &Value,
    behaviour: &Behaviour,
    namespaced: bool,
    checks: MetadataChecks,
) -> Errors {
    let mut errors = Errors::new();
    let identity = Identity { namespaced, name: behaviour.name };
    let (new, old) = (Field::root(new), Field::root(old));
    metadata::validate_update(&new, &old, identity, behaviour.metadata.finalizers, checks, &mut errors);
    errors
}
