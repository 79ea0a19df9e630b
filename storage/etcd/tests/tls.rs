//! A cluster that is reached by TLS, and by clients that its authority knows alone.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use coracle_storage::{
    Expect, Key, Options, PutOutcome, Store,
    log::{Log, Notifier},
    testing::Marked,
};
use coracle_storage_etcd::{
    Compaction, Endpoints, EtcdLog,
    testing::{EtcdTls, start_or_skip_with},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

mod support;

use support::Plain;

const NAMES: [&str; 3] = ["ca", "cert", "key"];

/// Writes an authority and a certificate of it for members and clients, PEM: files as [`NAMES`] has
/// them.
fn write_certificates(directory: &Path) -> io::Result<[PathBuf; 3]> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().map_err(io::Error::other)?)
        .map_err(io::Error::other)?;
    let mut leaf = CertificateParams::new(["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(io::Error::other)?;
    let files = NAMES.map(|name| directory.join(name));
    for (file, pem) in files.iter().zip([issuer.pem(), certificate.pem(), key.serialize_pem()]) {
        fs::write(file, pem)?;
    }
    Ok(files)
}

fn log(endpoints: &Endpoints) -> EtcdLog {
    EtcdLog::new(endpoints, Plain, Compaction::WithHistory).expect("a log")
}

#[tokio::test]
async fn members_and_clients_know_each_other_by_certificates() -> io::Result<()> {
    let (ours, theirs) = (TempDir::new()?, TempDir::new()?);
    let [ca_file, cert_file, key_file] = write_certificates(ours.path())?;
    let [other_ca, other_cert, other_key] = write_certificates(theirs.path())?;
    let tls = EtcdTls { ca_file: ca_file.clone(), cert_file: cert_file.clone(), key_file: key_file.clone() };
    let Some(cluster) = start_or_skip_with(1, Some(tls))? else { return Ok(()) };
    let endpoints = |ca: &Path, identity: Option<(&Path, &Path)>| Endpoints {
        ca_file: Some(ca.to_owned()),
        cert_file: identity.map(|(cert, _)| cert.to_owned()),
        key_file: identity.map(|(_, key)| key.to_owned()),
        ..cluster.endpoints()
    };

    let known = endpoints(&ca_file, Some((&cert_file, &key_file)));
    let store = Store::open(Box::new(log(&known)), Marked, Options::default()).expect("a store");
    let key = Key::new("things", "a");
    let put = store.put(key.clone(), Expect::Any, "1@".to_owned()).await.expect("a put");
    let PutOutcome::Stored(stored) = put else { panic!("a conflict with nothing") };
    assert_eq!(store.get(&key).expect("an object").revision, stored.revision);

    // Each is refused only after a while: a cluster that starts may refuse connections, too.
    let strangers = [
        endpoints(&ca_file, None),
        endpoints(&ca_file, Some((&other_cert, &other_key))),
        endpoints(&other_ca, Some((&cert_file, &key_file))),
    ];
    thread::scope(|scope| {
        for stranger in &strangers {
            scope.spawn(|| {
                let error = log(stranger).start(Notifier::new(|_| ())).expect_err("a stranger");
                assert!(error.to_string().starts_with("cannot reach the cluster"), "{error}");
            });
        }
    });
    Ok(())
}
