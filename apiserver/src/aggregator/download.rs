//! Downloads of documents from aggregated servers.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};

use crate::field::quote;
use crate::webhook::{HttpClient, client_error};

/// The user of the requests.
const USER: &str = "system:kube-aggregator";

/// A response with any status.
pub(super) struct Downloaded {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body, or the reason why it could not be read.
    pub body: Result<Bytes, String>,
}

/// Fetches a document as JSON. The caller bounds the time.
///
/// - `known`: the ETag of the cached document;
/// - `limit`: the largest size of the document, in bytes.
///
/// # Errors
/// The text of Go's client, if there is no response.
pub(super) async fn download(
    client: &HttpClient,
    url: &str,
    known: Option<&str>,
    limit: usize,
) -> Result<Downloaded, String> {
    let mut request = Request::get(url)
        .header(header::ACCEPT, "application/json")
        .header("X-Remote-User", USER)
        .header("X-Remote-Group", "system:masters");
    if let Some(known) = known {
        request = request.header(header::IF_NONE_MATCH, known);
    }
    let request = request.body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
    let failed = |cause: &dyn std::fmt::Display| format!("Get {}: {cause}", quote(url));
    let response = client.request(request).await.map_err(|error| failed(&client_error(&error)))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await;
    let body = body.map(|body| body.to_bytes()).map_err(|error| failed(&error));
    Ok(Downloaded { status: head.status, headers: head.headers, body })
}
