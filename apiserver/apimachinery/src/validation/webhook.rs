//! The client configuration of a webhook: a URL, or a Service of the cluster.

use crate::field::{Errors, Field};
use crate::validation::content;

const FORM: &str = "; desired format: https://host[/path]";

/// Validates a `clientConfig`. Its URL must be https.
pub fn validate_client_config(config: &Field<'_>, errors: &mut Errors) {
    let (url, service) = (config.get("url"), config.get("service"));
    match (url.exists(), service.exists()) {
        (true, false) => validate_url(&url, errors),
        (false, true) => validate_service(&service, errors),
        _ => errors.push(config.required("exactly one of url or service is required")),
    }
}

/// The parts of a URL that are validated.
struct Url<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Url<'a>, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if rest.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (scheme, rest) = match rest.split_once(':') {
            Some(("", _)) => return Err("missing protocol scheme".to_owned()),
            Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
            Some((segment, _)) if !segment.contains('/') => {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
            _ => ("", rest),
        };
        let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or(""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_port(host)?;
        if host.contains(' ') {
            return Err("invalid character \" \" in host name".to_owned());
        }
        Ok(Url { scheme, user, host, query, fragment })
    }
}

/// Validates the port of a host (`parseHost` of Go's net/url). It may be missing or empty;
/// otherwise it consists of digits.
fn check_port(host: &str) -> Result<(), String> {
    let after = match host.starts_with('[') {
        true => &host[host.rfind(']').ok_or("missing ']' in host")? + 1..],
        false => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_valid = after.is_empty()
        || after.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if is_valid { Ok(()) } else { Err(format!("invalid port {} after host", crate::field::quote(after))) }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn validate_url(url: &Field<'_>, errors: &mut Errors) {
    let parts = match Url::parse(url.str()) {
        Ok(parts) => parts,
        Err(mistake) => {
            let shown = crate::field::quote(url.str());
            return errors
                .push(url.required(format!("url must be a valid URL: parse {shown}: {mistake}{FORM}")));
        }
    };
    errors.push_if(!parts.scheme.eq_ignore_ascii_case("https"), || {
        url.invalid_value(
            parts.scheme.to_lowercase(),
            format!("'https' is the only allowed URL scheme{FORM}"),
        )
    });
    errors.push_if(parts.host.is_empty(), || url.invalid_value("", format!("host must be specified{FORM}")));
    for (part, detail) in [
        (parts.user, "user information is not permitted in the URL"),
        (Some(parts.fragment).filter(|part| !part.is_empty()), "fragments are not permitted in the URL"),
        (Some(parts.query).filter(|part| !part.is_empty()), "query parameters are not permitted in the URL"),
    ] {
        if let Some(part) = part {
            errors.push(url.invalid_value(part, detail));
        }
    }
}

fn validate_service(service: &Field<'_>, errors: &mut Errors) {
    // kube-apiserver swaps the two here: a missing namespace is reported as a missing name.
    for (checked, reported) in [("namespace", "name"), ("name", "namespace")] {
        errors.push_if(service.get(checked).is_empty(), || service.get(reported).required(""));
    }
    let port = service.get("port");
    let mistakes = content::port_number(port.int().unwrap_or(0));
    errors.push_if(!mistakes.is_empty(), || {
        port.invalid(format!("port is not valid: {}", mistakes.join(", ")))
    });
    validate_path(&service.get("path"), errors);
}

fn validate_path(path: &Field<'_>, errors: &mut Errors) {
    match path.str() {
        "" | "/" => return,
        "//" => return errors.push(path.invalid("segment[0] may not be empty")),
        _ => {}
    }
    errors.push_if(!path.str().starts_with('/'), || path.invalid("must start with a '/'"));
    // The first character is taken for the slash.
    let mut rest = path.str().chars();
    rest.next();
    let rest = rest.as_str();
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(path.invalid(format!("segment[{i}] may not be empty")));
            continue;
        }
        for mistake in content::dns1123_subdomain(segment) {
            errors.push(path.invalid(format!("segment[{i}]: {mistake}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn webhook_urls_are_validated() {
        for (url, want) in [
            ("https://host/path", ""),
            ("https://host:8443/path", ""),
            ("https://host:/path", ""),
            ("https://[::1]:8443/", ""),
            (
                "https://host:a/",
                "c.url: Required value: url must be a valid URL: parse \"https://host:a/\": invalid port \":a\" after host; desired format: https://host[/path]",
            ),
            (
                "https://[::1]8443/",
                "c.url: Required value: url must be a valid URL: parse \"https://[::1]8443/\": invalid port \"8443\" after host; desired format: https://host[/path]",
            ),
            (
                "https://[::1/",
                "c.url: Required value: url must be a valid URL: parse \"https://[::1/\": missing ']' in host; desired format: https://host[/path]",
            ),
            (
                "http://u:p@host/?q#f",
                "[c.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path], c.url: Invalid value: \"u:p\": user information is not permitted in the URL, c.url: Invalid value: \"f\": fragments are not permitted in the URL, c.url: Invalid value: \"q\": query parameters are not permitted in the URL]",
            ),
            (
                "",
                "[c.url: Invalid value: \"\": 'https' is the only allowed URL scheme; desired format: https://host[/path], c.url: Invalid value: \"\": host must be specified; desired format: https://host[/path]]",
            ),
            (
                "a\u{1}b",
                "c.url: Required value: url must be a valid URL: parse \"a\\x01b\": net/url: invalid control character in URL; desired format: https://host[/path]",
            ),
            (
                "::",
                "c.url: Required value: url must be a valid URL: parse \"::\": missing protocol scheme; desired format: https://host[/path]",
            ),
        ] {
            let object = json!({"c": {"url": url}});
            let mut errors = Errors::new();
            validate_client_config(&Field::root(&object).get("c"), &mut errors);
            assert_eq!(if errors.is_empty() { String::new() } else { errors.summary() }, want, "{url}");
        }
    }
}
