//! The bodies of requests, and the values in them.

use std::time::Duration;

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::serve::PathRequest;
use http::header;
use serde::de::DeserializeOwned;

/// The longest time that a client can ask to be waited.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// Reads the body of a request; an empty one is an empty object.
///
/// # Errors
/// 403 for what a form of a web page can send, 415 for any other format than JSON, 400 for an
/// invalid object.
pub fn body<T: DeserializeOwned>(request: &PathRequest<'_>) -> Result<T> {
    let media_type = request.parts.headers.get(header::CONTENT_TYPE);
    let media_type = media_type.map_or("", |value| value.to_str().unwrap_or("?"));
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*media_type {
        "application/json" => {}
        "" if request.body.is_empty() => {}
        "" | "text/plain" | "application/x-www-form-urlencoded" | "multipart/form-data" => {
            let detail = "the body must be application/json, which no form of a web page sends".to_owned();
            return Err(Error::Forbidden { resource: None, name: String::new(), detail, causes: Vec::new() });
        }
        other => {
            return Err(Error::UnsupportedMediaType(format!("{other:?} is not application/json")));
        }
    }
    let body: &[u8] = if request.body.is_empty() { b"{}" } else { request.body };
    // An array would be read as the members in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Error::bad_request("the body: it is not an object"));
    }
    serde_json::from_slice(body).map_err(|error| Error::bad_request(format!("the body: {error}")))
}

/// Parses a field as a duration in Go's format.
///
/// # Errors
/// 422 if it is invalid, negative, or longer than `longest`.
pub fn duration(field: &str, text: &str, longest: Duration) -> Result<Duration> {
    let parsed = coracle_duration::parse(text).map_err(|error| invalid(field, &error.to_string()))?;
    match Duration::try_from(parsed) {
        Ok(duration) if duration <= longest => Ok(duration),
        Ok(_) => Err(invalid(field, &format!("{text} is longer than {}", Text(longest)))),
        Err(_) => Err(invalid(field, &format!("{text} is negative"))),
    }
}

/// Parses an optional field as a duration of up to an hour.
///
/// # Errors
/// The errors of [`duration`].
pub fn duration_or(field: &str, text: Option<&String>, default: Duration) -> Result<Duration> {
    text.map_or(Ok(default), |text| duration(field, text, MAX_TIMEOUT))
}

struct Text(Duration);

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(self.0))
    }
}

/// Formats a duration like Go.
pub fn printed(duration: Duration) -> String {
    jiff::SignedDuration::try_from(duration).map_or_else(|_| "?".to_owned(), coracle_duration::print)
}

/// Returns a 422 error for the value of a field.
pub fn invalid(field: &str, detail: &str) -> Error {
    Error::plain(422, "Invalid", format!("{field}: {detail}"))
}

/// Returns a 409 error for a request that the current state of the clock does not allow.
pub fn conflict(message: &str) -> Error {
    Error::plain(409, "Conflict", message)
}

/// Returns a 410 error for a revision before the history.
pub fn expired(message: &str) -> Error {
    Error::plain(410, "Expired", message)
}

/// Returns a 404 error for a fork that does not exist.
pub fn no_fork(name: &str) -> Error {
    Error::plain(404, "NotFound", format!("fork {name:?} not found"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use coracle_apimachinery::request::options::Query;
    use coracle_apiserver::access::UserInfo;
    use http::Request;

    use super::*;
    use crate::SettleRequest;

    #[test]
    fn bodies_that_are_no_object_or_say_a_thing_twice_are_refused() {
        for (text, want) in [
            (r#" {"timeout":"1s"}"#, None),
            ("", None),
            (r#"["1s","1s",[]]"#, Some("the body: it is not an object")),
            ("null", Some("the body: it is not an object")),
            (
                r#"{"timeout":"1s","timeout":"2s"}"#,
                Some("the body: duplicate field `timeout` at line 1 column 25"),
            ),
            ("{}{}", Some("the body: trailing characters at line 1 column 3")),
        ] {
            let request = Request::post("/x").header(header::CONTENT_TYPE, "application/json");
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let (user, query, bytes) = (UserInfo::new("admin", &[]), Query::parse(""), Bytes::from(text));
            let request = PathRequest { parts: &parts, path: "/x", query: &query, user: &user, body: &bytes };
            let got = body::<SettleRequest>(&request).map(drop).map_err(|error| error.to_string());
            assert_eq!(got, want.map_or(Ok(()), |want| Err(want.to_owned())), "{text}");
        }
    }
}
