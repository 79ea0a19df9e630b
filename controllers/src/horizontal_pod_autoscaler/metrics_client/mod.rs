//! Readers of the metrics APIs: `metrics.k8s.io` ([`resource`]), `custom.metrics.k8s.io`
//! ([`custom`]) and `external.metrics.k8s.io` ([`external`]).
//!
//! Their errors have the words of kube-controller-manager, where they become events and conditions.
//!
//! Source: kube-controller-manager's `pkg/controller/podautoscaler/metrics/client.go`.

pub mod custom;
pub mod external;
pub mod resource;

use coracle_controller_runtime::Error;
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

/// The largest response that is read, in bytes: a hundred thousand pods.
const LIMIT: usize = 64 << 20;

/// The bytes of another server's text that are reported.
const MAX_TEXT: usize = 1024;

/// The error of a metric with a malformed value.
const NO_QUANTITY: &str = "the value of the metric is not a quantity";

/// The characters of a segment that are encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'*');

/// A request for a list of metrics.
struct Query<'a> {
    /// The resource as errors name it: `pods.metrics.k8s.io`.
    resource: String,
    /// The name as errors have it.
    name: Option<&'a str>,
    /// The segments of the path.
    path: &'a [&'a str],
    /// The parameters. An empty value is left out.
    parameters: &'a [(&'a str, &'a str)],
}

impl Query<'_> {
    /// Sends the request.
    ///
    /// # Errors
    /// The message of the server, or client-go's for a response without one.
    async fn send<T: DeserializeOwned>(&self, client: &Client) -> Result<T, String> {
        let request =
            http::Request::get(self.uri()).body(Body::empty()).map_err(|error| error.to_string())?;
        let response = client.send(request).await.map_err(|error| Error::from(error).message())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        match code.is_success() {
            // The error may quote the response.
            true => serde_json::from_slice(&body).map_err(|error| excerpt(&error.to_string()).to_owned()),
            false => Err(self.failure(code.as_u16(), &body)),
        }
    }

    fn uri(&self) -> String {
        let mut uri = String::new();
        for segment in self.path {
            uri.push('/');
            uri.extend(utf8_percent_encode(segment, ENCODED));
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.parameters.iter().filter(|(_, value)| !value.is_empty()));
        let query = query.finish();
        if query.is_empty() { uri } else { format!("{uri}?{query}") }
    }

    /// Returns the message of a failure: that of its `Status`, if it has one.
    ///
    /// Source: apimachinery's `NewGenericServerResponse`.
    fn failure(&self, code: u16, body: &[u8]) -> String {
        let status = serde_json::from_slice::<Status>(body).unwrap_or_default();
        if !status.message.is_empty() {
            return excerpt(&status.message).to_owned();
        }
        let text = String::from_utf8_lossy(body);
        let text = excerpt(text.trim());
        let message = match code {
            401 => "the server has asked for the client to provide credentials".to_owned(),
            403 => text.to_owned(),
            404 => "the server could not find the requested resource".to_owned(),
            429 => "the server has received too many requests and has asked us to try again later".to_owned(),
            503 => "the server is currently unable to handle the request".to_owned(),
            504 => "the server was unable to return a response in the time allotted, but may still be processing \
                    the request"
                .to_owned(),
            500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
            _ => format!("the server responded with the status code {code} but did not return more information"),
        };
        let name = self.name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("{message} (get {}{name})", self.resource)
    }
}

/// Returns the beginning of another server's text, which becomes a part of events and conditions.
fn excerpt(text: &str) -> &str {
    let mut end = MAX_TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a client of a server that has one response, and the URIs that are asked for.
    fn serving(code: u16, response: impl Into<Vec<u8>>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, response) = (Arc::clone(&asked), response.into());
        let api = tower::service_fn(move |request: Request<Body>| {
            seen.lock().push(request.uri().to_string());
            let body = Body::from(response.clone());
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()))
        });
        (Client::new(api, "default"), asked)
    }

    #[tokio::test]
    async fn failures_have_the_words_of_client_go() {
        let unable = "the server is currently unable to handle the request (get m.external.metrics.k8s.io *)";
        for (code, body, want) in [
            (503, "service unavailable\n", unable),
            (404, r#"{"kind": "Status", "message": "metric unknown", "code": 404}"#, "metric unknown"),
            (
                500,
                "it \"broke\"",
                r#"an error on the server ("it \"broke\"") has prevented the request from succeeding (get m.external.metrics.k8s.io *)"#,
            ),
            (
                418,
                "",
                "the server responded with the status code 418 but did not return more information (get m.external.metrics.k8s.io *)",
            ),
            (403, "no", "no (get m.external.metrics.k8s.io *)"),
            (
                404,
                &json!({"kind": "Status", "message": "\u{e4}".repeat(5000)}).to_string(),
                &"\u{e4}".repeat(512),
            ),
        ] {
            let (client, asked) = serving(code, body);
            let query = Query {
                resource: "m.external.metrics.k8s.io".to_owned(),
                name: Some("*"),
                path: &["apis", "a/b", "*"],
                parameters: &[("labelSelector", "a in (b,c)"), ("other", "")],
            };
            assert_eq!(query.send::<Value>(&client).await, Err(want.to_owned()));
            assert_eq!(*asked.lock(), ["/apis/a%2Fb/*?labelSelector=a+in+%28b%2Cc%29"]);
        }
    }

    #[tokio::test]
    async fn a_response_of_another_type_is_quoted_in_part() {
        let (client, _) = serving(200, json!("a".repeat(1 << 20)).to_string());
        let query = Query { resource: String::new(), name: None, path: &["apis"], parameters: &[] };
        let error = query.send::<Vec<Value>>(&client).await.expect_err("it is no list");
        assert!(error.starts_with("invalid type: string") && error.len() == MAX_TEXT, "{error}");
    }

    #[tokio::test]
    async fn an_endless_response_is_not_kept() {
        let (client, _) = serving(200, vec![b' '; LIMIT + 1]);
        let query = Query { resource: String::new(), name: None, path: &["apis"], parameters: &[] };
        assert_eq!(query.send::<Value>(&client).await, Err("length limit exceeded".to_owned()));
    }
}
