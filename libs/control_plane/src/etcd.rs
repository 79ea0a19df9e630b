//! An etcd cluster as the store, which kube-apiservers may share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::registry::RegistryLayout;
use coracle_storage::{Key, Unreadable};
use coracle_storage_etcd::{Compaction, Endpoints, EtcdError, EtcdLog, Layout};

use crate::options::form::{AtMost, File, List, Parsed};
use crate::options::{SERVE, options};
use crate::range;

/// The bucket in which Events are stored.
pub(crate) const EVENTS: &str = "events";

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
        /// What all keys in etcd start with.
        prefix: String = "/registry".to_owned(),
            "etcd-prefix" "PREFIX" as Parsed, SERVE.needs("etcd-servers");
        /// How often the history in etcd is compacted, by one of the servers; 0 for never.
        compaction_interval: Duration = Duration::from_secs(5 * 60),
            "etcd-compaction-interval" "DURATION" as AtMost(range::COMPACTION_INTERVAL), SERVE.needs("etcd-servers");
    }
}

impl Etcd {
    /// The log; nothing is connected yet.
    pub(crate) fn log(
        &self,
        resources: Arc<SharedResourceTable>,
        event_ttl: Duration,
    ) -> Result<EtcdLog, EtcdError> {
        let endpoints = Endpoints {
            servers: self.servers.clone(),
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
        };
        let layout = ClusterLayout { layout: RegistryLayout::new(&self.prefix, resources), event_ttl };
        EtcdLog::new(&endpoints, layout, Compaction::Interval(self.compaction_interval))
    }
}

/// kube-apiserver's layout, with a lease for each Event.
struct ClusterLayout {
    layout: RegistryLayout,
    event_ttl: Duration,
}

impl Layout for ClusterLayout {
    fn prefix(&self) -> &str {
        self.layout.prefix()
    }

    fn name(&self, key: &Key) -> String {
        self.layout.name(key)
    }

    fn key(&self, name: &str) -> Option<Key> {
        self.layout.key(name)
    }

    fn encode(&self, _: &Key, stored: &Bytes) -> Bytes {
        self.layout.encode(stored)
    }

    fn decode(&self, key: &Key, value: &Bytes) -> Result<Bytes, Unreadable> {
        self.layout.decode(key, value)
    }

    fn time_to_live(&self, key: &Key) -> Option<Duration> {
        (**key.bucket() == *EVENTS && !self.event_ttl.is_zero()).then_some(self.event_ttl)
    }
}
