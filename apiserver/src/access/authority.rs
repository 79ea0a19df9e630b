//! The cluster's certificate authority, and the certificates that it issues for this server and its
//! administrator.
//!
//! The authority is never replaced, because every issued kubeconfig trusts it: problems with it are
//! reported instead.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coracle_private_fs::NewFiles;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authenticate::MASTERS;
use super::validity::{Validity, unix_seconds};

/// The user of the kubeconfig.
pub const ADMIN: &str = "coracle-admin";

/// The names in every serving certificate; flags may add others.
pub(super) const SERVER_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.0.0.1",
];

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const CA_LIFETIME: Duration = Duration::from_secs(3650 * DAY.as_secs());
pub(super) const LEAF_LIFETIME: Duration = Duration::from_secs(365 * DAY.as_secs());
/// The time by which certificates are valid before their creation, but not before their authority:
/// clocks differ and may be set back.
pub(super) const BACKDATE: Duration = Duration::from_secs(365 * DAY.as_secs());
/// The same for certificates that are issued before the validity of their authority begins.
const LEAF_BACKDATE: Duration = Duration::from_secs(60 * 60);

/// A certificate and its private key.
#[derive(Clone)]
pub struct Pair {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The private key in PEM.
    pub key_pem: String,
}

/// The reason why there are no certificates: one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    #[error(
        "the certificate authority in {} is damaged: {why}; restore it, or remove the folder to start with a new one (clients then need a new kubeconfig)",
        folder.display()
    )]
    /// The stored authority cannot be used.
    DamagedAuthority {
        /// The folder of the authority.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file of the operator holds no certificate or key that can be used.
    #[error("{}: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate for {name:?}: {source}")]
    Issue {
        /// The name of the certificate.
        name: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// The TLS configuration is invalid.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A stored certificate or key is no PEM.
    #[error("certificate: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
}

impl Pair {
    /// Adds the files of the pair. The key comes first, so that every certificate on disk has its
    /// key.
    pub(super) fn add_to(&self, files: &mut NewFiles, folder: &Path, name: &str) {
        for (extension, content) in [("key", &self.key_pem), ("crt", &self.certificate_pem)] {
            files.add(folder.join(name).with_extension(extension), content.as_bytes());
        }
    }
}

/// A certificate to be issued.
pub(super) struct Leaf {
    /// The files' name in the folder, without extension.
    pub(super) file: &'static str,
    common_name: &'static str,
    organization: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
    names: BTreeSet<String>,
}

impl Leaf {
    pub(super) fn server(names: &[String]) -> Leaf {
        let names = SERVER_NAMES.iter().map(|n| (*n).to_owned()).chain(names.iter().map(|n| canonical(n)));
        Leaf {
            file: "apiserver",
            common_name: "kube-apiserver",
            organization: None,
            usage: ExtendedKeyUsagePurpose::ServerAuth,
            names: names.collect(),
        }
    }

    pub(super) fn admin() -> Leaf {
        Leaf {
            file: "admin",
            common_name: ADMIN,
            organization: Some(MASTERS),
            usage: ExtendedKeyUsagePurpose::ClientAuth,
            names: BTreeSet::new(),
        }
    }

    pub(super) fn read(&self, folder: &Path) -> Option<Pair> {
        let read = |extension| fs::read_to_string(folder.join(self.file).with_extension(extension)).ok();
        let pair = Pair { certificate_pem: read("crt")?, key_pem: read("key")? };
        (!pair.certificate_pem.is_empty()).then_some(pair)
    }
}

/// Normalizes a name to the form in certificates: addresses are canonical.
fn canonical(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

/// The certificate authority, able to sign.
pub(super) struct CertificateAuthority {
    pub(super) certificate_pem: String,
    pub(super) validity: Validity,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    const FILE: &'static str = "ca";

    pub(super) fn new(now: SystemTime) -> Result<CertificateAuthority, CertificateError> {
        CertificateAuthority::generate(now).map(|(authority, _)| authority)
    }

    fn generate(now: SystemTime) -> Result<(CertificateAuthority, Pair), CertificateError> {
        let failed = |source| CertificateError::Issue { name: "coracle-ca".to_owned(), source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "coracle-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let (not_before, not_after) = (backdated(now, BACKDATE), now + CA_LIFETIME);
        (params.not_before, params.not_after) = (not_before.into(), not_after.into());
        let validity = Validity { not_before: unix_seconds(not_before), not_after: unix_seconds(not_after) };
        let certificate_pem = params.self_signed(&key).map_err(failed)?.pem();
        let pair = Pair { certificate_pem: certificate_pem.clone(), key_pem: key.serialize_pem() };
        Ok((CertificateAuthority { certificate_pem, validity, issuer: Issuer::new(params, key) }, pair))
    }

    /// Loads the authority in `folder`; generates one if none was ever written, and adds its files.
    pub(super) fn in_folder(
        folder: &Path,
        now: SystemTime,
        new_files: &mut NewFiles,
    ) -> Result<CertificateAuthority, CertificateError> {
        let damaged = |why: String| CertificateError::DamagedAuthority { folder: folder.to_owned(), why };
        let read = |name: &str| match fs::read_to_string(folder.join(name)) {
            // A power failure can leave a newly created file empty.
            Ok(text) => Ok(Some(text).filter(|t| !t.is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(damaged(format!("{name}: {error}"))),
        };
        let issued = [Leaf::server(&[]), Leaf::admin()].iter().any(|leaf| leaf.read(folder).is_some());
        match (read("ca.crt")?, read("ca.key")?) {
            (Some(certificate), Some(key)) => {
                CertificateAuthority::load(certificate, &key, now).map_err(damaged)
            }
            // A key alone, with nothing signed by it: an earlier start was interrupted here.
            (None, _) if !issued => {
                let (authority, pair) = CertificateAuthority::generate(now)?;
                pair.add_to(new_files, folder, CertificateAuthority::FILE);
                Ok(authority)
            }
            (None, _) => Err(damaged("ca.crt is missing".to_owned())),
            (Some(_), None) => Err(damaged("ca.key is missing".to_owned())),
        }
    }

    fn load(certificate_pem: String, key_pem: &str, now: SystemTime) -> Result<CertificateAuthority, String> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| format!("ca.crt: {error}"))?;
        let key = KeyPair::from_pem(key_pem).map_err(|error| format!("ca.key: {error}"))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| format!("ca.crt: {error}"))?;
        if !holds_key(&parsed, &key) {
            return Err("ca.key is not the key of ca.crt".to_owned());
        }
        if !parsed.is_ca() {
            return Err("ca.crt is not an authority's certificate".to_owned());
        }
        let validity = Validity::of(&parsed);
        if unix_seconds(now) >= validity.not_after {
            return Err("ca.crt has expired".to_owned());
        }
        if !validity.includes(unix_seconds(now)) {
            tracing::warn!(
                "ca.crt is not valid yet: some clients will not trust it until the clock is right"
            );
        }
        let issuer = Issuer::from_ca_cert_der(&der.clone().into_owned(), key)
            .map_err(|error| format!("ca.crt: {error}"))?;
        Ok(CertificateAuthority { certificate_pem, validity, issuer })
    }

    pub(super) fn issue(&self, leaf: &Leaf, now: SystemTime) -> Result<Pair, CertificateError> {
        let failed = |source| {
            let name =
                leaf.names.iter().map(String::as_str).chain([leaf.common_name]).collect::<Vec<_>>().join(",");
            CertificateError::Issue { name, source }
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params =
            CertificateParams::new(leaf.names.iter().cloned().collect::<Vec<_>>()).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, leaf.common_name);
        if let Some(organization) = leaf.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![leaf.usage.clone()];
        params.use_authority_key_identifier_extension = true;
        // The validity stays within the authority's, unless the clock is outside of it.
        let authority = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let not_before = authority(self.validity.not_before)
            .max(backdated(now, BACKDATE))
            .min(backdated(now, LEAF_BACKDATE));
        let not_after = authority(self.validity.not_after).min(now + LEAF_LIFETIME);
        (params.not_before, params.not_after) = (not_before.into(), not_after.into());
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Pair { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Returns `true` if a stored pair matches what would be issued now, and is valid for long
    /// enough.
    pub(super) fn is_current(&self, pair: &Pair, leaf: &Leaf, now: SystemTime) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()) else { return false };
        let Ok(ca_der) = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()) else {
            return false;
        };
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return false };
        let Ok((_, ca)) = X509Certificate::from_der(&ca_der) else { return false };
        let Ok(key) = KeyPair::from_pem(&pair.key_pem) else { return false };
        holds_key(&parsed, &key)
            && parsed.verify_signature(Some(ca.public_key())).is_ok()
            && !Validity::of(&parsed).is_due(unix_seconds(now))
            && names_of(&parsed) == leaf.names
    }
}

/// Returns a time before another one, but not one that some clients cannot parse.
fn backdated(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_sub(by).map_or(UNIX_EPOCH, |earlier| earlier.max(UNIX_EPOCH))
}

fn holds_key(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().subject_public_key.data == key.public_key_raw()
}

pub(super) fn names_of(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => IpAddr::from(v4).to_string(),
            (_, Ok(v6)) => IpAddr::from(v6).to_string(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    extension.value.general_names.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_valid_within_the_validity_of_their_authority() {
        let start = SystemTime::now();
        let authority = CertificateAuthority::new(start).expect("an authority");
        for (case, when) in [
            ("at once", start),
            ("later", start + LEAF_LIFETIME),
            ("near the authority's end", start + CA_LIFETIME - DAY),
            ("before the authority", start - BACKDATE - DAY),
            ("at the beginning of time", UNIX_EPOCH),
        ] {
            let pair = authority.issue(&Leaf::admin(), when).expect(case);
            let der = CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()).expect(case);
            let (_, parsed) = X509Certificate::from_der(&der).expect(case);
            let validity = Validity::of(&parsed);
            assert!(validity.includes(unix_seconds(when)), "{case}: {validity:?}");
            assert!(validity.not_after <= authority.validity.not_after, "{case}: {validity:?}");
        }
    }
}
