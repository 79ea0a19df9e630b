//! The behavior of a pod, from its profile, its annotations and the commands of its containers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use coracle_kinds::jobs::completion_index;
use coracle_kinds::pods::{Role, restarts_after};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::command::{self, End, Files, Line, Run, Unclear, Unsimulated};
use crate::environment::Environment;
use crate::exec::Answers;
use crate::exits::Exits;
use crate::images::{Images, image_name};
use crate::inheritance::Overrides;
use crate::overrides::{self, IndexRanges, PREFIX, amount, duration, exit_code, flag, indexes};
use crate::ports::ForwardedPorts;
use crate::probes::Started;
use crate::profile::Profile;

/// The time after which a container ends of which nothing is known but that it is not started again
/// once it succeeded.
const MOMENT: Duration = Duration::from_secs(1);

/// The warnings of a pod that are reported.
const MAX_WARNINGS: usize = 16;

/// The exit code of an index that fails, unless there is another one.
const FAILURE: i32 = 1;

/// The behavior of a pod: by default its containers are ready at once, and exit when they are
/// terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodBehavior {
    /// The time for which a container runs before it is ready.
    pub ready_after: Duration,
    /// Whether its containers are never ready.
    pub never_ready: bool,
    /// The time that a container takes to exit once it is terminated.
    pub terminate_after: Duration,
    profile: Profile,
    exit_after: Option<ExitAfter>,
    exit_code: Option<i32>,
    /// The exit code by `fail-indexes`, which wins over the other one if nobody stops the container.
    code_of_index: Option<i32>,
    log: Option<String>,
    missing_images: Images,
    pub(crate) answers: Answers,
    exits: Exits,
    ports: ForwardedPorts,
}

/// The annotation with the answers to commands that are executed.
pub const EXEC: &str = "sim.coracle.dev/exec";

/// The annotation with the ends of single containers.
pub const EXITS: &str = "sim.coracle.dev/exits";

/// The annotation with the addresses that ports lead to.
pub const FORWARD: &str = "sim.coracle.dev/forward";

/// The annotation with the images that cannot be pulled, of nodes too.
pub const MISSING_IMAGES: &str = "sim.coracle.dev/missing-images";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitAfter {
    Time(Duration),
    Never,
}

/// The exit code of a program that SIGTERM has ended.
const SIGTERM: i32 = 143;

/// The end of a container that nobody stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The time for which the container runs.
    pub after: Duration,
    /// The exit code.
    pub code: i32,
}

/// A part of the output of a command that is executed in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The time since the start at which it is written.
    pub at: Duration,
    /// The bytes.
    pub data: Vec<u8>,
    /// Whether it is written to standard error.
    pub is_error: bool,
}

/// The course of a command that is executed in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// The output, in the order of its times.
    pub output: Vec<Output>,
    /// The end; None if it never ends.
    pub ending: Option<Ending>,
}

impl PodBehavior {
    /// Returns a pod's behavior, and a warning about each annotation that was ignored.
    ///
    /// - `inherited`: from [`inherited`](crate::inheritance::inherited); the annotations of the pod
    ///   take precedence
    pub fn of(pod: &Pod, inherited: &[Overrides], profile: Profile) -> (PodBehavior, Vec<String>) {
        let mut annotations = BTreeMap::new();
        for (key, value) in inherited.iter().rev().chain(&pod.metadata.annotations).flatten() {
            if key.starts_with(PREFIX) {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let (mut behavior, mut failing) =
            (PodBehavior { profile, ..PodBehavior::default() }, None::<IndexRanges>);
        let mut warnings = overrides::read("annotation", Some(&annotations), |name, value| match name {
            "fail-indexes" => indexes(value).map(|ranges| failing = Some(ranges)),
            _ => behavior.set(name, value),
        });
        if let Some((failing, index)) = failing.zip(completion_index(pod)) {
            let fails = failing.iter().any(|range| range.contains(&index));
            behavior.code_of_index = Some(match (fails, behavior.exit_code) {
                (false, _) => 0,
                (true, None | Some(0)) => FAILURE,
                (true, Some(code)) => code,
            });
        }
        warnings.truncate(MAX_WARNINGS);
        (behavior, warnings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "ready-after" => self.ready_after = duration(value)?,
            "never-ready" => self.never_ready = flag(value)?,
            "exit-after" if value == "never" => self.exit_after = Some(ExitAfter::Never),
            "exit-after" => {
                let time =
                    duration(value).map_err(|_| "neither never nor a duration such as 500ms, 2s or 1m30s")?;
                self.exit_after = Some(ExitAfter::Time(time));
            }
            "exit-code" => self.exit_code = Some(exit_code(value)?),
            "terminate-after" => self.terminate_after = duration(value)?,
            "log" => self.log = Some(value.to_owned()),
            "missing-images" => self.missing_images = value.parse()?,
            "exec" => self.answers = value.parse()?,
            "exits" => self.exits = value.parse()?,
            "forward" => self.ports = value.parse()?,
            // The API server serves them as `metrics.k8s.io`.
            "cpu" | "memory" => amount(value)?,
            "ignore" => flag(value).map(drop)?,
            _ => return Err("there is no such annotation"),
        }
        Ok(())
    }

    /// Returns `true` if an image cannot be pulled.
    pub fn is_missing(&self, image: &str) -> bool {
        self.missing_images.contains(image)
    }

    /// Returns the address that a port leads to.
    pub fn address_of(&self, port: u16) -> Option<SocketAddr> {
        self.ports.get(port)
    }

    /// Returns the first port that leads to an address.
    pub fn first_port(&self) -> Option<u16> {
        self.ports.first()
    }

    /// Returns the annotation's answer to a command that is executed in a container.
    pub fn answer(&self, container: &Container, command: &[String]) -> Option<Execution> {
        let answer = self.answers.find(&container.name, command)?;
        let at = answer.after;
        let stdout = Output { at, data: answer.stdout.clone(), is_error: false };
        let stderr = Output { at, data: answer.stderr.clone().into_bytes(), is_error: true };
        let ending = Ending { after: at, code: answer.exit_code };
        Some(Execution { output: vec![stdout, stderr], ending: Some(ending) })
    }

    /// Simulates a command that is executed in a container, if its effect is clear.
    ///
    /// - `started`: the time at which the command is started
    pub fn follow(
        &self,
        pod: &Pod,
        container: &Container,
        command: &[String],
        started: Timestamp,
    ) -> Option<Execution> {
        if !self.follows_commands() || command.is_empty() {
            return None;
        }
        let environment = Environment::of(pod, container).of_programs(pod);
        let run = command::follow(command, &environment, Files::unknown(), Unclear::RunsOn, started);
        let output = run.output.into_iter();
        let output =
            output.map(|Line { at, text, is_error }| Output { at, data: text.into_bytes(), is_error });
        let ending = run.end.map(|end| Ending { after: end.after, code: end.code.into() });
        run.unsimulated.is_none().then(|| Execution { output: output.collect(), ending })
    }

    /// Returns `true` if commands are simulated, so that they have the effect that they would have.
    pub fn follows_commands(&self) -> bool {
        self.profile == Profile::Realistic
    }

    /// Returns `true` if the main process of a container is a shell that reads its input. A client
    /// that attaches to it gets responses.
    pub fn is_shell(&self, container: &Container) -> bool {
        let words = container.command.iter().flatten().chain(container.args.iter().flatten());
        let words: Vec<String> = words.cloned().collect();
        let image = container.image.as_deref().unwrap_or_default();
        self.follows_commands()
            && container.stdin == Some(true)
            && (command::is_interactive_shell(&words) || words.is_empty() && command::starts_shell(image))
    }

    /// Returns the end of a container; None if it runs until it is stopped.
    pub fn ending(&self, pod: &Pod, role: Role, container: &Container) -> Option<Ending> {
        if let Some(ending) = self.exits.get(&container.name) {
            return Some(ending);
        }
        let by_command = || {
            let end = self.run(pod, role, container, Timestamp::UNIX_EPOCH).end?;
            Some(Ending { after: end.after, code: end.code.into() })
        };
        match (role, self.exit_after) {
            (Role::Main, Some(ExitAfter::Never)) => None,
            (Role::Main, Some(ExitAfter::Time(after))) => {
                let own = by_command().filter(|ending| ending.after <= after).map(|ending| ending.code);
                Some(Ending { after, code: self.own_code().or(own).unwrap_or(0) })
            }
            (Role::Main, None) => {
                by_command().map(|ending| Ending { code: self.own_code().unwrap_or(ending.code), ..ending })
            }
            (Role::Init | Role::Sidecar | Role::Ephemeral, _) => by_command(),
        }
    }

    /// Returns the annotated exit code of a container that nobody stops.
    fn own_code(&self) -> Option<i32> {
        self.code_of_index.or(self.exit_code)
    }

    /// Returns the exit code of a container that is stopped while it runs: 0, but for a pod that runs
    /// to completion. That was interrupted, so that a Job whose pod is evicted does not complete.
    pub fn stopped_code(&self, pod: &Pod) -> i32 {
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            None | Some("Always") => 0,
            Some(_) => self.exit_code.unwrap_or(SIGTERM),
        }
    }

    /// Returns the log of a container that started at a time, unless it is stopped.
    pub fn log(&self, pod: &Pod, role: Role, container: &Container, started: Timestamp) -> Vec<Line> {
        if let Some(lines) = self.annotated_log() {
            return lines;
        }
        let Run { mut output, unsimulated, .. } = self.run(pod, role, container, started);
        if let Some(Unsimulated { at, command }) = unsimulated {
            let name = &container.name;
            let text = match command.as_str() {
                "" => format!("container {name} is simulated: it runs no program, and has no output\n"),
                command => format!("container {name} is simulated: `{command}` does nothing\n"),
            };
            let index = output.partition_point(|line| line.at <= at);
            output.insert(index, Line { at, text, is_error: true });
        }
        output
    }

    /// Returns the log that the annotation says.
    fn annotated_log(&self) -> Option<Vec<Line>> {
        let lines = self.log.as_ref()?.lines();
        let at_start = |line| Line { at: Duration::ZERO, text: format!("{line}\n"), is_error: false };
        Some(lines.map(at_start).collect())
    }

    /// Returns the termination message of a container, as the kubelet reads it from its file, or
    /// from its log if it failed and its policy is `FallbackToLogsOnError`.
    ///
    /// - `ending`: its end
    pub fn termination_message(&self, started: &Started, ending: Ending) -> Option<String> {
        let Started { pod, role, container, at } = *started;
        let run = self.run(pod, role, container, at);
        // What it left in the background ended with it.
        let end = run.end.map_or(ending.after, |end| end.after.min(ending.after));
        let message = last_bytes(run.files.message(end), MAX_MESSAGE);
        let uses_log = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let mut message = if message.is_empty() && uses_log && ending.code != 0 {
            let mut lines = self.annotated_log().unwrap_or(run.output);
            lines.retain(|line| line.at <= end);
            let text = lines.iter().rev().take(MAX_MESSAGE_LINES).rev().map(|line| line.text.as_str());
            last_bytes(text.collect(), MAX_LOGGED_MESSAGE)
        } else {
            message
        };
        let count = coracle_kinds::pods::containers(pod).count().max(1);
        let end =
            (0..=message.len().min(MAX_MESSAGES / count)).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        (!message.is_empty()).then_some(message)
    }

    /// Simulates a container that is not stopped.
    pub(crate) fn run(&self, pod: &Pod, role: Role, container: &Container, started: Timestamp) -> Run {
        let unclear = match (role, self.profile) {
            // They are waited for, and there is nothing to wait for.
            (Role::Init, _) => Unclear::Takes(Duration::ZERO),
            // Somebody has a shell in an ephemeral one, or would have, unless its command says that
            // it is something else.
            (Role::Ephemeral, Profile::Realistic) if has_other_command(container) => Unclear::Takes(MOMENT),
            (Role::Sidecar | Role::Ephemeral, _) | (Role::Main, Profile::Inert) => Unclear::RunsOn,
            (Role::Main, Profile::Realistic) if restarts_after(pod, container, 0) => Unclear::RunsOn,
            (Role::Main, Profile::Realistic) => Unclear::Takes(MOMENT),
        };
        if self.profile == Profile::Inert {
            // Commands are not looked at.
            let end = match unclear {
                Unclear::Takes(after) => Some(End { after, code: 0 }),
                Unclear::RunsOn => None,
            };
            let unsimulated = Unsimulated { at: Duration::ZERO, command: String::new() };
            return Run { end, unsimulated: Some(unsimulated), ..Run::default() };
        }
        if matches!(role, Role::Main | Role::Ephemeral) && self.is_shell(container) {
            return Run::default();
        }
        let environment = Environment::of(pod, container);
        let arguments = arguments(container, &environment);
        let (arguments, environment) = (arguments.unwrap_or_default(), environment.of_programs(pod));
        command::follow(&arguments, &environment, Files::of(container), unclear, started)
    }
}

/// The kubelet's limits of termination messages, in bytes: of a file, of a log, and of all
/// containers of a pod; and the lines of a log.
const MAX_MESSAGE: usize = 4 << 10;
const MAX_LOGGED_MESSAGE: usize = 2 << 10;
const MAX_MESSAGES: usize = 12 << 10;
const MAX_MESSAGE_LINES: usize = 80;

/// Returns the end of a text, of no more than so many bytes.
fn last_bytes(mut text: String, max: usize) -> String {
    let start = text.len().saturating_sub(max);
    let start = (start..=text.len()).find(|start| text.is_char_boundary(*start));
    text.split_off(start.unwrap_or(0))
}

/// Returns the program of a container and its arguments, if the pod names them; None if a variable
/// in them is unknown.
fn arguments(container: &Container, environment: &Environment) -> Option<Vec<String>> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let mut arguments = Vec::new();
    let mut left = command::MAX_SCRIPT_LENGTH;
    for word in words {
        let word = environment.expand(word)?;
        left = left.checked_sub(word.len() + 1)?;
        arguments.push(word);
    }
    if arguments.is_empty() && pauses(container.image.as_deref().unwrap_or_default()) {
        arguments.push("pause".to_owned());
    }
    Some(arguments)
}

/// Returns `true` if a container has a command that is not an interactive shell.
fn has_other_command(container: &Container) -> bool {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let words: Vec<String> = words.cloned().collect();
    !words.is_empty() && !command::is_interactive_shell(&words)
}

/// Returns `true` if an image pauses without arguments: Kubernetes' `pause` and `agnhost`, of any
/// registry and version.
fn pauses(image: &str) -> bool {
    matches!(image_name(image), "pause" | "agnhost")
}

#[cfg(test)]
mod tests;
