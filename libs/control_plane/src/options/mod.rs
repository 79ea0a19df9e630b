//! The options of a control plane: the only declaration of each, and the code derived from it.
//!
//! CONTRIBUTING.md has the recipe for a new one.

mod audit;
mod declare;
mod etcd;
pub mod form;
pub mod range;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use coracle_apimachinery::validation::ip::Cidr;
use coracle_apiserver::audit::AuditOptions;
use coracle_apiserver::serve::GoawayChance;
use coracle_behavior::{AddressBlock, Profile};
use coracle_builtin::admission::{PluginError, PluginSelection};
use coracle_builtin::authorization::Mode;
use coracle_builtin::forwarding::ForwardAddresses;
use coracle_builtin::services::ServiceUrl;
use coracle_kubeconfig::Name;
use coracle_seed::Seed;
use coracle_storage::log::Durability;
use coracle_testing_api::ClockMode;

pub use audit::AuditFlags;
use declare::options;
pub use declare::{BOTH, DROP_IN, Declared, Flag, SERVE, Usage};
pub use etcd::Etcd;
pub use form::listen_address;
pub use values::Values;

use crate::opened::OpenRecord;

use form::{
    AtMost, Authorization, Chance, ClockName, Each, EachFile, File, Gates, List, Listen, MaybeParsed,
    NameOrNone, Parsed, ParsedOrNone, ProfileName, Selection, Switch, When,
};

/// The data directory of `serve`, unless a flag has another.
pub const DATA_DIR: &str = "./coracle-data";

/// The default of [`Options::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All objects
/// are held in memory.
pub const MAX_STORE_BYTES: u64 = 2 << 30;

/// The default of [`Options::max_pods`]: the largest cluster that Kubernetes is tested with.
pub const MAX_PODS: u32 = 150_000;

/// The default of [`Options::record_max_bytes`].
pub const RECORD_MAX_BYTES: u64 = 4 << 30;

/// The default of [`Options::max_forks`].
pub const MAX_FORKS: usize = 1000;

/// The address of `serve`, unless a flag has another.
const SERVE_LISTEN: &str = "127.0.0.1:6443";

options! {
    /// The configuration of a control plane. The default is one in memory, on any free port of the
    /// loopback address, with RBAC.
    ///
    /// A number outside of its [range](crate::range) counts as the nearest inside.
    #[derive(Clone, Debug)]
    pub struct Options, docs option_doc {
        /// The directory of the data.
        data_dir: Option<PathBuf> = None,
            "data-dir" "DIR" as File, SERVE.with_serve_default(DATA_DIR, "CORACLE_DATA_DIR");
        /// The etcd cluster that stores all objects; None for a store of our own.
        etcd: Option<Etcd> = None;
        /// The address to serve on; port 0 is any free one.
        listen: SocketAddr = ([127, 0, 0, 1], 0).into(),
            "listen" "ADDRESS" as Listen, SERVE.with_serve_default(SERVE_LISTEN, "CORACLE_LISTEN").with_help(
                "The address to serve on; port 0 is any free one, and a port alone is of 127.0.0.1.",
            );
        /// The name of the cluster, its user and its context in a kubeconfig.
        name: Name = Name::default(),
            "name" "NAME" as Parsed, SERVE;
        /// Another name or address for the server's certificate.
        tls_san: Vec<String> = Vec::new(),
            "tls-san" "NAME" as List, SERVE.with_environment("CORACLE_TLS_SAN").with_help(
                "Another name or address for the server's certificate, or several: NAME,NAME; may be repeated.",
            );
        /// The URL of a Service that webhooks, conversions or APIServices refer to, if it is not
        /// reached by its EndpointSlices: NAMESPACE/NAME=https://HOST:PORT.
        webhook_service_urls: Vec<ServiceUrl> = Vec::new(),
            "webhook-service-url" "SERVICE=URL" as Each, SERVE;
        /// The addresses that the annotation `sim.coracle.dev/forward` of simulated pods may name:
        /// an address, a block, or several with commas. None for those of the loopback interface,
        /// if the server itself listens there.
        allow_forward: Option<ForwardAddresses> = None,
            "allow-forward" "ADDRESSES" as MaybeParsed, SERVE.with_help(
                "The addresses that the annotation `sim.coracle.dev/forward` of simulated pods may name: 127.0.0.1, 10.0.0.0/8, several \
                 with commas, or `none`; by default those of the loopback interface, if the server itself listens there.",
            );
        /// Whether the endpoints for tests are served, below `/coracle/v1alpha1/`. None for on, if
        /// the server listens on a loopback address.
        testing_api: Option<bool> = None,
            "testing-api" "BOOL" as MaybeParsed, SERVE.with_help(
                "Whether the endpoints for tests are served, below /coracle/v1alpha1/; by default if the server listens on a loopback \
                 address.",
            );
        /// The clock of the control plane. `real`: the machine's; `manual`: it stands still until
        /// it is moved on, by `coracle clock advance` or the endpoints for tests.
        clock: ClockMode = ClockMode::Real,
            "clock" "MODE" as ClockName, SERVE.with_environment("CORACLE_CLOCK");
        /// A number that UIDs, generated names and addresses follow from, together with the path or
        /// the owner of an object. None for chance.
        seed: Option<Seed> = None,
            "seed" "N" as MaybeParsed, SERVE.with_environment("CORACLE_SEED").with_help(
                "A number, 0 or more, that UIDs, generated names and addresses follow from, together with the path or the owner of an \
                 object; by default they are made by chance.",
            );
        /// The maximum number of forks at once, of this control plane and of its forks; 0 for none.
        max_forks: usize = MAX_FORKS,
            "max-forks" "N" as range::FORKS, SERVE;
        /// A file that records the history of the control plane and of its forks, for `coracle open`: every version of every object, every request
        /// and every pass of a controller. It must not exist. None for no record.
        record: Option<PathBuf> = None,
            "record" "FILE" as File, SERVE.with_help(
                "A file that records the history of the control plane and of its forks, for `coracle open`: every version of every object, \
                 every request and every pass of a controller. It must not exist.",
            );
        /// The command line that the record has, without what is secret.
        command: Vec<String> = Vec::new();
        /// A record to show, instead of a store of its own: no controllers run, and nothing can be changed.
        open: Option<OpenRecord> = None;
        /// Whether it is a fork of a record. It continues with the time and the nodes of the record.
        of_record: bool = false;
        /// The length of the record at which recording stops, in bytes.
        record_max_bytes: u64 = RECORD_MAX_BYTES,
            "record-max-bytes" "BYTES" as range::RECORD_BYTES, SERVE;
        /// Whether the values of Secrets and tokens are in the record.
        record_secrets: bool = false,
            "record-secrets" "BOOL" as Switch, SERVE;
        /// Bearer tokens: lines of token,user,uid,"group1,group2".
        token_auth_file: Option<PathBuf> = None,
            "token-auth-file" "FILE" as File, BOTH;
        /// The authorization mode.
        mode: Mode = Mode::Rbac,
            "authorization-mode" "MODE" as Authorization, SERVE;
        /// The controllers to run, as kube-controller-manager has it: `*`, `foo`, `-foo`; also
        /// kube-scheduler and kubelet.
        controllers: Vec<String> = vec!["*".to_owned()],
            "controllers" "LIST" as Selection, SERVE;
        /// The admission plugins to run.
        admission_plugins: PluginSelection = PluginSelection::default();
        /// Kubernetes feature gates, by their names.
        feature_gates: BTreeMap<String, bool> = BTreeMap::new(),
            "feature-gates" "GATES" as Gates, BOTH.with_help("Kubernetes feature gates: A=true,B=false.");
        /// The number of simulated nodes, up to 5000; 0 for none.
        nodes: usize = 1,
            "nodes" "N" as range::NODES, SERVE;
        /// The behavior of simulated containers that no annotation says anything about.
        /// `realistic`: they do what their commands say plainly, and others complete unless they
        /// would be restarted; `inert`: all run until they are stopped.
        simulation_profile: Profile = Profile::Realistic,
            "simulation-profile" "PROFILE" as ProfileName,
            SERVE.with_environment("CORACLE_SIMULATION_PROFILE");
        /// The IPv4 block of the addresses of load balancers, for Services of that type and for
        /// Ingresses; nothing listens there. None for no addresses, as with the profile `inert`.
        load_balancer_addresses: Option<AddressBlock> = Some(AddressBlock::DOCUMENTATION),
            "load-balancer-addresses" "BLOCK" as ParsedOrNone, SERVE.with_help(
                "The IPv4 block of the addresses of load balancers, for Services of that type and for Ingresses; nothing listens \
                 there. `none` for no addresses, as with the profile `inert`.",
            );
        /// The StorageClass that is made at the start and is the default.
        default_storage_class: Option<String> = Some("standard".to_owned()),
            "default-storage-class" "NAME" as NameOrNone, SERVE.with_help(
                "The StorageClass that is made at the start and is the default; `none` for no class.",
            );
        /// The time at which writes are durable.
        durability: Durability = Durability::Interval(Duration::from_millis(50)),
            "durability" "WHEN" as When, SERVE.with_help(
                "The time at which writes are durable: `sync` (on disk before the response), \
                 `interval=MS` (with the operating system before the response, so that a killed \
                 process loses none, and on disk within MS milliseconds; 0 for as soon as possible), \
                 `none` (when the server stops).",
            );
        /// The most bytes that all objects may take together; 0 is no limit.
        max_store_bytes: u64 = MAX_STORE_BYTES,
            "max-store-bytes" "BYTES" as range::STORE_BYTES, SERVE;
        /// The maximum number of pods in all namespaces; 0 is no limit.
        max_pods: u32 = MAX_PODS,
            "max-pods" "N" as range::PODS, SERVE;
        /// The time for which Events are kept after their last write; zero keeps them.
        event_ttl: Duration = Duration::from_secs(60 * 60),
            "event-ttl" "DURATION" as AtMost(range::EVENT_TTL), BOTH.with_help(
                "The time for which Events are kept after their last write, such as 1h30m; 0 keeps them.",
            );
        /// The interval in which each HorizontalPodAutoscaler is reconciled.
        horizontal_pod_autoscaler_sync_period: Duration = Duration::from_secs(15),
            "horizontal-pod-autoscaler-sync-period" "DURATION" as range::SYNC_PERIOD, SERVE.with_help(
                "The interval in which each HorizontalPodAutoscaler is reconciled, such as 15s.",
            );
        /// The chance that a request over HTTP/2 makes its connection end, from 0 to 0.02: clients
        /// spread over the servers behind a load balancer.
        goaway_chance: GoawayChance = GoawayChance::default(),
            "goaway-chance" "CHANCE" as Chance, BOTH;
        /// A TracingConfiguration: the collector to which spans of requests are exported, over
        /// OTLP, and how many.
        tracing_config_file: Option<PathBuf> = None,
            "tracing-config-file" "FILE" as File, BOTH;
        /// Whether requests without credentials are served as those of `system:anonymous`.
        anonymous_auth: bool = true,
            "anonymous-auth" "BOOL" as Switch, DROP_IN;
        /// A file of authorities whose client certificates are trusted as well.
        client_ca_file: Option<PathBuf> = None,
            "client-ca-file" "FILE" as File, DROP_IN;
        /// The address in the Endpoints of the `kubernetes` Service and in the identity Lease; None
        /// for the one that the server listens on or, if that is a loopback or unspecified
        /// address, the host's own.
        advertise_address: Option<IpAddr> = None;
        /// Whether the server's identity is a Lease in `kube-system`, which it renews.
        identity_lease: bool = false;
        /// The time by which responses and watch events are delayed on their way to clients; zero
        /// is none.
        response_latency: Duration = Duration::ZERO;
        /// Files with the certificate to serve with and its key; None for a certificate of our own
        /// authority.
        serving_files: Option<(PathBuf, PathBuf)> = None;
        /// The signing and the verification of service account tokens.
        service_accounts: ServiceAccountIssuer = ServiceAccountIssuer::default();
        /// The IPv4 block of the cluster IPs of Services, for a new store; None for 10.0.0.0/24.
        service_cidr: Option<Cidr> = None;
        /// The audit log.
        audit: AuditOptions = AuditOptions::default();
    }
}

options! {
    /// The signing and the verification of service account tokens, if not by a key of our own.
    #[derive(Clone, Debug)]
    pub struct ServiceAccountIssuer, docs service_account_doc {
        /// The private key that signs service account tokens: RSA or ECDSA P-256.
        signing_key_file: Option<PathBuf> = None,
            "service-account-signing-key-file" "FILE" as File, DROP_IN;
        /// Public keys or certificates that verify service account tokens too.
        key_files: Vec<PathBuf> = Vec::new(),
            "service-account-key-file" "FILE" as EachFile, DROP_IN;
        /// The issuers of service account tokens: the first is in new tokens, all are accepted.
        issuers: Vec<String> = Vec::new(),
            "service-account-issuer" "ISSUER" as Each, DROP_IN;
    }
}

options! {
    /// The flags of the end of a process that runs a control plane. The process waits, not the
    /// control plane: a signal ends it.
    #[derive(Clone, Debug)]
    pub struct ShutdownFlags, docs shutdown_doc {
        /// The time for which `serve` serves everything after SIGTERM while /readyz fails, such as
        /// 10s; a second signal ends it. 0 for not at all.
        delay: Duration = Duration::ZERO,
            "shutdown-delay-duration" "DURATION" as range::SHUTDOWN_DELAY, BOTH;
    }
}

options! {
    /// The flags that select admission plugins.
    #[derive(Clone, Debug)]
    pub struct AdmissionFlags, docs admission_doc {
        /// Admission plugins to run besides the default ones, by kube-apiserver's names.
        enable: Vec<String> = Vec::new(),
            "enable-admission-plugins" "LIST" as List, BOTH;
        /// Default admission plugins not to run.
        disable: Vec<String> = Vec::new(),
            "disable-admission-plugins" "LIST" as List, BOTH;
    }
}

impl AdmissionFlags {
    /// Returns the selected plugins.
    ///
    /// # Errors
    /// A name is unknown, or is in both lists.
    pub fn selection(&self) -> Result<PluginSelection, PluginError> {
        PluginSelection::new(&self.enable, &self.disable)
    }
}

impl Options {
    /// Returns the largest total size of the objects of a store, in bytes.
    pub(crate) fn store_bytes(&self) -> u64 {
        if self.max_store_bytes == 0 { u64::MAX } else { self.max_store_bytes }
    }

    /// Returns the options of a fork of a control plane with these options. The fork keeps its data
    /// in memory and listens on a free port of `address`. It takes its keys, authorities, tokens
    /// and time from the control plane.
    ///
    /// - `is_running`: whether the clock of the control plane runs, perhaps since it was resumed
    pub(crate) fn of_fork(&self, address: IpAddr, is_running: bool, fork: ForkOptions) -> Options {
        let clock = if is_running { ClockMode::Real } else { self.clock };
        let issuers = self.service_accounts.issuers.clone();
        // If there are two URLs for one Service, the last one applies.
        let webhook_service_urls =
            self.webhook_service_urls.iter().cloned().chain(fork.webhook_service_urls).collect();
        Options {
            data_dir: None,
            etcd: None,
            open: None,
            of_record: self.of_record || self.open.is_some(),
            listen: SocketAddr::new(address, 0),
            token_auth_file: None,
            tracing_config_file: None,
            client_ca_file: None,
            serving_files: None,
            service_accounts: ServiceAccountIssuer { issuers, ..ServiceAccountIssuer::default() },
            audit: AuditOptions::default(),
            clock: fork.clock.unwrap_or(clock),
            webhook_service_urls,
            ..self.clone()
        }
    }

    /// Clamps numbers outside of their [ranges](range), so that computations with them cannot
    /// overflow.
    pub(crate) fn within_ranges(mut self) -> Options {
        self.clamp();
        self.response_latency = range::RESPONSE_LATENCY.clamp(self.response_latency);
        if let Some(etcd) = &mut self.etcd {
            etcd.clamp();
        }
        self
    }
}

/// The options of a fork that are not those of the control plane that it begins with.
#[derive(Clone, Debug, Default)]
pub struct ForkOptions {
    /// The mode of the clock; None for that of the control plane at this moment. The clock goes on
    /// from the time of the control plane.
    pub clock: Option<ClockMode>,
    /// The URLs that replace the Services of webhooks in the fork, in addition to
    /// [`Options::webhook_service_urls`].
    pub webhook_service_urls: Vec<ServiceUrl>,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fmt::Debug;

    use super::*;

    /// A default is shown as the text that sets it.
    fn assert_defaults_are_read<S: Declared + Debug>() {
        for flag in S::flags() {
            let Some(text) = (flag.write)(&S::default()) else { continue };
            let mut options = S::default();
            assert_eq!((flag.set)(&mut options, &[OsString::from(&text)]), Ok(()), "{}={text}", flag.name);
            assert_eq!(format!("{options:?}"), format!("{:?}", S::default()), "{}={text}", flag.name);
        }
    }

    #[test]
    fn a_default_is_shown_as_the_text_that_sets_it() {
        assert_defaults_are_read::<Options>();
        assert_defaults_are_read::<Etcd>();
        assert_defaults_are_read::<AuditFlags>();
        assert_defaults_are_read::<ShutdownFlags>();
        for flag in Options::flags() {
            if let Some(text) = flag.usage.serve_default {
                assert_eq!((flag.check)(&[text.into()]), Ok(()), "{}", flag.name);
            }
        }
    }

    #[test]
    fn a_port_alone_is_of_the_loopback_address() {
        let read = |text: &str| form::Form::<SocketAddr>::read(&Listen, &[text.into()]);
        for (text, want) in [
            ("6443", "127.0.0.1:6443"),
            (":0", "127.0.0.1:0"),
            ("localhost:65535", "127.0.0.1:65535"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:2", "[::1]:2"),
        ] {
            assert_eq!(read(text).map(|address| address.to_string()).as_deref(), Ok(want), "{text}");
        }
        for text in ["", ":", "65536", "+1", "::1", "example.com:1", "127.0.0.1", "localhost"] {
            assert!(read(text).is_err_and(|why| why.contains("127.0.0.1:6443")), "{text}");
        }
    }

    #[test]
    fn numbers_outside_of_their_ranges_count_as_the_nearest_inside() {
        let options = Options {
            nodes: 5001,
            event_ttl: Duration::from_millis(1),
            horizontal_pod_autoscaler_sync_period: Duration::ZERO,
            response_latency: Duration::MAX,
            durability: Durability::Interval(Duration::MAX),
            etcd: Some(Etcd { compaction_interval: Duration::MAX, ..Etcd::default() }),
            ..Options::default()
        };
        let options = options.within_ranges();
        assert_eq!(options.nodes, 5000);
        assert_eq!(
            options.event_ttl,
            Duration::from_millis(1),
            "tests use a shorter time than the flag allows"
        );
        assert_eq!(options.horizontal_pod_autoscaler_sync_period, range::SYNC_PERIOD.least);
        assert_eq!(options.response_latency, range::RESPONSE_LATENCY.most);
        assert!(matches!(options.durability, Durability::Interval(interval) if interval.as_secs() == 60));
        let etcd = options.etcd.map(|etcd| etcd.compaction_interval);
        assert_eq!(etcd, Some(range::COMPACTION_INTERVAL.most));
    }
}
