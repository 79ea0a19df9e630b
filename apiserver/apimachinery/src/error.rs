//! The errors of requests, and the `metav1.Status` that the client gets for them.
//!
//! One enum for the crate. Clients and people match on the texts, so each variant has
//! kube-apiserver's; causes that only the operator may see (a broken disk, a bug) are logged, and
//! the response is a plain internal error.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::field::{Errors, quote};
use crate::names::{GroupKind, GroupResource};

/// The result of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request that failed. Only [`Error::Conflict`] and [`Error::TooManyRequests`] can be cured by a
/// retry.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.message())]
pub enum Error {
    /// No such object.
    NotFound {
        /// The plural, with its group.
        resource: GroupResource,
        /// The requested name.
        name: String,
    },
    /// The path names no resource or version that is served.
    UnknownResource,
    /// The path is outside of any API: the response is plain text.
    PageNotFound,
    /// The name of a new object is taken.
    AlreadyExists {
        /// The plural, with its group.
        resource: GroupResource,
        /// The name that is taken.
        name: String,
    },
    /// The name of a new object is taken by an object that is terminating.
    BeingDeleted {
        /// The plural, with its group.
        resource: GroupResource,
        /// The object's name.
        name: String,
    },
    /// Every generated name that was tried is taken, or the name of an object that has a base for
    /// generated ones, too.
    GenerateNameConflict {
        /// The plural, with its group.
        resource: GroupResource,
        /// The last name that was tried.
        name: String,
    },
    /// Optimistic concurrency or a precondition failed. `what` is the plural resource, or for
    /// deletes the Kind.
    Conflict {
        /// The plural with its group, or for deletes the kind as printed.
        what: GroupResource,
        /// The object's name.
        name: String,
        /// The failed expectation, as a sentence without a full stop.
        detail: String,
    },
    /// The object violates the validation rules of its kind.
    Invalid {
        /// The kind with its group.
        kind: GroupKind,
        /// The object's name; empty if it has none.
        name: String,
        /// The violations, in the order in which they are reported.
        errors: Box<Errors>,
    },
    /// The operations of a patch cannot be applied; as in kube-apiserver the response has no
    /// details.
    Unprocessable,
    /// The user or the object is not allowed. With `resource`: `RES "NAME" is forbidden: DETAIL`,
    /// else `forbidden: DETAIL`.
    Forbidden {
        /// The plural with its group, or None for a path outside of resources.
        resource: Option<GroupResource>,
        /// The object's name; empty for a request about none.
        name: String,
        /// The reason, without the prefix.
        detail: String,
        /// The entries of `details.causes`.
        causes: Vec<Cause>,
    },
    /// 400 with this message.
    BadRequest(String),
    /// 401: the credentials are missing or wrong.
    Unauthorized,
    /// 405 for a method that the path does not have.
    MethodNotAllowed,
    /// A verb that the resource does not support (`create is not supported on resources of kind
    /// "x"`).
    MethodNotSupported {
        /// The plural, with its group.
        resource: GroupResource,
        /// The verb in lower case, such as `create`.
        action: String,
    },
    /// 406 with this message: no representation that the client accepts.
    NotAcceptable(String),
    /// 415 with this message: a body in an unknown format.
    UnsupportedMediaType(String),
    /// 413; the text names the part that is too large, without the prefix.
    TooLarge(String),
    /// A revision or continue token older than the compact revision. With `fresh_continue` a client
    /// may continue the list at a newer revision, which makes it inconsistent.
    Expired {
        /// The message as a whole.
        message: String,
        /// The token for `metadata.continue`, if the list can go on.
        fresh_continue: Option<String>,
    },
    /// 429: the client shall try again later.
    TooManyRequests {
        /// The message as a whole.
        message: String,
        /// Seconds until the next try makes sense; 0 leaves the hint out.
        retry_after: u32,
        /// The entries of `details.causes`.
        causes: Vec<Cause>,
    },
    /// The requested revision has not been reached in time.
    TooLargeResourceVersion {
        /// The revision in the request.
        asked: u64,
        /// The store's newest revision.
        current: u64,
    },
    /// 504; the text names the operation that took too long, without the prefix.
    Timeout(String),
    /// 503 with this message.
    ServiceUnavailable(String),
    /// An error of the client that kube-apiserver reports as 500 without a reason.
    Unclassified(String),
    /// An error of the server; it is logged where it occurs.
    Internal(String),
    /// A complete Status, for example of an admission plugin, returned as it is.
    Status(Box<Status>),
}

/// One entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    /// A `metav1.CauseType`, such as `FieldValueInvalid`; empty for none.
    pub reason: String,
    /// The text for people.
    pub message: String,
    /// The path of the field that caused it, such as `spec.ports[0].name`; empty for none.
    pub field: String,
}

/// A failure as the client receives it (`metav1.Status`).
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// A `metav1.StatusReason`, such as `NotFound`; empty for an unknown one.
    pub reason: Cow<'static, str>,
    /// The text for people; clients print it.
    pub message: String,
    /// None omits the member `details`; an empty object keeps it.
    pub details: Option<Value>,
    /// `metadata.continue`, for expired lists.
    pub continue_token: Option<String>,
}

impl Status {
    /// Returns the JSON document.
    pub fn to_value(&self) -> Value {
        let mut status = Map::new();
        status.insert("kind".into(), "Status".into());
        status.insert("apiVersion".into(), "v1".into());
        let metadata = self.continue_token.as_ref().map_or(json!({}), |token| json!({"continue": token}));
        status.insert("metadata".into(), metadata);
        status.insert("status".into(), "Failure".into());
        if !self.message.is_empty() {
            status.insert("message".into(), self.message.clone().into());
        }
        if !self.reason.is_empty() {
            status.insert("reason".into(), self.reason.as_ref().into());
        }
        if let Some(details) = &self.details {
            status.insert("details".into(), details.clone());
        }
        status.insert("code".into(), self.code.into());
        Value::Object(status)
    }
}

impl Error {
    /// Returns a 400 error with this message.
    pub fn bad_request(message: impl Into<String>) -> Error {
        Error::BadRequest(message.into())
    }

    /// Returns an error with this code, reason and message, and no details.
    pub fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Error {
        Error::Status(Box::new(Status {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
        }))
    }

    /// Returns a 429 error, for a limit of the client or of the server that is reached at the
    /// moment.
    pub fn too_many_requests() -> Error {
        Error::TooManyRequests {
            message: "Too many requests, please try again later.".to_owned(),
            retry_after: 1,
            causes: Vec::new(),
        }
    }

    /// Returns a 404 error for an object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Error {
        Error::NotFound { resource: resource.clone(), name: name.to_owned() }
    }

    /// Returns a 422 error for an object that breaks the rules of its kind.
    pub fn invalid(kind: &GroupKind, name: &str, errors: Errors) -> Error {
        Error::Invalid { kind: kind.clone(), name: name.to_owned(), errors: Box::new(errors) }
    }

    /// Returns a 403 error for an object; `name` may be empty. The message is `RES "NAME" is
    /// forbidden: DETAIL`.
    pub fn forbidden(resource: &GroupResource, name: &str, detail: impl Into<String>) -> Error {
        Error::Forbidden {
            resource: Some(resource.clone()),
            name: name.to_owned(),
            detail: detail.into(),
            causes: Vec::new(),
        }
    }

    /// Returns a 409 error for an object. The message is `Operation cannot be fulfilled on WHAT
    /// "NAME": DETAIL`.
    pub fn conflict(what: &GroupResource, name: &str, detail: impl Into<String>) -> Error {
        Error::Conflict { what: what.clone(), name: name.to_owned(), detail: detail.into() }
    }

    /// Returns a 409 error for an object that has changed since the client read it.
    pub fn modified(what: &GroupResource, name: &str) -> Error {
        Error::conflict(
            what,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Error::NotFound { .. } | Error::UnknownResource | Error::PageNotFound => 404,
            Error::AlreadyExists { .. }
            | Error::BeingDeleted { .. }
            | Error::GenerateNameConflict { .. }
            | Error::Conflict { .. } => 409,
            Error::Invalid { .. } | Error::Unprocessable => 422,
            Error::Forbidden { .. } => 403,
            Error::BadRequest(_) => 400,
            Error::Unauthorized => 401,
            Error::MethodNotAllowed | Error::MethodNotSupported { .. } => 405,
            Error::NotAcceptable(_) => 406,
            Error::UnsupportedMediaType(_) => 415,
            Error::TooLarge(_) => 413,
            Error::Expired { .. } => 410,
            Error::TooManyRequests { .. } => 429,
            Error::TooLargeResourceVersion { .. } | Error::Timeout(_) => 504,
            Error::ServiceUnavailable(_) => 503,
            Error::Unclassified(_) | Error::Internal(_) => 500,
            Error::Status(status) => status.code,
        }
    }

    fn reason(&self) -> Cow<'static, str> {
        let reason = match self {
            Error::NotFound { .. } | Error::UnknownResource | Error::PageNotFound => "NotFound",
            Error::AlreadyExists { .. } | Error::BeingDeleted { .. } | Error::GenerateNameConflict { .. } => {
                "AlreadyExists"
            }
            Error::Conflict { .. } => "Conflict",
            Error::Invalid { .. } | Error::Unprocessable => "Invalid",
            Error::Forbidden { .. } => "Forbidden",
            Error::BadRequest(_) => "BadRequest",
            Error::Unauthorized => "Unauthorized",
            Error::MethodNotAllowed | Error::MethodNotSupported { .. } => "MethodNotAllowed",
            Error::NotAcceptable(_) => "NotAcceptable",
            Error::UnsupportedMediaType(_) => "UnsupportedMediaType",
            Error::TooLarge(_) => "RequestEntityTooLarge",
            Error::Expired { .. } => "Expired",
            Error::TooManyRequests { .. } => "TooManyRequests",
            Error::TooLargeResourceVersion { .. } | Error::Timeout(_) => "Timeout",
            Error::ServiceUnavailable(_) => "ServiceUnavailable",
            Error::Unclassified(_) => "",
            Error::Internal(_) => "InternalError",
            Error::Status(status) => return status.reason.clone(),
        };
        reason.into()
    }

    fn message(&self) -> String {
        match self {
            Error::NotFound { resource, name } => format!("{resource} {} not found", quote(name)),
            Error::UnknownResource => "the server could not find the requested resource".into(),
            Error::PageNotFound => "404 page not found".into(),
            Error::AlreadyExists { resource, name } => format!("{resource} {} already exists", quote(name)),
            Error::BeingDeleted { resource, name } => {
                format!("object is being deleted: {resource} {} already exists", quote(name))
            }
            Error::GenerateNameConflict { resource, name } => format!(
                "{resource} {} already exists, the server was not able to generate a unique name for the object",
                quote(name)
            ),
            Error::Conflict { what, name, detail } => {
                format!("Operation cannot be fulfilled on {what} {}: {detail}", quote(name))
            }
            Error::Invalid { kind, name, errors } if errors.is_empty() => {
                format!("{kind} {} is invalid", quote(name))
            }
            Error::Invalid { kind, name, errors } => {
                format!("{kind} {} is invalid: {}", quote(name), errors.summary())
            }
            Error::Unprocessable => "the server rejected our request due to an error in our request".into(),
            Error::Forbidden { resource: None, detail, .. } => format!("forbidden: {detail}"),
            Error::Forbidden { resource: Some(resource), name, detail, .. } if name.is_empty() => {
                format!("{resource} is forbidden: {detail}")
            }
            Error::Forbidden { resource: Some(resource), name, detail, .. } => {
                format!("{resource} {} is forbidden: {detail}", quote(name))
            }
            Error::Unauthorized => "Unauthorized".into(),
            Error::MethodNotAllowed => {
                "the server does not allow this method on the requested resource".into()
            }
            Error::MethodNotSupported { resource, action } => {
                format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()))
            }
            Error::TooLarge(detail) => format!("Request entity too large: {detail}"),
            Error::TooLargeResourceVersion { asked, current } => {
                format!("Timeout: Too large resource version: {asked}, current: {current}")
            }
            Error::Timeout(detail) => format!("Timeout: {detail}"),
            Error::Internal(cause) => format!("Internal error occurred: {cause}"),
            Error::BadRequest(message)
            | Error::NotAcceptable(message)
            | Error::UnsupportedMediaType(message)
            | Error::Expired { message, .. }
            | Error::TooManyRequests { message, .. }
            | Error::ServiceUnavailable(message)
            | Error::Unclassified(message) => message.clone(),
            Error::Status(status) => status.message.clone(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Error::NotFound { resource, name }
            | Error::AlreadyExists { resource, name }
            | Error::BeingDeleted { resource, name }
            | Error::Conflict { what: resource, name, .. } => {
                Some(details(name, &resource.group, &resource.resource, vec![]))
            }
            Error::GenerateNameConflict { resource, name } => {
                let mut d = details(name, &resource.group, &resource.resource, vec![]);
                d["retryAfterSeconds"] = 1.into();
                Some(d)
            }
            Error::Invalid { kind, name, errors } => {
                let causes = errors
                    .iter()
                    .map(|e| Cause {
                        reason: e.error_type.reason().into(),
                        message: e.body(),
                        field: e.field.clone(),
                    })
                    .collect();
                Some(details(name, &kind.group, &kind.kind, causes))
            }
            Error::Forbidden { resource: Some(resource), name, causes, .. } => {
                Some(details(name, &resource.group, &resource.resource, causes.clone()))
            }
            Error::MethodNotSupported { resource, .. } => {
                Some(details("", &resource.group, &resource.resource, vec![]))
            }
            Error::UnknownResource
            | Error::Unprocessable
            | Error::MethodNotAllowed
            | Error::Forbidden { resource: None, .. } => Some(json!({})),
            Error::TooManyRequests { retry_after, causes, .. } => {
                let mut d = details("", "", "", causes.clone());
                if *retry_after > 0 {
                    d["retryAfterSeconds"] = (*retry_after).into();
                }
                Some(d)
            }
            Error::TooLargeResourceVersion { .. } => {
                let cause = Cause {
                    reason: "ResourceVersionTooLarge".into(),
                    message: "Too large resource version".into(),
                    field: String::new(),
                };
                let mut d = details("", "", "", vec![cause]);
                d["retryAfterSeconds"] = 1.into();
                Some(d)
            }
            Error::Timeout(_) => Some(json!({})),
            Error::Internal(cause) => {
                Some(details("", "", "", vec![Cause { message: cause.clone(), ..Cause::default() }]))
            }
            Error::Status(status) => status.details.clone(),
            Error::PageNotFound
            | Error::BadRequest(_)
            | Error::Unauthorized
            | Error::NotAcceptable(_)
            | Error::UnsupportedMediaType(_)
            | Error::TooLarge(_)
            | Error::Expired { .. }
            | Error::ServiceUnavailable(_)
            | Error::Unclassified(_) => None,
        }
    }

    /// Returns the failure as the client receives it.
    pub fn status(&self) -> Status {
        let continue_token = match self {
            Error::Expired { fresh_continue, .. } => fresh_continue.clone(),
            Error::Status(status) => status.continue_token.clone(),
            _ => None,
        };
        Status {
            code: self.code(),
            reason: self.reason(),
            message: self.message(),
            details: self.details(),
            continue_token,
        }
    }
}

/// Returns `details` without its empty members.
fn details(name: &str, group: &str, kind: &str, causes: Vec<Cause>) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.into(), value.into());
        }
    }
    if !causes.is_empty() {
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|cause| {
                let mut entry = Map::new();
                for (key, value) in
                    [("reason", cause.reason), ("message", cause.message), ("field", cause.field)]
                {
                    if !value.is_empty() {
                        entry.insert(key.into(), value.into());
                    }
                }
                Value::Object(entry)
            })
            .collect();
        details.insert("causes".into(), causes.into());
    }
    Value::Object(details)
}
