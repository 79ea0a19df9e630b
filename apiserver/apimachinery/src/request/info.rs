//! RequestInfo: which verb on which object a method and path mean.
//!
//! Authorization decides on this before it is known whether the resource exists, so only the form
//! of the path counts.
//!
//! Source: API concepts, "Resource URIs" and "API verbs".

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use super::options::Query;
use crate::names::{GroupResource, GroupVersion};
use crate::selector::FieldSelector;
use crate::validation::content;

/// The verb of a request, as in RBAC rules and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Streams the changes of a collection or of one object.
    Watch,
    /// POST: makes an object, or calls a subresource.
    Create,
    /// PUT: replaces an object.
    Update,
    /// PATCH: changes an object; a server-side apply may also make it.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// Any method on a path with the deprecated `/proxy/` prefix.
    Proxy,
    /// A method that is no API verb (OPTIONS, TRACE, ...).
    None,
}

impl Verb {
    /// Returns `true` if the body of a request with this verb is read.
    pub fn has_body(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    }

    /// Returns the word used in RBAC rules and in metrics; empty for [`Verb::None`].
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Proxy => "proxy",
            Verb::None => "",
        }
    }
}

/// A request under `/api` or `/apis` that names a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRequest {
    /// The verb as authorization sees it.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in the path, served or not.
    pub version: String,
    /// The namespace; empty for a request about the cluster. A request for a Namespace has that
    /// namespace, as upstream's.
    pub namespace: String,
    /// The plural in the path, served or not.
    pub resource: String,
    /// The first segment after the name; empty for the object itself.
    pub subresource: String,
    /// The object's name; empty for a collection. Also the one name that a field selector of a list
    /// or watch allows.
    pub name: String,
    /// Whether the name is in the path, not in a field selector.
    pub named: bool,
    /// Whether the path has `/namespaces/NS/` before the resource.
    pub in_namespace: bool,
    /// The number of path segments after the subresource.
    pub extra_segments: usize,
    /// Whether the path has the deprecated `/watch/` prefix.
    pub watch_prefix: bool,
}

impl ResourceRequest {
    /// Returns the group and version in the path.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }

    /// Returns the group and the plural in the path, without the subresource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.resource)
    }
}

/// A request, by its path and method.
///
/// Source: `k8s.io/apiserver/pkg/endpoints/request`, `RequestInfo`.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestInfo {
    /// A path under `/api` or `/apis` that names a resource.
    Resource(ResourceRequest),
    /// Any other path: discovery, health, OpenAPI.
    Path {
        /// The path, percent-decoded.
        path: String,
        /// The method in lower case.
        verb: String,
    },
}

impl RequestInfo {
    /// Reads the method, the path as it was sent (percent-encoded), and the query.
    pub fn parse(method: &Method, raw_path: &str, query: &Query) -> RequestInfo {
        let path = match raw_path.contains('%') {
            true => percent_decode_str(raw_path).decode_utf8_lossy(),
            false => Cow::Borrowed(raw_path),
        };
        match resource_request(method, &path, query) {
            Some(resource) => RequestInfo::Resource(resource),
            None => RequestInfo::Path { verb: method.as_str().to_ascii_lowercase(), path: path.into_owned() },
        }
    }
}

/// The segments of a path, as [`str::split`] has them: for texts as short as these a plain search
/// is several times faster.
#[derive(Clone)]
struct Segments<'a>(Option<&'a str>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let (segment, rest) = match rest.bytes().position(|byte| byte == b'/') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        self.0 = rest;
        Some(segment)
    }
}

fn resource_request(method: &Method, path: &str, query: &Query) -> Option<ResourceRequest> {
    let trimmed = path.strip_prefix('/')?;
    let mut segments = Segments(Some(trimmed.strip_suffix('/').unwrap_or(trimmed)));
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    let version = segments.next()?;
    let prefix = segments.clone().next().filter(|_| segments.clone().nth(1).is_some());
    let (watch_prefix, proxy_prefix) = (prefix == Some("watch"), prefix == Some("proxy"));
    if watch_prefix || proxy_prefix {
        segments.next();
    }
    // The longest form is namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE; of what follows the
    // number counts.
    let (mut first, mut count) = ([""; 5], 0_usize);
    for segment in segments {
        if let Some(place) = first.get_mut(count) {
            *place = segment;
        }
        count += 1;
    }
    let parts = first.get(..count).unwrap_or(&first);
    let (namespace, in_namespace, rest) = match parts {
        [] => return None,
        ["namespaces", namespace, "status" | "finalize", ..] => (*namespace, false, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, true, rest),
        ["namespaces", namespace] => (*namespace, false, parts),
        _ => ("", false, parts),
    };
    let part = |i: usize| rest.get(i).copied().unwrap_or("").to_owned();
    let before = parts.len() - rest.len();
    let mut request = ResourceRequest {
        verb: Verb::None,
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
        named: rest.len() > 1,
        in_namespace,
        extra_segments: count.saturating_sub(before + 3),
        watch_prefix,
    };
    request.verb = match *method {
        _ if watch_prefix => Verb::Watch,
        _ if proxy_prefix => Verb::Proxy,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if request.named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        Method::GET | Method::HEAD if request.named => Verb::Get,
        Method::GET | Method::HEAD if query.flag("watch") == Some(true) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        _ => Verb::None,
    };
    if matches!(request.verb, Verb::List | Verb::Watch) && !request.named && !watch_prefix {
        // A field selector for one name is authorized as a request for that name, but below the
        // old paths of watches.
        let selector = query.first("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
        if let Some(name) = selector.as_ref().and_then(|s| s.exact("metadata.name"))
            && content::path_segment(name).is_empty()
        {
            request.name = name.to_owned();
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(&method.parse().expect("a method"), path, &Query::parse(query))
    }

    #[test]
    fn a_path_names_verb_namespace_resource_and_subresource() {
        for (request, want) in [
            ("GET /api/v1/pods", "list /v1 pods"),
            ("GET /api/v1/pods?watch=1", "watch /v1 pods"),
            ("GET /api/v1/pods?watch=0", "list /v1 pods"),
            ("GET /api/v1/namespaces/n/pods/p", "get /v1 n/pods/p"),
            ("GET /api/v1/namespaces/n/pods/p?watch=1", "get /v1 n/pods/p"),
            ("PUT /api/v1/namespaces/n/pods/p/status", "update /v1 n/pods/p/status"),
            ("POST /apis/apps/v1/namespaces/n/deployments/", "create apps/v1 n/deployments"),
            ("DELETE /apis/apps/v1/namespaces/n/deployments", "deletecollection apps/v1 n/deployments"),
            ("GET /api/v1/namespaces/n", "get /v1 n/namespaces/n"),
            ("PUT /api/v1/namespaces/n/finalize", "update /v1 n/namespaces/n/finalize"),
            ("GET /api/v1/watch/namespaces/n/pods/p", "watch /v1 n/pods/p"),
            ("GET /api/v1/pods?fieldSelector=metadata.name%3Dx", "list /v1 pods/x"),
            ("GET /api/v1/watch/pods?fieldSelector=metadata.name%3Dx", "watch /v1 pods"),
            ("GET /api/v1/namespaces/%6E/pods/p%2Dq", "get /v1 n/pods/p-q"),
            ("GET /api/v1/watch", "list /v1 watch"),
            ("GET /api/v1/namespaces/n/pods/", "list /v1 n/pods"),
            ("GET /api/v1/namespaces/n/pods//", "get /v1 n/pods"),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method and a path");
            let RequestInfo::Resource(r) = parse(method, uri) else { panic!("{request} names a resource") };
            let mut got = format!("{} {}/{} ", r.verb.as_str(), r.group, r.version);
            got.push_str(&if r.namespace.is_empty() { String::new() } else { format!("{}/", r.namespace) });
            got.push_str(&r.resource);
            for part in [&r.name, &r.subresource] {
                if !part.is_empty() {
                    got.push_str(&format!("/{part}"));
                }
            }
            assert_eq!(got, want, "{request}");
        }
    }

    #[test]
    fn segments_after_the_subresource_are_counted() {
        for (path, want) in [
            ("/api/v1/pods/p", 0),
            ("/api/v1/namespaces/n/pods/p/log", 0),
            ("/api/v1/namespaces/n/pods/p/proxy/a/b", 2),
            ("/api/v1/nodes/n/proxy/a", 1),
            ("/api/v1/namespaces/n/status/a/b", 2),
            ("/api/v1/nodes/n/proxy/1/2/3/4/5/6/7/8/9", 9),
        ] {
            let RequestInfo::Resource(request) = parse("GET", path) else {
                panic!("{path} names a resource")
            };
            assert_eq!(request.extra_segments, want, "{path}");
        }
    }

    #[test]
    fn other_paths_are_non_resource_requests() {
        for path in ["/", "/api", "/api/v1", "/api/v1/", "/apis/apps/v1", "/healthz", "//api/v1/pods"] {
            assert!(matches!(parse("GET", path), RequestInfo::Path { .. }), "{path}");
        }
    }
}
