//! `coracle serve` and `coracle run`: a control plane from its start to its end.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result};
use coracle::{Builder, ControlPlane};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Serve;

/// Serves until SIGTERM or SIGINT.
pub async fn serve(builder: Builder, flags: &Serve) -> Result<()> {
    let mut signals = Signals::new()?;
    let control_plane = builder.start().await?;
    let kubeconfig = match flags.kubeconfig() {
        Some(file) => file,
        None => control_plane.own_kubeconfig()?,
    };
    control_plane.write_kubeconfig(&kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    announce(&control_plane, flags, &kubeconfig);
    signals.next().await;
    control_plane.shutdown().await.context("the store did not close")
}

/// The banner: where it serves, how to reach it, where the data is.
fn announce(control_plane: &ControlPlane, flags: &Serve, kubeconfig: &Path) {
    let data = match flags.data_dir() {
        Some(dir) => format!("data in {}", dir.display()),
        None => "nothing is kept".to_owned(),
    };
    let absolute: PathBuf = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    eprintln!("coracle {} serves {} ({data})", env!("CARGO_PKG_VERSION"), control_plane.url());
    eprintln!("export KUBECONFIG={}", absolute.display());
}

/// Runs a command for whose life the control plane lives; exits with its code.
pub async fn run(builder: Builder, flags: &Serve, command: &[String]) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let control_plane = builder.start().await?;
    let kubeconfig = match flags.kubeconfig() {
        Some(file) => {
            control_plane.write_kubeconfig(&file).with_context(|| file.display().to_string())?;
            file
        }
        None => control_plane.own_kubeconfig()?,
    };
    let (program, arguments) = command.split_first().context("no command")?;
    let child = Command::new(program)
        .args(arguments)
        // The command may change its directory.
        .env("KUBECONFIG", std::path::absolute(&kubeconfig).unwrap_or(kubeconfig))
        .stdin(Stdio::inherit())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.with_context(|| program.clone())?;
    let status = tokio::select! {
        status = child.wait() => status.with_context(|| program.clone())?,
        () = signals.next() => {
            // The command got the terminal's signal too, if it came from there; from elsewhere it ends with us.
            child.start_kill().with_context(|| program.clone())?;
            child.wait().await.with_context(|| program.clone())?
        }
    };
    control_plane.shutdown().await.context("the store did not close")?;
    Ok(exit_code(status))
}

/// A command that a signal ended has the code that a shell gives it.
fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The signals that tell a process to stop.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
