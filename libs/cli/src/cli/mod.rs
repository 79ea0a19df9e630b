//! The command line: subcommands and flags. Scripts rely on them.

mod background;
mod controllers;
mod declared;
mod etcd;
mod log;
mod output_format;
#[cfg(test)]
mod reference;
mod serve;
mod target;
mod testing;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use coracle_control_plane::maintenance::BUMP_REVISION;
use coracle_control_plane::options::DATA_DIR;
use coracle_control_plane::{Etcd, range};

use crate::range::within;

pub use background::{Down, Status, Up};
pub use controllers::Controllers;
pub use declared::Flags;
pub use log::{Log, LogFormat};
pub use serve::Serve;
pub use target::TargetFlags;
pub use testing::{
    ClockAction, DiffFlags, ForkFlags, LogFlags, ObjectFlags, OpenFlags, ProblemsFlags, ReplayFlags,
    SettleFlags,
};

/// A Kubernetes control plane in one small binary.
#[derive(Debug, Parser)]
#[command(name = "coracle", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts the control plane and serves until SIGTERM or SIGINT.
    Serve {
        #[command(flatten)]
        serve: Serve,
        /// The directory with the state of a process that `up` starts, with the lock as standard input.
        #[arg(long, value_name = "DIR", hide = true)]
        background: Option<PathBuf>,
    },
    /// Runs a command against a control plane of its own, and exits with the command's code.
    Run {
        #[command(flatten)]
        serve: Serve,
        /// The command and its arguments, after `--`. It finds the control plane by KUBECONFIG.
        #[arg(last = true, required = true, num_args = 1..)]
        command: Vec<String>,
    },
    /// Starts the control plane in the background, and waits until it is ready.
    ///
    /// One of the name that runs already is reported, and keeps its flags. The log is coracle.log in the default data directory; that of the
    /// start before is coracle.log.1.
    Up(Up),
    /// Stops a control plane that `up` started, and removes it from the kubeconfig. It is no error if none runs.
    Down(Down),
    /// Reports the control planes that `up` started.
    ///
    /// The exit code is 0 if those that run are ready, 1 if one is not, and 3 if none runs.
    Status(Status),
    /// Runs the controllers against any cluster, as kube-controller-manager does, until SIGTERM or SIGINT.
    Controllers(Controllers),
    /// Prints the kubeconfig of the control plane in a data directory.
    Kubeconfig {
        /// The data directory of its `serve`.
        #[arg(long, value_name = "DIR", default_value = DATA_DIR, env = "CORACLE_DATA_DIR", hide_env_values = true)]
        data_dir: PathBuf,
    },
    /// Succeeds if a running control plane is ready: for health checks of containers, and for scripts.
    Ready {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Checks the store in a data directory that no server uses, without changing it. Prints what is wrong, a line each.
    Check {
        #[arg(value_name = "DATA_DIR", default_value = DATA_DIR)]
        data_dir: PathBuf,
    },
    /// Prints the objects of a running control plane that are not ready, have failed or are terminating, and their newest events.
    Problems {
        #[command(flatten)]
        problems: ProblemsFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Waits until nothing is left to happen in a running control plane at this moment of its clock.
    Settle {
        #[command(flatten)]
        settle: SettleFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Prints the time of a running control plane, and the timers that it waits for next; or moves a manual clock on.
    Clock {
        #[command(subcommand)]
        action: Option<ClockAction>,
        /// The most timers that are printed, up to 1000; 0 for the time alone.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = within(range::TIMERS))]
        limit: usize,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Makes a fork of a running control plane, in its process, and prints the path of the fork's kubeconfig.
    ///
    /// A fork begins with the objects, the revisions, the history and the time of the control plane, and goes its own way. It ends with
    /// `--delete`, or with the process.
    Fork {
        #[command(flatten)]
        fork: ForkFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Prints the forks of a running control plane.
    Forks {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Prints the objects that differ, field by field: between a running control plane and a fork, two forks, or two revisions.
    Diff {
        #[command(flatten)]
        diff: DiffFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Explains an object of a running control plane: why it is still there, not ready, or gone.
    Why {
        #[command(flatten)]
        object: ObjectFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Prints an object of a running control plane with its owners and what they own, and the state of each.
    Tree {
        #[command(flatten)]
        object: ObjectFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Serves the live page of a running control plane on a port of this machine, and opens it in a browser, until Ctrl-C.
    ///
    /// The page shows all objects with their owners and states, live and at earlier revisions. It is read-only. The address that is printed
    /// is the credential: its path cannot be guessed.
    Ui {
        /// Only prints the address.
        #[arg(long)]
        no_browser: bool,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Prints the versions of objects of a running control plane, with who wrote them, and the requests that were refused.
    ///
    /// They are as old as the history that the control plane keeps in memory. Who wrote a version is known until it restarts.
    #[group(skip)]
    Log {
        #[command(flatten)]
        flags: LogFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Serves the history in a record, at one moment: kubectl, `why`, `log`, `tree` and `diff` work, nothing can be changed.
    ///
    /// `coracle fork` makes a control plane that goes on from that moment.
    Open(OpenFlags),
    /// Sends the writes of clients in a record to a running control plane.
    ///
    /// The responses that differ from those in the record are printed.
    Replay {
        #[command(flatten)]
        replay: ReplayFlags,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Saves all objects of a running control plane in a file, as they are at one revision.
    Backup {
        /// The file to save them in; an earlier backup is replaced.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Makes a store of a backup in a data directory that has none, or in an empty etcd cluster.
    Restore {
        /// The backup.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The data directory, which is made if there is none.
        #[arg(long, value_name = "DIR", default_value = DATA_DIR, conflicts_with = "etcd-servers")]
        data_dir: PathBuf,
        /// By how much revisions continue above the backup's: more than were given since the backup; 0 if none were. Those of etcd
        /// are its own.
        #[arg(long, value_name = "N", default_value_t = BUMP_REVISION, conflicts_with = "etcd-servers",
              value_parser = within(range::BUMP_REVISION))]
        bump_revision: u64,
        #[command(flatten)]
        etcd: Flags<Etcd>,
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
