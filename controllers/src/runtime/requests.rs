//! Requests to the API: expected errors, preconditions.

use kube::Resource;
use kube::api::{DeleteParams, Preconditions};

/// The answer of the API without the errors of this code: what they say is no news to the caller.
///
/// # Errors
/// Any other error.
pub fn unless<T>(code: u16, answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == code => Ok(None),
        answer => answer.map(Some),
    }
}

/// Deletes this object, and no other of its name.
pub fn only_this(object: &impl Resource) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams::default().preconditions(preconditions)
}

/// Whether a create was refused because the namespace is gone or going, which ends the matter.
pub fn is_namespace_going(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
