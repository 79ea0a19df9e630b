//! The errors of webhook calls. The texts are those of Go's `net`, `crypto/tls`, `net/http` and
//! client-go.

use std::io;

use crate::field::quote;

/// The reasons why a configuration cannot be used for a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The URL is invalid.
    #[error("parse {}: invalid URL", quote(.0))]
    Url(String),
    /// `caBundle` has no certificate.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    CaBundle,
    /// TLS cannot be configured.
    #[error("{0}")]
    Tls(String),
}

/// The reasons for which there is no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransportError {
    /// The service does not exist.
    #[error("service {} not found", quote(.0))]
    ServiceNotFound(String),
    /// The service does not have the port.
    #[error("no service port {port} found for service {}", quote(.service))]
    NoServicePort {
        /// The name of the service.
        service: String,
        /// The port of the reference.
        port: u16,
    },
    /// No endpoint of the service is ready.
    #[error("no endpoints available for service {}", quote(.service))]
    NoEndpoints {
        /// The name of the service.
        service: String,
        /// The name of the port without an endpoint; None if there are no EndpointSlices at all.
        port_name: Option<String>,
    },
    /// A server cannot listen at any of the addresses, for the reason in the text.
    #[error("{0}")]
    Unreachable(String),
    /// The name cannot be resolved.
    #[error("dial tcp: lookup {0}: no such host")]
    Lookup(String),
    /// No connection.
    #[error("dial tcp {address}: {cause}")]
    Dial {
        /// Address and port.
        address: String,
        /// The error of the system call, in Go's format.
        cause: String,
    },
    /// The handshake failed.
    #[error("{0}")]
    Tls(String),
    /// The server responds without TLS.
    #[error("http: server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// The deadline has passed.
    #[error("context deadline exceeded")]
    Deadline,
    /// The server closed the connection without a response.
    #[error("EOF")]
    Eof,
    /// The server closed the connection in the middle of a response.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// The connection broke.
    #[error("{0}")]
    Connection(String),
    /// The response is not HTTP.
    #[error("net/http: HTTP/1.x transport connection broken: malformed HTTP response")]
    Malformed,
}

/// The reasons for which a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no response.
    #[error("Post {}: {cause}", quote(.url))]
    Transport {
        /// The URL, with the timeout.
        url: String,
        /// The reason.
        cause: TransportError,
    },
    /// The response broke off.
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Body(TransportError),
    /// The response is larger than the server accepts.
    #[error("the response is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The status is outside of 200 to 206.
    #[error("{}", unsuccessful(*.code, .text))]
    Status {
        /// The status code.
        code: u16,
        /// The body, if it is text; otherwise `unknown`.
        text: String,
    },
    /// No body.
    #[error("0-length response with status code: {code} and content type: {content_type}")]
    Empty {
        /// The status code.
        code: u16,
        /// The header, or nothing.
        content_type: String,
    },
}

/// Returns the beginning of another server's text, for an error message: at most `bytes` bytes.
pub fn excerpt(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns client-go's text for a response that is not a success.
///
/// Source: `errors.NewGenericServerResponse` of apimachinery, for a POST.
fn unsuccessful(code: u16, text: &str) -> String {
    let fixed = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => return text.to_owned(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        406 => return text.to_owned(),
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quote(text)
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
}

impl TransportError {
    /// Returns the error for a failed `connect`.
    pub fn dial(address: &str, error: &io::Error) -> TransportError {
        let cause = match error.kind() {
            io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
            _ => format!("connect: {}", of_system(error)),
        };
        TransportError::Dial { address: address.to_owned(), cause }
    }

    /// Converts the error of an established connection.
    pub fn io(error: &io::Error) -> TransportError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => TransportError::Eof,
            io::ErrorKind::ConnectionReset => {
                TransportError::Connection("read: connection reset by peer".into())
            }
            io::ErrorKind::BrokenPipe => TransportError::Connection("write: broken pipe".into()),
            _ => TransportError::Connection(of_system(error)),
        }
    }
}

/// Returns the text of an operating system's error as Go has it: in lower case, and without the
/// number that Rust adds.
fn of_system(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_gos() {
        let refused = io::Error::from_raw_os_error(111);
        let cause = TransportError::dial("127.0.0.1:1", &refused);
        let error = CallError::Transport { url: "https://127.0.0.1:1/?timeout=10s".to_owned(), cause };
        assert_eq!(
            error.to_string(),
            r#"Post "https://127.0.0.1:1/?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused"#
        );
        for (code, text, want) in [
            (404, "x", "the server could not find the requested resource"),
            (500, "boom", r#"an error on the server ("boom") has prevented the request from succeeding"#),
            (302, "", "the server responded with the status code 302 but did not return more information"),
            (403, "go away", "go away"),
        ] {
            assert_eq!(CallError::Status { code, text: text.to_owned() }.to_string(), want);
        }
    }
}
