//! TLS: what the listener shows, and whom it recognises by a client certificate.
//!
//! A client certificate is asked for and never required: a foreign one must not keep a client with a good token out, so
//! the handshake only proves that the client holds the certificate's key. Whether we trust it is decided afterwards, in
//! [`Tls::peer`], and a bad one counts as bad credentials.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authenticate::{CREDENTIAL_ID, UserInfo};

/// The user id's attribute in a certificate's subject: 1.3.6.1.4.1.57683.2 (KEP-5018).
const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// What a client's certificate says of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Peer {
    /// No certificate, or one that names nobody.
    #[default]
    Unidentified,
    /// A certificate of ours.
    Known(Arc<UserInfo>),
    /// A certificate that we do not trust.
    Rejected,
}

/// The listener's side of TLS.
#[derive(Clone)]
pub struct Tls {
    /// HTTP/2 and HTTP/1.1 by ALPN.
    pub config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// Serves with `chain` and `key`; knows clients by certificates that `ca` signed.
    pub fn new(
        ca: CertificateDer<'static>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Tls, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        let asking = Asking { hints: clients.root_hint_subjects().to_vec(), provider: Arc::clone(&provider) };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(asking))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), clients })
    }

    /// Who a connection's client is, by the certificates of its handshake (the first is its own).
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>, now: SystemTime) -> Peer {
        let Some([own, intermediates @ ..]) = certificates else { return Peer::Unidentified };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        match self.clients.verify_client_cert(own, intermediates, now) {
            Ok(_) => identify(own),
            Err(error) => {
                tracing::debug!(%error, "client certificate rejected");
                Peer::Rejected
            }
        }
    }
}

/// The user that a trusted certificate names: common name, organizations as groups.
fn identify(certificate: &CertificateDer<'_>) -> Peer {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Peer::Rejected };
    let subject = parsed.subject();
    let Some(name) =
        subject.iter_common_name().filter_map(|a| a.as_str().ok()).last().filter(|n| !n.is_empty())
    else {
        return Peer::Unidentified;
    };
    let Ok(uid_oid) = Oid::from(UID_OID) else { return Peer::Rejected };
    let uids: Vec<&str> = subject.iter_by_oid(&uid_oid).map(|a| a.as_str().unwrap_or("")).collect();
    let uid = match uids.as_slice() {
        [] => "",
        [uid] if !uid.is_empty() => uid,
        _ => return Peer::Rejected,
    };
    let fingerprint = ring::digest::digest(&ring::digest::SHA256, certificate);
    let hex: String = fingerprint.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let user = UserInfo {
        name: name.to_owned(),
        uid: uid.to_owned(),
        groups: subject.iter_organization().filter_map(|a| a.as_str().ok()).map(str::to_owned).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hex}")])].into(),
    };
    Peer::Known(Arc::new(user.authenticated()))
}

/// Asks for a certificate and takes any, if its key signed the handshake.
#[derive(Debug)]
struct Asking {
    /// Names our CA, so that clients with several certificates send the right one.
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::certificates::{Certificates, Pair};
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, ClientConnection, ServerConnection};
    use std::time::Duration;

    /// A whole handshake in memory: who the server thinks the client is.
    fn meet(server: &Certificates, client: Option<&Pair>, now: SystemTime) -> Peer {
        let tls = server.tls().expect("TLS");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).expect("PEM")).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let certificate =
                    CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![certificate], key).expect("a client certificate")
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("kubernetes.default.svc").expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut server = ServerConnection::new(Arc::clone(&tls.config)).expect("a server");
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).expect("bytes");
            server.read_tls(&mut bytes.as_slice()).expect("bytes");
            server.process_new_packets().expect("the server goes on");
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).expect("bytes");
            client.read_tls(&mut bytes.as_slice()).expect("bytes");
            client.process_new_packets().expect("the client goes on");
        }
        assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
        tls.peer(server.peer_certificates(), now)
    }

    #[test]
    fn certificates_tell_who_the_client_is() {
        let now = SystemTime::now();
        let ours = Certificates::ephemeral(&[], now).expect("certificates");
        let foreign = Certificates::ephemeral(&[], now).expect("certificates");
        let shown = |peer: Peer| match peer {
            Peer::Known(user) => format!("{} [{}]", user.name, user.groups.join(",")),
            other => format!("{other:?}"),
        };
        let year = Duration::from_secs(366 * 24 * 3600);
        for (case, client, now, want) in [
            ("none", None, now, "Unidentified"),
            ("ours", Some(ours.admin()), now, "coracle-admin [system:masters,system:authenticated]"),
            ("another's", Some(foreign.admin()), now, "Rejected"),
            ("too old", Some(ours.admin()), now + year, "Rejected"),
        ] {
            assert_eq!(shown(meet(&ours, client, now)), want, "{case}");
        }
    }

    #[test]
    fn the_credential_is_named() {
        let now = SystemTime::now();
        let ours = Certificates::ephemeral(&[], now).expect("certificates");
        let Peer::Known(user) = meet(&ours, Some(ours.admin()), now) else { panic!("not known") };
        let id = &user.extra[CREDENTIAL_ID][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    }
}
