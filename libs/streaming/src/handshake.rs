//! The handshake of a connection: which protocol a client and this server speak.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ring::digest;

/// The protocol of the streams of SPDY connections, offered by clients and selected by the server.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The protocols that a server would have accepted, in a refusal.
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
/// RFC 6455, section 1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The protocol of a bearer token among those of a WebSocket, which is never selected.
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

const PORT_FORWARD: &str = "portforward.k8s.io";
const TUNNELED_PORT_FORWARD: &str = "SPDY/3.1+portforward.k8s.io";

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The streams of a command: exec and attach.
    Command,
    /// The ports of a pod.
    PortForward,
}

/// The carrier of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Spdy,
    /// One message of a WebSocket for each chunk.
    Channels {
        /// Messages are text: the chunks are encoded.
        base64: bool,
    },
    /// SPDY in the messages of a WebSocket.
    Tunnel,
}

/// The version of the protocol of commands, of which each has what those before have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The error stream is a text.
    V1,
    /// Input can end before the connection does, where the transport can say so.
    V2,
    /// There is a stream for the size of the terminal.
    V3,
    /// The error stream is a Status, with the exit code.
    V4,
    /// Input can end over a WebSocket too.
    V5,
}

/// The protocol that a client and the server agreed upon.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub(crate) transport: Transport,
    pub(crate) version: Version,
    /// The headers of the response, which has the status 101.
    pub headers: HeaderMap,
}

/// The reasons to refuse a handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request asks for no upgrade.
    #[error("Upgrade request required")]
    NotRequested,
    /// The request asks for another protocol, or lacks a header of the one that it asks for.
    #[error("unable to upgrade: {0}")]
    Malformed(&'static str),
    /// None of the protocols that the client offers is known.
    #[error("unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]", offered.join(" "), accepted.join(" "))]
    UnknownProtocol {
        /// The client's.
        offered: Vec<String>,
        /// The server's.
        accepted: Vec<&'static str>,
    },
}

impl Refusal {
    /// Returns the status code and the headers of the response.
    pub fn response(&self) -> (u16, HeaderMap) {
        let mut headers = HeaderMap::new();
        let Refusal::UnknownProtocol { accepted, .. } = self else { return (400, headers) };
        for protocol in accepted {
            headers.append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(protocol));
        }
        (403, headers)
    }
}

impl Handshake {
    /// Selects the protocol of a connection.
    ///
    /// - `request`: the headers of the request
    ///
    /// # Errors
    /// The request asks for no upgrade, or for none that is known.
    pub fn negotiate(request: &HeaderMap, purpose: Purpose) -> Result<Handshake, Refusal> {
        let words = |name: HeaderName| words(request, name);
        let mut upgrade = words(header::UPGRADE);
        if !words(header::CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade")) {
            return Err(Refusal::NotRequested);
        }
        let protocol = upgrade.next().ok_or(Refusal::NotRequested)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let (transport, version) = if protocol.eq_ignore_ascii_case("websocket") {
            let key =
                request.get(header::SEC_WEBSOCKET_KEY).ok_or(Refusal::Malformed("no Sec-WebSocket-Key"))?;
            if words(header::SEC_WEBSOCKET_VERSION).next() != Some("13") {
                return Err(Refusal::Malformed("missing or bad WebSocket version"));
            }
            let offered = words(header::SEC_WEBSOCKET_PROTOCOL);
            let offered = offered.filter(|protocol| !protocol.starts_with(TOKEN_PREFIX));
            let (name, transport, version) = select(offered, websocket_protocols(purpose), true)?;
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept_key(key.as_bytes()));
            if !name.is_empty() {
                headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
            }
            (transport, version)
        } else if protocol.eq_ignore_ascii_case("SPDY/3.1") {
            let offered = words(STREAM_PROTOCOL);
            let (name, transport, version) = select(offered, spdy_protocols(purpose), false)?;
            headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
            headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(name));
            (transport, version)
        } else {
            return Err(Refusal::Malformed("neither SPDY/3.1 nor websocket was asked for"));
        };
        Ok(Handshake { transport, version, headers })
    }
}

impl Handshake {
    /// Returns `true` if the ports of port-forward are agreed upon in the handshake, so that the
    /// request has to name them.
    pub fn needs_ports(&self) -> bool {
        matches!(self.transport, Transport::Channels { .. })
    }
}

/// A protocol by its name.
type Protocol = (&'static str, Transport, Version);

const fn spdy_protocols(purpose: Purpose) -> &'static [Protocol] {
    match purpose {
        Purpose::Command => &[
            ("v4.channel.k8s.io", Transport::Spdy, Version::V4),
            ("v3.channel.k8s.io", Transport::Spdy, Version::V3),
            ("v2.channel.k8s.io", Transport::Spdy, Version::V2),
            ("channel.k8s.io", Transport::Spdy, Version::V1),
        ],
        Purpose::PortForward => &[(PORT_FORWARD, Transport::Spdy, Version::V4)],
    }
}

const fn websocket_protocols(purpose: Purpose) -> &'static [Protocol] {
    const BINARY: Transport = Transport::Channels { base64: false };
    const BASE64: Transport = Transport::Channels { base64: true };
    match purpose {
        Purpose::Command => &[
            ("v5.channel.k8s.io", BINARY, Version::V5),
            ("v4.channel.k8s.io", BINARY, Version::V4),
            ("v4.base64.channel.k8s.io", BASE64, Version::V4),
            ("channel.k8s.io", BINARY, Version::V1),
            ("base64.channel.k8s.io", BASE64, Version::V1),
            // The protocol of a client that offers none.
            ("", BINARY, Version::V1),
        ],
        Purpose::PortForward => &[
            (TUNNELED_PORT_FORWARD, Transport::Tunnel, Version::V4),
            ("v4.channel.k8s.io", BINARY, Version::V4),
            ("v4.base64.channel.k8s.io", BASE64, Version::V4),
            ("", BINARY, Version::V4),
        ],
    }
}

/// Selects the protocol of the server's that the client offers and that comes first in the client's
/// list, except that the newest one wins wherever it stands.
///
/// - `may_be_silent`: a client that offers none speaks the one without a name
fn select<'a>(
    offered: impl Iterator<Item = &'a str>,
    known: &'static [Protocol],
    may_be_silent: bool,
) -> Result<Protocol, Refusal> {
    let offered: Vec<&str> = offered.collect();
    let offers = |name: &&str| known.iter().copied().find(|(known, ..)| known == name);
    let newest = known.first().copied().filter(|(name, ..)| offered.contains(name));
    let nothing = || offers(&"").filter(|_| offered.is_empty() && may_be_silent);
    newest.or_else(|| offered.iter().find_map(offers)).or_else(nothing).ok_or_else(|| {
        Refusal::UnknownProtocol {
            offered: offered.iter().map(|name| (*name).to_owned()).collect(),
            accepted: known.iter().map(|(name, ..)| *name).filter(|name| !name.is_empty()).collect(),
        }
    })
}

/// Iterates over the comma-separated words of all headers of a name.
fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Computes the proof that a server has read the key of a WebSocket's handshake (RFC 6455, section
/// 4.2.2).
pub fn accept_key(key: &[u8]) -> HeaderValue {
    let digest = digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        [key, ACCEPT_SUFFIX.as_bytes()].concat().as_slice(),
    );
    // Base64 has no character that a header has not.
    HeaderValue::from_str(&STANDARD.encode(digest)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn negotiated(
        purpose: Purpose,
        upgrade: &'static str,
        offered: &'static [&'static str],
    ) -> Result<String, Refusal> {
        let name =
            if upgrade == "websocket" { "sec-websocket-protocol" } else { "x-stream-protocol-version" };
        let mut entries = vec![("connection", "keep-alive, Upgrade"), ("upgrade", upgrade)];
        entries.extend([("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="), ("sec-websocket-version", "13")]);
        entries.extend(offered.iter().map(|offered| (name, *offered)));
        let handshake = Handshake::negotiate(&headers(&entries), purpose)?;
        let selected = handshake.headers.get(name).map_or("", |value| value.to_str().expect("text"));
        Ok(format!("{:?} {:?} {selected}", handshake.transport, handshake.version))
    }

    #[test]
    fn the_newest_protocol_that_both_know_is_selected() {
        use Purpose::{Command, PortForward};
        let binary = "Channels { base64: false }";
        for (purpose, upgrade, offered, want) in [
            (
                Command,
                "SPDY/3.1",
                &["v4.channel.k8s.io", "v3.channel.k8s.io"][..],
                "Spdy V4 v4.channel.k8s.io".to_owned(),
            ),
            (
                Command,
                "SPDY/3.1",
                &["v9.channel.k8s.io", "channel.k8s.io"],
                "Spdy V1 channel.k8s.io".to_owned(),
            ),
            (
                Command,
                "websocket",
                &["v4.channel.k8s.io, v5.channel.k8s.io"],
                format!("{binary} V5 v5.channel.k8s.io"),
            ),
            (
                Command,
                "websocket",
                &["channel.k8s.io", "v4.channel.k8s.io"],
                format!("{binary} V1 channel.k8s.io"),
            ),
            (Command, "websocket", &[], format!("{binary} V1 ")),
            (
                Command,
                "websocket",
                &["base64url.bearer.authorization.k8s.io.YQ, v4.channel.k8s.io"],
                format!("{binary} V4 v4.channel.k8s.io"),
            ),
            (
                PortForward,
                "websocket",
                &["SPDY/3.1+portforward.k8s.io"],
                "Tunnel V4 SPDY/3.1+portforward.k8s.io".to_owned(),
            ),
            (
                PortForward,
                "websocket",
                &["v4.base64.channel.k8s.io"],
                "Channels { base64: true } V4 v4.base64.channel.k8s.io".to_owned(),
            ),
            (PortForward, "spdy/3.1", &["portforward.k8s.io"], "Spdy V4 portforward.k8s.io".to_owned()),
        ] {
            assert_eq!(negotiated(purpose, upgrade, offered), Ok(want), "{purpose:?} {upgrade} {offered:?}");
        }
    }

    #[test]
    fn unknown_protocols_are_refused() {
        let text = |purpose, upgrade, offered| {
            let refusal = negotiated(purpose, upgrade, offered).expect_err("refused");
            (refusal.response().0, refusal.to_string())
        };
        assert_eq!(
            text(Purpose::PortForward, "SPDY/3.1", &["v4.channel.k8s.io"]),
            (403, "unable to upgrade: unable to negotiate protocol: client supports [v4.channel.k8s.io], server accepts [portforward.k8s.io]".to_owned()),
        );
        assert_eq!(text(Purpose::Command, "SPDY/3.1", &[]).0, 403);
        assert_eq!(text(Purpose::Command, "websocket", &["v6.channel.k8s.io"]).0, 403);
        assert_eq!(text(Purpose::Command, "h2c", &[]).0, 400);
        let plain = Handshake::negotiate(&HeaderMap::new(), Purpose::Command).expect_err("refused");
        assert_eq!((plain.response().0, plain.to_string()), (400, "Upgrade request required".to_owned()));
    }

    #[test]
    fn the_key_of_the_specification() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
