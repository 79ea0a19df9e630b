//! TLS: the listener's certificate, and the identification of clients by their certificates.
//!
//! A client certificate is requested and never required: an untrusted one must not reject a client
//! with a valid token, so the handshake only proves that the client has the certificate's key.
//! Whether the certificate is trusted is decided afterwards, in [`Tls::peer`]; an untrusted one
//! counts as invalid credentials.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use coracle_apimachinery::user::{CREDENTIAL_ID, UserInfo};
use coracle_pki::Subject;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;

use super::client_leaf;
use super::validity::{Validity, unix_seconds};

/// The user id's attribute in a certificate's subject: 1.3.6.1.4.1.57683.2 (KEP-5018).
const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The number of TLS sessions that clients can resume.
const MAX_SESSIONS: usize = 32;

/// The identity of a client before it sends a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Peer {
    /// No certificate, or one without a user name.
    #[default]
    Unidentified,
    /// A client in this process.
    Known(Arc<UserInfo>),
    /// A certificate that our CA signed. Its validity is checked with each request, since a
    /// connection may outlive it.
    Certified(Arc<ClientCertificate>),
    /// A certificate that is not trusted.
    Rejected,
}

/// A client certificate that our CA signed.
#[derive(Debug, PartialEq)]
pub struct ClientCertificate {
    user: Arc<UserInfo>,
    validity: Validity,
}

impl ClientCertificate {
    /// Returns the user; None if the certificate is not valid at `now`, in seconds since 1970.
    pub fn user_at(&self, now: i64) -> Option<&Arc<UserInfo>> {
        self.validity.includes(now).then_some(&self.user)
    }

    /// Returns the seconds from `now` to the end of its validity; negative after that.
    pub fn remaining_at(&self, now: i64) -> i64 {
        self.validity.not_after.saturating_sub(now)
    }
}

/// The listener's TLS configuration.
#[derive(Clone)]
pub struct Tls {
    /// HTTP/2 and HTTP/1.1 by ALPN.
    pub config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
    authorities: Arc<[CertificateDer<'static>]>,
}

impl Tls {
    /// Presents the current certificate of `serving`; identifies clients by certificates that one
    /// of `cas` signed.
    ///
    /// # Errors
    /// An authority's certificate cannot be parsed.
    pub fn new(
        cas: Vec<CertificateDer<'static>>,
        serving: Arc<dyn ResolvesServerCert>,
    ) -> Result<Tls, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for ca in &cas {
            roots.add(ca.clone())?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        let verifier = AnyClientCertificate {
            hints: clients.root_hint_subjects().to_vec(),
            provider: Arc::clone(&provider),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(serving);
        // The memory of all sessions is reserved at once, and each fork has its own.
        config.session_storage = ServerSessionMemoryCache::new(MAX_SESSIONS);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), clients, authorities: cas.into() })
    }

    /// Identifies a connection's client by the certificates of its handshake (the first is its
    /// own). The validity of its own certificate is checked with each request.
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>, now: SystemTime) -> Peer {
        let Some([own, intermediates @ ..]) = certificates else { return Peer::Unidentified };
        let Some(parsed) = client_leaf::parse(own) else { return Peer::Rejected };
        let validity = Validity::of(&parsed);
        let seconds = unix_seconds(now);
        let nearest = u64::try_from(validity.nearest(seconds)).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(nearest));
        match self.clients.verify_client_cert(own, intermediates, now) {
            Ok(_) => identify(own, &parsed, validity),
            Err(_) if client_leaf::is_issued_by_any(&self.authorities, &parsed, seconds) => {
                identify(own, &parsed, validity)
            }
            Err(error) => {
                tracing::debug!(%error, "client certificate rejected");
                Peer::Rejected
            }
        }
    }
}

/// Identifies the user of a trusted certificate: the name is the common name, and the groups are
/// the organizations.
fn identify(certificate: &CertificateDer<'_>, parsed: &X509Certificate<'_>, validity: Validity) -> Peer {
    let Ok(subject) = Subject::read(parsed.subject()) else { return Peer::Rejected };
    let name = subject.common_name();
    if name.is_empty() {
        return Peer::Unidentified;
    }
    let uids: Vec<&str> = subject.values(UID_OID).map(Option::unwrap_or_default).collect();
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
        groups: subject.organizations().map(str::to_owned).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hex}")])].into(),
    };
    let user = Arc::new(user.authenticated());
    Peer::Certified(Arc::new(ClientCertificate { user, validity }))
}

/// Requests a certificate and accepts any whose key signed the handshake.
#[derive(Debug)]
struct AnyClientCertificate {
    /// Names our CA, so that clients with several certificates present the right one.
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClientCertificate {
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
        verify_tls12_signature(&self.provider, message, certificate, signature)
            .ok_or(rustls::Error::InvalidCertificate(CertificateError::BadSignature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let certificate = client_leaf::parse(certificate)
            .ok_or(rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let key = SubjectPublicKeyInfoDer::from(certificate.public_key().raw);
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies the signature of a handshake by the key in a certificate; None if it is wrong. Unlike
/// the function of rustls, it does not read more of the certificate, which may be of a version or
/// have extensions that webpki does not accept.
fn verify_tls12_signature(
    provider: &CryptoProvider,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Option<HandshakeSignatureValid> {
    let certificate = client_leaf::parse(certificate)?;
    let key = certificate.public_key();
    let mapping = provider.signature_verification_algorithms.mapping;
    let (_, algorithms) = mapping.iter().find(|(scheme, _)| *scheme == signature.scheme)?;
    let is_valid = algorithms.iter().any(|algorithm| {
        is_of_algorithm(key, algorithm.public_key_alg_id().as_ref())
            && algorithm
                .verify_signature(&key.subject_public_key.data, message, signature.signature())
                .is_ok()
    });
    is_valid.then(HandshakeSignatureValid::assertion)
}

/// Returns whether a key has an algorithm, which is given as the content of its sequence in DER.
fn is_of_algorithm(key: &SubjectPublicKeyInfo<'_>, algorithm: &[u8]) -> bool {
    // The key is a sequence that begins with that of the algorithm.
    Any::from_der(key.raw)
        .ok()
        .and_then(|(_, sequence)| Any::from_der(sequence.data).ok())
        .is_some_and(|(_, identifier)| identifier.data == algorithm)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_clock::{Clock, MockClock};
    use coracle_private_fs::NewFiles;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, ClientConnection, ServerConnection};

    use super::*;
    use crate::access::certificates::{Certificates, Pair};
    use crate::access::ec_key::sec1_pem;

    /// Returns the identity of a client that the server determines after a handshake.
    fn identify_after_handshake(server: &Certificates, client: Option<&Pair>, now: SystemTime) -> Peer {
        let tls = server.tls().expect("TLS");
        let (_, shown) = handshake(&tls, server.ca_pem(), client);
        tls.peer(shown.as_deref(), now)
    }

    type Chain = Vec<CertificateDer<'static>>;

    /// Accepts any server certificate that its authority signed, regardless of its validity period.
    #[derive(Debug)]
    struct AnyTime(Arc<rustls::client::WebPkiServerVerifier>);

    impl rustls::client::danger::ServerCertVerifier for AnyTime {
        fn verify_server_cert(
            &self,
            own: &CertificateDer<'_>,
            intermediates: &[CertificateDer<'_>],
            name: &ServerName<'_>,
            ocsp: &[u8],
            _now: UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            let (_, parsed) = X509Certificate::from_der(own).expect("a certificate");
            let start = u64::try_from(Validity::of(&parsed).not_before).expect("after 1970");
            let then = UnixTime::since_unix_epoch(Duration::from_secs(start));
            self.0.verify_server_cert(own, intermediates, name, ocsp, then)
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.0.verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.0.verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_verify_schemes()
        }
    }

    /// Performs a complete handshake in memory. Returns the server's certificates, and the client's
    /// as the server receives them.
    fn handshake(tls: &Tls, ca_pem: &str, client: Option<&Pair>) -> (Chain, Option<Chain>) {
        handshake_in(rustls::ALL_VERSIONS, tls, ca_pem, client)
    }

    fn handshake_in(
        versions: &[&'static rustls::SupportedProtocolVersion],
        tls: &Tls,
        ca_pem: &str,
        client: Option<&Pair>,
    ) -> (Chain, Option<Chain>) {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("PEM")).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let verifier = AnyTime(verifier.build().expect("a verifier"));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
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
        let owned =
            |chain: &[CertificateDer<'_>]| chain.iter().map(|c| c.clone().into_owned()).collect::<Chain>();
        (client.peer_certificates().map(owned).expect("a chain"), server.peer_certificates().map(owned))
    }

    fn mock(start: SystemTime) -> (Clock, MockClock) {
        Clock::mock(start.try_into().expect("a time"))
    }

    #[test]
    fn certificates_identify_the_client() {
        let now = SystemTime::from(Clock::system().now());
        let ours = Certificates::ephemeral(&[], &mock(now).0).expect("certificates");
        let foreign = Certificates::ephemeral(&[], &mock(now).0).expect("certificates");
        let shown = |peer: Peer, now| match peer {
            Peer::Certified(certificate) => match certificate.user_at(unix_seconds(now)) {
                Some(user) => format!("{} [{}]", user.name, user.groups.join(",")),
                None => "not at this time".to_owned(),
            },
            other => format!("{other:?}"),
        };
        let year = Duration::from_secs(366 * 24 * 3600);
        let admin = "coracle-admin [system:masters,system:authenticated]";
        let sec1 =
            Pair { key_pem: sec1_pem(&ours.admin().key_pem).expect("a P-256 key"), ..ours.admin().clone() };
        for (case, client, connected_at, requested, want) in [
            ("none", None, now, now, "Unidentified"),
            ("ours", Some(ours.admin()), now, now, admin),
            ("ours, the key as kubeconfigs have it", Some(&sec1), now, now, admin),
            ("another's", Some(foreign.admin()), now, now, "Rejected"),
            ("another's, too old", Some(foreign.admin()), now + year, now, "Rejected"),
            ("too old", Some(ours.admin()), now + year, now + year, "not at this time"),
            ("too old by now", Some(ours.admin()), now, now + year, "not at this time"),
            ("too young", Some(ours.admin()), now - 2 * year, now - 2 * year, "not at this time"),
            ("the clock was wrong", Some(ours.admin()), now + year, now, admin),
        ] {
            assert_eq!(
                shown(identify_after_handshake(&ours, client, connected_at), requested),
                want,
                "{case}"
            );
        }
    }

    /// Certificates of `bob` and of two authorities of one name, made by openssl, by their names.
    const CLIENTS: &str = include_str!("testdata/clients.pem");
    /// The key of `bob`.
    const CLIENT_KEY: &str = include_str!("testdata/client.key");

    fn pem_of(name: &str) -> &'static str {
        let (_, rest) = CLIENTS.split_once(&format!("\n{name}\n")).expect("a certificate");
        let end = "-----END CERTIFICATE-----";
        &rest[..rest.find(end).expect("an end") + end.len()]
    }

    fn der_of(name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem_of(name).as_bytes()).expect("PEM")
    }

    #[test]
    fn certificates_are_accepted_that_go_accepts() {
        let now = SystemTime::from(Clock::system().now());
        let ours = Certificates::ephemeral(&[], &mock(now).0).expect("certificates");
        let serving = ours.tls().expect("TLS").config.cert_resolver.clone();
        let tls = Tls::new(vec![der_of("ca")], serving).expect("TLS");
        for (name, is_accepted) in [
            ("v1", true),
            ("any", true),
            ("ca_leaf", true),
            ("server", false),
            ("unknown", false),
            ("forged", false),
            ("sha1", false),
            ("other", false),
        ] {
            match tls.peer(Some(&[der_of(name)]), now) {
                Peer::Certified(certificate) => {
                    assert!(is_accepted, "{name}");
                    let user = certificate.user_at(unix_seconds(now)).expect("valid");
                    assert_eq!((&*user.name, &*user.groups[0]), ("bob", "devs"), "{name}");
                }
                peer => assert!(!is_accepted && peer == Peer::Rejected, "{name}: {peer:?}"),
            }
            // The client of the test cannot present the others.
            if ["any", "ca_leaf", "server"].contains(&name) {
                let pair = Pair { certificate_pem: pem_of(name).to_owned(), key_pem: CLIENT_KEY.to_owned() };
                for version in rustls::ALL_VERSIONS {
                    let (_, shown) = handshake_in(&[version], &tls, ours.ca_pem(), Some(&pair));
                    assert_eq!(shown, Some(vec![der_of(name)]), "the handshake of {name}");
                }
            }
        }
        for name in ["v1", "ca_leaf"] {
            let mut padded = der_of(name).to_vec();
            padded.push(0);
            assert_eq!(tls.peer(Some(&[padded.clone().into()]), now), Peer::Rejected, "{name}, outside");
            // The length in the head includes the byte now.
            let length = u16::from_be_bytes([padded[2], padded[3]]) + 1;
            padded[2..4].copy_from_slice(&length.to_be_bytes());
            assert_eq!(tls.peer(Some(&[padded.into()]), now), Peer::Rejected, "{name}, inside");
        }
        let decade = Duration::from_secs(200 * 366 * 24 * 3600);
        assert_eq!(
            tls.peer(Some(&[der_of("v1")]), now + decade),
            Peer::Rejected,
            "the authority has expired"
        );
    }

    #[test]
    fn a_running_server_renews_its_certificate() {
        let start = SystemTime::from(Clock::system().now());
        let days = |n: u32| Duration::from_secs(24 * 3600) * n;
        let (clock, time) = mock(start);
        let folder = tempfile::tempdir().expect("a folder");
        let mut new_files = NewFiles::default();
        let certificates =
            Certificates::in_folder(folder.path(), &[], &clock, &mut new_files).expect("certificates");
        new_files.write().expect("files");
        let tls = certificates.tls().expect("TLS");
        let file = || std::fs::read_to_string(folder.path().join("apiserver.crt")).expect("a file");
        let shown = |now: SystemTime| {
            time.set(now.try_into().expect("a time"));
            handshake(&tls, certificates.ca_pem(), None).0
        };
        let first = shown(start);
        assert_eq!(shown(start + days(330)), first, "five weeks are left");
        let on_disk = file();
        let second = shown(start + days(340));
        assert_ne!(second, first, "less than thirty days were left");
        assert_ne!(file(), on_disk);
        assert_eq!(shown(start + days(600)), second);
        assert_ne!(shown(start + days(10 * 365 - 1)), second);
        let third = shown(start - days(1000));
        assert_ne!(third, second, "the clock went back to before the authority began");
        // The presented certificate is also on disk, so a restart changes nothing.
        let restarted = Certificates::in_folder(folder.path(), &[], &clock, &mut NewFiles::default());
        let restarted = restarted.expect("certificates");
        let tls = restarted.tls().expect("TLS");
        assert_eq!(handshake(&tls, restarted.ca_pem(), None).0, third);
    }

    #[test]
    fn a_client_certificate_has_a_credential_id() {
        let now = SystemTime::from(Clock::system().now());
        let ours = Certificates::ephemeral(&[], &mock(now).0).expect("certificates");
        let Peer::Certified(certificate) = identify_after_handshake(&ours, Some(ours.admin()), now) else {
            panic!("not known")
        };
        let id = &certificate.user.extra[CREDENTIAL_ID][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    }
}
