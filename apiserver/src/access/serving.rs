//! The serving certificate, renewed in place: a server may run for longer than its certificate is
//! valid.
//!
//! There is no timer. Each handshake reads the clock; the first one that finds the certificate
//! about to expire, or not yet valid because the clock was set back, issues another one, which
//! takes a fraction of a millisecond.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use coracle_clock::Clock;
use coracle_private_fs::NewFiles;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authority::{CertificateAuthority, CertificateError, Leaf, Pair};
use super::validity::{Validity, unix_seconds};

/// The certificate that the listener presents.
pub struct ServingCertificate {
    current: ArcSwap<Current>,
    renewing: Mutex<()>,
    authority: Arc<CertificateAuthority>,
    leaf: Leaf,
    /// The folder it is stored in; None for an ephemeral server.
    folder: Option<PathBuf>,
    clock: Clock,
}

struct Current {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

impl ServingCertificate {
    /// Presents `pair` as long as it is valid, and then certificates that `authority` issues for
    /// `leaf`.
    ///
    /// # Errors
    /// [`CertificateError::Pem`] and [`CertificateError::Tls`] for a pair that cannot be parsed.
    pub(super) fn new(
        pair: &Pair,
        leaf: Leaf,
        authority: Arc<CertificateAuthority>,
        folder: Option<PathBuf>,
        clock: Clock,
    ) -> Result<ServingCertificate, CertificateError> {
        let current = ArcSwap::from_pointee(Current::read(pair)?);
        Ok(ServingCertificate { current, renewing: Mutex::new(()), authority, leaf, folder, clock })
    }

    /// Returns the certificate that is currently presented, after a renewal if one is due.
    #[cfg(test)]
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.renew_if_due();
        self.current.load().key.cert[0].clone()
    }

    fn renew_if_due(&self) {
        let now = SystemTime::from(self.clock.now());
        let is_due = || self.current.load().validity.is_due(unix_seconds(now));
        if !is_due() {
            return;
        }
        // Other handshakes continue with the old certificate meanwhile.
        let Some(_renewing) = self.renewing.try_lock() else { return };
        if !is_due() {
            return;
        }
        let issued = self.authority.issue(&self.leaf, now);
        match issued.and_then(|pair| Ok((Current::read(&pair)?, pair))) {
            Ok((current, pair)) => {
                self.current.store(Arc::new(current));
                tracing::info!("the server's certificate was renewed");
                let mut files = NewFiles::default();
                self.folder.iter().for_each(|folder| pair.add_to(&mut files, folder, self.leaf.file));
                if let Err((path, error)) = files.write() {
                    tracing::warn!(path = %path.display(), %error, "the server's new certificate is not on disk");
                }
            }
            Err(error) => tracing::error!(%error, "the server's certificate cannot be renewed"),
        }
    }
}

impl Current {
    fn read(pair: &Pair) -> Result<Current, CertificateError> {
        let certificate = CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
        let validity = match X509Certificate::from_der(&certificate) {
            Ok((_, parsed)) => Validity::of(&parsed),
            Err(_) => {
                return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding).into());
            }
        };
        let provider = rustls::crypto::ring::default_provider();
        let key = CertifiedKey::from_der(vec![certificate], key, &provider)?;
        Ok(Current { key: Arc::new(key), validity })
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.renew_if_due();
        Some(self.current.load().key.clone())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate").field("validity", &self.current.load().validity).finish()
    }
}
