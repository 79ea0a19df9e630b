//! `coracle up`, `down` and `status`: control planes in the background, each a process of
//! `coracle serve`.

mod kubeconfig;
mod report;
mod state;

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use coracle_control_plane::{ControlPlane, Name, Options, maintenance};
use rustix::process::{Pid, Signal};

use crate::cli::{Down, Serve, Status};
use crate::output::say;
use crate::process::error_line;
use crate::ready;
use crate::run::Signals;
pub use state::base;
use state::{Record, Served, State, StateDir};

/// The time for a start, until the server is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The time for a stop, besides the delay that the process was started with.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest delay of a stop that is waited for.
const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time between two looks at a process that starts or stops.
const INTERVAL: Duration = Duration::from_millis(20);

/// The exit code of `status` if a process runs and is not ready.
const NOT_READY: u8 = 1;

/// The exit code of `status` if no process runs, as of service scripts.
const NOT_RUNNING: u8 = 3;

/// The process of a control plane in the background, as the process itself sees it.
#[derive(Debug)]
pub struct Background {
    state: StateDir,
    record: Record,
}

impl Background {
    /// Makes the process independent of the terminal that it was started from, and records it.
    ///
    /// - `directory`: the state, of which `up` has passed the lock as standard input.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn begin(
        directory: PathBuf,
        options: &Options,
        shutdown_delay: Duration,
        kubeconfig: Option<PathBuf>,
    ) -> Result<Background> {
        // It fails in a process that leads a group already, which is none of `up`.
        let _ = rustix::process::setsid();
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = Record {
            process: rustix::process::getpid().as_raw_nonzero().get(),
            started,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: options.data_dir.clone().map(absolute),
            etcd: options.etcd.as_ref().map(|etcd| etcd.servers.clone()).unwrap_or_default(),
            kubeconfig: absolute(kubeconfig.context("no kubeconfig")?),
            shutdown_delay: shutdown_delay.as_secs() + u64::from(shutdown_delay.subsec_nanos() > 0),
            served: None,
        };
        let state = StateDir::at(directory);
        state.write_record(&record)?;
        Ok(Background { state, record })
    }

    /// Records that the server is ready. It blocks while another program holds the lock of the
    /// kubeconfig of the state.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn ready(&mut self, control_plane: &ControlPlane, previous_context: Option<&str>) -> Result<()> {
        control_plane.write_kubeconfig(&self.state.kubeconfig())?;
        let previous_context = previous_context.map(str::to_owned);
        self.record.served = Some(Served { url: control_plane.url(), previous_context });
        self.state.write_record(&self.record)
    }
}

/// Starts a control plane in the background and waits until it is ready. If one of the name runs
/// already, it is reported, and its context is made current. A first start that fails leaves
/// nothing.
///
/// - `arguments`: those after `up`, which `serve` has too.
///
/// # Errors
/// The process ends or is not ready in time, or a signal came, which stops the process.
pub async fn up(name: &Name, serve: &Serve, arguments: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let mut arguments: Vec<OsString> = arguments.collect();
    if serve.kubeconfig().is_none() {
        arguments.extend(["--kubeconfig".into(), kubeconfig::default_file()?.into()]);
    }
    let is_first = StateDir::find(name)?.is_none();
    let state = StateDir::create(name)?;
    if !serve.has_place() {
        arguments.extend(["--data-dir".into(), state.path().into()]);
    }
    arguments.extend(["--background".into(), state.path().into()]);
    let deadline = Instant::now() + START_TIMEOUT;
    let mut child = None;
    let started = tokio::select! {
        started = start(name, &arguments, &state, deadline, &mut child) => Some(started?),
        _ = signals.next() => None,
    };
    match started {
        Some(Start::Ready { record, is_new }) => {
            let previous_context = match is_new {
                true => record.served.as_ref().and_then(|served| served.previous_context.clone()),
                // Its context may have been removed since, or another one selected.
                false => kubeconfig::merge_again(&state.kubeconfig(), &record.kubeconfig, name)?,
            };
            report::started(name, &state, &record, is_new, previous_context.as_deref());
            return Ok(ExitCode::SUCCESS);
        }
        Some(Start::Failed(status)) => {
            for line in state.log_tail() {
                eprintln!("{line}");
            }
            if is_first && state.lock()?.is_some_and(|_lock| maintenance::delete(state.path()).is_ok()) {
                bail!("{name} does not start ({status})");
            }
            bail!("{name} does not start ({status}): its log is {}", state.log().display());
        }
        None => {}
    }
    if let Some(child) = child {
        end(child).await?;
    }
    bail!("interrupted: {name} is not started")
}

/// Ends a process that is starting.
async fn end(mut child: Child) -> Result<()> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    if let Some(process) = child.id().try_into().ok().and_then(Pid::from_raw) {
        // The process of this ID is the child even if it has ended: it was not waited for.
        rustix::process::kill_process(process, Signal::TERM).context("cannot stop the process")?;
    }
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            break;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// The outcome of a start.
enum Start {
    /// The process is ready, and was started here if it is new.
    Ready { record: Record, is_new: bool },
    /// The process that was started here has ended.
    Failed(ExitStatus),
}

/// Starts the process, or finds the one that runs, and waits until it is ready.
async fn start(
    name: &Name,
    arguments: &[OsString],
    state: &StateDir,
    deadline: Instant,
    child: &mut Option<Child>,
) -> Result<Start> {
    let log = state.log();
    let late = || {
        let seconds = START_TIMEOUT.as_secs();
        anyhow!("{name} is not ready after {seconds} s; it goes on, and its log is {}", log.display())
    };
    loop {
        if child.is_none()
            && let Some(lock) = state.lock()?
        {
            let log = state.begin_log()?;
            // From here on a record is of the new process.
            state.remove_record()?;
            *child = Some(spawn(arguments, lock, log)?);
        }
        if let Some(child) = child
            && let Some(status) = child.try_wait()?
        {
            return Ok(Start::Failed(status));
        }
        if let State::Running(record) = state.read()?
            && record.served.is_some()
            && ready::check(Some(&state.kubeconfig())).await.is_ok()
        {
            return Ok(Start::Ready { record, is_new: child.is_some() });
        }
        if Instant::now() >= deadline {
            return Err(late());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Starts `coracle serve` with the lock as its standard input, and the log as its output.
fn spawn(arguments: &[OsString], lock: File, log: File) -> Result<Child> {
    let program = std::env::current_exe().context("coracle")?;
    let mut command = Command::new(&program);
    command.arg("serve").args(arguments);
    command.stdin(lock).stdout(log.try_clone().context("the log")?).stderr(log);
    command.spawn().with_context(|| program.display().to_string())
}

/// Stops a control plane and removes it from the kubeconfig. There may be none.
///
/// # Errors
/// The process does not end in time, or its data cannot be deleted.
pub async fn down(flags: &Down) -> Result<ExitCode> {
    let Down { name, force, delete_data } = flags;
    let Some(state) = StateDir::find(name)? else {
        say!("{name} is not running");
        return Ok(ExitCode::SUCCESS);
    };
    let was_running = stop(name, &state, *force).await?;
    // Held until everything is removed, so that none is started meanwhile.
    let Some(_lock) = state.lock()? else { bail!("{name} is started again by another process") };
    let record = state.last_record();
    say!("{name} {}", if was_running { "is stopped" } else { "is not running" });
    let mut exit_code = ExitCode::SUCCESS;
    if let Some(Record { kubeconfig, .. }) = &record {
        match coracle_kubeconfig::remove(kubeconfig, name) {
            Ok(true) => say!("its context is removed from {}", report::path(kubeconfig)),
            Ok(false) => {}
            // The remaining steps are done nevertheless.
            Err(error) => {
                eprintln!("coracle: its context may be left: {error}");
                exit_code = ExitCode::FAILURE;
            }
        }
    }
    let data = record.as_ref().map_or_else(|| Some(state.path().to_owned()), |record| record.data.clone());
    if *delete_data {
        if let Some(data) = data.as_deref().filter(|data| *data != state.path()) {
            maintenance::delete(data)?;
            say!("the data in {} is deleted", report::path(data));
        }
        maintenance::delete(state.path())?;
        say!("{} is deleted", report::path(state.path()));
    } else if let Some(data) = data.filter(|data| data.join("store").exists() || data.join("pki").exists()) {
        say!("the data stays in {}; with --delete-data it is deleted", report::path(&data));
    } else {
        state.remove_record()?;
    }
    Ok(exit_code)
}

/// Ends the process of a name. Returns whether there was one.
async fn stop(name: &Name, state: &StateDir, force: bool) -> Result<bool> {
    let mut deadline = Instant::now() + STOP_TIMEOUT;
    let mut signalled = None;
    let mut was_running = false;
    loop {
        match state.read()? {
            State::Stopped(_) => return Ok(was_running),
            State::Starting => was_running = true,
            State::Running(record) => {
                was_running = true;
                if signalled.is_none() {
                    record.signal(state, Signal::TERM)?;
                    let delay = Duration::from_secs(record.shutdown_delay).min(MAX_DELAY);
                    deadline = Instant::now() + STOP_TIMEOUT + delay;
                    signalled = Some(Signal::TERM);
                }
                if Instant::now() >= deadline && force && signalled == Some(Signal::TERM) {
                    record.signal(state, Signal::KILL)?;
                    deadline = Instant::now() + STOP_TIMEOUT;
                    signalled = Some(Signal::KILL);
                } else if Instant::now() >= deadline {
                    let hint = if force { "" } else { "; --force kills it" };
                    bail!("process {} of {name} does not end{hint}", record.process);
                }
            }
        }
        if Instant::now() >= deadline && signalled.is_none() {
            bail!("{name} is being started, and its process is not known; try again");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Prints the state of one control plane or of all. The exit code is 0 if those that run are ready.
///
/// # Errors
/// The state of the one cannot be read.
pub async fn status(flags: &Status) -> Result<ExitCode> {
    let names = match &flags.name {
        Some(name) => vec![name.clone()],
        None => state::names()?,
    };
    if names.is_empty() {
        say!("no control plane is running in the background; coracle up starts one");
    }
    let (mut any_runs, mut all_ready) = (false, true);
    for name in &names {
        let state = StateDir::find(name)?;
        match state.as_ref().map_or(Ok(State::Stopped(None)), StateDir::read) {
            Ok(found) => {
                let is_stopped = matches!(found, State::Stopped(_));
                any_runs |= !is_stopped;
                all_ready &= report::print(name, state.as_ref(), &found).await || is_stopped;
            }
            // The others are listed nevertheless.
            Err(error) if flags.name.is_none() => {
                say!("{name}: {}", error_line(&error));
                (any_runs, all_ready) = (true, false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(match (any_runs, all_ready) {
        (false, _) => ExitCode::from(NOT_RUNNING),
        (true, false) => ExitCode::from(NOT_READY),
        (true, true) => ExitCode::SUCCESS,
    })
}
