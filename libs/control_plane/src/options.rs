//! What a control plane is to be like.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use coracle_apimachinery::validation::ip::Cidr;
use coracle_apiserver::access::authorize::Mode;
use coracle_apiserver::audit::AuditOptions;
use coracle_apiserver::serve::GoawayChance;
use coracle_apiserver::webhook::ServiceUrl;
use coracle_builtin::admission::PluginSelection;
use coracle_storage::log::Durability;

use crate::{ControlPlane, Etcd, range};

/// How service account tokens are signed and verified, where it is not by a key of our own.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccountIssuer {
    /// The private key that signs them (`--service-account-signing-key-file`): RSA or ECDSA P-256.
    pub signing_key_file: Option<PathBuf>,
    /// Public keys or certificates that verify them too (`--service-account-key-file`).
    pub key_files: Vec<PathBuf>,
    /// The issuers (`--service-account-issuer`): the first is in new tokens, all are accepted.
    pub issuers: Vec<String>,
}

/// What a control plane is to be like. The default is one in memory, on any free port of the loopback address, with RBAC.
///
/// A number outside of its [range](crate::range) counts as the nearest inside.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the data is kept, in a directory that is created if it is missing; None for in memory.
    pub data_dir: Option<PathBuf>,
    /// The etcd cluster that stores all objects; None for a store of our own.
    pub etcd: Option<Etcd>,
    /// The address to serve on; port 0 is any free one.
    pub listen: SocketAddr,
    /// The address in the Endpoints of the `kubernetes` Service and in the server's identity Lease (`--advertise-address`);
    /// None for neither object.
    pub advertise_address: Option<IpAddr>,
    /// The chance that a request over HTTP/2 makes its connection end (`--goaway-chance`).
    pub goaway_chance: GoawayChance,
    /// The time by which responses and watch events are delayed on their way to clients, within [`range::RESPONSE_LATENCY`];
    /// zero is none.
    pub response_latency: Duration,
    /// How requests are authorized.
    pub mode: Mode,
    /// Whether requests without credentials are served as those of `system:anonymous` (`--anonymous-auth`).
    pub anonymous_auth: bool,
    /// Where Services can be reached to which webhooks, conversions and APIServices refer, if not by their EndpointSlices.
    pub webhook_service_urls: Vec<ServiceUrl>,
    /// More names and addresses in the server's certificate.
    pub tls_san: Vec<String>,
    /// A file of bearer tokens (`--token-auth-file`).
    pub token_auth_file: Option<PathBuf>,
    /// Files with the certificate to serve with and its key; None for a certificate of our own authority.
    pub serving_files: Option<(PathBuf, PathBuf)>,
    /// A file of authorities whose client certificates are trusted as well (`--client-ca-file`).
    pub client_ca_file: Option<PathBuf>,
    /// How service account tokens are signed and verified.
    pub service_accounts: ServiceAccountIssuer,
    /// The IPv4 block of the cluster IPs of Services (`--service-cluster-ip-range`), for a new store; None for 10.0.0.0/24.
    pub service_cidr: Option<Cidr>,
    /// The controllers to run, in the syntax of kube-controller-manager's `--controllers`. Unknown names are ignored: see
    /// [`crate::controllers::check_selection`].
    pub controllers: Vec<String>,
    /// The feature gates that do not have their default.
    pub feature_gates: BTreeMap<String, bool>,
    /// The admission plugins to run.
    pub admission_plugins: PluginSelection,
    /// The number of simulated nodes, [`range::NODES`] at most.
    pub nodes: usize,
    /// The time at which writes are durable, with a data directory.
    pub durability: Durability,
    /// The maximum size of all objects together in bytes, [`range::STORE_BYTES`] at most; 0 is no limit.
    pub max_store_bytes: u64,
    /// The maximum number of pods in all namespaces; 0 is no limit.
    pub max_pods: u32,
    /// The time for which Events are kept after their last write, [`range::EVENT_TTL`] at most; zero keeps them forever.
    pub event_ttl: Duration,
    /// The period in which each HorizontalPodAutoscaler is reconciled, within [`range::SYNC_PERIOD`].
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// The default StorageClass, which is created at the start together with `NAME-wait`; None for neither.
    pub default_storage_class: Option<String>,
    /// What is written to an audit log.
    pub audit: AuditOptions,
    /// A file with a `TracingConfiguration` (`--tracing-config-file`).
    pub tracing_config_file: Option<PathBuf>,
}

impl Options {
    /// Replaces numbers outside of their [ranges](range) by the nearest inside: what is started must not overflow.
    pub(crate) fn within_ranges(mut self) -> Options {
        self.nodes = range::NODES.clamp(self.nodes);
        self.max_store_bytes = range::STORE_BYTES.clamp(self.max_store_bytes);
        self.max_pods = range::PODS.clamp(self.max_pods);
        self.response_latency = range::RESPONSE_LATENCY.clamp(self.response_latency);
        // A shorter time is possible, and used by tests.
        self.event_ttl = self.event_ttl.min(range::EVENT_TTL.most);
        let period = &mut self.horizontal_pod_autoscaler_sync_period;
        *period = range::SYNC_PERIOD.clamp(*period);
        if let Durability::Interval(interval) = &mut self.durability {
            *interval = (*interval).min(Duration::from_millis(range::FLUSH_INTERVAL.most));
        }
        if let Some(etcd) = &mut self.etcd {
            etcd.compaction_interval = etcd.compaction_interval.min(range::COMPACTION_INTERVAL.most);
        }
        self
    }
}

/// How long Events are kept, unless something else is asked for; as upstream's `--event-ttl`.
pub(crate) const EVENT_TTL: Duration = Duration::from_secs(3600);

impl Default for Options {
    fn default() -> Options {
        Options {
            data_dir: None,
            etcd: None,
            listen: ([127, 0, 0, 1], 0).into(),
            advertise_address: None,
            goaway_chance: GoawayChance::default(),
            response_latency: Duration::ZERO,
            mode: Mode::Rbac,
            anonymous_auth: true,
            webhook_service_urls: Vec::new(),
            tls_san: Vec::new(),
            token_auth_file: None,
            serving_files: None,
            client_ca_file: None,
            service_accounts: ServiceAccountIssuer::default(),
            service_cidr: None,
            controllers: vec!["*".to_owned()],
            feature_gates: BTreeMap::new(),
            admission_plugins: PluginSelection::default(),
            nodes: 1,
            durability: Durability::Interval(Duration::from_millis(50)),
            max_store_bytes: ControlPlane::MAX_STORE_BYTES,
            max_pods: ControlPlane::MAX_PODS,
            event_ttl: EVENT_TTL,
            horizontal_pod_autoscaler_sync_period: Duration::from_secs(15),
            default_storage_class: Some("standard".to_owned()),
            audit: AuditOptions::default(),
            tracing_config_file: None,
        }
    }
}
