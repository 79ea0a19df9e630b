//! The guard against web pages. A browser may have a client certificate for this server, and sends
//! it with the requests of any page.

use std::net::IpAddr;

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::access::authenticate::ANONYMOUS;
use coracle_apiserver::serve::PathRequest;
use http::uri::Authority;
use http::{HeaderName, Uri, header};

/// The relation of a web page to the server that it sends a request to, as browsers report it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests without a user, requests to a name that is not this server's, and those of web
/// pages of other sites.
///
/// - `names`: the names of this server beside `localhost` and its addresses
///
/// # Errors
/// 403.
pub fn check(request: &PathRequest<'_>, names: &[String]) -> Result<()> {
    if request.user.name == ANONYMOUS {
        return Err(forbidden("it needs a user"));
    }
    let header =
        |name: HeaderName| request.parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = match request.parts.uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => header(header::HOST)
            .map(|host| host.parse().map_err(|_| forbidden("the Host is none")))
            .transpose()?,
    };
    if host.as_ref().is_some_and(|host| !is_own(host, names)) {
        return Err(forbidden("the Host is not a name of this server"));
    }
    // Other ports of this host are other sites, though a browser sends them the same cookies.
    if header(SEC_FETCH_SITE).is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(forbidden("the request was caused by another site"));
    }
    let origin = header(header::ORIGIN)
        .map(|origin| origin.parse::<Uri>().ok().and_then(|uri| uri.authority().cloned()));
    match origin {
        Some(origin) if origin.is_none() || origin != host => Err(forbidden("the Origin is another site")),
        _ => Ok(()),
    }
}

/// Returns `true` if a host is this server: an IP address, which no name server can have resolved,
/// or one of the server's names.
fn is_own(host: &Authority, names: &[String]) -> bool {
    let host = host.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok() || host == "localhost" || names.iter().any(|name| name == host)
}

fn forbidden(detail: &str) -> Error {
    Error::Forbidden { resource: None, name: String::new(), detail: detail.to_owned(), causes: Vec::new() }
}

#[cfg(test)]
mod tests {
    use coracle_apimachinery::request::options::Query;
    use coracle_apiserver::access::UserInfo;
    use http::Request;

    use super::*;

    fn checked(
        user: &str,
        uri: &str,
        headers: impl IntoIterator<Item = (HeaderName, Option<&'static str>)>,
    ) -> Result<()> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            if let Some(value) = value {
                request = request.header(name, value.as_bytes());
            }
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let (user, query) = (UserInfo::new(user, &[]), Query::parse(""));
        let body = &bytes::Bytes::new();
        let request = PathRequest { parts: &parts, path: "/x", query: &query, user: &user, body };
        check(&request, &["coracle.test".to_owned()])
    }

    #[test]
    fn requests_that_other_sites_cause_are_refused_though_they_have_no_origin() {
        for (site, want) in [
            (None, true),
            (Some("none"), true),
            (Some("same-origin"), true),
            (Some("same-site"), false),
            (Some("cross-site"), false),
            (Some("\u{e4}"), false),
        ] {
            let headers = [(header::HOST, Some("localhost:6443")), (SEC_FETCH_SITE, site)];
            assert_eq!(checked("admin", "/x", headers).is_ok(), want, "{site:?}");
        }
    }

    #[test]
    fn web_pages_and_rebound_names_are_refused() {
        for (user, uri, host, origin, want) in [
            ("admin", "/x", Some("127.0.0.1:6443"), None, true),
            ("admin", "/x", Some("[::1]:6443"), None, true),
            ("admin", "/x", Some("localhost:6443"), None, true),
            ("admin", "/x", Some("coracle.test"), None, true),
            ("admin", "https://10.0.0.1/x", None, None, true),
            ("admin", "/x", None, None, true),
            ("admin", "/x", Some("localhost:6443"), Some("https://localhost:6443"), true),
            ("admin", "/x", Some("rebound.example:6443"), None, false),
            ("admin", "https://rebound.example/x", None, None, false),
            ("admin", "/x", Some("localhost:6443"), Some("https://localhost:8080"), false),
            ("admin", "/x", Some("localhost:6443"), Some("null"), false),
            ("admin", "/x", Some("localhost:6443"), Some("https://evil.example"), false),
            ("admin", "/x", Some("\u{e4}"), None, false),
            (ANONYMOUS, "/x", Some("127.0.0.1:6443"), None, false),
        ] {
            let headers = [(header::HOST, host), (header::ORIGIN, origin)];
            let got = checked(user, uri, headers);
            assert_eq!(got.is_ok(), want, "{uri} {host:?} {origin:?} {got:?}");
        }
    }
}
