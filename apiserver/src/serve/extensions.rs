//! Requests that are answered by those who know the kinds: POSTs that store no object of the
//! resource in the path, and connections to whatever runs.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::request::Parts;
use http::{HeaderMap, Response};
use serde_json::Value;

use super::api::Api;
use super::body::Body;
use super::completed::ObserveRequests;
use super::proxy::Upstream;
use super::respond;
use super::traffic::Traffic;
use super::upgrade::ServeUpgraded;
use crate::access::UserInfo;
use crate::access::authenticate::Authenticator;
use crate::access::authorize::Authorizer;
use crate::access::jwt::SigningKey;
use crate::codec::body::Expected;
use crate::registry::{Caller, Outcome, Registry, RequestBody, Target, clear_system_fields, fit_namespace};
use crate::request::Verb;
use crate::request::negotiate::Accept;
use crate::request::options::{Query, WriteOptions};
use crate::resource_info::{Connection, Subresource};
use crate::{Error, Result};

/// The parts of a server that know its kinds.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Lists of the POSTs that have answers of their own.
    pub actions: &'static [&'static [ActionDeclaration]],
    /// Handles requests for connections; None if there are no subresources for them.
    pub connect: Option<Connect>,
    /// Coracle's own paths.
    pub paths: Vec<Paths>,
    /// Finds the server of a path that is below another server's address.
    pub below: Option<FindBelow>,
    /// The requests in progress.
    pub traffic: Arc<Traffic>,
    /// Observes all requests.
    pub observer: Option<Arc<dyn ObserveRequests>>,
    /// The reason for which requests that would change an object are refused; None for a server
    /// that takes them.
    pub read_only: Option<&'static str>,
    /// API groups of requests that take long at any size: they take turns with the large ones.
    pub large_groups: &'static [&'static str],
    /// API groups of reviews: a POST of one of them changes nothing.
    pub review_groups: &'static [&'static str],
}

/// Finds the server that a path leads to below this server's address, and the number of bytes of
/// the path that lead there. The server's answer does not depend on this one, but for the
/// connection, and the certificate of the client.
pub type FindBelow = Arc<dyn Fn(&str) -> Option<(Api, usize)> + Send + Sync>;

/// Coracle's own paths. Authorization decides about them as about any path.
#[derive(Clone)]
pub struct Paths {
    /// The beginning of each of them, which begins with one of [`EXTENSION_PATHS`] itself. It ends
    /// in a slash; the path without the slash is one of them.
    pub prefix: &'static str,
    /// Responds to a request.
    pub respond: RespondToPath,
}

/// The beginnings of the paths of all [`Paths`]. A request for one of them lasts as long as it
/// needs, has a body whatever its method is, and does not count as work that others wait for.
pub const EXTENSION_PATHS: [&str; 2] = ["/coracle/", "/ui/"];

/// Returns `true` if a path begins with a prefix, or equals the prefix without its slash.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Responds to a request for a path.
pub type RespondToPath =
    Arc<dyn for<'a> Fn(PathRequest<'a>) -> BoxFuture<'a, Result<Response<Body>>> + Send + Sync>;

/// A request for a path.
pub struct PathRequest<'a> {
    /// The head of the request.
    pub parts: &'a Parts,
    /// The path, percent-decoded.
    pub path: &'a str,
    /// The options in the query.
    pub query: &'a Query,
    /// The client.
    pub user: &'a UserInfo,
    /// The body.
    pub body: &'a Bytes,
}

impl PathRequest<'_> {
    /// Returns the response for an error, in the format that the client accepts.
    pub fn respond_with(&self, error: &Error) -> Response<Body> {
        respond::error(error, Accept::of_errors(&self.parts.headers, self.query))
    }
}

/// A POST that stores no object of the resource in the path: a review, a binding, an eviction, a
/// request for a token.
pub struct ActionDeclaration {
    /// The API group.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// The subresource; "" for the resource itself.
    pub subresource: &'static str,
    /// Answers it.
    pub action: Action,
}

/// Answers a POST.
pub type Action = for<'a> fn(ActionRequest<'a>) -> BoxFuture<'a, Result<Outcome>>;

/// Answers a request for a connection.
pub type Connect = Arc<dyn for<'a> Fn(ConnectRequest<'a>) -> BoxFuture<'a, Result<Connected>> + Send + Sync>;

/// A POST, and the parts of the server that may answer it.
pub struct ActionRequest<'a> {
    /// The stored objects.
    pub registry: &'a Registry,
    /// Decides what users may do.
    pub authorizer: &'a Authorizer,
    /// Finds the user of a token.
    pub authenticator: &'a Authenticator,
    /// Signs the tokens of service accounts.
    pub signing_key: &'a SigningKey,
    /// The object, or for resources without stored objects the namespace.
    pub target: Target,
    /// The subresource, if the path has one.
    pub subresource: Option<&'a Subresource>,
    /// The body.
    pub body: &'a RequestBody,
    /// The options in the query.
    pub options: &'a WriteOptions,
    /// The client.
    pub caller: Caller<'a>,
}

impl ActionRequest<'_> {
    /// Decodes the body, and sets its namespace to that of the path. As in a create, what the
    /// system sets is left out of an object that is posted to a collection.
    ///
    /// # Errors
    /// 400 for a body of another kind or namespace, and those of the decoder.
    pub fn decode(&self, expected: Expected<'_>) -> Result<Value> {
        let mut object = self.body.decode(expected, self.options.field_validation, self.caller.warnings)?;
        fit_namespace(&self.target, &mut object)?;
        if self.subresource.is_none() {
            clear_system_fields(&mut object);
        }
        Ok(object)
    }
}

/// A request for a connection.
pub struct ConnectRequest<'a> {
    /// The stored objects.
    pub registry: &'a Arc<Registry>,
    /// Decides what users may do.
    pub authorizer: &'a Authorizer,
    /// The verb that the client is authorized for, by the method.
    pub verb: Verb,
    /// The object.
    pub target: &'a Target,
    /// The subresource.
    pub subresource: &'a Subresource,
    /// Its kind of connection.
    pub connection: Connection,
    /// The options in the query.
    pub query: &'a Query,
    /// The headers, which may ask for another protocol.
    pub headers: &'a HeaderMap,
    /// The path after the subresource, as it was sent; "" if nothing follows, not even a slash.
    pub path: &'a str,
    /// The client.
    pub caller: Caller<'a>,
}

/// The end that a client was connected to.
pub enum Connected {
    /// A text that says why there is none, as a kubelet sends it.
    Refused {
        /// The status code.
        code: u16,
        /// Headers beside those of any text.
        headers: HeaderMap,
        /// The text.
        text: String,
    },
    /// Streams, once the connection has left HTTP.
    Streams {
        /// The headers of the response that switches protocols.
        headers: HeaderMap,
        /// Serves them.
        serve: ServeUpgraded,
    },
    /// An HTTP server, to which the request is passed on.
    Proxy(Upstream),
    /// Nothing, as for the log of a pod that runs nowhere.
    Nothing,
    /// A text.
    Text {
        /// The text so far.
        text: String,
        /// Its further parts, if the client follows it.
        follows: Option<BoxStream<'static, String>>,
    },
}

impl Extensions {
    /// Returns the handler of a POST; None if the resource has no handler of its own.
    pub(super) fn action(&self, group: &str, resource: &str, subresource: &str) -> Option<Action> {
        let found = self.actions.iter().copied().flatten().find(|declared| {
            declared.resource == resource && declared.subresource == subresource && declared.group == group
        });
        found.map(|declared| declared.action)
    }
}
