//! The command line: the flags that scripts rely on, and what they mean.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use coracle::{Builder, ControlPlane, Durability, Mode};

/// A Kubernetes control plane in one small binary.
#[derive(Debug, Parser)]
#[command(name = "coracle", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts the control plane and serves until it is told to stop.
    Serve(Serve),
    /// Runs a command against a control plane of its own, and exits with the command's code.
    Run {
        #[command(flatten)]
        serve: Serve,
        /// The command and its arguments, after `--`. It finds the control plane by KUBECONFIG.
        #[arg(last = true, required = true, num_args = 1..)]
        command: Vec<String>,
    },
    /// Runs the controllers against any cluster, as kube-controller-manager does, until it is told to stop.
    Controllers(Controllers),
    /// Prints the kubeconfig of the control plane in a data directory.
    Kubeconfig {
        #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
        data_dir: PathBuf,
    },
    /// Prints the version.
    Version,
}

pub const DATA_DIR: &str = "./coracle-data";

#[derive(Debug, Args)]
pub struct Serve {
    /// Where the data is kept.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, conflicts_with = "ephemeral")]
    data_dir: PathBuf,
    /// Keep nothing: all is in memory, and gone at the end.
    #[arg(long)]
    pub ephemeral: bool,
    /// The address to serve on; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub listen: SocketAddr,
    /// Where to write the kubeconfig, once ready to serve [default: DATA_DIR/kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Another name or address that the server's certificate shall hold; may be repeated.
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Bearer tokens: lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// How requests are authorized.
    #[arg(long, value_name = "MODE", default_value = "RBAC")]
    authorization_mode: AuthorizationMode,
    /// The controllers to run, as kube-controller-manager has it: `*`, `foo`, `-foo`.
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Kubernetes feature gates: A=true,B=false.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    feature_gates: Vec<FeatureGate>,
    /// How many nodes to simulate.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// The StorageClass that is made at the start and is the default; `none` for no class.
    #[arg(long, value_name = "NAME", default_value = "standard")]
    default_storage_class: String,
    /// When writes are on disk: `sync` (before they are answered), `interval=MS`, `none`.
    #[arg(long, value_name = "WHEN", default_value = "interval=50", value_parser = durability)]
    durability: Durability,
    #[command(flatten)]
    pub log: Log,
}

#[derive(Debug, Args)]
pub struct Controllers {
    /// Which cluster, and who to be there.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// The controllers to run, as kube-controller-manager has it: `*`, `foo`, `-foo`.
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Work only while no other process does.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// The key (RSA or ECDSA P-256) that signs the tokens in secrets; without it, serviceaccount-token-controller is not
    /// started.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub log: Log,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Log {
    /// The form of the log on standard error.
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

#[derive(Clone, Debug)]
struct FeatureGate(String, bool);

impl FromStr for FeatureGate {
    type Err = String;

    fn from_str(text: &str) -> Result<FeatureGate, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("missing bool value for {text}"))?;
        let value =
            value.parse().map_err(|_| format!("invalid value of {name}={value}: neither true nor false"))?;
        if !coracle::gates::is_known(name) {
            return Err(format!("unrecognized feature gate: {name}"));
        }
        Ok(FeatureGate(name.to_owned(), value))
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once('=') {
        None if text == "sync" => Ok(Durability::Sync),
        None if text == "none" => Ok(Durability::None),
        Some(("interval", millis)) => {
            let millis = millis.parse().map_err(|_| format!("{millis} is no number of milliseconds"))?;
            Ok(Durability::Interval(Duration::from_millis(millis)))
        }
        _ => Err("neither sync, interval=MS nor none".to_owned()),
    }
}

impl Serve {
    /// The control plane that the flags describe.
    ///
    /// # Errors
    /// A line that says which flag is wrong.
    pub fn builder(&self) -> Result<Builder, String> {
        coracle::controllers::check_selection(&self.controllers)?;
        let mut builder = ControlPlane::builder()
            .listen(self.listen)
            .authorization(match self.authorization_mode {
                AuthorizationMode::Rbac => Mode::Rbac,
                AuthorizationMode::AlwaysAllow => Mode::AlwaysAllow,
            })
            .tls_san(self.tls_san.iter().cloned())
            .controllers(self.controllers.iter().cloned())
            .feature_gates(self.feature_gates.iter().map(|FeatureGate(name, on)| (name.clone(), *on)))
            .nodes(self.nodes)
            .durability(self.durability)
            .default_storage_class(
                (self.default_storage_class != "none").then(|| self.default_storage_class.clone()),
            );
        builder = if self.ephemeral { builder.ephemeral() } else { builder.data_dir(&self.data_dir) };
        if let Some(file) = &self.token_auth_file {
            builder = builder.token_auth_file(file);
        }
        Ok(builder)
    }

    /// Where the kubeconfig goes, if anywhere.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match &self.kubeconfig {
            Some(file) => Some(file.clone()),
            None => self.data_dir().map(|dir| dir.join("kubeconfig")),
        }
    }

    /// Where the data is, if it is kept.
    pub fn data_dir(&self) -> Option<&PathBuf> {
        (!self.ephemeral).then_some(&self.data_dir)
    }
}
