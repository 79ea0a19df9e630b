//! An etcd cluster as the store, which kube-apiservers may share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::registry::RegistryLayout;
use coracle_storage::{Key, Unreadable};
use coracle_storage_etcd::{Compaction, Endpoints, EtcdError, EtcdLog, Layout};

use crate::options::Etcd;

/// The bucket in which Events are stored.
pub(crate) const EVENTS: &str = "events";

impl Etcd {
    /// Builds the log; it does not connect yet.
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
