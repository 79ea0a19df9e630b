//! The bearer token of a WebSocket request. A browser can set no header of such a request but its
//! sub-protocols, so one of them may carry the token.
//!
//! Source: kube-apiserver's `authentication/request/websocket`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};

use crate::{Error, Result};

const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns `true` if a request asks to be upgraded to a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    upgrade.eq_ignore_ascii_case("websocket")
        && connection.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Returns the sub-protocols that a client offers, without the one that carries a token.
pub fn protocols(headers: &HeaderMap) -> Vec<&str> {
    all_protocols(headers).filter(|protocol| !protocol.starts_with(TOKEN_PROTOCOL)).collect()
}

/// Returns the token among the sub-protocols of a WebSocket request.
///
/// # Errors
/// [`Error::Unauthorized`] for a token that cannot be decoded, for two of them, and for one without
/// another sub-protocol beside it that the server could select.
pub fn bearer_token(headers: &HeaderMap) -> Result<Option<String>> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let mut encoded = all_protocols(headers).filter_map(|protocol| protocol.strip_prefix(TOKEN_PROTOCOL));
    let Some(first) = encoded.next() else { return Ok(None) };
    if encoded.next().is_some() {
        return Err(Error::Unauthorized);
    }
    let token = URL_SAFE_NO_PAD.decode(first).map_err(|_| Error::Unauthorized)?;
    let token = String::from_utf8(token).map_err(|_| Error::Unauthorized)?;
    match token.is_empty() {
        true => Ok(None),
        false if protocols(headers).is_empty() => Err(Error::Unauthorized),
        false => Ok(Some(token)),
    }
}

fn all_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    protocols.map(str::trim).filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, "WebSocket".parse().expect("a value"));
        headers.insert(header::CONNECTION, "keep-alive, Upgrade".parse().expect("a value"));
        for protocol in protocols {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn a_sub_protocol_may_carry_the_token() {
        let with = |text: &str| format!("{TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode(text));
        let (alice, bob) = (with("alice"), with("bob"));
        for (case, protocols, want) in [
            ("none", vec![], Ok(None)),
            ("another only", vec!["v4.channel.k8s.io"], Ok(None)),
            ("a token and another", vec!["v4.channel.k8s.io", &alice], Ok(Some("alice"))),
            ("a token alone", vec![&alice], Err(())),
            ("two tokens", vec!["p", &alice, &bob], Err(())),
            ("no base64", vec!["p", "base64url.bearer.authorization.k8s.io.a=b"], Err(())),
            ("empty", vec!["p", "base64url.bearer.authorization.k8s.io."], Ok(None)),
        ] {
            let token = bearer_token(&headers(&protocols));
            assert_eq!(token.as_ref().map(Option::as_deref).map_err(|_| ()), want, "{case}");
        }
        let list = format!("p, {alice}");
        assert_eq!(super::protocols(&headers(&[&list])), ["p"]);
    }

    #[test]
    fn only_websocket_requests_have_one() {
        let mut plain = headers(&["p", &format!("{TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("alice"))]);
        plain.remove(header::UPGRADE);
        assert!(!is_websocket(&plain));
        assert!(matches!(bearer_token(&plain), Ok(None)));
    }
}
