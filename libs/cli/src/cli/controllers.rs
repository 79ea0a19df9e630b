//! The flags of `controllers`.

use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use coracle_apimachinery::features::{FeatureGates, GateError};
use coracle_control_plane::Options;

use super::declared::{Flags, find};
use super::log::Log;

/// The options of controllers that are processes of their own, by kube-controller-manager's names.
#[derive(Debug)]
pub struct Controllers {
    /// All options; only those of controllers are flags.
    pub options: Options,
    /// The connection.
    pub cluster: ClusterFlags,
    /// The flags that only kube-controller-manager has.
    pub manager: ManagerFlags,
    /// The log of the process.
    pub log: Log,
}

#[derive(Debug, Args)]
pub struct ClusterFlags {
    /// The cluster, and the user to act as.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
}

#[derive(Debug, Args)]
pub struct ManagerFlags {
    /// Work only while holding the Lease of kube-controller-manager.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// The key (RSA or ECDSA P-256) that signs the tokens in secrets; without it, serviceaccount-token-controller is not
    /// started.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
}

impl Args for Controllers {
    /// Adds the arguments in the order of the help.
    fn augment_args(command: Command) -> Command {
        let selection = find::<Options>("controllers").map(|argument| {
            // Nodes are simulated by `serve` alone.
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            argument.help(help.replace("; also kube-scheduler and kubelet", ""))
        });
        let command = ClusterFlags::augment_args(command).args(selection);
        let command = ManagerFlags::augment_args(command)
            .args(find::<Options>("horizontal-pod-autoscaler-sync-period"))
            .args(find::<Options>("feature-gates"));
        Log::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Controllers::augment_args(command)
    }
}

impl FromArgMatches for Controllers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Controllers, clap::Error> {
        let Flags(options) = Flags::from_arg_matches(matches)?;
        Ok(Controllers {
            options,
            cluster: ClusterFlags::from_arg_matches(matches)?,
            manager: ManagerFlags::from_arg_matches(matches)?,
            log: Log::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Controllers::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Controllers {
    /// Returns the feature gates.
    ///
    /// # Errors
    /// A gate is unknown or locked.
    pub fn features(&self) -> Result<FeatureGates, GateError> {
        FeatureGates::new(self.options.feature_gates.iter().map(|(name, on)| (name, *on)))
    }
}
