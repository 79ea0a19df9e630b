//! JWT: the signing key of service account tokens, stored beside the certificates, and the tokens
//! signed with it.
//!
//! Generated keys are for ES256. Keys of other clusters, which are loaded from files, are mostly
//! for RS256. Tokens may also be verified with the public keys of other signers
//! ([`VerificationKey`]).
//!
//! Source: RFC 7519 and 7515; RFC 7517 for the public key.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_private_fs::NewFiles;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::public_key_to_spki;
use serde_json::{Value, json};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};

/// The default issuer of the tokens, and their audience unless a request names others.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// The reason why there is no signing key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file contains no usable key.
    #[error("{path} holds no usable signing key", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file contains no usable public key.
    #[error("{path} holds no usable public key", path = .path.display())]
    NoPublicKey {
        /// The file.
        path: PathBuf,
    },
    /// No key can be generated.
    #[error("cannot make a signing key")]
    Generate,
}

/// Signs tokens, and verifies its own signatures and those of other keys.
pub struct SigningKey {
    pair: Pair,
    /// Its own public key first.
    verification: Vec<VerificationKey>,
    issuers: Vec<String>,
    random: SystemRandom,
}

impl SigningKey {
    /// Generates a key, in memory only.
    pub fn ephemeral() -> Result<SigningKey, KeyError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let document = document.map_err(|_| KeyError::Generate)?;
        SigningKey::read(document.as_ref()).ok_or(KeyError::Generate)
    }

    /// Generates a key for a fork, which also verifies the tokens of this one, and has its issuers.
    ///
    /// # Errors
    /// The system provides no randomness.
    pub fn fork(&self) -> Result<SigningKey, KeyError> {
        let fork = SigningKey::ephemeral()?.with_issuers(self.issuers.clone());
        Ok(fork.with_verification_keys(self.verification.iter().cloned()))
    }

    /// Reads the key in `folder`, generating it if it is missing.
    ///
    /// - `new_files`: gets the file of a key that is generated, which is not written yet
    ///
    /// # Errors
    /// The key cannot be read or generated.
    pub fn in_folder(folder: &Path, new_files: &mut NewFiles) -> Result<SigningKey, KeyError> {
        let path = folder.join("service-account.key");
        match std::fs::read(&path) {
            Ok(bytes) => SigningKey::read(&bytes).ok_or(KeyError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let random = SystemRandom::new();
                let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                    .map_err(|_| KeyError::Generate)?;
                new_files.add(path, document.as_ref());
                SigningKey::read(document.as_ref()).ok_or(KeyError::Generate)
            }
            Err(source) => Err(KeyError::Io { path, source }),
        }
    }

    /// Reads the key in a file, in PEM or DER.
    pub fn in_file(path: &Path) -> Result<SigningKey, KeyError> {
        let bytes = std::fs::read(path).map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
        let pem = PrivateKeyDer::from_pem_slice(&bytes).ok();
        let der = pem.as_ref().map_or(bytes.as_slice(), PrivateKeyDer::secret_der);
        SigningKey::read(der).ok_or_else(|| KeyError::Damaged { path: path.to_owned() })
    }

    fn read(der: &[u8]) -> Option<SigningKey> {
        let random = SystemRandom::new();
        let pair = Pair::read(der, &random)?;
        let own = VerificationKey::of(&pair);
        Some(SigningKey { pair, verification: vec![own], issuers: vec![ISSUER.to_owned()], random })
    }

    /// Verifies tokens with these keys as well.
    pub fn with_verification_keys(mut self, keys: impl IntoIterator<Item = VerificationKey>) -> SigningKey {
        self.verification.extend(keys);
        self
    }

    /// Replaces the issuers: new tokens name the first, and tokens of all of them are valid. An
    /// empty list changes nothing.
    pub fn with_issuers(mut self, issuers: Vec<String>) -> SigningKey {
        if !issuers.is_empty() {
            self.issuers = issuers;
        }
        self
    }

    /// Returns the issuer of new tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// Returns all accepted issuers, which are also the audiences of tokens for this server.
    pub fn issuers(&self) -> &[String] {
        &self.issuers
    }

    /// Returns the id of its own key.
    fn id(&self) -> &str {
        self.verification.first().map_or("", |own| &own.id)
    }

    /// Signs a token with these claims. None if the system provides no randomness.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.pair.algorithm(), "kid": self.id()});
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.pair.sign(&self.random, text.as_bytes())?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Verifies the signature of a token and returns its claims, unchecked; None for any other
    /// text.
    pub fn verify(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        let is_named =
            |key: &&VerificationKey| header["alg"] == key.algorithm && header["kid"] == key.id.as_str();
        let key = self.verification.iter().find(is_named)?;
        UnparsedPublicKey::new(key.verification, &key.public)
            .verify(text.as_bytes(), &decode(signature)?)
            .ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// Returns the algorithm of its signatures, such as `RS256`.
    pub fn algorithm(&self) -> &'static str {
        self.pair.algorithm()
    }

    /// Returns the public key, as `/openid/v1/jwks` returns it.
    pub fn jwks(&self) -> Value {
        let mut key = self.pair.jwk();
        key["use"] = "sig".into();
        key["kid"] = self.id().into();
        key["alg"] = self.pair.algorithm().into();
        json!({"keys": [key]})
    }
}

/// A public key that tokens are verified with.
#[derive(Clone)]
pub struct VerificationKey {
    algorithm: &'static str,
    verification: &'static dyn VerificationAlgorithm,
    public: Vec<u8>,
    id: String,
}

impl VerificationKey {
    /// Reads the keys in a PEM file: public keys, certificates, and private keys, as kube-apiserver
    /// does for `--service-account-key-file`. Skips keys for unsupported algorithms.
    ///
    /// # Errors
    /// The file cannot be read, or holds no usable key.
    pub fn in_file(path: &Path) -> Result<Vec<VerificationKey>, KeyError> {
        let bytes = std::fs::read(path).map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
        let public = SubjectPublicKeyInfoDer::pem_slice_iter(&bytes)
            .filter_map(|key| VerificationKey::from_subject_public_key_info(&key.ok()?));
        let certified = CertificateDer::pem_slice_iter(&bytes).filter_map(|certificate| {
            let certificate = certificate.ok()?;
            let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
            VerificationKey::from_subject_public_key_info(parsed.public_key().raw)
        });
        let private = PrivateKeyDer::pem_slice_iter(&bytes).filter_map(|key| {
            let pair = Pair::read(key.ok()?.secret_der(), &SystemRandom::new())?;
            Some(VerificationKey::of(&pair))
        });
        let keys: Vec<VerificationKey> = public.chain(certified).chain(private).collect();
        if keys.is_empty() { Err(KeyError::NoPublicKey { path: path.to_owned() }) } else { Ok(keys) }
    }

    fn of(pair: &Pair) -> VerificationKey {
        VerificationKey {
            algorithm: pair.algorithm(),
            verification: pair.verification(),
            public: pair.public().to_vec(),
            id: key_id(&pair.subject_public_key_info()),
        }
    }

    fn from_subject_public_key_info(der: &[u8]) -> Option<VerificationKey> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        let curve = info.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
        let (algorithm, verification): (_, &dyn VerificationAlgorithm) = if info.algorithm.algorithm
            == OID_KEY_TYPE_EC_PUBLIC_KEY
            && curve.is_some_and(|curve| curve == OID_EC_P256)
        {
            ("ES256", &ECDSA_P256_SHA256_FIXED)
        } else if info.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION {
            ("RS256", &RSA_PKCS1_2048_8192_SHA256)
        } else {
            return None;
        };
        Some(VerificationKey {
            algorithm,
            verification,
            public: info.subject_public_key.data.to_vec(),
            id: key_id(der),
        })
    }
}

/// Computes the id of a public key as other servers do.
fn key_id(subject_public_key_info: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, subject_public_key_info))
}

/// A private key and its public one.
enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Pair {
    /// Reads a key pair from PKCS#8, or from PKCS#1 for RSA.
    fn read(der: &[u8], random: &SystemRandom) -> Option<Pair> {
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random) {
            return Some(Pair::Ecdsa(pair));
        }
        RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).map(Pair::Rsa).ok()
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Pair::Ecdsa(_) => "ES256",
            Pair::Rsa(_) => "RS256",
        }
    }

    fn verification(&self) -> &'static dyn VerificationAlgorithm {
        match self {
            Pair::Ecdsa(_) => &ECDSA_P256_SHA256_FIXED,
            Pair::Rsa(_) => &RSA_PKCS1_2048_8192_SHA256,
        }
    }

    fn public(&self) -> &[u8] {
        match self {
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    /// Returns the SubjectPublicKeyInfo of the public key (RFC 5280).
    fn subject_public_key_info(&self) -> SubjectPublicKeyInfoDer<'static> {
        let algorithm = match self {
            Pair::Ecdsa(_) => alg_id::ECDSA_P256,
            Pair::Rsa(_) => alg_id::RSA_ENCRYPTION,
        };
        public_key_to_spki(&algorithm, self.public())
    }

    fn sign(&self, random: &SystemRandom, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Pair::Ecdsa(pair) => pair.sign(random, text).ok().map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, text, &mut signature).ok().map(|()| signature)
            }
        }
    }

    /// Returns the members of the JWK.
    fn jwk(&self) -> Value {
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        match self {
            Pair::Ecdsa(pair) => {
                // An uncompressed point: 4, then x and y.
                let point = pair.public_key().as_ref();
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            Pair::Rsa(pair) => {
                let key = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": encode(&key.n), "e": encode(&key.e)})
            }
        }
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
    fn the_header_names_our_algorithm_and_our_key() {
        let key = SigningKey::ephemeral().expect("a key");
        let kid = key.id();
        for (case, header, want) in [
            ("ours", json!({"alg": "ES256", "kid": kid}), true),
            ("more members", json!({"alg": "ES256", "kid": kid, "typ": "JWT", "x": 1}), true),
            ("no signature", json!({"alg": "none", "kid": kid}), false),
            ("another algorithm", json!({"alg": "RS256", "kid": kid}), false),
            ("a shared secret", json!({"alg": "HS256", "kid": kid}), false),
            ("an algorithm in lower case", json!({"alg": "es256", "kid": kid}), false),
            ("no algorithm", json!({"kid": kid}), false),
            ("another key", json!({"alg": "ES256", "kid": "other"}), false),
            ("no key", json!({"alg": "ES256"}), false),
            ("no object", json!(["ES256", kid]), false),
        ] {
            let [header, claims] = [&header, &json!({})].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
            let text = format!("{header}.{claims}");
            let signature =
                URL_SAFE_NO_PAD.encode(key.pair.sign(&key.random, text.as_bytes()).expect("signed"));
            assert_eq!(key.verify(&format!("{text}.{signature}")).is_some(), want, "{case}");
            for wrong in [format!("{text}."), format!("{text}.{signature}="), format!("{text}.{signature}.x")]
            {
                assert_eq!(key.verify(&wrong), None, "{case}: {wrong}");
            }
        }
    }

    fn in_folder(folder: &Path) -> Result<SigningKey, KeyError> {
        let mut new_files = NewFiles::default();
        let key = SigningKey::in_folder(folder, &mut new_files)?;
        new_files.write().map_err(|(path, source)| KeyError::Io { path, source })?;
        Ok(key)
    }

    #[test]
    fn damaged_keys_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("service-account.key");
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let whole = document.as_ref();
        let mut other_public_key = whole.to_vec();
        *other_public_key.last_mut().expect("bytes") ^= 1;
        for (case, content, want) in [
            ("whole", whole, true),
            ("empty", &[], false),
            ("cut off", &whole[..whole.len() - 1], false),
            ("with another public key", &other_public_key, false),
        ] {
            std::fs::write(&path, content).expect("written");
            assert_eq!(in_folder(folder.path()).is_ok(), want, "{case}");
            assert_eq!(SigningKey::in_file(&path).is_ok(), want, "{case}");
            assert_eq!(std::fs::read(&path).expect("read"), content, "{case}: the file stays");
        }
    }

    #[test]
    fn a_key_in_a_folder_is_reused() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = in_folder(folder.path()).expect("a key").sign(&json!({})).expect("a token");
        assert!(in_folder(folder.path()).expect("the same key").verify(&token).is_some());
        std::fs::write(folder.path().join("service-account.key"), "junk").expect("written");
        assert!(matches!(in_folder(folder.path()), Err(KeyError::Damaged { .. })));
    }

    #[test]
    fn keys_of_other_clusters_sign_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sa.key");
        for (case, content, want) in [
            ("RSA in PKCS#8", &include_bytes!("testdata/rsa-pkcs8.pem")[..], Some(("RS256", "RSA"))),
            ("RSA in PKCS#1", &include_bytes!("testdata/rsa-pkcs1.pem")[..], Some(("RS256", "RSA"))),
            ("another file", b"junk", None),
        ] {
            std::fs::write(&file, content).expect("written");
            let key = SigningKey::in_file(&file).ok();
            assert_eq!(key.is_some(), want.is_some(), "{case}");
            let Some((key, (algorithm, kind))) = key.zip(want) else { continue };
            let claims = json!({"sub": "me"});
            let token = key.sign(&claims).expect("a token");
            assert_eq!(key.verify(&token), Some(claims), "{case}");
            let jwk = &key.jwks()["keys"][0];
            assert_eq!((&jwk["alg"], &jwk["kty"]), (&json!(algorithm), &json!(kind)), "{case}");
            // As openssl prints it: pkey -pubout -outform DER | dgst -sha256 -binary | base64
            assert_eq!(jwk["kid"], "kFx36kQMb6_zEHx8CkxnDDHXaJi07HB2IBAm4WUImeI", "{case}");
        }
    }

    #[test]
    fn tokens_of_other_keys_verify_where_their_public_key_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sa");
        let certified = rcgen::generate_simple_self_signed(["sa".to_owned()]).expect("a certificate");
        let own = certified.signing_key.serialize_pem();
        for (case, private, public) in [
            ("a certificate", own.as_str(), certified.cert.pem()),
            ("a public key", own.as_str(), certified.signing_key.public_key_pem()),
            (
                "two keys",
                own.as_str(),
                [include_str!("testdata/rsa-pkcs8.pem"), &certified.cert.pem()].concat(),
            ),
            (
                "a private key",
                include_str!("testdata/rsa-pkcs1.pem"),
                include_str!("testdata/rsa-pkcs8.pem").to_owned(),
            ),
        ] {
            std::fs::write(&file, private).expect(case);
            let token = SigningKey::in_file(&file).expect(case).sign(&json!({"sub": "me"})).expect(case);
            let other = SigningKey::ephemeral().expect(case);
            assert_eq!(other.verify(&token), None, "{case}");
            std::fs::write(&file, public).expect(case);
            let other = other.with_verification_keys(VerificationKey::in_file(&file).expect(case));
            assert_eq!(other.verify(&token), Some(json!({"sub": "me"})), "{case}");
        }
        std::fs::write(&file, "junk").expect("written");
        assert!(matches!(VerificationKey::in_file(&file), Err(KeyError::NoPublicKey { .. })));
    }
}
