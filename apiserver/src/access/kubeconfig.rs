//! Kubeconfig: the file with which clients reach the server as its administrator.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::certificates::Certificates;
use super::ec_key::sec1_pem;
use super::file;

/// The URL of a listener for clients on this machine.
pub fn server_url(listen: SocketAddr) -> String {
    let reachable = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("https://{}", SocketAddr::new(reachable, listen.port()))
}

/// The document, with all data inline, so that copies of it work anywhere on this machine.
pub fn document(server: &str, certificates: &Certificates) -> String {
    let admin = certificates.admin();
    // Some clients support EC keys in this encoding only, and all of them support it.
    let key = sec1_pem(&admin.key_pem).unwrap_or_else(|| admin.key_pem.clone());
    let [ca, certificate, key] =
        [certificates.ca_pem(), &admin.certificate_pem, &key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: coracle
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: coracle
  context:
    cluster: coracle
    user: coracle
current-context: coracle
"
    )
}

/// Writes the document, readable by the owner only.
pub fn write(path: &Path, document: &str) -> io::Result<()> {
    file::write(path, document.as_bytes())
}

#[cfg(test)]
mod tests {
    use coracle_clock::Clock;

    use super::*;

    #[test]
    fn server_urls_are_reachable_from_this_machine() {
        for (listen, want) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:2", "https://[::1]:2"),
            ("10.1.2.3:3", "https://10.1.2.3:3"),
        ] {
            assert_eq!(server_url(listen.parse().expect(listen)), want);
        }
    }

    #[test]
    fn the_document_has_everything_a_client_needs() {
        let certificates = Certificates::ephemeral(&[], &Clock::system()).expect("certificates");
        let document = document("https://127.0.0.1:6443", &certificates);
        let value = |key: &str| {
            let line = document.lines().find(|l| l.trim_start().starts_with(key)).expect(key);
            line.split_once(": ").expect(key).1.to_owned()
        };
        assert_eq!(value("server:"), "https://127.0.0.1:6443");
        assert_eq!(value("current-context:"), "coracle");
        let decoded = |key| STANDARD.decode(value(key)).expect(key);
        assert_eq!(decoded("certificate-authority-data:"), certificates.ca_pem().as_bytes());
        let key = sec1_pem(&certificates.admin().key_pem).expect("a P-256 key");
        assert_eq!(decoded("client-key-data:"), key.as_bytes());
    }
}
