//! `coracle serve` and `coracle run`.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use coracle_control_plane::{ControlPlane, Kinds, Options, Problems};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::background::Background;
use crate::kept_log::KeptLog;
use crate::port_holder::explain;
use crate::process::report_failure;
use crate::shell::quoted;
use crate::testing::fork;

/// The time for the command of `run` to end after a signal.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until a signal ([`Signals`]).
///
/// - `delay`: for how long it serves after the signal, without being ready;
/// - `kubeconfig`: the file to merge the kubeconfig into; None for a temporary one;
/// - `background`: the state of a process in the background.
///
/// # Errors
/// The control plane does not start, the kubeconfig or the state cannot be written, or the store
/// cannot be closed.
pub async fn serve(
    options: Options,
    delay: Duration,
    kinds: Kinds,
    kubeconfig: Option<PathBuf>,
    background: Option<Background>,
) -> Result<()> {
    let mut signals = Signals::new()?;
    let (data, uses_etcd) = (options.data_dir.clone(), options.etcd.is_some());
    if let Some(file) = &kubeconfig {
        // Before anything is started or stored.
        coracle_kubeconfig::check(file, &options.name)?;
    }
    let control_plane = tokio::select! {
        started = ControlPlane::start(options, kinds) => started.map_err(explain)?,
        // What has been started is stopped.
        _ = signals.next() => return Ok(()),
    };
    // A killed server at this address has left those of its forks.
    fork::forget(&control_plane.url());
    let written = write_kubeconfig(&control_plane, kubeconfig, background);
    let (kubeconfig, previous_context) = match written {
        Ok(written) => written,
        Err(error) => {
            end(control_plane).await?;
            return Err(error);
        }
    };
    announce(&control_plane, data.as_deref(), uses_etcd, &kubeconfig, previous_context.as_deref());
    let delay = tokio::select! {
        _ = signals.next() => delay,
        // On a disk of our own, reads go on. In a cluster others go on, and what is read here is
        // soon outdated.
        error = control_plane.failed(), if uses_etcd => {
            // It is reported with its cause when the store does not close.
            tracing::error!(%error, "the process ends, since the store has failed");
            Duration::ZERO
        }
    };
    stop(control_plane, delay, &mut signals).await
}

/// Writes the kubeconfig, and then the state of a process in the background. Returns the file and
/// the context that was current.
fn write_kubeconfig(
    control_plane: &ControlPlane,
    kubeconfig: Option<PathBuf>,
    background: Option<Background>,
) -> Result<(PathBuf, Option<String>)> {
    let Some(file) = kubeconfig else { return Ok((control_plane.own_kubeconfig()?, None)) };
    // It waits for the lock of the file.
    tokio::task::block_in_place(|| {
        let previous_context = control_plane.write_kubeconfig(&file)?;
        if let Some(mut background) = background {
            background.ready(control_plane, previous_context.as_deref())?;
        }
        Ok((file, previous_context))
    })
}

/// Stops a control plane: it serves for a while without being ready, which another signal ends, and
/// then shuts down.
///
/// # Errors
/// The store cannot be closed.
pub async fn stop(control_plane: ControlPlane, delay: Duration, signals: &mut Signals) -> Result<()> {
    control_plane.fail_readiness();
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        _ = signals.next() => {}
    }
    end(control_plane).await
}

/// Shuts a control plane down.
///
/// # Errors
/// The store cannot be closed.
pub async fn end(control_plane: ControlPlane) -> Result<()> {
    // As long as no other server can have its port.
    fork::forget(&control_plane.url());
    control_plane.shutdown().await.context("the store did not close")
}

/// Prints the banner: the address, the location of the data, the context that was current, and the
/// line that sets KUBECONFIG.
fn announce(
    control_plane: &ControlPlane,
    data: Option<&Path>,
    uses_etcd: bool,
    kubeconfig: &Path,
    previous_context: Option<&str>,
) {
    let data = match data {
        Some(dir) if uses_etcd => format!("data in etcd, keys in {}", dir.display()),
        Some(dir) => format!("data in {}", dir.display()),
        None => "nothing is kept".to_owned(),
    };
    let absolute: PathBuf = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    let data = match control_plane.record() {
        None => data,
        Some(record) => format!("{data}, recorded in {}", record.display()),
    };
    eprintln!("coracle {} serves {} ({data})", env!("CARGO_PKG_VERSION"), control_plane.url());
    if let Some(context) = previous_context {
        eprintln!("the current context was {context:?}; kubectl config use-context selects it again");
    }
    eprintln!("export KUBECONFIG={}", quoted(&absolute.display().to_string()));
    print_page_link(control_plane);
}

/// Prints a link to the live page if a terminal shows it: a link is for the person who sees it, and
/// not for logs.
pub fn print_page_link(control_plane: &ControlPlane) {
    if let Some(link) = control_plane.page_link().filter(|_| io::stderr().is_terminal()) {
        eprintln!("live page, once within an hour (later: coracle ui): {link}");
    }
}

/// Runs a command with a control plane of its own; returns the command's exit code.
///
/// - `kubeconfig`: the file to create for the kubeconfig and to remove at the end; None for a
///   temporary one.
/// - `command`: with its umask;
/// - `log`: that of the process, which is printed if the command fails, and then the problems of
///   the control plane.
///
/// # Errors
/// The control plane or the command does not start, or the store cannot be closed.
pub async fn run(
    options: Options,
    kinds: Kinds,
    kubeconfig: Option<PathBuf>,
    command: (&[String], Mode),
    log: KeptLog,
) -> Result<ExitCode> {
    let record = options.record.clone();
    let (outcome, problems) = match run_beside(options, kinds, kubeconfig, command).await {
        Ok((status, problems)) => (Ok(status), problems),
        Err(error) => (Err(error), Problems::default()),
    };
    if !outcome.as_ref().is_ok_and(ExitStatus::success) {
        log.print();
    }
    if !problems.is_empty() {
        // A closed standard error is no failure.
        let _ = write!(io::stderr(), "coracle: when the command failed, the control plane had\n{problems}");
    }
    if let Some(record) = record.filter(|_| outcome.as_ref().is_ok_and(|status| !status.success())) {
        // As above.
        let _ = writeln!(io::stderr(), "coracle: the run is recorded: coracle open {}", record.display());
    }
    outcome.map(exit_code).or_else(|error| match error.downcast_ref::<NotExecuted>() {
        Some(error) => Ok(report_failure(&error.to_string(), error.exit_code())),
        None => Err(error),
    })
}

/// A command that could not be executed.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {error}")]
struct NotExecuted {
    program: String,
    error: io::Error,
}

impl NotExecuted {
    /// Returns the exit code that a shell, `env` and `timeout` have for it.
    fn exit_code(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// Runs a command to its end, with a control plane that is stopped after it. Returns the problems
/// of the control plane if it failed.
async fn run_beside(
    options: Options,
    kinds: Kinds,
    kubeconfig: Option<PathBuf>,
    (command, umask): (&[String], Mode),
) -> Result<(ExitStatus, Problems)> {
    if let Some(file) = &kubeconfig {
        coracle_kubeconfig::check_absent(file)?;
    }
    let mut signals = Signals::new()?;
    let control_plane = ControlPlane::start(options, kinds).await.map_err(explain)?;
    let outcome = run_command(&control_plane, kubeconfig, command, umask, &mut signals).await;
    let problems = match &outcome {
        // A user who stops a command by a signal does not wait for a report.
        Ok((status, Ended::ByItself)) if !status.success() => tokio::select! {
            problems = control_plane.problems() => problems.unwrap_or_else(|error| {
                tracing::warn!(%error, "the problems of the control plane are not known");
                Problems::default()
            }),
            _ = signals.next() => Problems::default(),
        },
        _ => Problems::default(),
    };
    end(control_plane).await?;
    outcome.map(|(status, _)| (status, problems))
}

/// The cause of a command's end.
enum Ended {
    ByItself,
    /// A signal to this process.
    BySignal,
}

/// Runs a command to its end, with a kubeconfig that exists for so long.
async fn run_command(
    control_plane: &ControlPlane,
    kubeconfig: Option<PathBuf>,
    command: &[String],
    umask: Mode,
    signals: &mut Signals,
) -> Result<(ExitStatus, Ended)> {
    let own_file;
    let kubeconfig = match kubeconfig {
        Some(file) => {
            control_plane.create_kubeconfig(&file)?;
            own_file = OwnFile(std::path::absolute(&file).unwrap_or(file));
            &own_file.0
        }
        None => &control_plane.own_kubeconfig()?,
    };
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program);
    child
        .args(arguments)
        // The command may change its directory.
        .env("KUBECONFIG", std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.clone()))
        .stdin(Stdio::inherit())
        .kill_on_drop(true);
    // A child begins with the umask that the process has at that moment.
    let private = rustix::process::umask(umask);
    let child = child.spawn();
    rustix::process::umask(private);
    let mut child = child.map_err(|error| NotExecuted { program: program.clone(), error })?;
    let (status, ended) = tokio::select! {
        status = child.wait() => (status, Ended::ByItself),
        signal = signals.next() => (end_child(&mut child, signal, signals).await, Ended::BySignal),
    };
    Ok((status.with_context(|| program.clone())?, ended))
}

/// Passes a signal on to a command, and waits for its end: a suite that is interrupted cleans up.
/// Another signal, or [`GRACE`], ends the wait and the command.
async fn end_child(child: &mut Child, signal: Signal, signals: &mut Signals) -> io::Result<ExitStatus> {
    // A key of the terminal reaches the command, too, which would take a second one for impatience.
    let is_of_terminal = signal == Signal::INT && is_in_foreground();
    let process = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(process) = process.filter(|_| !is_of_terminal) {
        // It has not been waited for, so that no other process has its ID.
        let _ = rustix::process::kill_process(process, signal);
    }
    tokio::select! {
        status = child.wait() => return status,
        _ = signals.next() => {}
        () = tokio::time::sleep(GRACE) => {}
    }
    child.start_kill()?;
    child.wait().await
}

/// Returns `true` if this process and its command get the signals of a terminal's keys.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    let foreground = terminal.ok().and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
    foreground.is_some_and(|group| group == rustix::process::getpgrp())
}

/// A file that this process created and removes at the end.
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, file = %self.0.display(), "the kubeconfig is not removed");
        }
    }
}

/// Returns the exit code of the command; 128 and the signal's number if a signal ended it, as in a
/// shell.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The signals that stop the process: SIGTERM, SIGINT, and SIGHUP of a terminal that is closed.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// None if the process was started to go on without its terminal, as by `nohup`.
    hang_up: Option<unix::Signal>,
}

impl Signals {
    /// Installs the handlers of the signals.
    pub fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Signal {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = hung_up => Signal::HUP,
        }
    }
}

/// Returns `true` if the process was started with SIGHUP ignored, or that is not known.
fn ignores_hang_up() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return true };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (Signal::HUP.as_raw() - 1) != 0)
}
