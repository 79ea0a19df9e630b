//! Client certificates that webpki refuses and Go accepts: of X.509 version 1, of an authority, for
//! any usage.
//!
//! Only certificates that an authority of the server signed itself count, so that no chain has to
//! be built. [`parse`] reads all client certificates: a byte that no signature covers is refused.
//!
//! Source: `Certificate.Verify` of Go's `crypto/x509`, with the usage `ExtKeyUsageClientAuth`.

use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::Any;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use super::validity::Validity;

/// Parses a certificate that nothing follows, neither after it nor after its signature; None for
/// any other bytes.
pub fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    let (_, sequence) = Any::from_der(der).ok()?;
    let mut inside = sequence.data;
    // The signed content, the algorithm and the signature.
    for _ in 0..3 {
        inside = Any::from_der(inside).ok()?.0;
    }
    (rest.is_empty() && inside.is_empty()).then_some(certificate)
}

/// Returns `true` if one of the authorities signed a client's certificate, and the certificate may
/// be used by a client. Its validity period is not considered.
///
/// - `now`: the time at which an authority has to be valid, in seconds since 1970
pub fn is_issued_by_any(authorities: &[CertificateDer<'_>], leaf: &X509Certificate<'_>, now: i64) -> bool {
    is_for_clients(leaf)
        && authorities.iter().any(|authority| {
            parse(authority)
                .is_some_and(|authority| is_authority(&authority, now) && is_issued_by(&authority, leaf))
        })
}

/// Returns `true` if a certificate is valid and may sign those of clients.
fn is_authority(authority: &X509Certificate<'_>, now: i64) -> bool {
    let may_sign = match authority.version() {
        X509Version::V3 => {
            matches!(authority.basic_constraints(), Ok(Some(constraints)) if constraints.value.ca)
        }
        _ => true,
    };
    let may_sign_certificates = match authority.key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.key_cert_sign(),
        Err(_) => false,
    };
    may_sign && may_sign_certificates && is_for_clients(authority) && Validity::of(authority).includes(now)
}

fn is_issued_by(authority: &X509Certificate<'_>, leaf: &X509Certificate<'_>) -> bool {
    // Names that an authority may not certify are left to webpki.
    let is_unconstrained = matches!(authority.name_constraints(), Ok(None));
    let algorithm = &leaf.signature_algorithm;
    let is_strong = [
        OID_PKCS1_SHA256WITHRSA,
        OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA,
        OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ED25519,
    ]
    .contains(&algorithm.algorithm);
    is_unconstrained
        && is_strong
        && *algorithm == leaf.tbs_certificate.signature
        && leaf.issuer().as_raw() == authority.subject().as_raw()
        && leaf.verify_signature(Some(authority.public_key())).is_ok()
}

/// Returns `true` if the extensions of a certificate are known and allow its use by a client.
fn is_for_clients(leaf: &X509Certificate<'_>) -> bool {
    let has_version_of_extensions = match leaf.version() {
        X509Version::V1 | X509Version::V2 => leaf.extensions().is_empty(),
        version => version == X509Version::V3,
    };
    let is_for_clients = match leaf.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.client_auth || usage.value.any,
        Err(_) => false,
    };
    has_version_of_extensions
        && is_for_clients
        && leaf.tbs_certificate.extensions_map().is_ok()
        && leaf.extensions().iter().all(is_understood)
}

fn is_understood(extension: &X509Extension<'_>) -> bool {
    match extension.parsed_extension() {
        ParsedExtension::BasicConstraints(_)
        | ParsedExtension::KeyUsage(_)
        | ParsedExtension::ExtendedKeyUsage(_)
        | ParsedExtension::SubjectAlternativeName(_)
        | ParsedExtension::SubjectKeyIdentifier(_)
        | ParsedExtension::AuthorityKeyIdentifier(_)
        | ParsedExtension::CertificatePolicies(_) => true,
        ParsedExtension::ParseError { .. } => false,
        _ => !extension.critical,
    }
}
