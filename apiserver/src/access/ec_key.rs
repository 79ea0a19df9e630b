//! EC private keys in SEC 1 encoding (`BEGIN EC PRIVATE KEY`), which more clients support than PKCS#8.
//!
//! Source: RFC 5915 (SEC 1), RFC 5958 (PKCS#8, the encoding in which keys are generated and stored here).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::der_parser::ber::BerObjectContent;
use x509_parser::der_parser::der::parse_der;

use super::jwt::{SEQUENCE, der};

const INTEGER: u8 = 0x02;
/// `[0]` and `[1]` in an ECPrivateKey: the curve, and the public key.
const CURVE: u8 = 0xa0;
const PUBLIC_KEY: u8 = 0xa1;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;

/// The value of the object identifier of the curve P-256: 1.2.840.10045.3.1.7.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// A P-256 key in PKCS#8 PEM as SEC1 PEM; None for any other text.
pub fn sec1_pem(pkcs8_pem: &str) -> Option<String> {
    let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(pkcs8_pem.as_bytes()).ok()? else {
        return None;
    };
    let (_, info) = parse_der(key.secret_pkcs8_der()).ok()?;
    let [_, algorithm, inner, ..] = info.as_sequence().ok()?.as_slice() else { return None };
    let [_, curve] = algorithm.as_sequence().ok()?.as_slice() else { return None };
    if curve.as_oid().ok()?.as_bytes() != P256 {
        return None;
    }
    let (_, inner) = parse_der(inner.as_slice().ok()?).ok()?;
    let members = inner.as_sequence().ok()?;
    let secret = members.get(1)?.as_slice().ok()?;
    let public = members.iter().skip(2).find_map(|member| match &member.content {
        BerObjectContent::Unknown(any) if any.tag().0 == 1 => Some(any.data),
        _ => None,
    });
    let mut content = der(INTEGER, &[1]);
    content.extend(der(OCTET_STRING, secret));
    content.extend(der(CURVE, &der(OBJECT_IDENTIFIER, P256)));
    if let Some(bits) = public {
        content.extend(der(PUBLIC_KEY, bits));
    }
    Some(pem("EC PRIVATE KEY", &der(SEQUENCE, &content)))
}

/// Lines of 64 characters between the markers (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut encoded = STANDARD.encode(der);
    while !encoded.is_empty() {
        let rest = encoded.split_off(encoded.len().min(LINE));
        text.push_str(&encoded);
        text.push('\n');
        encoded = rest;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
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
