//! Certificates: those of the cluster's certificate authority (`authority.rs`), the serving
//! certificate and the administrator's client certificate.
//!
//! They are stored under `pki/` in the data folder with kubeadm's names, or generated for an
//! ephemeral server. The serving and the administrator's certificate are issued again at start
//! whenever they are missing, unreadable, about to expire, not valid yet or do not match the
//! configuration; the serving certificate is also renewed while the server runs
//! ([`super::serving`]).
//!
//! Start at [`Certificates::in_folder`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use coracle_clock::Clock;
use coracle_private_fs::NewFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

pub use super::authority::{ADMIN, CertificateError, Pair};
use super::authority::{CertificateAuthority, Leaf};
use super::certificate_signer::CertificateSigner;
use super::ec_key::sec1_pem;
use super::serving::ServingCertificate;
use super::tls::Tls;

/// The certificates that the server needs for TLS.
pub struct Certificates {
    ca_pem: String,
    server: Arc<ServingCertificate>,
    /// The operator's own serving certificate, presented instead of `server`.
    own_server: Option<Arc<SingleCertAndKey>>,
    /// The serving certificate that was issued at the start.
    issued: Pair,
    /// Our authority's certificate.
    authority_pem: String,
    /// The certificate authorities of client certificates that are trusted besides our own.
    client_cas: Vec<CertificateDer<'static>>,
    admin: Pair,
    authority: Arc<CertificateAuthority>,
}

impl Certificates {
    /// Creates a new authority and its certificates, in memory only. `names` are additional names
    /// and addresses of the server.
    pub fn ephemeral(names: &[String], clock: &Clock) -> Result<Certificates, CertificateError> {
        let now = SystemTime::from(clock.now());
        let authority = CertificateAuthority::new(now)?;
        let leaf = Leaf::server(names);
        let server = authority.issue(&leaf, now)?;
        let admin = authority.issue(&Leaf::admin(), now)?;
        Certificates::with(authority, &server, leaf, admin, None, clock)
    }

    /// Creates the certificates of a fork: it presents the same serving certificate and trusts the
    /// same clients, but signs with an authority of its own, which the original does not trust.
    ///
    /// # Errors
    /// The authority cannot be created.
    pub fn fork(&self, clock: &Clock) -> Result<Certificates, CertificateError> {
        let authority = CertificateAuthority::new(SystemTime::from(clock.now()))?;
        Ok(Certificates {
            ca_pem: self.ca_pem.clone(),
            server: self.server.clone(),
            own_server: self.own_server.clone(),
            issued: self.issued.clone(),
            authority_pem: authority.certificate_pem.clone(),
            client_cas: self.client_authorities()?,
            admin: self.admin.clone(),
            authority: Arc::new(authority),
        })
    }

    /// Loads the certificates in `folder`, and issues those that are missing or no longer valid.
    ///
    /// - `new_files`: gets the files of those that are issued, which are not written yet
    ///
    /// # Errors
    /// The stored authority is damaged, or a certificate cannot be issued.
    pub fn in_folder(
        folder: &Path,
        names: &[String],
        clock: &Clock,
        new_files: &mut NewFiles,
    ) -> Result<Certificates, CertificateError> {
        let now = SystemTime::from(clock.now());
        let authority = CertificateAuthority::in_folder(folder, now, new_files)?;
        let mut kept = |leaf: &Leaf| match leaf.read(folder) {
            Some(pair) if authority.is_current(&pair, leaf, now) => Ok(pair),
            _ => {
                let pair = authority.issue(leaf, now)?;
                pair.add_to(new_files, folder, leaf.file);
                Ok::<Pair, CertificateError>(pair)
            }
        };
        let leaf = Leaf::server(names);
        let server = kept(&leaf)?;
        let admin = kept(&Leaf::admin())?;
        Certificates::with(authority, &server, leaf, admin, Some(folder.to_owned()), clock)
    }

    fn with(
        authority: CertificateAuthority,
        server: &Pair,
        leaf: Leaf,
        admin: Pair,
        folder: Option<PathBuf>,
        clock: &Clock,
    ) -> Result<Certificates, CertificateError> {
        let (issued, authority_pem) = (server.clone(), authority.certificate_pem.clone());
        // The file of the authority may hold more than its certificate, too.
        let published: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authority_pem.as_bytes()).collect();
        let ca_pem = pem_of(&published?);
        let authority = Arc::new(authority);
        let server = ServingCertificate::new(server, leaf, authority.clone(), folder, clock.clone())?;
        let (server, client_cas) = (Arc::new(server), Vec::new());
        let own_server = None;
        Ok(Certificates { ca_pem, server, own_server, issued, authority_pem, client_cas, admin, authority })
    }

    /// Presents the certificate chain in a PEM file, with the key in another one, instead of a
    /// certificate of our own authority. Clients trust only the certificates of this chain; the
    /// file may also contain the key. If both files are missing, they get the certificate of our
    /// authority.
    ///
    /// - `new_files`: gets these files then, which are not written yet
    ///
    /// # Errors
    /// A file cannot be read, or the certificate and the key do not belong together.
    pub fn with_serving_files(
        mut self,
        certificate_file: &Path,
        key_file: &Path,
        new_files: &mut NewFiles,
    ) -> Result<Certificates, CertificateError> {
        let is_missing =
            |path: &Path| fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let (chain_pem, key_pem) = if is_missing(certificate_file) && is_missing(key_file) {
            let mut chain = format!("{}{}", self.issued.certificate_pem, self.authority_pem);
            let key = self.issued.key_pem.clone();
            match certificate_file == key_file {
                true => chain.push_str(&key),
                // The key first, so that every certificate on disk has its key.
                false => new_files.add(key_file.to_owned(), key.as_bytes()),
            }
            new_files.add(certificate_file.to_owned(), chain.as_bytes());
            (chain.into_bytes(), key.into_bytes())
        } else {
            (read(certificate_file)?, read(key_file)?)
        };
        let unusable = |path: &Path, why: &dyn std::fmt::Display| CertificateError::Unusable {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let chain = certificates_of(certificate_file, &chain_pem)?;
        let ca_pem = pem_of(&chain);
        let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| unusable(key_file, &error))?;
        let provider = rustls::crypto::ring::default_provider();
        let own =
            CertifiedKey::from_der(chain, key, &provider).map_err(|error| unusable(key_file, &error))?;
        self.own_server = Some(Arc::new(own.into()));
        self.ca_pem = ca_pem;
        Ok(self)
    }

    /// Adds the authorities in a PEM file to the trusted ones for client certificates
    /// (`--client-ca-file`).
    ///
    /// # Errors
    /// The file cannot be read, or contains no certificate.
    pub fn with_client_ca_file(mut self, path: &Path) -> Result<Certificates, CertificateError> {
        self.client_cas = certificates_of(path, &read(path)?)?;
        Ok(self)
    }

    /// Returns the authority's certificate, which clients trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the certificates of all authorities that authenticate clients: our own, and those of
    /// `--client-ca-file`.
    ///
    /// # Errors
    /// [`CertificateError::Pem`] for an authority that cannot be parsed.
    pub fn client_ca_pem(&self) -> Result<String, CertificateError> {
        Ok(pem_of(&self.client_authorities()?))
    }

    fn client_authorities(&self) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        let own = CertificateDer::from_pem_slice(self.authority_pem.as_bytes())?;
        Ok(std::iter::once(own).chain(self.client_cas.iter().cloned()).collect())
    }

    /// Returns the credentials of user `coracle-admin` in group `system:masters`.
    pub fn admin(&self) -> &Pair {
        &self.admin
    }

    /// Returns the private key of [`admin`](Self::admin) in the encoding that all clients support,
    /// SEC 1; some support no other.
    pub fn admin_key_pem(&self) -> String {
        sec1_pem(&self.admin.key_pem).unwrap_or_else(|| self.admin.key_pem.clone())
    }

    /// Issues certificates for the requests of others; clients that present one are authenticated
    /// by it.
    pub fn signer(&self) -> CertificateSigner {
        CertificateSigner::new(self.authority.clone())
    }

    /// Returns the TLS configuration of the listener with these certificates.
    ///
    /// # Errors
    /// [`CertificateError::Pem`] and [`CertificateError::Tls`] for an authority that cannot be
    /// parsed.
    pub fn tls(&self) -> Result<Tls, CertificateError> {
        let serving: Arc<dyn ResolvesServerCert> = match &self.own_server {
            Some(own) => own.clone(),
            None => self.server.clone(),
        };
        Ok(Tls::new(self.client_authorities()?, serving)?)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::Io { path: path.to_owned(), source })
}

/// Returns the certificates in the PEM text of a file. A file without certificates is an error.
fn certificates_of(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let unusable = |why: String| CertificateError::Unusable { path: path.to_owned(), why };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates.map_err(|error| unusable(error.to_string()))? {
        none if none.is_empty() => Err(unusable("no certificate in it".to_owned())),
        certificates => Ok(certificates),
    }
}

/// Encodes certificates as PEM.
fn pem_of(certificates: &[CertificateDer<'_>]) -> String {
    certificates.iter().map(|certificate| coracle_pki::pem::encode("CERTIFICATE", certificate)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;
    use crate::access::authority::{BACKDATE, CA_LIFETIME, DAY, LEAF_LIFETIME, SERVER_NAMES, names_of};
    use crate::access::validity::RENEWAL;

    fn now() -> SystemTime {
        Clock::system().now().into()
    }

    fn at(time: SystemTime) -> Clock {
        Clock::mock(time.try_into().expect("a time")).0
    }

    fn open(folder: &Path, names: &[&str], now: SystemTime) -> Result<Certificates, CertificateError> {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut new_files = NewFiles::default();
        let certificates = Certificates::in_folder(folder, &names, &at(now), &mut new_files)?;
        new_files.write().map_err(|(path, source)| CertificateError::Io { path, source })?;
        Ok(certificates)
    }

    /// Returns whether the certificates of the authority, the server and the administrator are the
    /// same in both, in this order.
    fn same(a: &Certificates, b: &Certificates) -> (bool, bool, bool) {
        let admin = a.admin.certificate_pem == b.admin.certificate_pem;
        (a.ca_pem == b.ca_pem, a.server.certificate() == b.server.certificate(), admin)
    }

    #[test]
    fn the_server_certificate_has_all_names() {
        let extra = ["example.com".to_owned(), "0:0:0:0:0:0:0:2".to_owned()];
        let certificates = Certificates::ephemeral(&extra, &at(now())).expect("certificates");
        let der = certificates.server.certificate();
        let (_, parsed) = X509Certificate::from_der(&der).expect("a certificate");
        let wanted = SERVER_NAMES.iter().copied().chain(["example.com", "::2"]).map(str::to_owned).collect();
        assert_eq!(names_of(&parsed), wanted);
        let refused = Certificates::ephemeral(&["bücher".to_owned()], &at(now())).err().expect("no ASCII");
        assert!(
            refused.to_string().starts_with("cannot issue a certificate for \"")
                && !refused.to_string().contains('\n')
        );
    }

    #[test]
    fn valid_certificates_are_kept() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = data.path().join("pki");
        let first = open(&folder, &[], now()).expect("certificates");
        for (case, change, names, when, want) in [
            ("a restart", None, &[][..], now(), (true, true, true)),
            ("another name", None, &["example.com"], now(), (true, false, true)),
            ("near the end", None, &[], now() + LEAF_LIFETIME - RENEWAL, (true, false, false)),
            ("long before the end", None, &[], now() + LEAF_LIFETIME - RENEWAL - DAY, (true, true, true)),
            ("long after the end", None, &[], now() + 3 * LEAF_LIFETIME, (true, false, false)),
            ("the clock went back", None, &[], now() - BACKDATE + DAY, (true, true, true)),
            ("the clock went back far", None, &[], now() - BACKDATE - DAY, (true, false, false)),
            ("the clock stands at its beginning", None, &[], UNIX_EPOCH, (true, false, false)),
            ("a broken certificate", Some("apiserver.crt"), &[], now(), (true, false, true)),
            ("a broken key", Some("admin.key"), &[], now(), (true, true, false)),
        ] {
            let folder = data.path().join(case);
            fs::create_dir(&folder).expect(case);
            for name in ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key"] {
                fs::copy(data.path().join("pki").join(name), folder.join(name)).expect(name);
            }
            if let Some(file) = change {
                fs::write(folder.join(file), "x").expect(case);
            }
            assert_eq!(same(&first, &open(&folder, names, when).expect(case)), want, "{case}");
        }
    }

    #[test]
    fn the_authority_is_never_replaced() {
        let start = now();
        let other = tempfile::tempdir().expect("a folder");
        open(other.path(), &[], start).expect("certificates");
        let foreign = fs::read_to_string(other.path().join("ca.key")).expect("a key");
        for (case, file, content, when, want) in [
            ("no certificate", "ca.crt", None, start, "ca.crt is missing"),
            ("no key", "ca.key", None, start, "ca.key is missing"),
            ("another's key", "ca.key", Some(foreign.as_str()), start, "ca.key is not the key of ca.crt"),
            ("no PEM", "ca.crt", Some("x"), start, "ca.crt: "),
            ("too old", "admin.crt", Some("x"), start + CA_LIFETIME, "ca.crt has expired"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            open(folder.path(), &[], start).expect("certificates");
            let path = folder.path().join(file);
            match content {
                Some(content) => fs::write(path, content).expect(case),
                None => fs::remove_file(path).expect(case),
            }
            let error = open(folder.path(), &[], when).err().expect(case).to_string();
            assert!(error.contains("is damaged: ") && error.contains(want), "{case}: {error}");
            assert!(!error.contains('\n'), "{case}: {error}");
        }
    }

    #[test]
    fn the_key_in_a_combined_serving_file_is_not_published() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Certificates::ephemeral(&[], &at(now())).expect("certificates");
        let issued = own.issued.clone();
        let combined = folder.path().join("tls.pem");
        let text =
            format!("subject=combined\n{}{}{}", issued.key_pem, issued.certificate_pem, own.authority_pem);
        fs::write(&combined, text).expect("a file");
        let certificates =
            own.with_serving_files(&combined, &combined, &mut NewFiles::default()).expect("a combined file");
        let published = certificates.ca_pem();
        let want = certificates_of(&combined, published.as_bytes()).expect("certificates");
        assert_eq!(want.len(), 2);
        assert_eq!(published, pem_of(&want), "nothing but certificates");
        assert!(!published.contains("PRIVATE KEY") && !published.contains("subject"), "{published}");
    }

    #[test]
    fn serving_files_that_are_missing_get_our_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        for (certificate, key) in [("tls.crt", "tls.key"), ("both.pem", "both.pem")] {
            let (certificate, key) = (folder.path().join(certificate), folder.path().join(key));
            let serve = || {
                let (own, mut files) = (Certificates::ephemeral(&[], &at(now()))?, NewFiles::default());
                Ok::<_, CertificateError>((own.with_serving_files(&certificate, &key, &mut files)?, files))
            };
            let (first, files) = serve().expect("certificates");
            assert!(!certificate.exists() && !key.exists(), "they are written later");
            files.write().expect("files");
            let (next, files) = serve().expect("the files that were written");
            assert!(files.is_empty() && next.ca_pem() == first.ca_pem());
        }
    }

    #[test]
    fn the_published_authorities_of_clients_are_those_that_are_trusted() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = at(now());
        let [own, serving, other] =
            [(); 3].map(|()| Certificates::ephemeral(&[], &clock).expect("certificates"));
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect(name);
            path
        };
        let certificate =
            file("tls.crt", &format!("{}{}", serving.issued.certificate_pem, serving.authority_pem));
        let key = file("tls.key", &serving.issued.key_pem);
        let client_ca = file("clients.pem", &format!("{}{}", other.authority_pem, other.issued.key_pem));
        let certificates =
            own.with_serving_files(&certificate, &key, &mut NewFiles::default()).expect("serving files");
        let certificates = certificates.with_client_ca_file(&client_ca).expect("a client CA");
        let published = certificates.client_ca_pem().expect("PEM");
        let published = certificates_of(&client_ca, published.as_bytes()).expect("certificates");
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        assert_eq!(published, [der(&certificates.authority_pem), der(&other.authority_pem)]);
        assert_eq!(published, certificates.client_authorities().expect("those of TLS"));
        assert!(!published.contains(&der(&serving.authority_pem)), "who serves vouches for no clients");
    }

    #[test]
    fn a_fork_trusts_its_original_and_not_the_other_way_round() {
        let original = Certificates::ephemeral(&[], &at(now())).expect("certificates");
        let fork = original.fork(&at(now())).expect("certificates");
        let authorities = |of: &Certificates| of.client_authorities().expect("authorities");
        assert_eq!(authorities(&fork).len(), 2);
        assert_eq!(authorities(&fork)[1..], authorities(&original));
        assert_ne!(fork.authority_pem, original.authority_pem);
        let known = |of: &Certificates| (of.ca_pem.clone(), of.admin.certificate_pem.clone());
        assert_eq!(known(&fork), known(&original));
    }

    #[test]
    fn an_interrupted_first_start_is_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.key"), "half").expect("a file");
        let first = open(folder.path(), &[], now()).expect("certificates");
        assert_eq!(same(&first, &open(folder.path(), &[], now()).expect("certificates")), (true, true, true));
    }
}
