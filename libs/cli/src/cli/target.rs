//! The control plane that a command is about.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::log::Log;
use crate::process::block_on;

/// A running control plane, and the log of the command that is about it.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The control plane, and the user to act as [default: as kubectl has it: KUBECONFIG, or ~/.kube/config].
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

impl TargetFlags {
    /// Runs a command to its end; an error is reported as one line.
    pub fn run(&self, command: impl AsyncFnOnce(Option<&Path>) -> Result<()>) -> ExitCode {
        self.run_for_code(async |kubeconfig| command(kubeconfig).await.map(|()| ExitCode::SUCCESS))
    }

    /// Runs a command with an exit code of its own.
    pub fn run_for_code(&self, command: impl AsyncFnOnce(Option<&Path>) -> Result<ExitCode>) -> ExitCode {
        block_on(self.log, command(self.kubeconfig.as_deref()))
    }
}
