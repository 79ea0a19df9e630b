//! Requests to the API: expected errors and preconditions; and requests whose response is not
//! decoded, for writes to thousands of objects without a cache. A response contains the whole
//! object, and half of its bytes are field managers.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Serialize;

/// Creates an object without decoding the response.
///
/// # Errors
/// The errors of [`Api::create`].
pub async fn create<K: Resource + Clone + Serialize>(api: &Api<K>, object: &K) -> kube::Result<()> {
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(api.resource_url()).create(&PostParams::default(), body);
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request_text(request).await.map(drop)
}

/// Deletes an object without decoding the response.
///
/// # Errors
/// The errors of [`Api::delete`].
pub async fn delete<K: Resource + Clone>(
    api: &Api<K>,
    name: &str,
    params: &DeleteParams,
) -> kube::Result<()> {
    let request = Request::new(api.resource_url()).delete(name, params);
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request_text(request).await.map(drop)
}

/// Converts an error with this status code to None.
///
/// # Errors
/// Any other error.
pub fn ignore_status<T>(code: u16, result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(None),
        result => result.map(Some),
    }
}

/// Converts 404 to None: the object does not exist.
///
/// # Errors
/// Any other error.
pub fn ignore_not_found<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore_status(404, result)
}

/// Converts 409 to None: the object exists, is another one, or has changed since it was read.
///
/// # Errors
/// Any other error.
pub fn ignore_conflict<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore_status(409, result)
}

/// Returns delete parameters that match only the object with this uid, not another one of the same
/// name.
pub fn uid_precondition(object: &impl Resource) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams::default().preconditions(preconditions)
}

/// Returns `true` if a create was refused because its namespace is terminating or deleted. A retry
/// would be refused, too.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
