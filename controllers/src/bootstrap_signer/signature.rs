//! Detached signatures: a JWS by HS256 without the text that it signs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// Returns the signature of a text by a token: `HEADER..SIGNATURE`, as in RFC 7515, appendix F.
pub fn detached(text: &str, token_id: &str, token_secret: &str) -> String {
    let header = serde_json::json!({"alg": "HS256", "kid": token_id}).to_string();
    let header = URL_SAFE_NO_PAD.encode(header);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token_secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{header}..{signature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the case of upstream's `jws_test.go`.
    #[test]
    fn signatures_are_those_of_upstream() {
        let want = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        assert_eq!(
            detached(
                "Hello from the other side. I must have called a thousand times.",
                "joshua",
                "my voice is my passcode"
            ),
            want
        );
    }
}
