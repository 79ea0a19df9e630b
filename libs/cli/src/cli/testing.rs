//! The flags of the commands that use the endpoints for tests.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use coracle_builtin::services::ServiceUrl;
use coracle_control_plane::{Moment, Name, OpenRecord, Options, listen_address, range};
use coracle_testing_api::{ClockMode, ClockRequest, ForkRequest, SettleRequest};

use super::log::Log;
use super::output_format::OutputFormat;
use crate::range::within;

/// The flags of `settle`.
#[derive(Debug, Args)]
pub struct SettleFlags {
    /// The time for which nothing may have been written, such as 50ms.
    #[arg(long = "for", value_name = "DURATION", default_value = "50ms")]
    quiet_for: String,
    /// The longest wait, up to 1h.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: String,
    /// A user agent, with `*` for any characters: a client of it must have made a request before. May be repeated.
    #[arg(long = "user-agent", value_name = "PATTERN")]
    user_agents: Vec<String>,
}

impl From<SettleFlags> for SettleRequest {
    fn from(SettleFlags { quiet_for, timeout, user_agents }: SettleFlags) -> SettleRequest {
        SettleRequest { quiet_for: Some(quiet_for), timeout: Some(timeout), user_agents }
    }
}

/// The flags of `fork`.
#[derive(Debug, Args)]
pub struct ForkFlags {
    /// The name of the fork, a DNS label [default: any].
    #[arg(value_name = "NAME", conflicts_with = "delete")]
    name: Option<String>,
    /// The clock of the fork, `real` or `manual` [default: as of the control plane].
    #[arg(long, value_name = "MODE", conflicts_with = "delete", value_parser = clock_mode)]
    clock: Option<ClockMode>,
    /// The URL of a server that webhooks call in the fork instead of a Service; can be repeated.
    #[arg(long, value_name = "NAMESPACE/NAME=URL", conflicts_with = "delete")]
    webhook_service_url: Vec<ServiceUrl>,
    /// Ends a fork instead; its own forks go on.
    #[arg(long, value_name = "NAME")]
    pub delete: Option<String>,
}

/// The flags of `diff`.
#[derive(Debug, Args)]
pub struct DiffFlags {
    /// A fork: the first one of two, or the one that is compared with the control plane.
    #[arg(value_name = "FORK", required_unless_present = "from", conflicts_with_all = ["from", "to"])]
    pub fork: Option<String>,
    /// The fork that is compared with the first one.
    #[arg(value_name = "OTHER", conflicts_with_all = ["from", "to"])]
    pub other: Option<String>,
    /// The revision of the control plane whose objects are compared with later ones.
    #[arg(long, value_name = "REVISION", value_parser = within(range::REVISION))]
    pub from: Option<u64>,
    /// The later revision [default: the newest].
    #[arg(long, value_name = "REVISION", requires = "from", value_parser = within(range::REVISION))]
    pub to: Option<u64>,
    /// The namespace of the objects to compare [default: all objects].
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Exits with 1 if something differs, and with 2 after an error.
    #[arg(long)]
    pub exit_code: bool,
    /// The format of the output.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
}

/// The object of `why` and `tree`, named as kubectl does.
#[derive(Debug, Args)]
pub struct ObjectFlags {
    /// The resource and the name, such as `pod/web-0` or `statefulsets.apps/web`.
    #[arg(value_name = "TYPE/NAME")]
    pub object: String,
    /// The name, where the first argument is the resource alone.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The namespace [default: that of the current context].
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The format of the output.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
}

/// The flags of `log`.
#[derive(Debug, Args)]
pub struct LogFlags {
    /// The resource and the name, such as `pod/web-0`, or the resource alone [default: all resources but leases].
    #[arg(value_name = "TYPE/NAME")]
    pub object: Option<String>,
    /// The name, where the first argument is the resource alone.
    #[arg(value_name = "NAME", requires = "object")]
    pub name: Option<String>,
    /// The namespace [default: of one object that of the current context, else all].
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Prints the fields that each version changed.
    #[arg(long)]
    pub diff: bool,
    /// Prints what is not older, such as 5m.
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Prints what clients of a user agent did, with `*` for any characters.
    #[arg(long, value_name = "PATTERN")]
    pub user_agent: Option<String>,
    /// The most entries that are printed, the newest ones, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = within(range::LOG_ENTRIES))]
    pub limit: usize,
    /// The format of the output.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
}

/// The flags of `problems`.
#[derive(Debug, Args)]
pub struct ProblemsFlags {
    /// The namespace of the objects to print [default: all objects].
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The format of the output.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
}

/// The flags of `open`.
#[derive(Debug, Args)]
pub struct OpenFlags {
    /// The record, which `--record` of `run` or `serve` made.
    #[arg(value_name = "FILE")]
    pub record: PathBuf,
    /// The moment to show, a revision or a time such as 2026-11-27T10:11:12Z [default: the end of the record].
    #[arg(long, value_name = "REVISION|TIME")]
    at: Option<Moment>,
    /// The fork to show [default: the original control plane].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    fork: String,
    /// The address to serve on; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = listen_address)]
    listen: SocketAddr,
    /// The name of the cluster, its user and its context in a kubeconfig.
    #[arg(long, value_name = "NAME", default_value = "coracle-record")]
    name: Name,
    /// The file into which the kubeconfig is merged [default: a temporary file].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub log: Log,
}

impl From<OpenFlags> for Options {
    fn from(OpenFlags { record, at, fork, listen, name, .. }: OpenFlags) -> Options {
        let open = Some(OpenRecord { path: record, at, fork });
        Options { open, listen, name, ..Options::default() }
    }
}

/// The flags of `replay`.
#[derive(Debug, Args)]
pub struct ReplayFlags {
    /// The record, which `--record` of `run` or `serve` made.
    #[arg(value_name = "FILE")]
    pub record: PathBuf,
    /// The speed, as a multiple of that in the record, such as 60 [default: without pauses].
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub speed: Option<f64>,
    /// The fork whose requests are sent [default: the original control plane].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub fork: String,
}

fn speed(text: &str) -> Result<f64, &'static str> {
    let speed = text.parse().ok().filter(|speed| (0.001..=1e6).contains(speed));
    speed.ok_or("it must be a number from 0.001 to 1000000")
}

fn clock_mode(text: &str) -> Result<ClockMode, &'static str> {
    match text {
        "real" => Ok(ClockMode::Real),
        "manual" => Ok(ClockMode::Manual),
        _ => Err("it must be real or manual"),
    }
}

impl From<ForkFlags> for ForkRequest {
    fn from(ForkFlags { name, clock, webhook_service_url, .. }: ForkFlags) -> ForkRequest {
        let by_service = |url: ServiceUrl| (format!("{}/{}", url.namespace, url.name), url.url);
        ForkRequest {
            name,
            clock,
            webhook_service_urls: webhook_service_url.into_iter().map(by_service).collect(),
        }
    }
}

/// The ways to move a manual clock on.
#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Moves a manual clock on, from timer to timer, and waits at each until the control plane has settled.
    Advance {
        /// Such as 90s, 24h or 1h30m.
        #[arg(value_name = "DURATION", allow_hyphen_values = true)]
        by: String,
    },
    /// Moves a manual clock to the time of the next timer.
    Next {
        /// The number of times at which timers fire.
        #[arg(value_name = "N", default_value_t = 1)]
        count: u64,
    },
    /// Moves a manual clock to a time that is not earlier than its own.
    Set {
        /// Such as 2027-01-01T00:00:00Z.
        #[arg(value_name = "TIME", allow_hyphen_values = true)]
        to: String,
    },
    /// Lets a manual clock run by itself, from its time on.
    Resume,
}

impl From<ClockAction> for ClockRequest {
    fn from(action: ClockAction) -> ClockRequest {
        let nothing = ClockRequest::default();
        match action {
            ClockAction::Advance { by } => ClockRequest { advance: Some(by), ..nothing },
            ClockAction::Next { count } => ClockRequest { next: Some(count), ..nothing },
            ClockAction::Set { to } => ClockRequest { set: Some(to), ..nothing },
            ClockAction::Resume => ClockRequest { mode: Some(ClockMode::Real), ..nothing },
        }
    }
}
