//! The command line: subcommands and flags. Scripts rely on them.

pub mod audit;
pub mod etcd;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use coracle_apimachinery::features::{self, FeatureGates, GateError};
use coracle_apiserver::access::authorize::Mode;
use coracle_apiserver::serve::GoawayChance;
use coracle_apiserver::webhook::ServiceUrl;
use coracle_builtin::admission::PluginSelection;
use coracle_control_plane::maintenance::BUMP_REVISION;
use coracle_control_plane::{ControlPlane, Options, controllers, range};
use coracle_storage::log::Durability;

use crate::range::{parse, within};

/// A Kubernetes control plane in one small binary.
#[derive(Debug, Parser)]
#[command(name = "coracle", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts the control plane and serves until SIGTERM or SIGINT.
    Serve(Serve),
    /// Runs a command against a control plane of its own, and exits with the command's code.
    Run {
        #[command(flatten)]
        serve: Serve,
        /// The command and its arguments, after `--`. It finds the control plane by KUBECONFIG.
        #[arg(last = true, required = true, num_args = 1..)]
        command: Vec<String>,
    },
    /// Runs the controllers against any cluster, as kube-controller-manager does, until SIGTERM or SIGINT.
    Controllers(Controllers),
    /// Prints the kubeconfig of the control plane in a data directory.
    Kubeconfig {
        #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
        data_dir: PathBuf,
    },
    /// Checks the store in a data directory that no server uses, without changing it. Prints what is wrong, a line each.
    Check {
        #[arg(value_name = "DATA_DIR", default_value = DATA_DIR)]
        data_dir: PathBuf,
    },
    /// Saves all objects of a running control plane in a file, as they are at one revision.
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The control plane, and the user to act as [default: as kubectl has it: KUBECONFIG, or ~/.kube/config].
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        #[command(flatten)]
        log: Log,
    },
    /// Makes a store of a backup in a data directory that has none, or in an empty etcd cluster.
    Restore {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(long, value_name = "DIR", default_value = DATA_DIR, conflicts_with = "etcd_servers")]
        data_dir: PathBuf,
        /// By how much revisions continue above the backup's: more than were given since the backup; 0 if none were. Those of etcd
        /// are its own.
        #[arg(long, value_name = "N", default_value_t = BUMP_REVISION, conflicts_with = "etcd_servers",
              value_parser = within(range::BUMP_REVISION))]
        bump_revision: u64,
        #[command(flatten)]
        etcd: etcd::EtcdFlags,
    },
    /// Makes a folder for envtest's KUBEBUILDER_ASSETS, and prints its path.
    EnvtestAssets {
        /// The folder [default: one for this version in the user's cache directory].
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Prints the version.
    Version,
}

/// The default data directory of `serve`.
pub const DATA_DIR: &str = "./coracle-data";

/// The default address of `serve`.
const SERVE_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);
/// The default address of `run`: any free port.
const RUN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[derive(Debug, Args)]
pub struct Serve {
    /// Where the data is kept [default: ./coracle-data; of `run`: nowhere].
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    data_dir: Option<PathBuf>,
    /// Keep nothing: all data is in memory.
    #[arg(long, conflicts_with = "etcd_servers")]
    ephemeral: bool,
    #[command(flatten)]
    etcd: etcd::EtcdFlags,
    /// The address to serve on; port 0 is any free one [default: 127.0.0.1:6443; of `run`: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where to write the kubeconfig, once ready to serve [default: DATA_DIR/kubeconfig; without data, and of `run`: a place of
    /// its own].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Another name or address for the server's certificate; may be repeated.
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Where a Service can be reached to which webhooks, conversions or APIServices refer, if not by its EndpointSlices:
    /// NAMESPACE/NAME=https://HOST:PORT; may be repeated.
    #[arg(long, value_name = "SERVICE=URL")]
    webhook_service_url: Vec<ServiceUrl>,
    /// Bearer tokens: lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// How requests are authorized.
    #[arg(long, value_name = "MODE", default_value = "RBAC")]
    authorization_mode: AuthorizationMode,
    /// The controllers to run, as kube-controller-manager has it: `*`, `foo`, `-foo`; also kube-scheduler and kubelet.
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Admission plugins to run besides the default ones, by kube-apiserver's names.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Default admission plugins not to run.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Kubernetes feature gates: A=true,B=false.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    feature_gates: Vec<FeatureGate>,
    /// The number of simulated nodes, up to 5000; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(range::NODES))]
    nodes: usize,
    /// The StorageClass that is made at the start and is the default; `none` for no class.
    #[arg(long, value_name = "NAME", default_value = "standard")]
    default_storage_class: String,
    /// The time at which writes are durable: `sync` (on disk before the response), `interval=MS` (with the operating system before the response, so that
    /// a killed process loses none, and on disk within MS milliseconds; 0 for as soon as possible), `none` (when the server stops).
    #[arg(long, value_name = "WHEN", default_value = "interval=50", value_parser = durability)]
    durability: Durability,
    /// The most bytes that all objects may take together; 0 is no limit.
    #[arg(long, value_name = "BYTES", default_value_t = ControlPlane::MAX_STORE_BYTES,
          value_parser = within(range::STORE_BYTES))]
    max_store_bytes: u64,
    /// The maximum number of pods in all namespaces; 0 is no limit.
    #[arg(long, value_name = "N", default_value_t = ControlPlane::MAX_PODS, value_parser = within(range::PODS))]
    max_pods: u32,
    /// How long Events are kept after their last write, such as 1h30m; 0 keeps them.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = within(range::EVENT_TTL))]
    event_ttl: Duration,
    /// How often each HorizontalPodAutoscaler is reconciled, such as 15s.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = within(range::SYNC_PERIOD))]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// The chance that a request over HTTP/2 makes its connection end, from 0 to 0.02: clients spread over the servers behind a load
    /// balancer.
    #[arg(long, value_name = "CHANCE", default_value = "0", value_parser = goaway_chance)]
    goaway_chance: GoawayChance,
    /// How long `serve` serves everything after SIGTERM while /readyz fails, such as 10s; a second signal ends it. 0 for not
    /// at all.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = within(range::SHUTDOWN_DELAY))]
    pub shutdown_delay_duration: Duration,
    /// A TracingConfiguration: the collector to which spans of requests are exported, over OTLP, and how many.
    #[arg(long, value_name = "FILE")]
    tracing_config_file: Option<PathBuf>,
    #[command(flatten)]
    audit: audit::AuditFlags,
    #[command(flatten)]
    pub log: Log,
}

#[derive(Debug, Args)]
pub struct Controllers {
    /// The cluster, and the user to act as.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// The controllers to run, as kube-controller-manager has it: `*`, `foo`, `-foo`.
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Work only while holding the Lease of kube-controller-manager.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// The key (RSA or ECDSA P-256) that signs the tokens in secrets; without it, serviceaccount-token-controller is not
    /// started.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    /// How often each HorizontalPodAutoscaler is reconciled, such as 15s.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = within(range::SYNC_PERIOD))]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Kubernetes feature gates: A=true,B=false.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    feature_gates: Vec<FeatureGate>,
    #[command(flatten)]
    pub log: Log,
}

impl Controllers {
    /// The feature gates.
    ///
    /// # Errors
    /// A gate is unknown or locked.
    pub fn features(&self) -> Result<FeatureGates, GateError> {
        FeatureGates::new(self.feature_gates.iter().map(|FeatureGate(name, on)| (name, *on)))
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Log {
    /// The format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Log more; may be repeated.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AuthorizationMode {
    #[value(name = "RBAC")]
    Rbac,
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
}

/// A value of `--feature-gates`: a gate, and whether it is on.
#[derive(Clone, Debug)]
pub struct FeatureGate(pub String, pub bool);

impl FromStr for FeatureGate {
    type Err = String;

    fn from_str(text: &str) -> Result<FeatureGate, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("missing bool value for {text}"))?;
        let value =
            value.parse().map_err(|_| format!("invalid value of {name}={value}: neither true nor false"))?;
        features::check(name, value).map_err(|error| error.to_string())?;
        Ok(FeatureGate(name.to_owned(), value))
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once('=') {
        None if text == "sync" => Ok(Durability::Sync),
        None if text == "none" => Ok(Durability::None),
        Some(("interval", millis)) => {
            let millis = parse(range::FLUSH_INTERVAL, millis).map_err(|why| format!("MS: {why}"))?;
            Ok(Durability::Interval(Duration::from_millis(millis)))
        }
        _ => Err("neither sync, interval=MS nor none".to_owned()),
    }
}

/// A chance from 0 to 0.02, with kube-apiserver's message for any other.
pub fn goaway_chance(text: &str) -> Result<GoawayChance, String> {
    let chance = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    let out_of_range = || "--goaway-chance can not be less than 0 or greater than 0.02".to_owned();
    GoawayChance::new(chance).ok_or_else(out_of_range)
}

impl Serve {
    /// The control plane that the flags describe.
    ///
    /// # Errors
    /// One line about the flag that is wrong.
    pub fn options(&self) -> Result<Options, String> {
        controllers::check_selection(&self.controllers)?;
        let plugins = PluginSelection::new(&self.enable_admission_plugins, &self.disable_admission_plugins);
        Ok(Options {
            data_dir: self.data_dir().map(Path::to_owned),
            etcd: self.etcd.options()?,
            listen: self.listen.unwrap_or(SERVE_LISTEN),
            admission_plugins: plugins.map_err(|error| error.to_string())?,
            mode: match self.authorization_mode {
                AuthorizationMode::Rbac => Mode::Rbac,
                AuthorizationMode::AlwaysAllow => Mode::AlwaysAllow,
            },
            tls_san: self.tls_san.clone(),
            webhook_service_urls: self.webhook_service_url.clone(),
            controllers: self.controllers.clone(),
            feature_gates: self
                .feature_gates
                .iter()
                .map(|FeatureGate(name, on)| (name.clone(), *on))
                .collect(),
            nodes: self.nodes,
            durability: self.durability,
            max_store_bytes: self.max_store_bytes,
            max_pods: self.max_pods,
            event_ttl: self.event_ttl,
            goaway_chance: self.goaway_chance,
            horizontal_pod_autoscaler_sync_period: self.horizontal_pod_autoscaler_sync_period,
            audit: self.audit.options()?,
            default_storage_class: (self.default_storage_class != "none")
                .then(|| self.default_storage_class.clone()),
            tracing_config_file: self.tracing_config_file.clone(),
            token_auth_file: self.token_auth_file.clone(),
            ..Options::default()
        })
    }

    /// The same flags with the defaults of `run`: no data is kept, and any free port is used, unless flags say otherwise.
    pub fn for_run(mut self) -> Serve {
        self.ephemeral = self.data_dir.is_none();
        self.listen = self.listen.or(Some(RUN_LISTEN));
        self
    }

    /// Whether all objects are in an etcd cluster.
    pub fn uses_etcd(&self) -> bool {
        self.etcd.is_used()
    }

    /// The file for the kubeconfig; None for a temporary one.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match &self.kubeconfig {
            Some(file) => Some(file.clone()),
            None => self.data_dir().map(|dir| dir.join("kubeconfig")),
        }
    }

    /// The data directory; None if no data is kept.
    pub fn data_dir(&self) -> Option<&Path> {
        match &self.data_dir {
            _ if self.ephemeral => None,
            Some(directory) => Some(directory),
            None => Some(Path::new(DATA_DIR)),
        }
    }
}
