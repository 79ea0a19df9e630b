//! The endpoints below `/coracle/v1alpha1/`, by which tests see what no Kubernetes API has.
//!
//! | path | |
//! | --- | --- |
//! | `GET clock` | the time of the control plane, and the timers that it waits for: [`ClockStatus`] |
//!
//! They are no resources: RBAC guards them by `nonResourceURLs`, and discovery and OpenAPI do not have them. [`guard`] keeps web pages
//! from using the credentials of the browser that shows them.
#![warn(missing_docs)]

mod clock;
mod guard;

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::serve::{Body, PathRequest, Paths};
use coracle_clock::Clock;
use http::{HeaderValue, Method, Response, header};

pub use clock::{ClockMode, ClockStatus, NextTimer};

/// The prefix of all paths.
pub const PREFIX: &str = "/coracle/v1alpha1/";

/// The endpoints of a control plane.
///
/// - `clock`: its clock
/// - `names`: the names of the server, beside `localhost` and its addresses
pub fn paths(clock: Clock, names: Vec<String>) -> Paths {
    Paths { prefix: PREFIX, respond: Arc::new(move |request| respond(&clock, &names, &request)) }
}

fn respond(clock: &Clock, names: &[String], request: &PathRequest<'_>) -> Result<Response<Body>> {
    guard::check(request, names)?;
    match (&request.parts.method, request.path.strip_prefix(PREFIX)) {
        (&Method::GET, Some("clock")) => json(&ClockStatus::of(clock, ClockStatus::limit(request.query)?)),
        (_, Some("clock")) => Err(Error::MethodNotAllowed),
        _ => Err(Error::PageNotFound),
    }
}

fn json(value: &impl serde::Serialize) -> Result<Response<Body>> {
    let text = serde_json::to_vec(value).map_err(|error| Error::Internal(error.to_string()))?;
    let mut response = Response::new(Body::from(Bytes::from(text)));
    for (name, value) in [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
