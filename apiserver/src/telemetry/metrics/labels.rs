//! The labels of a request.

use http::Method;

use crate::request::RequestInfo;
use crate::request::info::Verb;

/// The labels of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestLabels<'a> {
    /// The method; `LIST`, `WATCH`, `APPLY` and `CONNECT` are separate verbs.
    pub verb: &'static str,
    /// The API group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// `resource`, `namespace` or `cluster`; empty for non-resource paths.
    pub scope: &'static str,
    /// The component: `apiserver`, or empty.
    pub component: &'static str,
    /// `All` for dry runs.
    pub dry_run: &'a str,
}

/// Subresources that open a connection instead of reading or writing an object.
const CONNECTING: &[&str] = &["log", "exec", "portforward", "attach", "proxy"];

impl<'a> RequestLabels<'a> {
    /// Returns the labels of a request; None for paths that are not counted. Only requests for
    /// served resources may be counted: clients choose unknown names, and each would create a
    /// metric forever.
    ///
    /// - `apply`: a PATCH that is a server-side apply.
    /// - `dry_run`: `All`, or empty.
    pub fn of(
        info: &'a RequestInfo,
        method: &Method,
        apply: bool,
        dry_run: &'a str,
    ) -> Option<RequestLabels<'a>> {
        let request = match info {
            RequestInfo::Resource(request) => request,
            RequestInfo::Path { path, .. } => return RequestLabels::of_path(path, method),
        };
        let scope = if !request.name.is_empty() || request.verb == Verb::Create {
            "resource"
        } else if !request.namespace.is_empty() {
            "namespace"
        } else {
            "cluster"
        };
        let verb = match *method {
            _ if CONNECTING.contains(&request.subresource.as_str()) => "CONNECT",
            _ if request.verb == Verb::Watch => "WATCH",
            Method::GET | Method::HEAD if scope != "resource" => "LIST",
            Method::PATCH if apply => "APPLY",
            _ => plain_verb(method),
        };
        Some(RequestLabels {
            verb,
            group: &request.group,
            version: &request.version,
            resource: &request.resource,
            subresource: &request.subresource,
            scope,
            component: "apiserver",
            dry_run,
        })
    }

    fn of_path(path: &str, method: &Method) -> Option<RequestLabels<'a>> {
        let mut resource = "";
        let (subresource, component) = match path {
            "/healthz" => ("/healthz", ""),
            "/livez" => ("/livez", ""),
            "/readyz" => ("/readyz", ""),
            "/api" | "/api/" => ("api", "apiserver"),
            "/apis" => ("apis", "apiserver"),
            "/openapi/v3" => ("openapi/v3", ""),
            _ if path.starts_with("/openapi/v3/") => ("openapi/v3/", ""),
            "/statusz" | "/flagz" => {
                resource = if path == "/flagz" { "flagz" } else { "statusz" };
                ("", "apiserver")
            }
            _ => return None,
        };
        Some(RequestLabels {
            verb: plain_verb(method),
            group: "",
            version: "",
            resource,
            subresource,
            scope: "",
            component,
            dry_run: "",
        })
    }

    pub(super) fn longrunning_values(&self) -> [&'a str; 7] {
        [self.verb, self.group, self.version, self.resource, self.subresource, self.scope, self.component]
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::options::Query;

    #[test]
    fn requests_have_their_labels() {
        for (request, want) in [
            ("GET /api/v1/namespaces/n/pods/p", "GET /v1 pods  resource"),
            ("GET /api/v1/namespaces/n/pods", "LIST /v1 pods  namespace"),
            ("HEAD /api/v1/pods", "LIST /v1 pods  cluster"),
            ("GET /apis/apps/v1/deployments?watch=1", "WATCH apps/v1 deployments  cluster"),
            ("POST /api/v1/namespaces/n/pods", "POST /v1 pods  resource"),
            ("POST /api/v1/namespaces", "POST /v1 namespaces  resource"),
            ("DELETE /api/v1/namespaces/n/pods", "DELETE /v1 pods  namespace"),
            ("PATCH /api/v1/namespaces/n/pods/p/status", "PATCH /v1 pods status resource"),
            ("GET /api/v1/namespaces/n/pods/p/log", "CONNECT /v1 pods log resource"),
            ("OPTIONS /api/v1/namespaces/n", "other /v1 namespaces  resource"),
            ("GET /healthz", "GET /  /healthz "),
            ("GET /openapi/v3/apis/apps/v1", "GET /  openapi/v3/ "),
            ("GET /statusz", "GET / statusz  "),
            ("GET /readyz/ping", "none"),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method and a path");
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let method: Method = method.parse().expect("a method");
            let info = RequestInfo::parse(&method, path, &Query::parse(query));
            let got = RequestLabels::of(&info, &method, false, "").map_or("none".to_owned(), |l| {
                format!("{} {}/{} {} {} {}", l.verb, l.group, l.version, l.resource, l.subresource, l.scope)
            });
            assert_eq!(got, want, "{request}");
        }
    }
}
