//! References of a HorizontalPodAutoscaler to objects of any kind: its target, and those that a
//! metric describes.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::content;

/// The rule for the apiVersion of a reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// It must have a group.
    OfGroup,
    /// It may be that of the core group.
    Any,
    /// It is not validated.
    Unchecked,
}

/// Validates a reference to an object of any kind, by name.
pub fn validate_reference(reference: &Field<'_>, versions: Versions, errors: &mut Errors) {
    for member in [reference.get("kind"), reference.get("name")] {
        if member.is_empty() {
            errors.push(member.required(""));
        } else {
            errors.invalid_each(&member, content::path_segment(member.str()));
        }
    }
    let version = reference.get("apiVersion");
    if let Err(error) = check_version(version.str(), versions) {
        errors.push(version.invalid(error));
    }
}

/// Checks the apiVersion of a reference. The error is the message.
pub fn check_version(version: &str, versions: Versions) -> Result<(), String> {
    let has_group = version.split_once('/').is_some_and(|(group, _)| !group.is_empty());
    match versions {
        Versions::Unchecked => Ok(()),
        _ if version.matches('/').count() > 1 => Err(format!("unexpected GroupVersion string: {version}")),
        Versions::OfGroup if !has_group => Err("apiVersion must specify API group".to_owned()),
        _ => Ok(()),
    }
}
