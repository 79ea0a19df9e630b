//! JWT: the signing key of service account tokens, kept beside the certificates, and tokens signed with it (ES256).
//!
//! Source: RFC 7519 and 7515; RFC 7517 for the key as clients read it.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::file::{self, Secrecy};

/// Why there is no key to sign with.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} holds no usable signing key", path = .path.display())]
    Damaged { path: PathBuf },
    #[error("cannot make a signing key")]
    Generate,
}

/// Signs tokens, and knows its own again.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

impl SigningKey {
    /// A new key, in memory only.
    pub fn ephemeral() -> Result<SigningKey, KeyError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let document = document.map_err(|_| KeyError::Generate)?;
        SigningKey::read(document.as_ref()).ok_or(KeyError::Generate)
    }

    /// The key in `folder`, made if it is missing.
    pub fn in_folder(folder: &Path) -> Result<SigningKey, KeyError> {
        let path = folder.join("service-account.key");
        match std::fs::read(&path) {
            Ok(bytes) => SigningKey::read(&bytes).ok_or(KeyError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let random = SystemRandom::new();
                let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                    .map_err(|_| KeyError::Generate)?;
                file::write(&path, document.as_ref(), Secrecy::Private)
                    .map_err(|source| KeyError::Io { path, source })?;
                SigningKey::read(document.as_ref()).ok_or(KeyError::Generate)
            }
            Err(source) => Err(KeyError::Io { path, source }),
        }
    }

    /// The key in a file, PKCS#8 in PEM or plain.
    pub fn in_file(path: &Path) -> Result<SigningKey, KeyError> {
        let bytes = std::fs::read(path).map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
        let pem = PrivatePkcs8KeyDer::from_pem_slice(&bytes).ok();
        let pkcs8 = pem.as_ref().map_or(bytes.as_slice(), PrivatePkcs8KeyDer::secret_pkcs8_der);
        SigningKey::read(pkcs8).ok_or_else(|| KeyError::Damaged { path: path.to_owned() })
    }

    fn read(pkcs8: &[u8]) -> Option<SigningKey> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).ok()?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, pair.public_key().as_ref()));
        Some(SigningKey { pair, id, random })
    }

    /// The token that says these claims. None if the system has no randomness.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.pair.sign(&self.random, text.as_bytes()).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token of ours, whatever they say; None for any other text.
    pub fn verify(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != "ES256" || header["kid"] != self.id.as_str() {
            return None;
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(text.as_bytes(), &decode(signature)?)
            .ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// The public key, as `/openid/v1/jwks` shows it.
    pub fn jwks(&self) -> Value {
        // An uncompressed point: 4, then x and y.
        let point = self.pair.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": encode(x), "y": encode(y),
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_tokens_verify() {
        let key = SigningKey::ephemeral().expect("a key");
        let other = SigningKey::ephemeral().expect("a key");
        let claims = json!({"sub": "me"});
        let token = key.sign(&claims).expect("a token");
        assert_eq!(key.verify(&token), Some(claims));
        assert_eq!(other.verify(&token), None);
        let (text, signature) = token.rsplit_once('.').expect("three parts");
        for wrong in
            ["", "a.b.c", text, &format!("{text}x.{signature}"), &format!("{text}.{}", "A".repeat(86))]
        {
            assert_eq!(key.verify(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_in_a_folder_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = SigningKey::in_folder(folder.path()).expect("a key").sign(&json!({})).expect("a token");
        assert!(SigningKey::in_folder(folder.path()).expect("the same key").verify(&token).is_some());
        std::fs::write(folder.path().join("service-account.key"), "junk").expect("written");
        assert!(matches!(SigningKey::in_folder(folder.path()), Err(KeyError::Damaged { .. })));
    }
}
