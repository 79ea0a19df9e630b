//! Requests to the API: expected errors, preconditions.

use kube::Resource;
use kube::api::{DeleteParams, Preconditions};

/// None instead of an error with this status code.
///
/// # Errors
/// Any other error.
pub fn ignore_status<T>(code: u16, result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(None),
        result => result.map(Some),
    }
}

/// None instead of 404: the object does not exist.
///
/// # Errors
/// Any other error.
pub fn ignore_not_found<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore_status(404, result)
}

/// None instead of 409: the object exists, is another one, or has changed since it was read.
///
/// # Errors
/// Any other error.
pub fn ignore_conflict<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore_status(409, result)
}

/// Parameters that delete this object, and no other of its name.
pub fn uid_precondition(object: &impl Resource) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams::default().preconditions(preconditions)
}

/// Whether a create was refused because its namespace is terminating or deleted. Trying again is of no use then.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
