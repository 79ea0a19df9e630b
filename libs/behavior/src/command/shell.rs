//! A shell that executes nothing: it adds up times, follows exit codes, and notes what is written.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::programs::{self, Sleep};
use super::syntax::{Piece, SimpleCommand, Step, Then, Word, is_name, parse};
use super::{DEEPEST, LONGEST_SCRIPT, MOST_BYTES, Unclear};
use crate::environment::{Environment, LONGEST_EXPANSION, Variable};

/// Why a script ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Exited(u8),
    Endless,
}

/// An exit code, unless the whole script has ended.
pub type Outcome = Result<u8, Stop>;

pub struct Shell {
    environment: Environment,
    unclear: Unclear,
    started: Timestamp,
    /// The time since the start.
    now: Duration,
    output: Vec<(Duration, String)>,
    /// The bytes that may still be made and copied.
    budget: usize,
    is_clear: bool,
    /// The ends of what runs in the background; None if it never ends.
    background: Vec<Option<Duration>>,
    /// `set -e`.
    stops_at_failure: bool,
}

impl Shell {
    pub fn new(environment: Environment, unclear: Unclear, started: Timestamp) -> Shell {
        Shell {
            environment,
            unclear,
            started,
            now: Duration::ZERO,
            output: Vec::new(),
            budget: MOST_BYTES,
            is_clear: true,
            background: Vec::new(),
            stops_at_failure: false,
        }
    }

    /// The time of the end, the output with its times, and whether all was clear.
    pub fn finish(self) -> (Duration, Vec<(Duration, String)>, bool) {
        (self.now, self.output, self.is_clear)
    }

    /// A command of which nothing is known.
    pub fn unclear(&mut self) -> Outcome {
        self.is_clear = false;
        match self.unclear {
            Unclear::Takes(time) => {
                self.now = self.now.saturating_add(time);
                Ok(0)
            }
            Unclear::RunsOn => Err(Stop::Endless),
        }
    }

    /// Pays for bytes; an error if too many were made.
    fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                self.budget = 0;
                self.unclear_rest().map(drop)
            }
        }
    }

    /// A copy of the environment.
    fn environment(&mut self) -> Result<Environment, Stop> {
        self.spend(self.environment.size())?;
        Ok(self.environment.clone())
    }

    /// The rest of a script of which nothing is known.
    fn unclear_rest(&mut self) -> Outcome {
        Err(self.unclear().map_or_else(|stop| stop, Stop::Exited))
    }

    /// A program with its arguments.
    pub fn execute(&mut self, words: &[String], depth: usize) -> Outcome {
        let Some((program, arguments)) = words.split_first() else { return Ok(0) };
        let name = match program.rsplit_once('/') {
            None => program.as_str(),
            Some(("" | "/bin" | "/usr/bin" | "/usr/local/bin" | "/sbin", name)) => name,
            Some(_) => return self.unclear(),
        };
        if depth >= DEEPEST {
            return self.unclear();
        }
        match name {
            "busybox" => self.execute(arguments, depth + 1),
            "sh" | "bash" | "ash" | "dash" => self.nested(arguments, depth + 1),
            "exec" => {
                let code = self.execute(arguments, depth + 1)?;
                if arguments.is_empty() { Ok(code) } else { Err(Stop::Exited(code)) }
            }
            "exit" => match arguments.first().map(|code| code.parse::<u8>()) {
                None => Ok(0),
                Some(Ok(code)) => Err(Stop::Exited(code)),
                Some(Err(_)) => Err(Stop::Exited(2)),
            },
            "true" | ":" | "trap" | "umask" | "ulimit" | "sync" => Ok(0),
            "false" => Ok(1),
            "sleep" => match programs::sleep(arguments) {
                Some(Sleep::For(time)) => {
                    self.now = self.now.saturating_add(time);
                    Ok(0)
                }
                Some(Sleep::Forever) => Err(Stop::Endless),
                None => Ok(1),
            },
            "pause" => Err(Stop::Endless),
            "tail" if programs::is_following(arguments) => Err(Stop::Endless),
            "echo" => self.write(programs::echo(arguments)),
            "printf" => match programs::printf(arguments) {
                Some(text) => self.write(text),
                None => self.unclear(),
            },
            "date" if arguments.is_empty() => {
                let passed = SignedDuration::try_from(self.now).unwrap_or(SignedDuration::MAX);
                let now = self.started.saturating_add(passed).unwrap_or(Timestamp::MAX);
                self.write(now.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y\n").to_string())
            }
            _ => self.unclear(),
        }
    }

    fn write(&mut self, text: String) -> Outcome {
        self.output.push((self.now, text));
        Ok(0)
    }

    /// `sh` with its arguments: a shell of its own, with a copy of the environment.
    fn nested(&mut self, arguments: &[String], depth: usize) -> Outcome {
        let (mut stops_at_failure, mut arguments) = (false, arguments.iter());
        let script = loop {
            let Some(argument) = arguments.next() else { return self.unclear() };
            let Some(letters) = argument.strip_prefix(['-', '+']) else { return self.unclear() };
            stops_at_failure |= argument.starts_with('-') && letters.contains('e');
            if letters.contains('o') {
                arguments.next();
            }
            if letters.contains('c') {
                match arguments.next() {
                    Some(script) => break script,
                    None => return self.unclear(),
                }
            }
        };
        let outside = self.environment()?;
        let (background, stops) = (std::mem::take(&mut self.background), self.stops_at_failure);
        self.stops_at_failure = stops_at_failure;
        for (index, argument) in arguments.enumerate().take(10) {
            self.environment.set(&index.to_string(), Some(argument.clone()));
        }
        let outcome = self.script(script, depth);
        self.environment = outside;
        (self.background, self.stops_at_failure) = (background, stops);
        match outcome {
            Ok(code) | Err(Stop::Exited(code)) => Ok(code),
            Err(Stop::Endless) => Err(Stop::Endless),
        }
    }

    fn script(&mut self, script: &str, depth: usize) -> Outcome {
        if script.len() > LONGEST_SCRIPT {
            return self.unclear();
        }
        let (mut code, mut last) = (0, Then::Always);
        for step in parse(script) {
            let command = match step {
                Step::Command(command) => command,
                Step::Endless => return Err(Stop::Endless),
                Step::Unclear => return self.unclear_rest(),
            };
            let (condition, then) = (last, command.then);
            last = then;
            if (condition, code == 0) == (Then::IfSucceeded, false)
                || (condition, code == 0) == (Then::IfFailed, true)
            {
                if then == Then::Meanwhile {
                    return self.unclear_rest();
                }
                continue;
            }
            let was_clear = std::mem::replace(&mut self.is_clear, true);
            let outcome = match then {
                Then::Meanwhile if condition != Then::Always => self.unclear_rest(),
                Then::Meanwhile => self.in_background(&command, depth),
                _ => self.command(&command, code, depth),
            };
            let is_clear = self.is_clear;
            self.is_clear &= was_clear;
            code = outcome?;
            match then {
                // The code of an unclear command would decide.
                Then::IfSucceeded | Then::IfFailed if !is_clear => return Err(Stop::Exited(0)),
                Then::Always if self.stops_at_failure && code != 0 => return Err(Stop::Exited(code)),
                _ => {}
            }
        }
        Ok(code)
    }

    fn in_background(&mut self, command: &SimpleCommand, depth: usize) -> Outcome {
        let (now, environment) = (self.now, self.environment()?);
        let outcome = self.command(command, 0, depth);
        self.environment = environment;
        self.background.push(match outcome {
            Ok(_) | Err(Stop::Exited(_)) => Some(self.now),
            Err(Stop::Endless) => None,
        });
        self.now = now;
        Ok(0)
    }

    fn command(&mut self, command: &SimpleCommand, code: u8, depth: usize) -> Outcome {
        let SimpleCommand { assignments, words, is_redirected, .. } = command;
        let mut values = Vec::new();
        for (name, value) in assignments {
            let Some(fields) = self.fields(value, code) else { return self.unclear_rest() };
            let value = fields.join(" ");
            self.spend(value.len())?;
            values.push((name, value));
        }
        if words.is_empty() {
            values.into_iter().for_each(|(name, value)| self.environment.set(name, Some(value)));
            return Ok(0);
        }
        let mut arguments = Vec::new();
        for word in words {
            match self.fields(word, code) {
                Some(fields) => {
                    self.spend(fields.iter().map(String::len).sum())?;
                    arguments.extend(fields);
                }
                None => return self.unclear(),
            }
        }
        let kept = if values.is_empty() { None } else { Some(self.environment()?) };
        values.into_iter().for_each(|(name, value)| self.environment.set(name, Some(value)));
        let outputs = self.output.len();
        let outcome = self.builtin(&arguments, code).unwrap_or_else(|| self.execute(&arguments, depth));
        if *is_redirected {
            self.output.truncate(outputs);
        }
        if let Some(kept) = kept {
            self.environment = kept;
        }
        outcome
    }

    /// Commands that change the shell itself.
    fn builtin(&mut self, words: &[String], code: u8) -> Option<Outcome> {
        let (name, arguments) = words.split_first()?;
        match name.as_str() {
            "exit" if arguments.is_empty() => Some(Err(Stop::Exited(code))),
            "set" => {
                for argument in arguments {
                    match (argument.strip_prefix('-'), argument.strip_prefix('+')) {
                        (Some(letters), _) if letters.contains('e') => self.stops_at_failure = true,
                        (_, Some(letters)) if letters.contains('e') => self.stops_at_failure = false,
                        _ => {}
                    }
                }
                Some(Ok(0))
            }
            "export" => {
                for argument in arguments {
                    let (name, value) = argument.split_once('=')?;
                    if !is_name(name) {
                        return None;
                    }
                    self.environment.set(name, Some(value.to_owned()));
                }
                Some(Ok(0))
            }
            "wait" if arguments.is_empty() => {
                for end in std::mem::take(&mut self.background) {
                    match end {
                        Some(end) => self.now = self.now.max(end),
                        None => return Some(Err(Stop::Endless)),
                    }
                }
                Some(Ok(0))
            }
            _ => None,
        }
    }

    /// The fields that a word becomes; None if a variable in it is unknown, or the text too long.
    fn fields(&self, word: &Word, code: u8) -> Option<Vec<String>> {
        let (mut fields, mut field) = (Vec::new(), None::<String>);
        let mut length = 0;
        for piece in word {
            let (value, is_split) = match piece {
                Piece::Text { text, .. } => (text.clone(), false),
                Piece::Variable { name, is_quoted } => match (name.as_str(), self.environment.get(name)) {
                    ("?", _) => (code.to_string(), false),
                    (_, Variable::Set(value)) => (value, !is_quoted),
                    (_, Variable::Unset) => (String::new(), !is_quoted),
                    (_, Variable::Unknown) => return None,
                },
            };
            length += value.len();
            if length > LONGEST_EXPANSION {
                return None;
            }
            if !is_split {
                field.get_or_insert_default().push_str(&value);
                continue;
            }
            // The shell would look for files of these names.
            if value.contains(['*', '?', '[']) {
                return None;
            }
            for (index, part) in value.split([' ', '\t', '\n']).enumerate() {
                if index > 0 {
                    fields.extend(field.take());
                }
                if !part.is_empty() {
                    field.get_or_insert_default().push_str(part);
                }
            }
        }
        fields.extend(field);
        Some(fields)
    }
}
