//! The configuration of a control plane that has not been started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use coracle_control_plane::Options;

use crate::audit::AuditOptions;
use crate::{
    Cidr, ControlPlane, Durability, Error, Etcd, GoawayChance, KINDS, Mode, PluginSelection, ServiceUrl,
};

/// The configuration of a control plane that has not been started. It is made by [`ControlPlane::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder(Options);

impl Builder {
    /// Keeps all data in memory; the default.
    pub fn ephemeral(mut self) -> Builder {
        self.0.data_dir = None;
        self
    }

    /// Keeps the data in a directory, which is created if it is missing.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.0.data_dir = Some(directory.into());
        self
    }

    /// Stores all objects in an etcd cluster, which other control planes may share. Keys, certificates and volumes are where they
    /// are otherwise; control planes that share a cluster must have the same keys and certificates. Of their controllers, those of
    /// one of them run at a time.
    pub fn etcd(mut self, etcd: Etcd) -> Builder {
        self.0.etcd = Some(etcd);
        self
    }

    /// The address to serve on; port 0, the default, is any free one.
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.0.listen = address;
        self
    }

    /// The chance that a request over HTTP/2 makes its connection end, so that clients spread over the servers behind a load balancer
    /// (`--goaway-chance`); never by default.
    pub fn goaway_chance(mut self, chance: GoawayChance) -> Builder {
        self.0.goaway_chance = chance;
        self
    }

    /// How requests are authorized; RBAC by default.
    pub fn authorization(mut self, mode: Mode) -> Builder {
        self.0.mode = mode;
        self
    }

    /// Whether requests without credentials are served as those of `system:anonymous` (`--anonymous-auth`); true by default.
    pub fn anonymous_auth(mut self, is_allowed: bool) -> Builder {
        self.0.anonymous_auth = is_allowed;
        self
    }

    /// Adds names and addresses to the server's certificate.
    pub fn tls_san(mut self, names: impl IntoIterator<Item = String>) -> Builder {
        self.0.tls_san.extend(names);
        self
    }

    /// A file of bearer tokens in kube-apiserver's format (`--token-auth-file`).
    pub fn token_auth_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.token_auth_file = Some(file.into());
        self
    }

    /// Files with the certificate to serve with and its key, instead of a certificate of our own authority. If both are
    /// missing, a certificate is written there.
    pub fn serving_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Builder {
        self.0.serving_files = Some((certificate.into(), key.into()));
        self
    }

    /// A file of authorities whose client certificates are trusted as well (`--client-ca-file`).
    pub fn client_ca_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.client_ca_file = Some(file.into());
        self
    }

    /// The private key that signs service account tokens (`--service-account-signing-key-file`): RSA or ECDSA P-256.
    pub fn service_account_signing_key_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.service_accounts.signing_key_file = Some(file.into());
        self
    }

    /// Files of public keys or certificates that verify service account tokens too (`--service-account-key-file`).
    pub fn service_account_key_files(mut self, files: impl IntoIterator<Item = PathBuf>) -> Builder {
        self.0.service_accounts.key_files.extend(files);
        self
    }

    /// The issuers of service account tokens (`--service-account-issuer`): the first is in new tokens, all are accepted.
    pub fn service_account_issuers(mut self, issuers: impl IntoIterator<Item = String>) -> Builder {
        self.0.service_accounts.issuers.extend(issuers);
        self
    }

    /// The IPv4 block of the cluster IPs of Services (`--service-cluster-ip-range`); 10.0.0.0/24 by default. For a new store.
    pub fn service_cidr(mut self, block: Cidr) -> Builder {
        self.0.service_cidr = Some(block);
        self
    }

    /// Where Services can be reached to which webhooks, conversions and APIServices refer (`--webhook-service-url`), if not by
    /// their EndpointSlices.
    pub fn webhook_service_urls(mut self, urls: impl IntoIterator<Item = ServiceUrl>) -> Builder {
        self.0.webhook_service_urls.extend(urls);
        self
    }

    /// The controllers to run, in the syntax of kube-controller-manager's `--controllers`; `*` by default. Unknown names are
    /// ignored: see [`controllers::check_selection`](crate::controllers::check_selection).
    pub fn controllers(mut self, selection: impl IntoIterator<Item = String>) -> Builder {
        self.0.controllers = selection.into_iter().collect();
        self
    }

    /// Overrides feature gates. [`start`](Self::start) fails for unknown and locked ones.
    pub fn feature_gates(mut self, gates: impl IntoIterator<Item = (String, bool)>) -> Builder {
        self.0.feature_gates.extend(gates);
        self
    }

    /// The admission plugins to run; kube-apiserver's defaults unless set.
    pub fn admission_plugins(mut self, selection: PluginSelection) -> Builder {
        self.0.admission_plugins = selection;
        self
    }

    /// The number of simulated nodes, 1 by default; 5,000 at most, more count as that.
    pub fn nodes(mut self, count: usize) -> Builder {
        self.0.nodes = count;
        self
    }

    /// The time at which writes are durable, with a data directory: with the operating system before the response, and on disk at most
    /// 50 ms later by default. An interval above a minute counts
    /// as a minute.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.0.durability = durability;
        self
    }

    /// The maximum size of all objects together in bytes; 0 is no limit. Above it, writes that grow the store are rejected as by
    /// etcd's quota. [`ControlPlane::MAX_STORE_BYTES`] by default; at most 1 TiB, more count as that.
    pub fn max_store_bytes(mut self, bytes: u64) -> Builder {
        self.0.max_store_bytes = bytes;
        self
    }

    /// The maximum number of pods in all namespaces; 0 is no limit. At it, the creation of pods is rejected (403).
    /// [`ControlPlane::MAX_PODS`] by default.
    pub fn max_pods(mut self, pods: u32) -> Builder {
        self.0.max_pods = pods;
        self
    }

    /// The time for which Events are kept after their last write, an hour by default; zero keeps them forever. More than ten years count as ten
    /// years.
    pub fn event_ttl(mut self, ttl: Duration) -> Builder {
        self.0.event_ttl = ttl;
        self
    }

    /// The period in which each HorizontalPodAutoscaler is reconciled, 15 seconds by default; from a second to a day, other periods count as
    /// the nearest.
    pub fn horizontal_pod_autoscaler_sync_period(mut self, period: Duration) -> Builder {
        self.0.horizontal_pod_autoscaler_sync_period = period;
        self
    }

    /// The default StorageClass, which is created at the start together with `NAME-wait`; None for neither. `standard` by default.
    pub fn default_storage_class(mut self, name: Option<String>) -> Builder {
        self.0.default_storage_class = name;
        self
    }

    /// A file with a `TracingConfiguration`: the collector to which spans of requests are exported (`--tracing-config-file`).
    pub fn tracing_config_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.tracing_config_file = Some(file.into());
        self
    }

    /// What is written to an audit log; nothing by default.
    pub fn audit(mut self, options: AuditOptions) -> Builder {
        self.0.audit = options;
        self
    }

    /// Starts the control plane; it is ready to serve when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing keeps running then.
    pub async fn start(self) -> Result<ControlPlane, Error> {
        coracle_control_plane::ControlPlane::start(self.0, KINDS).await.map(ControlPlane)
    }
}
