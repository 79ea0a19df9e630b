//! The flags of `serve` and `run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use coracle_control_plane::options::{AdmissionFlags, AuditFlags, Declared, Flag, ShutdownFlags};
use coracle_control_plane::{Etcd, Options, controllers};

use super::declared::{Flags, argument, is_given};
use super::log::Log;

/// The options of a control plane, and the flags of the process.
#[derive(Debug)]
pub struct Serve {
    options: Flags<Options>,
    /// The flags that are not given and have a default of `serve`.
    defaults: Vec<&'static Flag<Options>>,
    pub(super) etcd: Flags<Etcd>,
    admission: Flags<AdmissionFlags>,
    audit: Flags<AuditFlags>,
    shutdown: Flags<ShutdownFlags>,
    data: DataFlags,
    file: KubeconfigFlag,
    /// The log of the process.
    pub log: Log,
}

#[derive(Debug, Args)]
struct DataFlags {
    /// Keep nothing: all data is in memory.
    #[arg(long, conflicts_with_all = ["data-dir", "etcd-servers"])]
    ephemeral: bool,
}

#[derive(Debug, Args)]
struct KubeconfigFlag {
    /// The file into which the kubeconfig is merged, once ready to serve; `run` creates it for the time of the command, and
    /// refuses one that exists [default: DATA_DIR/kubeconfig; with --ephemeral, and of `run`: a temporary file].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Args for Serve {
    /// Adds the arguments in the order of the help, which has related flags together.
    fn augment_args(mut command: Command) -> Command {
        for flag in Options::flags().filter(|flag| flag.usage.serve) {
            command = command.arg(argument(flag));
            command = match flag.name {
                "data-dir" => Flags::<Etcd>::augment_args(DataFlags::augment_args(command)),
                "listen" => KubeconfigFlag::augment_args(command),
                "controllers" => Flags::<AdmissionFlags>::augment_args(command),
                "goaway-chance" => Flags::<ShutdownFlags>::augment_args(command),
                _ => command,
            };
        }
        Log::augment_args(Flags::<AuditFlags>::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Serve::augment_args(command)
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Serve, clap::Error> {
        let is_absent =
            |flag: &&Flag<Options>| flag.usage.serve_default.is_some() && !is_given(flag, matches);
        Ok(Serve {
            options: Flags::from_arg_matches(matches)?,
            defaults: Options::flags().filter(is_absent).collect(),
            etcd: Flags::from_arg_matches(matches)?,
            admission: Flags::from_arg_matches(matches)?,
            audit: Flags::from_arg_matches(matches)?,
            shutdown: Flags::from_arg_matches(matches)?,
            data: DataFlags::from_arg_matches(matches)?,
            file: KubeconfigFlag::from_arg_matches(matches)?,
            log: Log::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Serve::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Serve {
    /// Builds the options of the control plane from the flags.
    ///
    /// # Errors
    /// One line about the flag that is wrong.
    pub fn options(&self) -> Result<Options, String> {
        let mut options = self.options.0.clone();
        for flag in &self.defaults {
            set_default(flag, &mut options)?;
        }
        if self.data.ephemeral {
            options.data_dir = None;
        }
        controllers::check_selection(&options.controllers).map_err(|error| error.to_string())?;
        options.admission_plugins = self.admission.0.selection().map_err(|error| error.to_string())?;
        options.etcd = self.etcd.options()?;
        options.audit = self.audit.0.options()?;
        // Without the arguments of the command that `run` runs, which may be secret.
        options.command = std::env::args_os()
            .take_while(|argument| argument != "--")
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        Ok(options)
    }

    /// Returns the same flags with the defaults of `run`: no data is kept, and any free port is
    /// used, unless flags say otherwise. The environment of another server is ignored.
    pub fn for_run(mut self) -> Serve {
        self.defaults.clear();
        self
    }

    /// Returns `true` if the flags specify where the data is kept: in a directory or in memory.
    pub fn has_place(&self) -> bool {
        self.data.ephemeral || !self.defaults.iter().any(|flag| flag.name == "data-dir")
    }

    /// Returns the time between a signal and the shutdown.
    pub fn shutdown_delay(&self) -> Duration {
        self.shutdown.0.delay
    }

    /// Returns the file for the kubeconfig that the flags name; None for the default.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        self.file.kubeconfig.clone()
    }
}

/// Sets an option to the default of `serve`: the value of its environment variable, or else the one that is declared.
fn set_default(flag: &Flag<Options>, options: &mut Options) -> Result<(), String> {
    // Files of variables leave out a value by an empty one.
    let given = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
    match flag.usage.serve_environment.and_then(|name| Some((name, given(&name)?))) {
        Some((name, value)) => (flag.set)(options, std::slice::from_ref(&value))
            .map_err(|why| format!("invalid value '{}' for {name}: {why}", value.display())),
        None => (flag.set)(options, &[flag.usage.serve_default.unwrap_or_default().into()]),
    }
}
