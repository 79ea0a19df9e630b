//! The flags of `up`, `down` and `status`.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use coracle_control_plane::Name;

use super::serve::Serve;

/// The flags of `up`: those of `serve`, with other defaults.
#[derive(Debug)]
pub struct Up(pub Serve);

/// The flags of `down`.
#[derive(Debug, Args)]
pub struct Down {
    /// The name of the control plane.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub name: Name,
    /// Delete its data as well. A directory with files of others is left alone, and so is an etcd cluster.
    #[arg(long)]
    pub delete_data: bool,
    /// Kill the process if it does not end in time.
    #[arg(long)]
    pub force: bool,
}

/// The flags of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The name of the control plane [default: all control planes].
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,
}

impl Args for Up {
    fn augment_args(command: Command) -> Command {
        Serve::augment_args(command)
            .mut_arg("data-dir", |argument| {
                argument.help(
                    "The directory of the data [default: $XDG_STATE_HOME/coracle/NAME, or ~/.local/state/coracle/NAME]",
                )
            })
            .mut_arg("kubeconfig", |argument| {
                argument.help(
                    "The file into which the kubeconfig is merged, once ready to serve [default: as kubectl has it: KUBECONFIG, or \
                     ~/.kube/config]",
                )
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Up::augment_args(command)
    }
}

impl FromArgMatches for Up {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Up, clap::Error> {
        Serve::from_arg_matches(matches).map(Up)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}
