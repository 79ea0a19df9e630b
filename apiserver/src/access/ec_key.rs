//! EC private keys in SEC 1 encoding (`BEGIN EC PRIVATE KEY`), which more clients support than
//! PKCS#8.
//!
//! Source: RFC 5915 (SEC 1), RFC 5958 (PKCS#8, the encoding in which keys are generated and stored
//! here).

use pkcs8::PrivateKeyInfoRef;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use sec1::der::EncodePem;
use sec1::der::asn1::ObjectIdentifier;
use sec1::{EcParameters, EcPrivateKey, LineEnding};

/// The curve P-256.
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// Converts a P-256 key from PKCS#8 PEM to SEC1 PEM; None for any other text.
pub fn sec1_pem(pkcs8_pem: &str) -> Option<String> {
    let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(pkcs8_pem.as_bytes()).ok()? else {
        return None;
    };
    let info = PrivateKeyInfoRef::try_from(key.secret_pkcs8_der()).ok()?;
    if info.algorithm.oids().ok()? != (sec1::ALGORITHM_OID, Some(P256)) {
        return None;
    }
    let mut key = EcPrivateKey::try_from(info.private_key.as_bytes()).ok()?;
    // PKCS#8 names the curve outside of the key.
    key.parameters = Some(EcParameters::NamedCurve(P256));
    key.to_pem(LineEnding::LF).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
    use rustls::crypto::ring::sign::any_ecdsa_type;

    #[test]
    fn the_same_key_in_another_form() {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let text = sec1_pem(&key.serialize_pem()).expect("SEC1");
        assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 64), "{text}");
        let PrivateKeyDer::Sec1(der) = PrivateKeyDer::from_pem_slice(text.as_bytes()).expect("PEM") else {
            panic!("not SEC1");
        };
        // The lengths of a P-256 key with curve and public key.
        assert_eq!(der.secret_sec1_der().len(), 121);
        assert!(der.secret_sec1_der().ends_with(key.public_key_raw()));
        assert!(any_ecdsa_type(&PrivateKeyDer::Sec1(der)).is_ok());
    }

    #[test]
    fn damaged_keys_are_no_keys() {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let whole = key.serialize_der();
        let pem = |der: &[u8]| {
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
        };
        assert!(sec1_pem(&pem(&whole)).is_some());
        for length in [0, 1, 2, 30, whole.len() - 1] {
            assert_eq!(sec1_pem(&pem(&whole[..length])), None, "{length} bytes");
        }
        // The lengths of the sequence, of its algorithm and of the key in it.
        for position in [1, 6, 28] {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            assert_eq!(sec1_pem(&pem(&damaged)), None, "byte {position}");
        }
    }

    #[test]
    fn other_texts_are_no_p256_keys() {
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key").serialize_pem();
        for text in [
            "",
            "junk",
            &other,
            include_str!("testdata/rsa-pkcs8.pem"),
            include_str!("testdata/rsa-pkcs1.pem"),
        ] {
            assert_eq!(sec1_pem(text), None);
        }
    }
}
