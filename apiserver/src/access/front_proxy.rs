//! The front proxy: the certificate by which aggregated API servers trust what this server tells them of users. Its authority is
//! another one than that of clients, and is made anew at each start; the servers follow the ConfigMap in which it is published.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::certificates::CertificateError;

const LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// How long before their creation the certificates become valid: clocks differ.
const BACKDATE: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate of the front proxy, and its authority.
pub struct FrontProxy {
    /// The PEM text of the authority's certificate.
    pub ca_pem: String,
    /// The certificate that is presented.
    pub certificate: CertificateDer<'static>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

impl FrontProxy {
    /// Makes both.
    ///
    /// # Errors
    /// They cannot be signed.
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
