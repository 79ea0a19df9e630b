//! Commands that say plainly what they do: when they end, with which code, and what they write
//! meanwhile.
//!
//! `sleep`, `exit`, `true`, `false`, `echo`, `printf`, `date`, `tail -f`, `pause`, `touch`, `rm`,
//! `cat`, `test`, `env`, `printenv`, `hostname`, and `sh -c` of sequences and loops of these.
//! Nothing is executed. Of any other command nothing is known but the time that [`Unclear`] allows
//! for it. Files are those that these commands write ([`Files`]).

mod files;
mod interactive;
mod programs;
mod shell;
mod syntax;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::environment::Environment;
use shell::{Shell, Stop, Text};

pub use files::{File, Files, Reads};
pub use interactive::{is_interactive_shell, starts_shell};

/// The longest script that is read, in bytes.
pub(crate) const MAX_SCRIPT_LENGTH: usize = 64 << 10;

/// The maximum number of bytes of arguments and of copied environments that a command comes to.
const MAX_BYTES: usize = 256 << 10;

/// The same of a command that is executed again and again, and the maximum length of that.
const MAX_BRIEF_BYTES: usize = 4 << 10;
const MAX_BRIEF_LENGTH: usize = 1 << 10;

/// The iterations of a loop that are followed: the log of one that never ends has no more.
const MAX_ITERATIONS: usize = 1000;

/// The characters of a command that is named in a log.
const MAX_NAMED_LENGTH: usize = 60;

/// The commands that may be within each other, as in `sh -c "sh -c ..."`.
const MAX_DEPTH: usize = 8;

/// The time that an unclear command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// It ends after a time, with the code 0.
    Takes(Duration),
    /// It never ends.
    RunsOn,
}

/// The course of a command that was started.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The lines, in the order of their times.
    pub output: Vec<Line>,
    /// The end; None if it never ends.
    pub end: Option<End>,
    /// The files, with what it writes.
    pub files: Files,
    /// The first command in it of which nothing is known.
    pub unsimulated: Option<Unsimulated>,
}

/// A command of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsimulated {
    /// The time since the start.
    pub at: Duration,
    /// Its first line, cut if it is long; empty if the image decides.
    pub command: String,
}

impl Unsimulated {
    fn of(at: Duration, command: &str) -> Unsimulated {
        let line = command.lines().next().unwrap_or_default();
        let mut command: String = line.chars().filter(|c| !c.is_control()).take(MAX_NAMED_LENGTH).collect();
        if command.len() < line.len() {
            command.push_str("...");
        }
        Unsimulated { at, command }
    }
}

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time since the start, at which the line is complete.
    pub at: Duration,
    /// The text with its line feed, which the last line may lack.
    pub text: String,
    /// Whether it is written to standard error.
    pub is_error: bool,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The time since the start.
    pub after: Duration,
    /// The exit code.
    pub code: u8,
}

/// Follows a command from its start to its end.
///
/// - `arguments`: the program and its arguments; none if the image decides
/// - `files`: those that it finds
/// - `started`: the time that `date` prints the first
pub fn follow(
    arguments: &[String],
    environment: &Environment,
    files: Files,
    unclear: Unclear,
    started: Timestamp,
) -> Run {
    course(Shell::new(environment.clone(), files, unclear, started, MAX_BYTES), arguments)
}

/// Follows a command that is executed again and again, such as that of a probe, by its words and
/// the files alone. None if it is long.
///
/// - `files`: those that it finds; what it writes is lost
/// - `started`: the time that `date` prints the first
pub fn follow_briefly(arguments: &[String], files: Files, started: Timestamp) -> Option<Run> {
    let length = arguments.iter().fold(0, |sum: usize, word| sum.saturating_add(word.len() + 1));
    if arguments.is_empty() || length > MAX_BRIEF_LENGTH {
        return None;
    }
    let environment = Environment::unknown();
    let shell = Shell::new(environment, files, Unclear::RunsOn, started, MAX_BRIEF_BYTES);
    Some(course(shell, arguments))
}

/// Returns the course of a command in a shell.
fn course(mut shell: Shell, arguments: &[String]) -> Run {
    let stop = match arguments {
        [] => shell.unclear(),
        arguments => shell.execute(arguments, 0),
    };
    let stop = match stop {
        Err(Stop::Exhausted) => shell.unclear_rest(),
        stop => stop,
    };
    let code = match stop {
        Ok(code) | Err(Stop::Exited(code)) => Some(code),
        Err(Stop::Endless | Stop::Exhausted) => None,
    };
    shell.name_unclear(Duration::ZERO, &arguments.join(" "));
    let (now, output, files, unsimulated) = shell.finish();
    let mut output = lines(output);
    // A container ends with its first process, and whatever it started.
    if code.is_some() {
        output.retain(|line| line.at <= now);
    }
    Run { output, end: code.map(|code| End { after: now, code }), files, unsimulated }
}

/// Splits texts into lines. A line has the time of its end.
fn lines(mut output: Vec<Text>) -> Vec<Line> {
    output.sort_by_key(|text| text.at);
    let mut lines: Vec<Line> = Vec::new();
    for Text { at, text, is_error } in output {
        for part in text.split_inclusive('\n') {
            match lines.last_mut().filter(|line| !line.text.ends_with('\n') && line.is_error == is_error) {
                Some(line) => {
                    line.text.push_str(part);
                    line.at = at;
                }
                None => lines.push(Line { at, text: part.to_owned(), is_error }),
            }
        }
    }
    lines
}
