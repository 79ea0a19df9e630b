//! The options of an etcd cluster as the store, by kube-apiserver's names of flags.

use std::path::PathBuf;
use std::time::Duration;

use super::declare::{SERVE, options};
use super::form::{AtMost, File, List, Parsed};
use super::range;

options! {
    /// An etcd cluster in which all objects are stored, with kube-apiserver's `--etcd-*` flags and defaults. Several control planes
    /// may share it; keys and values are those of kube-apiserver.
    #[derive(Clone, Debug)]
    pub struct Etcd, docs etcd_doc {
        /// Store all objects in this etcd cluster instead, which other servers may share: URL,URL. Keys and volumes stay in the
        /// data directory; servers that share a cluster need the same keys, so copy `pki/`.
        servers: Vec<String> = Vec::new(),
            "etcd-servers" "URLS" as List, SERVE;
        /// The authorities that signed the certificates of the etcd servers.
        ca_file: Option<PathBuf> = None,
            "etcd-cafile" "FILE" as File, SERVE.needs("etcd-servers");
        /// The client certificate for etcd.
        cert_file: Option<PathBuf> = None,
            "etcd-certfile" "FILE" as File, SERVE.needs("etcd-servers");
        /// The key of the client certificate.
        key_file: Option<PathBuf> = None,
            "etcd-keyfile" "FILE" as File, SERVE.needs("etcd-servers");
        /// The prefix of all keys in etcd.
        prefix: String = "/registry".to_owned(),
            "etcd-prefix" "PREFIX" as Parsed, SERVE.needs("etcd-servers");
        /// The interval at which the history in etcd is compacted, by one of the servers; 0 for never.
        compaction_interval: Duration = Duration::from_secs(5 * 60),
            "etcd-compaction-interval" "DURATION" as AtMost(range::COMPACTION_INTERVAL), SERVE.needs("etcd-servers");
    }
}

impl Etcd {
    /// The ports of the servers.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        const DEFAULT: u16 = 2379;
        let authorities =
            self.servers.iter().map(|url| url.rsplit_once("://").map_or(url.as_str(), |(_, rest)| rest));
        authorities.map(|authority| {
            let port =
                authority.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            port.unwrap_or(DEFAULT)
        })
    }
}
