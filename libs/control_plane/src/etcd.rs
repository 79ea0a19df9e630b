//! An etcd cluster as the store, which kube-apiservers may share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::registry::RegistryLayout;
use coracle_storage::{Key, Unreadable};
use coracle_storage_etcd::{Compaction, Endpoints, EtcdError, EtcdLog, Layout};

/// Where Events are stored.
pub(crate) const EVENTS: &str = "events";

/// An etcd cluster in which all objects are stored, with kube-apiserver's `--etcd-*` flags. Several control planes may share
/// it; keys and values are those of kube-apiserver.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// The URLs of the members (`--etcd-servers`).
    pub servers: Vec<String>,
    /// The authorities of the members' certificates (`--etcd-cafile`).
    pub ca_file: Option<PathBuf>,
    /// The client's certificate (`--etcd-certfile`).
    pub cert_file: Option<PathBuf>,
    /// Its key (`--etcd-keyfile`).
    pub key_file: Option<PathBuf>,
    /// What all keys start with (`--etcd-prefix`).
    pub prefix: String,
    /// How often the history in the cluster is compacted (`--etcd-compaction-interval`), by one of the servers that share it;
    /// never by this one if it is zero.
    pub compaction_interval: Duration,
}

impl Default for Etcd {
    /// kube-apiserver's defaults; without servers.
    fn default() -> Etcd {
        Etcd {
            servers: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            prefix: "/registry".to_owned(),
            compaction_interval: Duration::from_secs(5 * 60),
        }
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
