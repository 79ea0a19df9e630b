//! Certificates for the requests of others (PKCS#10): by them users and kubelets authenticate, and
//! kubelets serve.
//!
//! A certificate is made of the parsed request alone, the same value that was validated: its
//! subject, public key and alternative names. Everything else that the document asks for is
//! dropped. rcgen is not used for this: in its subjects no attribute can be there twice, as
//! organizations have to.

use std::ops::Range;
use std::sync::Arc;

use coracle_pki::{AlternativeNames, CertificateRequest, Subject, pem};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SigningKey,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authority::CertificateAuthority;
use super::der;

/// The reason why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
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
    /// - `usages`: by the API's names; unknown ones are ignored
    /// - `validity`: cut off where the authority's ends
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        validity: Range<Timestamp>,
    ) -> Result<String, SignError> {
        let CertificateAuthority { certificate_pem, validity: own, issuer } = self.0.as_ref();
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
        let certificate = der::sequence(&[
            // Version 3.
            &der::tagged(0xa0, &der::integer(&[2])),
            &der::integer(&serial),
            &algorithm,
            ca.subject().as_raw(),
            &der::sequence(&[&time(validity.start), &time(not_after)]),
            &subject(&request.subject),
            &request.public_key,
            &der::tagged(0xa3, &der::sequence(&[&extensions(request, &ca, usages)])),
        ]);
        let signature = key.sign(&certificate).map_err(|_| SignError::Authority)?;
        Ok(pem::encode(
            "CERTIFICATE",
            &der::sequence(&[&certificate, &algorithm, &der::bit_string(&signature)]),
        ))
    }
}

/// Returns the identifier of the signature algorithm of a key.
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

/// Encodes a time, to the second, in the form that RFC 5280 requires for its year.
fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    match at.year() {
        1950..=2049 => der::tagged(0x17, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()),
        _ => der::tagged(0x18, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()),
    }
}

/// Encodes a subject with the attributes that Go knows, one set for each type; other attributes are
/// dropped.
///
/// Source: `Name.ToRDNSequence` of Go's `crypto/x509/pkix`.
fn subject(subject: &Subject) -> Vec<u8> {
    // Country, organization, organizational unit, locality, province, street address, postal code.
    const REPEATED: [u64; 7] = [6, 10, 11, 7, 8, 9, 17];
    // Common name, serial number: of several the last one.
    const SINGLE: [u64; 2] = [3, 5];
    let attribute = |arc: u64, text: &str| {
        der::sequence(&[&der::object_identifier(&[2, 5, 4, arc]), &der::directory_string(text)])
    };
    let mut sets = Vec::new();
    for arc in REPEATED {
        let mut values: Vec<_> = subject.texts(&[2, 5, 4, arc]).map(|text| attribute(arc, text)).collect();
        values.sort();
        if !values.is_empty() {
            sets.extend(der::set(&values));
        }
    }
    for arc in SINGLE {
        let id = [2, 5, 4, arc];
        let last = subject.texts(&id).last().filter(|text| !text.is_empty());
        sets.extend(last.map(|text| der::set(&[attribute(arc, text)])).unwrap_or_default());
    }
    der::sequence(&[&sets])
}

/// Encodes the alternative names of the kinds that Go knows, in Go's order.
fn alternative_names(names: &AlternativeNames) -> Vec<u8> {
    let texts = |tag: u8, texts: &[String]| -> Vec<u8> {
        texts.iter().flat_map(|text| der::tagged(tag, text.as_bytes())).collect()
    };
    let addresses: Vec<u8> = names.ip.iter().flat_map(|address| der::tagged(0x87, address)).collect();
    let (dns, email, uri) = (texts(0x82, &names.dns), texts(0x81, &names.email), texts(0x86, &names.uri));
    der::sequence(&[&dns, &email, &addresses, &uri])
}

fn extensions(request: &CertificateRequest, ca: &X509Certificate<'_>, usages: &[String]) -> Vec<u8> {
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
    if !request.names.is_empty() {
        // Critical, if nothing else names the owner.
        let has_subject = subject(&request.subject) != subject(&Subject::default());
        add(17, !has_subject, &alternative_names(&request.names));
    }
    all
}

/// Returns the bit of a key usage.
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

/// Returns the identifier of an extended key usage.
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

#[cfg(test)]
mod tests {
    use coracle_clock::Clock;
    use jiff::SignedDuration;
    use rcgen::{CertificateParams, DnType};

    use super::super::certificates::Certificates;
    use super::*;

    #[test]
    fn a_certificate_has_what_was_asked_for() {
        let clock = Clock::system();
        let certificates = Certificates::ephemeral(&[], &clock).expect("certificates");
        let mut params = CertificateParams::new(["a.example.com".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        let key = KeyPair::generate().expect("a key");
        let document = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let request = CertificateRequest::parse(document.as_bytes()).expect("a request");
        let usages = ["client auth", "digital signature"].map(str::to_owned);
        let now = Timestamp::from_second(clock.now().as_second()).expect("a time");
        let long = SignedDuration::from_hours(24 * 365 * 100);
        for (case, lifetime, want) in
            [("short", SignedDuration::from_mins(10), true), ("longer than the authority", long, false)]
        {
            let validity = now..now + lifetime;
            let pem = certificates.signer().sign(&request, &usages, validity).expect(case);
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
        let refused = certificates.signer().sign(&request, &usages, now..now).expect_err("no time left");
        assert_eq!(refused.to_string(), "refusing to sign a certificate that expired in the past");
    }

    #[test]
    fn subjects_are_written_as_by_go() {
        const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
        let all = Subject::new(&[
            (&[2, 5, 4, 3], "first"),
            (ORGANIZATION, "b"),
            (&[2, 5, 4, 3], "jane"),
            (ORGANIZATION, "a"),
            (&[1, 3, 6, 1, 4, 1, 57683, 2], "a uid"),
            (&[2, 5, 4, 6], "DE"),
        ]);
        let written = subject(&all);
        let (rest, read) = x509_parser::x509::X509Name::from_der(&written).expect("a name");
        assert!(rest.is_empty());
        assert_eq!(read.to_string(), "C=DE, O=a + O=b, CN=jane");
        let read = Subject::read(&read).expect("a subject");
        assert_eq!(read.organizations().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((read.common_name(), read.values(&[1, 3, 6, 1, 4, 1, 57683, 2]).count()), ("jane", 0));
        assert_eq!(subject(&Subject::default()), [0x30, 0]);
    }
}
