//! The front proxy's client certificate, by which aggregated API servers trust the user headers of
//! this server. Its CA is separate from the client CA, and is generated at each start; the servers
//! follow the ConfigMap in which it is published.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::certificates::CertificateError;

/// Validity: ten years; both are regenerated at each start.
const LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// The time by which `notBefore` precedes creation, for clock skew.
const BACKDATE: Duration = Duration::from_secs(24 * 60 * 60);

/// The client certificate of the front proxy, and its CA.
pub struct FrontProxy {
    /// The PEM text of the CA's certificate.
    pub ca_pem: String,
    /// The certificate that is presented.
    pub certificate: CertificateDer<'static>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

impl FrontProxy {
    /// Generates the CA and the client certificate.
    ///
    /// # Errors
    /// A certificate cannot be signed.
    pub fn generate(now: SystemTime) -> Result<FrontProxy, CertificateError> {
        let failed = |source| CertificateError::Issue { name: "front-proxy-client".to_owned(), source };
        let ca_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut ca = params("front-proxy-ca", now);
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = ca.self_signed(&ca_key).map_err(failed)?.pem();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut client = params("front-proxy-client", now);
        client.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        client.use_authority_key_identifier_extension = true;
        let certificate = client.signed_by(&key, &Issuer::new(ca, ca_key)).map_err(failed)?;
        Ok(FrontProxy {
            ca_pem,
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }
}

fn params(name: &str, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) =
        (now.checked_sub(BACKDATE).unwrap_or(now).into(), (now + LIFETIME).into());
    params
}
