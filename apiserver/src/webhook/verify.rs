//! Verification of a server's certificate, with Go's rules and messages.
//!
//! Unlike the verifier of rustls, Go's trusts a certificate that is itself in the CA bundle, which
//! self-signed certificates of webhooks often are, and its errors contain the names that the
//! certificate is valid for.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::ConfigError;

/// The locations at which Linux distributions store the system's trusted certificates, in Go's
/// order.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Verifies servers.
#[derive(Debug)]
pub struct GoVerifier {
    roots: RootCertStore,
    /// The certificates of the bundle, which are trusted as they are.
    trusted: Vec<CertificateDer<'static>>,
    /// The alternative names; the certificate must be valid for one of them, and errors report the
    /// first.
    names: Vec<ServerName<'static>>,
    /// Trusts every certificate.
    insecure: bool,
    provider: Arc<CryptoProvider>,
}

impl GoVerifier {
    /// Creates a verifier.
    ///
    /// - `bundle`: PEM text; None for the certificates of the system.
    /// - `names`: the names of the server. The name in the handshake does not count.
    ///
    /// # Errors
    /// [`ConfigError::CaBundle`] for a bundle without a certificate.
    pub fn new(
        bundle: Option<&[u8]>,
        insecure: bool,
        names: Vec<ServerName<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<GoVerifier, ConfigError> {
        let system;
        let pem = match bundle {
            Some(pem) => pem,
            None if insecure => &[],
            None => {
                system = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
                &system
            }
        };
        let trusted: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        if trusted.is_empty() && bundle.is_some() {
            return Err(ConfigError::CaBundle);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        Ok(GoVerifier { roots, trusted, names, insecure, provider })
    }

    fn verify(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        let (_, parsed) =
            X509Certificate::from_der(own).map_err(|_| "x509: malformed certificate".to_owned())?;
        check_validity(&parsed, now)?;
        let malformed = |_| "x509: malformed certificate".to_owned();
        let certificate = ParsedCertificate::try_from(own).map_err(malformed)?;
        if !self.names.iter().any(|name| verify_server_name(&certificate, name).is_ok()) {
            return Err(self.names.first().map(|name| name_mismatch(&parsed, name)).unwrap_or_default());
        }
        if self.trusted.iter().any(|trusted| trusted == own) {
            return Ok(());
        }
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)
            .map_err(|error| match error {
                Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. },
                ) => "x509: certificate has expired or is not yet valid: ".to_owned(),
                Error::InvalidCertificate(
                    CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
                ) => "x509: certificate specifies an incompatible key usage".to_owned(),
                _ => "x509: certificate signed by unknown authority".to_owned(),
            })
    }
}

fn check_validity(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    let (first, last) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map(|t| t.to_string()).unwrap_or_default();
    let (order, bound) = match () {
        () if now < first => ("before", first),
        () if now > last => ("after", last),
        () => return Ok(()),
    };
    let (now, bound) = (time(now), time(bound));
    Err(format!("x509: certificate has expired or is not yet valid: current time {now} is {order} {bound}"))
}

/// Returns the text of Go's `x509.HostnameError`.
fn name_mismatch(certificate: &X509Certificate<'_>, wanted: &ServerName<'_>) -> String {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let ips: Vec<String> = names.iter().filter_map(ip_of).collect();
    let hosts: Vec<&str> = names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(host) => Some(*host),
            _ => None,
        })
        .collect();
    let wanted_text = wanted.to_str();
    if let ServerName::IpAddress(_) = wanted {
        if ips.is_empty() {
            return format!(
                "x509: cannot validate certificate for {wanted_text} because it doesn't contain any IP SANs"
            );
        }
        return format!("x509: certificate is valid for {}, not {wanted_text}", ips.join(", "));
    }
    let has_common_name = certificate.subject().iter_common_name().next().is_some();
    match () {
        () if names.is_empty() && has_common_name => {
            "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned()
        }
        () if hosts.is_empty() => {
            format!("x509: certificate is not valid for any names, but wanted to match {wanted_text}")
        }
        () => format!("x509: certificate is valid for {}, not {wanted_text}", hosts.join(", ")),
    }
}

fn ip_of(name: &GeneralName<'_>) -> Option<String> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string())).ok()
}

/// A text of the verifier as an error of rustls.
#[derive(Debug, thiserror::Error)]
#[error("tls: failed to verify certificate: {0}")]
pub struct Unverified(String);

impl ServerCertVerifier for GoVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.insecure {
            self.verify(own, intermediates, now).map_err(|text| {
                Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Unverified(text)))))
            })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
