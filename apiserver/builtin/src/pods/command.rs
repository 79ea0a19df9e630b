//! Commands in simulated containers: exec, and attach, which shows the log, or talks to
//! the shell that a container is.
//!
//! Nothing is executed. What a command answers says the annotation `sim.coracle.dev/exec`, or the
//! command itself, if it is one of those that the simulation follows; any other one is not found.
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::object_meta::ObjectMeta as _;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::Connection;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::{Registry, Target};
use coracle_apiserver::serve::{Connected, ServeUpgraded};
use coracle_behavior::command::is_interactive_shell;
use coracle_behavior::{EXEC, Ending, Execution, Output, PodBehavior, Profile};
use coracle_clock::Clock;
use coracle_storage::Revision;
use coracle_streaming::{Command, Handshake, Outcome, Purpose, Receiver, Refusal, Wanted, serve_command};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;
use tracing::debug;

use super::behavior::behavior_of;
use super::log::{self, LogOptions};
use super::main_process::MainProcess;
use super::shell::Shell;
use crate::forwarding::PAGE;
use crate::timers::EXECUTED_COMMAND;

/// The exit code of a process that is killed with its container.
const KILLED: i32 = 137;
/// The exit code of a program that is not found.
pub const NOT_FOUND: i32 = 127;
/// The exit code of a process that a terminal interrupts.
const INTERRUPTED: i32 = 130;
/// The time in which a terminal is expected to say how large it is.
const FIRST_SIZE: Duration = Duration::from_millis(500);
/// The time in which more of a client's input, or its end, is expected once a command has ended.
const LAST_INPUT: Duration = Duration::from_millis(100);
/// The time for which that is read.
const ALL_INPUT: Duration = Duration::from_secs(10);
/// The characters by which a terminal interrupts a process, and ends its input.
const INTERRUPTS: [u8; 2] = [3, 4];

/// A container of a pod that a client connects to.
pub struct ContainerTarget<'a> {
    pub registry: &'a Arc<Registry>,
    pub target: &'a Target,
    /// The pod.
    pub pod: &'a Value,
    /// The name of the container.
    pub container: &'a str,
    /// The revision at which the pod was read, or an earlier one.
    pub revision: Revision,
    /// The behavior of pods without a specific one.
    pub profile: Profile,
}

/// The process that a client is connected to.
enum Process {
    /// A command, whose course is known.
    Command { words: Vec<String>, execution: Execution },
    /// A shell that reads the client's input, and may be the container's own process.
    Shell { shell: Box<Shell>, main: Option<MainProcess> },
    /// The container's own process.
    Main,
}

/// Connects a client to a command or to the process of a container.
///
/// # Errors
/// 400 for a request that asks for no upgrade.
pub fn connect(
    container: &ContainerTarget<'_>,
    connection: Connection,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Connected> {
    let handshake = match Handshake::negotiate(headers, Purpose::Command) {
        Ok(handshake) => handshake,
        Err(refusal) => return refuse(&refusal),
    };
    let flag = |name: &str| query.flag(name) == Some(true);
    let wanted =
        Wanted { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr"), tty: flag("tty") };
    if !(wanted.stdin || wanted.stdout || wanted.stderr) {
        return Ok(refused(400, "you must specify at least 1 of stdin, stdout, stderr"));
    }
    let Some(written) = container.written_from_now_on()? else {
        return Ok(refused(500, &format!("container not found ({})", quote(container.container))));
    };
    let process = match connection {
        Connection::Exec => {
            container.command(query.all("command").map(str::to_owned).collect(), wanted.stdin)?
        }
        _ => container.main_process(wanted.stdin)?,
    };
    let clock = container.registry.clock().clone();
    let response_headers = handshake.headers.clone();
    let serve: ServeUpgraded = Box::new(move |io| {
        async move {
            let run = async |mut command: Command| {
                let outcome = process.run(&mut command, written, &clock, wanted.tty).await;
                if let Some(outcome) = outcome {
                    let _ = command.finish(&outcome).await;
                }
            };
            serve_command(io, &handshake, wanted, run).await;
        }
        .boxed()
    });
    Ok(Connected::Streams { headers: response_headers, serve })
}

impl ContainerTarget<'_> {
    /// Returns the log of the container from now on, which ends with the container. None if it is
    /// not running.
    pub fn written_from_now_on(&self) -> Result<Option<BoxStream<'static, String>>> {
        let ContainerTarget { registry, target, pod, container, revision, profile } = *self;
        let options = LogOptions::from_now_on(container);
        let writer = log::Writer::of(registry.as_ref(), pod, profile)?;
        // The errors of a container that has no log say that it does not run.
        let log = log::of(pod, &options, writer, registry.now()).ok().flatten();
        let follower =
            log.and_then(|mut log| log::follow(registry, target, pod, &mut log, options, revision));
        Ok(follower.map(log::Follower::into_stream))
    }

    /// Starts a command in the container.
    ///
    /// - `has_input`: whether the client sends any
    fn command(&self, words: Vec<String>, has_input: bool) -> Result<Process> {
        let (pod, spec, behavior) = self.behavior()?;
        let now = self.registry.now();
        let execution = behavior.answer(&spec, &words).or_else(|| behavior.follow(&pod, &spec, &words, now));
        if execution.is_none() && has_input && behavior.follows_commands() && is_interactive_shell(&words) {
            return Ok(Process::Shell { shell: Box::new(Shell::new(pod, spec, behavior)), main: None });
        }
        let execution = execution.unwrap_or_else(|| not_simulated(&words));
        Ok(Process::Command { words, execution })
    }

    /// Attaches to the main process of the container.
    ///
    /// - `has_input`: whether the client sends any
    fn main_process(&self, has_input: bool) -> Result<Process> {
        let (pod, spec, behavior) = self.behavior()?;
        if !has_input || !behavior.is_shell(&spec) {
            return Ok(Process::Main);
        }
        let main = MainProcess {
            registry: self.registry.clone(),
            target: self.target.clone(),
            uid: self.pod.uid().to_owned(),
            container: self.container.to_owned(),
            stdin_once: spec.stdin_once == Some(true),
        };
        Ok(Process::Shell { shell: Box::new(Shell::new(pod, spec, behavior)), main: Some(main) })
    }

    /// Returns the pod, its container and their behavior.
    fn behavior(&self) -> Result<(Pod, Container, PodBehavior)> {
        let (pod, behavior) = behavior_of(self.registry.as_ref(), self.pod, self.profile)?;
        let spec = coracle_kinds::pods::containers(&pod)
            .find_map(|(_, spec)| (spec.name == self.container).then(|| spec.into_owned()))
            .unwrap_or_default();
        Ok((pod, spec, behavior))
    }
}

/// Builds the execution of an unknown command: that of a command that is not found, which every
/// client shows.
fn not_simulated(words: &[String]) -> Execution {
    let command = quote(&words.join(" "));
    let text = format!(
        "exec of {command} is not simulated: containers have no processes; the annotation {EXEC} says what commands answer ({PAGE})\n"
    );
    let output = Output { at: Duration::ZERO, data: text.into_bytes(), is_error: true };
    Execution { output: vec![output], ending: Some(Ending { after: Duration::ZERO, code: NOT_FOUND }) }
}

impl Process {
    /// Runs to the end. None if the client leaves before.
    ///
    /// - `written`: the log of the container, which ends with it
    async fn run(
        mut self,
        command: &mut Command,
        written: BoxStream<'static, String>,
        clock: &Clock,
        tty: bool,
    ) -> Option<Outcome> {
        let (stdin, mut resize) = (command.stdin.take(), command.resize.take());
        if let Some(resize) = &mut resize {
            // A terminal says how large it is before anything is shown on it.
            within(FIRST_SIZE, resize.next()).await;
        }
        let interrupted_outcome = match &self {
            Process::Command { words, .. } => exited(INTERRUPTED, words),
            // The client leaves, and the container goes on.
            Process::Main | Process::Shell { .. } => Outcome::Succeeded,
        };
        // A shell reads the input itself.
        let (mut stdin, shell_input) = match self {
            Process::Shell { .. } => (None, stdin),
            _ => (stdin, None),
        };
        let mut resized = pin!(read_input(&mut resize, false));
        let mut work = pin!(self.work(command, shell_input, written, clock, tty));
        let outcome = {
            let mut input = pin!(read_input(&mut stdin, tty));
            let (mut is_read, mut is_resized) = (false, false);
            loop {
                tokio::select! {
                    outcome = &mut work => break outcome?,
                    input = &mut input, if !is_read => match input {
                        Input::Interrupted => break interrupted_outcome,
                        Input::Ended => is_read = true,
                    },
                    _ = &mut resized, if !is_resized => is_resized = true,
                }
            }
        };
        // Reads the rest of the input: a connection that closes before would be an error at the
        // client.
        let rest = async {
            while let Some(stdin) = &mut stdin
                && let Some(Some(_)) = within(LAST_INPUT, stdin.next()).await
            {}
        };
        if !tty {
            within(ALL_INPUT, rest).await;
        }
        Some(outcome)
    }

    /// Writes what there is to write, to the end. None if the client leaves before.
    async fn work(
        &mut self,
        command: &Command,
        shell_input: Option<Receiver>,
        mut written: BoxStream<'static, String>,
        clock: &Clock,
        tty: bool,
    ) -> Option<Outcome> {
        match self {
            Process::Main => {
                while let Some(text) = written.next().await {
                    command.stdout(on_terminal(text.into(), tty)).await.ok()?;
                }
                Some(Outcome::Succeeded)
            }
            Process::Command { words, execution } => {
                let ended = async { while written.next().await.is_some() {} };
                tokio::select! {
                    code = execute(execution, command, clock, tty) => Some(exited(code?, words)),
                    () = ended => Some(exited(KILLED, words)),
                }
            }
            Process::Shell { shell, main } => {
                let ended = async { while written.next().await.is_some() {} };
                let words = ["sh".to_owned()];
                let end = tokio::select! {
                    end = shell.run(command, shell_input?, clock, tty) => end.ok()?,
                    () = ended => return Some(exited(KILLED, &words)),
                };
                let Some(main) = main else { return Some(exited(end.code, &words)) };
                if let Err(error) = main.end(end).await {
                    debug!(%error, "The container of a shell that ended goes on");
                }
                Some(Outcome::Succeeded)
            }
        }
    }
}

fn exited(code: i32, words: &[String]) -> Outcome {
    match code {
        0 => Outcome::Succeeded,
        code => Outcome::Exited { code, command: words.to_vec() },
    }
}

/// Returns the output of a future; None if it does not complete within `limit`.
#[expect(clippy::disallowed_methods, reason = "the time of a client, which is the machine's")]
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Writes what a command does when it is due, and returns its exit code. None if the client leaves
/// before.
pub async fn execute(execution: &Execution, command: &Command, clock: &Clock, tty: bool) -> Option<i32> {
    let started = clock.now();
    let until = |after: Duration| {
        let after = jiff::SignedDuration::try_from(after).unwrap_or(jiff::SignedDuration::MAX);
        clock.until(&EXECUTED_COMMAND, started.saturating_add(after).unwrap_or(jiff::Timestamp::MAX))
    };
    for Output { at, data, is_error } in &execution.output {
        if !at.is_zero() {
            drop(until(*at).await);
        }
        let data = on_terminal(data.clone().into(), tty);
        // A terminal has one output.
        match *is_error && !tty {
            true => command.stderr(data).await.ok()?,
            false => command.stdout(data).await.ok()?,
        }
    }
    let Some(ending) = execution.ending else { return std::future::pending().await };
    if !ending.after.is_zero() {
        drop(until(ending.after).await);
    }
    Some(ending.code)
}

/// The end of what a client sends.
enum Input {
    Ended,
    /// By a key of the terminal.
    Interrupted,
}

/// Reads what a client sends, which no process reads.
async fn read_input(stream: &mut Option<Receiver>, tty: bool) -> Input {
    let Some(stream) = stream else { return Input::Ended };
    while let Some(data) = stream.next().await {
        if tty && data.iter().any(|byte| INTERRUPTS.contains(byte)) {
            return Input::Interrupted;
        }
    }
    Input::Ended
}

/// Returns output as a terminal shows it: each line begins at the left.
fn on_terminal(text: Bytes, tty: bool) -> Bytes {
    if !tty || !text.contains(&b'\n') {
        return text;
    }
    let mut shown = Vec::with_capacity(text.len() + 64);
    for byte in text {
        if byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(byte);
    }
    shown.into()
}

/// Builds the response to a rejected handshake.
///
/// # Errors
/// 400 for a request that asks for no upgrade.
pub fn refuse(refusal: &Refusal) -> Result<Connected> {
    if *refusal == Refusal::NotRequested {
        return Err(Error::bad_request(refusal.to_string()));
    }
    let (code, headers) = refusal.response();
    Ok(Connected::Refused { code, headers, text: format!("{refusal}\n") })
}

pub fn refused(code: u16, text: &str) -> Connected {
    Connected::Refused { code, headers: HeaderMap::new(), text: format!("{text}\n") }
}

/// Returns the error for a function of a real cluster that the simulation does not have.
pub fn not_implemented(message: String) -> Error {
    Error::plain(501, "NotImplemented", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_at_the_left_of_a_terminal() {
        assert_eq!(on_terminal(Bytes::from_static(b"a\nb\n"), true), "a\r\nb\r\n");
        assert_eq!(on_terminal(Bytes::from_static(b"a\nb\n"), false), "a\nb\n");
    }
}
