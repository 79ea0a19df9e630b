//! Certificates for the requests of others (PKCS#10): by them users and kubelets authenticate, and kubelets serve.
//!
//! The subject, the public key and the alternative names are those of the request, byte for byte; other extensions that it asks
//! for are dropped. rcgen is not used for this: in its subjects no attribute can be there twice, as organizations have to.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SigningKey,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificates::CertificateAuthority;
use super::der;

/// Why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The request cannot be parsed.
    #[error("unable to parse csr")]
    Request,
    /// The request is not signed by its own key.
    #[error("unable to verify certificate request signature")]
    Signature,
    /// The authority's certificate cannot be used.
    #[error("the certificate authority cannot sign")]
    Authority,
    /// The authority is not valid at the time.
    #[error("refusing to sign a certificate that expired in the past")]
    Expired,
    /// The system has no random numbers.
    #[error("unable to generate a serial number")]
    SerialNumber,
}

/// Signs requests by the authority of the server's own client certificates.
#[derive(Clone)]
pub struct CertificateSigner(Arc<CertificateAuthority>);

impl CertificateSigner {
    pub(super) fn new(authority: Arc<CertificateAuthority>) -> CertificateSigner {
        CertificateSigner(authority)
    }

    /// Issues the certificate for a request, and returns it in PEM.
    ///
    /// - `request_pem`: a PEM block of PKCS#10
    /// - `usages`: by the API's names; unknown ones are ignored
    /// - `validity`: cut off where the authority's ends
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn sign(
        &self,
        request_pem: &[u8],
        usages: &[String],
        validity: Range<Timestamp>,
    ) -> Result<String, SignError> {
        let CertificateAuthority { certificate_pem, validity: own, issuer } = self.0.as_ref();
        let pem = Pem::iter_from_buffer(request_pem).next().and_then(Result::ok).ok_or(SignError::Request)?;
        let (_, request) =
            X509CertificationRequest::from_der(&pem.contents).map_err(|_| SignError::Request)?;
        request.verify_signature().map_err(|_| SignError::Signature)?;
        let ca =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|_| SignError::Authority)?;
        let (_, ca) = X509Certificate::from_der(&ca).map_err(|_| SignError::Authority)?;
        let end = Timestamp::from_second(own.not_after).map_err(|_| SignError::Authority)?;
        let not_after = validity.end.min(end);
        if not_after <= validity.start {
            return Err(SignError::Expired);
        }
        let key = issuer.key();
        let algorithm = signature_algorithm(key).ok_or(SignError::Authority)?;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| SignError::SerialNumber)?;
        let info = &request.certification_request_info;
        let certificate = der::sequence(&[
            // Version 3.
            &der::tagged(0xa0, &der::integer(&[2])),
            &der::integer(&serial),
            &algorithm,
            ca.subject().as_raw(),
            &der::sequence(&[&time(validity.start), &time(not_after)]),
            info.subject.as_raw(),
            info.subject_pki.raw,
            &der::tagged(0xa3, &der::sequence(&[&extensions(&request, &ca, usages)])),
        ]);
        let signature = key.sign(&certificate).map_err(|_| SignError::Authority)?;
        Ok(pem_of(&der::sequence(&[&certificate, &algorithm, &der::bit_string(&signature)])))
    }
}

/// The identifier of the algorithm that a key signs with.
fn signature_algorithm(key: &KeyPair) -> Option<Vec<u8>> {
    let algorithm = key.algorithm();
    let ecdsa = |arc: u64| der::sequence(&[&der::object_identifier(&[1, 2, 840, 10045, 4, 3, arc])]);
    let known = [
        (&PKCS_ECDSA_P256_SHA256, ecdsa(2)),
        (&PKCS_ECDSA_P384_SHA384, ecdsa(3)),
        (&PKCS_ED25519, der::sequence(&[&der::object_identifier(&[1, 3, 101, 112])])),
        (
            &PKCS_RSA_SHA256,
            // The parameters are NULL.
            der::sequence(&[&der::object_identifier(&[1, 2, 840, 113549, 1, 1, 11]), &[0x05, 0x00]]),
        ),
    ];
    known.into_iter().find(|(known, _)| *known == algorithm).map(|(_, identifier)| identifier)
}

/// A time, to the second; in two forms, as RFC 5280 has it.
fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    match at.year() {
        1950..=2049 => der::tagged(0x17, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()),
        _ => der::tagged(0x18, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()),
    }
}

fn extensions(
    request: &X509CertificationRequest<'_>,
    ca: &X509Certificate<'_>,
    usages: &[String],
) -> Vec<u8> {
    let mut all = Vec::new();
    let mut add = |arc: u64, is_critical: bool, value: &[u8]| {
        let critical = if is_critical { der::boolean_true() } else { Vec::new() };
        let id = der::object_identifier(&[2, 5, 29, arc]);
        all.extend(der::sequence(&[&id, &critical, &der::octet_string(value)]));
    };
    let bits: Vec<u8> = usages.iter().filter_map(|usage| key_usage(usage)).collect();
    if !bits.is_empty() {
        add(15, true, &der::named_bits(bits));
    }
    let extended: Vec<u8> = usages.iter().filter_map(|usage| extended_key_usage(usage)).flatten().collect();
    if !extended.is_empty() {
        add(37, false, &der::sequence(&[&extended]));
    }
    // Basic constraints: no authority.
    add(19, true, &der::sequence(&[]));
    let key_id = ca.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    });
    if let Some(key_id) = key_id {
        add(35, false, &der::sequence(&[&der::tagged(0x80, key_id)]));
    }
    let has_subject = request.certification_request_info.subject.iter_attributes().next().is_some();
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else { continue };
        let names = requested.extensions.iter().find(|extension| {
            matches!(extension.parsed_extension(), ParsedExtension::SubjectAlternativeName(_))
        });
        if let Some(names) = names {
            add(17, !has_subject, names.value);
            break;
        }
    }
    all
}

/// The bit of a usage of the key.
fn key_usage(usage: &str) -> Option<u8> {
    Some(match usage {
        "signing" | "digital signature" => 0,
        "content commitment" => 1,
        "key encipherment" => 2,
        "data encipherment" => 3,
        "key agreement" => 4,
        "cert sign" => 5,
        "crl sign" => 6,
        "encipher only" => 7,
        "decipher only" => 8,
        _ => return None,
    })
}

/// The identifier of an extended usage of the key.
fn extended_key_usage(usage: &str) -> Option<Vec<u8>> {
    let pkix = |arc: u64| der::object_identifier(&[1, 3, 6, 1, 5, 5, 7, 3, arc]);
    Some(match usage {
        "any" => der::object_identifier(&[2, 5, 29, 37, 0]),
        "server auth" => pkix(1),
        "client auth" => pkix(2),
        "code signing" => pkix(3),
        "email protection" | "s/mime" => pkix(4),
        "ipsec end system" => pkix(5),
        "ipsec tunnel" => pkix(6),
        "ipsec user" => pkix(7),
        "timestamping" => pkix(8),
        "ocsp signing" => pkix(9),
        "microsoft sgc" => der::object_identifier(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => der::object_identifier(&[2, 16, 840, 1, 113730, 4, 1]),
        _ => return None,
    })
}

fn pem_of(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII.
        let (line, more) = rest.split_at(rest.len().min(64));
        pem += line;
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use jiff::SignedDuration;
    use rcgen::{CertificateParams, DnType};

    use super::super::certificates::Certificates;
    use super::*;

    #[test]
    fn a_certificate_has_what_was_asked_for() {
        let clock: super::super::validity::WallClock = Arc::new(SystemTime::now);
        let certificates = Certificates::ephemeral(&[], &clock).expect("certificates");
        let mut params = CertificateParams::new(["a.example.com".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        let key = KeyPair::generate().expect("a key");
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let usages = ["client auth", "digital signature"].map(str::to_owned);
        let now = Timestamp::from_second(Timestamp::now().as_second()).expect("a time");
        let long = SignedDuration::from_hours(24 * 365 * 100);
        for (case, lifetime, want) in
            [("short", SignedDuration::from_mins(10), true), ("longer than the authority", long, false)]
        {
            let validity = now..now + lifetime;
            let pem = certificates.signer().sign(request.as_bytes(), &usages, validity).expect(case);
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect(case);
            let (rest, parsed) = X509Certificate::from_der(&der).expect(case);
            let ca = CertificateDer::from_pem_slice(certificates.ca_pem().as_bytes()).expect(case);
            let (_, ca) = X509Certificate::from_der(&ca).expect(case);
            assert!(rest.is_empty() && parsed.verify_signature(Some(ca.public_key())).is_ok());
            assert!(parsed.subject().to_string().contains("CN=jane"), "{}", parsed.subject());
            assert!(parsed.subject().to_string().contains("O=dev"), "{}", parsed.subject());
            assert_eq!(parsed.public_key().subject_public_key.data, key.public_key_raw());
            let names = parsed.subject_alternative_name().expect(case).expect(case);
            assert!(format!("{names:?}").contains("a.example.com"));
            let extended = parsed.extended_key_usage().expect(case).expect(case);
            assert!(extended.value.client_auth && !extended.value.server_auth && !parsed.is_ca());
            let ends = parsed.validity().not_after.timestamp();
            assert_eq!(ends == (now + lifetime).as_second(), want, "{case}");
        }
        for (case, request, validity, want) in [
            ("no request", "x", now..now + long, "unable to parse csr"),
            (
                "no time left",
                request.as_str(),
                now..now,
                "refusing to sign a certificate that expired in the past",
            ),
        ] {
            let refused = certificates.signer().sign(request.as_bytes(), &usages, validity);
            assert_eq!(refused.expect_err(case).to_string(), want);
        }
    }
}
