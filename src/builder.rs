//! The configuration of a control plane that has not been started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use coracle_control_plane::{Name, Options, option_doc, service_account_doc};
use coracle_seed::Seed;

use crate::audit::AuditOptions;
use crate::{
    AddressBlock, AuthorizationMode, Cidr, ClockMode, ControlPlane, Durability, Error, Etcd,
    ForwardAddresses, GoawayChance, KINDS, PluginSelection, ServiceUrl, SimulationProfile,
};

/// The configuration of a control plane that has not been started. It is made by
/// [`ControlPlane::builder`].
///
/// A number outside of its range counts as the nearest inside. The ranges are those of the flags of
/// `coracle serve`, in `docs/reference/flags.md`; only the times that Events live and between
/// compactions of etcd may be shorter.
#[derive(Clone, Debug, Default)]
pub struct Builder(Options);

impl Builder {
    /// Keeps all data in memory; the default.
    pub fn ephemeral(mut self) -> Builder {
        self.0.data_dir = None;
        self
    }

    #[doc = option_doc!(data_dir)]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.0.data_dir = Some(directory.into());
        self
    }

    /// Stores all objects in an etcd cluster, which other control planes may share. Keys,
    /// certificates and volumes are where they are otherwise; control planes that share a cluster
    /// must have the same keys and certificates. Of their controllers, those of one of them run at
    /// a time.
    pub fn etcd(mut self, etcd: Etcd) -> Builder {
        self.0.etcd = Some(etcd);
        self
    }

    #[doc = option_doc!(listen)]
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.0.listen = address;
        self
    }

    #[doc = option_doc!(goaway_chance)]
    pub fn goaway_chance(mut self, chance: GoawayChance) -> Builder {
        self.0.goaway_chance = chance;
        self
    }

    #[doc = option_doc!(mode)]
    pub fn authorization(mut self, mode: AuthorizationMode) -> Builder {
        self.0.mode = mode;
        self
    }

    #[doc = option_doc!(anonymous_auth)]
    pub fn anonymous_auth(mut self, is_allowed: bool) -> Builder {
        self.0.anonymous_auth = is_allowed;
        self
    }

    #[doc = option_doc!(name)]
    pub fn name(mut self, name: Name) -> Builder {
        self.0.name = name;
        self
    }

    #[doc = option_doc!(tls_san)]
    pub fn tls_san(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.0.tls_san.extend(names.into_iter().map(Into::into));
        self
    }

    #[doc = option_doc!(token_auth_file)]
    pub fn token_auth_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.token_auth_file = Some(file.into());
        self
    }

    #[doc = option_doc!(serving_files)]
    ///
    /// If both are missing, a certificate is written there.
    pub fn serving_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Builder {
        self.0.serving_files = Some((certificate.into(), key.into()));
        self
    }

    #[doc = option_doc!(client_ca_file)]
    pub fn client_ca_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.client_ca_file = Some(file.into());
        self
    }

    #[doc = service_account_doc!(signing_key_file)]
    pub fn service_account_signing_key_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.service_accounts.signing_key_file = Some(file.into());
        self
    }

    #[doc = service_account_doc!(key_files)]
    pub fn service_account_key_files(
        mut self,
        files: impl IntoIterator<Item = impl Into<PathBuf>>,
    ) -> Builder {
        self.0.service_accounts.key_files.extend(files.into_iter().map(Into::into));
        self
    }

    #[doc = service_account_doc!(issuers)]
    pub fn service_account_issuers(
        mut self,
        issuers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Builder {
        self.0.service_accounts.issuers.extend(issuers.into_iter().map(Into::into));
        self
    }

    #[doc = option_doc!(service_cidr)]
    pub fn service_cidr(mut self, block: Cidr) -> Builder {
        self.0.service_cidr = Some(block);
        self
    }

    #[doc = option_doc!(webhook_service_urls)]
    pub fn webhook_service_urls(mut self, urls: impl IntoIterator<Item = ServiceUrl>) -> Builder {
        self.0.webhook_service_urls.extend(urls);
        self
    }

    #[doc = option_doc!(clock)]
    pub fn clock(mut self, mode: ClockMode) -> Builder {
        self.0.clock = mode;
        self
    }

    #[doc = option_doc!(seed)]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.0.seed = Some(Seed(seed));
        self
    }

    #[doc = option_doc!(testing_api)]
    pub fn testing_api(mut self, is_served: bool) -> Builder {
        self.0.testing_api = Some(is_served);
        self
    }

    #[doc = option_doc!(allow_forward)]
    pub fn allow_forward(mut self, addresses: ForwardAddresses) -> Builder {
        self.0.allow_forward = Some(addresses);
        self
    }

    #[doc = option_doc!(controllers)]
    ///
    /// It replaces the selection. [`start`](Self::start) fails for unknown names.
    pub fn controllers(mut self, selection: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.0.controllers = selection.into_iter().map(Into::into).collect();
        self
    }

    #[doc = option_doc!(feature_gates)]
    ///
    /// [`start`](Self::start) fails for unknown and locked ones.
    pub fn feature_gates(mut self, gates: impl IntoIterator<Item = (impl Into<String>, bool)>) -> Builder {
        self.0.feature_gates.extend(gates.into_iter().map(|(name, value)| (name.into(), value)));
        self
    }

    #[doc = option_doc!(admission_plugins)]
    pub fn admission_plugins(mut self, selection: PluginSelection) -> Builder {
        self.0.admission_plugins = selection;
        self
    }

    #[doc = option_doc!(nodes)]
    pub fn nodes(mut self, count: usize) -> Builder {
        self.0.nodes = count;
        self
    }

    #[doc = option_doc!(load_balancer_addresses)]
    pub fn load_balancer_addresses(mut self, block: Option<AddressBlock>) -> Builder {
        self.0.load_balancer_addresses = block;
        self
    }

    #[doc = option_doc!(simulation_profile)]
    pub fn simulation_profile(mut self, profile: SimulationProfile) -> Builder {
        self.0.simulation_profile = profile;
        self
    }

    #[doc = option_doc!(durability)]
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.0.durability = durability;
        self
    }

    #[doc = option_doc!(max_store_bytes)]
    ///
    /// Above it, writes that grow the store are rejected as by etcd's quota.
    pub fn max_store_bytes(mut self, bytes: u64) -> Builder {
        self.0.max_store_bytes = bytes;
        self
    }

    #[doc = option_doc!(max_pods)]
    ///
    /// At it, the creation of pods is rejected (403).
    pub fn max_pods(mut self, pods: u32) -> Builder {
        self.0.max_pods = pods;
        self
    }

    #[doc = option_doc!(max_forks)]
    pub fn max_forks(mut self, forks: usize) -> Builder {
        self.0.max_forks = forks;
        self
    }

    #[doc = option_doc!(record)]
    pub fn record(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.record = Some(file.into());
        self
    }

    #[doc = option_doc!(record_max_bytes)]
    pub fn record_max_bytes(mut self, bytes: u64) -> Builder {
        self.0.record_max_bytes = bytes;
        self
    }

    #[doc = option_doc!(record_secrets)]
    pub fn record_secrets(mut self, records_secrets: bool) -> Builder {
        self.0.record_secrets = records_secrets;
        self
    }

    #[doc = option_doc!(event_ttl)]
    pub fn event_ttl(mut self, ttl: Duration) -> Builder {
        self.0.event_ttl = ttl;
        self
    }

    #[doc = option_doc!(horizontal_pod_autoscaler_sync_period)]
    pub fn horizontal_pod_autoscaler_sync_period(mut self, period: Duration) -> Builder {
        self.0.horizontal_pod_autoscaler_sync_period = period;
        self
    }

    #[doc = option_doc!(default_storage_class)]
    ///
    /// None for no class; another one, `NAME-wait`, is created with it.
    pub fn default_storage_class(mut self, name: Option<String>) -> Builder {
        self.0.default_storage_class = name;
        self
    }

    #[doc = option_doc!(tracing_config_file)]
    pub fn tracing_config_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.0.tracing_config_file = Some(file.into());
        self
    }

    #[doc = option_doc!(audit)]
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
