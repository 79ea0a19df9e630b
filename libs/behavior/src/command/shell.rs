//! A shell that executes nothing: it adds up times, follows exit codes, and notes what is written.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::files::{File, Files};
use super::programs::{self, Sleep};
use super::syntax::{Loop, LoopHead, Piece, SimpleCommand, Sink, Step, Then, Word, is_name, parse};
use super::{MAX_DEPTH, MAX_ITERATIONS, MAX_SCRIPT_LENGTH, Unclear, Unsimulated};
use crate::environment::{Environment, MAX_EXPANSION_LENGTH, Variable};

/// The reason that a script ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Exited(u8),
    Endless,
    /// It is too long to be followed to its end.
    Exhausted,
}

/// An exit code, unless the whole script has ended.
pub type Outcome = Result<u8, Stop>;

/// The bytes that a step costs beside what it makes.
const STEP: usize = 32;

/// The bytes that a piece of a word costs beside its text.
const PIECE: usize = 8;

/// Conditions of `trap` beside which a script ends as it does without.
const SIGNALS: [&str; 14] = [
    "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "PIPE", "CHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT",
    "15", "2",
];

/// A text that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub at: Duration,
    pub text: String,
    pub is_error: bool,
}

pub struct Shell {
    environment: Environment,
    files: Files,
    /// Whether others change files meanwhile.
    is_in_background: bool,
    /// The variables that are not passed on to programs.
    locals: BTreeSet<String>,
    /// `$0`, `$1`, ...
    positional: Vec<String>,
    unclear: Unclear,
    started: Timestamp,
    /// The time since the start.
    now: Duration,
    output: Vec<Text>,
    /// The bytes that may still be made and copied.
    budget: usize,
    is_clear: bool,
    unsimulated: Option<Unsimulated>,
    /// The ends of what runs in the background; None if it never ends.
    background: Vec<Option<Duration>>,
    options: ShellOptions,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShellOptions {
    /// `-e`: a command that fails ends the script.
    errexit: bool,
    /// `-u`: a variable that is not set ends it.
    nounset: bool,
    /// `-x`: commands are written before they are executed.
    xtrace: bool,
}

/// Returns `true` if a variable changes how a script is read or traced.
fn is_special(name: &str) -> bool {
    matches!(name, "IFS" | "PATH" | "PS4" | "TZ" | "LANG" | "LC_ALL" | "LC_TIME")
}

/// Returns `true` if a program changes no state of the shell.
fn is_known_program(name: &str) -> bool {
    const PROGRAMS: [&str; 17] = [
        "echo", "printf", "sleep", "date", "true", "false", ":", "tail", "busybox", "touch", "rm", "cat",
        "test", "[", "env", "printenv", "hostname",
    ];
    PROGRAMS.contains(&name) || name.contains('/')
}

impl ShellOptions {
    /// Applies letters such as `eu` and names of options; None if one of them is not plain.
    fn set(&mut self, argument: &str, name: Option<&str>) -> Option<()> {
        let is_on = argument.starts_with('-');
        for letter in argument[1..].chars() {
            match letter {
                'e' => self.errexit = is_on,
                'u' => self.nounset = is_on,
                'x' => self.xtrace = is_on,
                'o' => match name? {
                    "errexit" => self.errexit = is_on,
                    "nounset" => self.nounset = is_on,
                    "xtrace" => self.xtrace = is_on,
                    "pipefail" => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
        Some(())
    }
}

impl Shell {
    /// Creates a shell that makes and copies no more than so many bytes.
    pub fn new(
        environment: Environment,
        files: Files,
        unclear: Unclear,
        started: Timestamp,
        budget: usize,
    ) -> Shell {
        Shell {
            environment,
            files,
            is_in_background: false,
            locals: BTreeSet::new(),
            positional: Vec::new(),
            unclear,
            started,
            now: Duration::ZERO,
            output: Vec::new(),
            budget,
            is_clear: true,
            unsimulated: None,
            background: Vec::new(),
            options: ShellOptions::default(),
        }
    }

    /// Returns the time of the end, the output with its times, the files, and the first command
    /// that was not clear.
    pub fn finish(self) -> (Duration, Vec<Text>, Files, Option<Unsimulated>) {
        (self.now, self.output, self.files, self.unsimulated)
    }

    /// Records a command that is not clear, if it is the first one.
    pub fn name_unclear(&mut self, at: Duration, command: &str) {
        if !self.is_clear && self.unsimulated.is_none() {
            self.unsimulated = Some(Unsimulated::of(at, command));
        }
    }

    /// Handles a command of which nothing is known.
    pub fn unclear(&mut self) -> Outcome {
        self.is_clear = false;
        self.files.forget(self.now);
        match self.unclear {
            Unclear::Takes(time) => {
                self.now = self.now.saturating_add(time);
                Ok(0)
            }
            Unclear::RunsOn => Err(Stop::Endless),
        }
    }

    /// Handles the rest of a script of which nothing is known.
    pub fn unclear_rest(&mut self) -> Outcome {
        Err(self.unclear().map_or_else(|stop| stop, Stop::Exited))
    }

    /// Pays for bytes; an error if too many were made.
    fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(Stop::Exhausted),
        }
    }

    /// Returns a copy of the environment.
    fn environment(&mut self) -> Result<Environment, Stop> {
        self.spend(self.environment.size())?;
        Ok(self.environment.clone())
    }

    /// Executes a program with its arguments.
    pub fn execute(&mut self, words: &[String], depth: usize) -> Outcome {
        let Some((program, arguments)) = words.split_first() else { return Ok(0) };
        let name = match program.rsplit_once('/') {
            None => program.as_str(),
            Some(("" | "/bin" | "/usr/bin" | "/usr/local/bin" | "/sbin", name)) => name,
            Some(_) => return self.unclear(),
        };
        if depth >= MAX_DEPTH {
            return self.unclear();
        }
        match name {
            "busybox" => self.execute(arguments, depth + 1),
            "sh" | "bash" | "ash" | "dash" => self.nested(program, arguments, depth + 1),
            "exit" => match arguments {
                [] => Ok(0),
                [code] => match code.parse::<u32>() {
                    Ok(code) => Err(Stop::Exited((code & 0xFF) as u8)),
                    Err(_) => self.unclear_rest(),
                },
                _ => self.unclear_rest(),
            },
            "true" | ":" => Ok(0),
            "false" => Ok(1),
            "sleep" => match programs::sleep(arguments) {
                Some(Sleep::For(time)) => {
                    self.now = self.now.saturating_add(time);
                    Ok(0)
                }
                Some(Sleep::Forever) => Err(Stop::Endless),
                None => self.unclear(),
            },
            "pause" => Err(Stop::Endless),
            "tail" if programs::is_following(arguments) => Err(Stop::Endless),
            "echo" => self.write(programs::echo(arguments)),
            "printf" => match programs::printf(arguments, self.budget) {
                Ok(text) => self.write(text),
                Err(programs::TooLong) => Err(Stop::Exhausted),
            },
            "date" if arguments.is_empty() && self.has_plain_dates() => {
                let passed = SignedDuration::try_from(self.now).unwrap_or(SignedDuration::MAX);
                let now = self.started.saturating_add(passed).unwrap_or(Timestamp::MAX);
                let date = now.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y\n").to_string();
                self.write(Some(date))
            }
            "env" | "printenv" if arguments.is_empty() => {
                let exported = self.environment.known().filter(|(name, _)| !self.locals.contains(*name));
                let lines: String = exported.map(|(name, value)| format!("{name}={value}\n")).collect();
                self.write(Some(lines))
            }
            "printenv" => self.print_variable(arguments),
            "hostname" if arguments.is_empty() => {
                let name = self.environment.host_name().map(|name| format!("{name}\n"));
                self.write(name)
            }
            "cat" => self.cat(arguments),
            "touch" => self.touch(arguments),
            "rm" => self.remove(arguments),
            "test" => self.test(arguments),
            "[" => match arguments.split_last() {
                Some((last, arguments)) if last == "]" => self.test(arguments),
                _ => self.unclear(),
            },
            _ => self.unclear(),
        }
    }

    /// Executes `printenv` with the name of a variable.
    fn print_variable(&mut self, arguments: &[String]) -> Outcome {
        let [name] = arguments else { return self.unclear() };
        match self.environment.get(name) {
            Variable::Set(value) if !self.locals.contains(name) => self.write(Some(format!("{value}\n"))),
            // Images set variables, too.
            Variable::Set(_) | Variable::Unset | Variable::Unknown => self.unclear(),
        }
    }

    /// Returns the state of a file. In the background it is not known, since what happens meanwhile
    /// is simulated later.
    fn file(&mut self, path: &str, at: Duration) -> Result<File, Stop> {
        self.spend(path.len())?;
        if self.is_in_background {
            return Ok(File::Unknown);
        }
        let file = self.files.get(path, at);
        if let File::Content(text) = &file {
            self.spend(text.len())?;
        }
        Ok(file)
    }

    /// Sets the state of a file. After a change in the background it is not known.
    fn set_file(&mut self, path: &str, file: File, at: Duration) {
        let file = if self.is_in_background { File::Unknown } else { file };
        self.files.set(path, file, at);
    }

    /// Executes `cat` with files: it writes those that exist, and fails if one does not.
    fn cat(&mut self, paths: &[String]) -> Outcome {
        if paths.is_empty() || paths.iter().any(|path| path.starts_with('-')) {
            return self.unclear();
        }
        let mut code = 0;
        for path in paths {
            match self.file(path, self.now)? {
                File::Content(text) if text.is_empty() => {}
                File::Content(text) => drop(self.write(Some(text))?),
                File::Absent => {
                    self.write_error(format!("cat: can't open '{path}': No such file or directory\n"))?;
                    code = 1;
                }
                File::Unknown => return self.unclear(),
            }
        }
        Ok(code)
    }

    /// Executes `touch` with files.
    fn touch(&mut self, paths: &[String]) -> Outcome {
        if !self.may_change(paths) {
            return self.unclear();
        }
        for path in paths {
            match self.file(path, self.now)? {
                File::Absent => self.set_file(path, File::Content(String::new()), self.now),
                File::Unknown => self.set_file(path, File::Unknown, self.now),
                File::Content(_) => {}
            }
        }
        Ok(0)
    }

    /// Executes `rm` with files.
    fn remove(&mut self, arguments: &[String]) -> Outcome {
        let is_option = |argument: &&String| {
            argument.strip_prefix('-').is_some_and(|letters| {
                !letters.is_empty() && letters.chars().all(|letter| matches!(letter, 'f' | 'r' | 'R'))
            })
        };
        let options = arguments.iter().take_while(is_option).count();
        let (options, paths) = arguments.split_at(options);
        let is_forced = options.iter().any(|option| option.contains('f'));
        if !self.may_change(paths) {
            return self.unclear();
        }
        let mut code = 0;
        for path in paths {
            match self.file(path, self.now)? {
                File::Unknown if !is_forced => return self.unclear(),
                File::Absent if !is_forced => {
                    self.write_error(format!("rm: can't remove '{path}': No such file or directory\n"))?;
                    code = 1;
                }
                _ => self.set_file(path, File::Absent, self.now),
            }
        }
        Ok(code)
    }

    /// Returns `true` if these are files, and may be written and removed.
    fn may_change(&self, paths: &[String]) -> bool {
        let is_file = |path: &String| !path.starts_with('-') && self.files.is_writable(path);
        self.files.are_known() && !paths.is_empty() && paths.iter().all(is_file)
    }

    fn test(&mut self, arguments: &[String]) -> Outcome {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (is_negated, words) = match words.as_slice() {
            ["!", words @ ..] if !words.is_empty() => (true, words),
            words => (false, words),
        };
        let is_true = match *words {
            ["-e" | "-f" | "-r", path] => match self.file(path, self.now)? {
                File::Content(_) => Some(true),
                File::Absent => Some(false),
                File::Unknown => None,
            },
            ["-s", path] => match self.file(path, self.now)? {
                File::Content(text) => Some(!text.is_empty()),
                File::Absent => Some(false),
                File::Unknown => None,
            },
            _ => programs::test(words),
        };
        match is_true {
            Some(is_true) => Ok(u8::from(is_true == is_negated)),
            None => self.unclear(),
        }
    }

    /// Writes an error.
    fn write_error(&mut self, text: String) -> Result<(), Stop> {
        self.spend(text.len())?;
        self.output.push(Text { at: self.now, text, is_error: true });
        Ok(())
    }

    /// Returns `true` if no variable is set that changes the format of dates.
    fn has_plain_dates(&self) -> bool {
        let is_unset = |name: &&str| self.environment.get(name) == Variable::Unset;
        ["TZ", "LANG", "LC_ALL", "LC_TIME"].iter().all(is_unset)
    }

    /// Writes a text, if it is known.
    fn write(&mut self, text: Option<String>) -> Outcome {
        let Some(text) = text else { return self.unclear() };
        self.spend(text.len())?;
        self.output.push(Text { at: self.now, text, is_error: false });
        Ok(0)
    }

    /// Executes `sh` with its arguments: a shell of its own, with the exported variables.
    fn nested(&mut self, shell: &str, arguments: &[String], depth: usize) -> Outcome {
        let mut options = ShellOptions::default();
        let mut arguments = arguments.iter().peekable();
        let mut takes_script = false;
        while let Some(argument) = arguments.next_if(|argument| argument.starts_with(['-', '+'])) {
            if argument == "--" {
                break;
            }
            takes_script |= argument.contains('c');
            let letters = argument.replace(['c', 'l'], "");
            let name = letters.contains('o').then(|| arguments.next()).flatten();
            if letters.starts_with("--") || options.set(&letters, name.map(String::as_str)).is_none() {
                return self.unclear();
            }
        }
        let Some(script) = arguments.next().filter(|_| takes_script) else { return self.unclear() };
        let outside = self.environment()?;
        self.locals.iter().for_each(|name| self.environment.remove(name));
        let mut positional: Vec<String> = arguments.cloned().collect();
        if positional.is_empty() {
            positional.push(shell.to_owned());
        }
        let positional = std::mem::replace(&mut self.positional, positional);
        let locals = std::mem::take(&mut self.locals);
        let options = std::mem::replace(&mut self.options, options);
        let background = std::mem::take(&mut self.background);
        let outcome = self.script(script, depth);
        (self.environment, self.positional, self.locals) = (outside, positional, locals);
        (self.options, self.background) = (options, background);
        match outcome {
            Err(Stop::Exited(code)) => Ok(code),
            outcome => outcome,
        }
    }

    fn script(&mut self, script: &str, depth: usize) -> Outcome {
        if script.len() > MAX_SCRIPT_LENGTH {
            return self.unclear();
        }
        self.steps(&parse(script), 0, depth)
    }

    fn steps(&mut self, steps: &[Step], mut code: u8, depth: usize) -> Outcome {
        let mut condition = Then::Always;
        for step in steps {
            let then = match step {
                Step::Command(_, then) | Step::Loop(_, then) => *then,
                Step::Unclear(source) => {
                    let (at, outcome) = (self.now, self.unclear_rest());
                    self.name_unclear(at, source);
                    return outcome;
                }
            };
            let is_skipped = match condition {
                Then::IfSucceeded => code != 0,
                Then::IfFailed => code == 0,
                Then::Always | Then::Meanwhile => false,
            };
            condition = then;
            if is_skipped {
                continue;
            }
            let was_clear = std::mem::replace(&mut self.is_clear, true);
            let at = self.now;
            let outcome = match then {
                Then::Meanwhile => self.in_background(step, code, depth),
                _ => self.step(step, code, depth),
            };
            self.name_unclear(at, step.source());
            let is_clear = self.is_clear;
            self.is_clear &= was_clear;
            code = outcome?;
            match then {
                // The code of an unclear command would decide.
                Then::IfSucceeded | Then::IfFailed if !is_clear => return Err(Stop::Exited(0)),
                Then::Always if self.options.errexit && code != 0 => return Err(Stop::Exited(code)),
                _ => {}
            }
        }
        Ok(code)
    }

    fn step(&mut self, step: &Step, code: u8, depth: usize) -> Outcome {
        match step {
            Step::Command(command, _) => self.command(command, code, depth),
            Step::Loop(looped, _) => self.repeat(looped, code, depth),
            Step::Unclear(_) => self.unclear_rest(),
        }
    }

    fn in_background(&mut self, step: &Step, code: u8, depth: usize) -> Outcome {
        let (now, environment, locals) = (self.now, self.environment()?, self.locals.clone());
        let (options, background) = (self.options, std::mem::take(&mut self.background));
        let is_in_background = std::mem::replace(&mut self.is_in_background, true);
        let outcome = self.step(step, code, depth);
        self.is_in_background = is_in_background;
        (self.environment, self.locals) = (environment, locals);
        (self.options, self.background) = (options, background);
        self.background.push(match outcome {
            Ok(_) | Err(Stop::Exited(_)) => Some(self.now),
            Err(Stop::Endless) => None,
            Err(Stop::Exhausted) => return outcome,
        });
        self.now = now;
        Ok(0)
    }

    /// Executes a loop: it ends with its condition or its values, or by `exit`.
    fn repeat(&mut self, looped: &Loop, code: u8, depth: usize) -> Outcome {
        match &looped.head {
            LoopHead::Condition { command, is_while } => {
                self.repeat_while(command, *is_while, &looped.body, code, depth)
            }
            LoopHead::Values { variable, words } => {
                self.repeat_for(variable, words, &looped.body, code, depth)
            }
        }
    }

    /// Executes the body of `for` for each value, whose bytes are paid for.
    fn repeat_for(
        &mut self,
        variable: &str,
        words: &[Word],
        body: &[Step],
        code: u8,
        depth: usize,
    ) -> Outcome {
        let mut values = Vec::new();
        for word in words {
            match self.fields(word, code)? {
                Some(fields) => values.extend(fields),
                None => return self.unclear_rest(),
            }
        }
        let (mut code, mut last) = (code, 0);
        for value in values {
            if !self.set_variable(variable, value) {
                return self.unclear_rest();
            }
            code = self.steps(body, code, depth)?;
            last = code;
        }
        Ok(last)
    }

    /// Executes `while` or `until`. A loop that has not ended after many iterations is endless.
    fn repeat_while(
        &mut self,
        condition: &SimpleCommand,
        is_while: bool,
        body: &[Step],
        mut code: u8,
        depth: usize,
    ) -> Outcome {
        let mut last = 0;
        for _ in 0..MAX_ITERATIONS {
            let was_clear = std::mem::replace(&mut self.is_clear, true);
            let condition = self.command(condition, code, depth);
            let is_clear = self.is_clear;
            self.is_clear &= was_clear;
            let outcome = match condition {
                Ok(_) if !is_clear => return Err(Stop::Exited(0)),
                Ok(code) if (code == 0) != is_while => return Ok(last),
                Ok(code) => self.steps(body, code, depth),
                stop => stop,
            };
            match outcome {
                Ok(of_body) => (code, last) = (of_body, of_body),
                Err(Stop::Exhausted) => return Err(self.endless()),
                stop => return stop,
            }
        }
        Err(self.endless())
    }

    /// Ends a loop that goes on and is followed no longer: it may change files again.
    fn endless(&mut self) -> Stop {
        self.files.forget_from(self.now);
        Stop::Endless
    }

    fn command(&mut self, command: &SimpleCommand, code: u8, depth: usize) -> Outcome {
        self.spend(STEP)?;
        let SimpleCommand { assignments, words, .. } = command;
        let mut arguments = Vec::new();
        for word in words {
            match self.fields(word, code)? {
                Some(fields) => arguments.extend(fields),
                // Builtins may change the shell.
                None => {
                    let is_program =
                        arguments.first().is_some_and(|program: &String| is_known_program(program));
                    return if is_program && assignments.is_empty() {
                        self.unclear()
                    } else {
                        self.unclear_rest()
                    };
                }
            }
        }
        if !assignments.is_empty() && !words.is_empty() {
            // Assignments for one command, which may be one of the shell's own.
            let (kept, locals) = (self.environment()?, self.locals.clone());
            let outcome = match self.assign(assignments, code)? {
                true => {
                    self.locals.retain(|local| assignments.iter().all(|(name, _)| name != local));
                    self.run(&arguments, command, code, depth)
                }
                false => self.unclear_rest(),
            };
            (self.environment, self.locals) = (kept, locals);
            return outcome;
        }
        if !self.assign(assignments, code)? {
            return self.unclear_rest();
        }
        self.run(&arguments, command, code, depth)
    }

    /// Sets variables, one after another. Whether that was plain.
    fn assign(&mut self, assignments: &[(String, Word)], code: u8) -> Result<bool, Stop> {
        for (name, value) in assignments {
            let value: Word = value
                .iter()
                .map(|piece| match piece.clone() {
                    Piece::Text { text, .. } => Piece::Text { text, is_quoted: true },
                    Piece::Variable { name, .. } => Piece::Variable { name, is_quoted: true },
                })
                .collect();
            let Some(fields) = self.fields(&value, code)? else { return Ok(false) };
            if !self.set_variable(name, fields.concat()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sets a variable. Whether that was plain.
    fn set_variable(&mut self, name: &str, value: String) -> bool {
        if is_special(name) || self.options.xtrace {
            return false;
        }
        if self.environment.get(name) == Variable::Unset {
            self.locals.insert(name.to_owned());
        }
        self.environment.set(name, Some(value));
        true
    }

    fn run(&mut self, arguments: &[String], command: &SimpleCommand, code: u8, depth: usize) -> Outcome {
        if self.options.xtrace && !arguments.is_empty() {
            match programs::trace(arguments) {
                Some(trace) => self.write(Some(trace))?,
                None => return self.unclear_rest(),
            };
        }
        if !self.open(&command.output) || command.errors != command.output && !self.open(&command.errors) {
            return self.unclear_rest();
        }
        let outputs = self.output.len();
        let outcome = match self.builtin(arguments, command.is_redirected(), code, depth) {
            Some(outcome) => outcome,
            None => self.execute(arguments, depth),
        };
        if command.output != Sink::Own || command.errors != Sink::Own {
            let mut texts = self.output.split_off(outputs);
            texts.sort_by_key(|text| text.at);
            for text in texts {
                let sink = if text.is_error { &command.errors } else { &command.output };
                self.pass(text, sink)?;
            }
        }
        outcome
    }

    /// Opens the file that a stream leads to. Returns `false` if it may not be written.
    fn open(&mut self, sink: &Sink) -> bool {
        let Sink::File { path, is_appended } = sink else { return true };
        if !self.files.is_writable(path) {
            return false;
        }
        if !is_appended || self.files.get(path, self.now) == File::Absent {
            self.set_file(path, File::Content(String::new()), self.now);
        }
        true
    }

    /// Passes a text on to where a stream leads.
    fn pass(&mut self, text: Text, sink: &Sink) -> Result<(), Stop> {
        match sink {
            Sink::Own => self.output.push(text),
            Sink::Output => self.output.push(Text { is_error: false, ..text }),
            Sink::Errors => self.output.push(Text { is_error: true, ..text }),
            Sink::Nothing => {}
            Sink::File { path, .. } => {
                let Text { at, text, .. } = text;
                let file = match self.file(path, at)? {
                    File::Content(content) => File::Content(content + &text),
                    File::Absent => File::Content(text),
                    File::Unknown => File::Unknown,
                };
                self.set_file(path, file, at);
            }
        }
        Ok(())
    }

    /// Executes commands that change the shell itself; None for others.
    fn builtin(&mut self, words: &[String], is_redirected: bool, code: u8, depth: usize) -> Option<Outcome> {
        let (name, arguments) = words.split_first()?;
        Some(match name.as_str() {
            "exit" if arguments.is_empty() => Err(Stop::Exited(code)),
            "exec" if arguments.is_empty() && is_redirected => self.unclear_rest(),
            "exec" if arguments.is_empty() => Ok(0),
            "exec" => match self.execute(arguments, depth + 1) {
                Ok(code) => Err(Stop::Exited(code)),
                stop => stop,
            },
            "set" if !arguments.is_empty() => match self.set(arguments) {
                Some(()) => Ok(0),
                None => self.unclear_rest(),
            },
            "export" if !arguments.is_empty() => {
                for argument in arguments {
                    let (name, value) = match argument.split_once('=') {
                        Some((name, value)) => (name, Some(value)),
                        None => (argument.as_str(), None),
                    };
                    if !is_name(name) || is_special(name) {
                        return Some(self.unclear_rest());
                    }
                    self.locals.remove(name);
                    if let Some(value) = value {
                        self.environment.set(name, Some(value.to_owned()));
                    }
                }
                Ok(0)
            }
            "trap" => {
                let conditions = arguments.get(1..).unwrap_or_default();
                match !conditions.is_empty() && conditions.iter().all(|one| SIGNALS.contains(&one.as_str())) {
                    true => Ok(0),
                    false => self.unclear_rest(),
                }
            }
            "wait" if arguments.is_empty() => {
                for end in std::mem::take(&mut self.background) {
                    match end {
                        Some(end) => self.now = self.now.max(end),
                        None => return Some(Err(Stop::Endless)),
                    }
                }
                Ok(0)
            }
            "." | "source" | "eval" | "read" | "unset" | "shift" | "local" | "declare" | "typeset"
            | "readonly" | "kill" | "return" | "break" | "continue" | "alias" | "wait" | "getopts"
            | "let" | "set" | "export" | "command" | "builtin" | "mapfile" | "readarray" | "shopt"
            | "coproc" => self.unclear_rest(),
            // An assignment that is not plain, such as `A+=b`.
            name if name.contains('=') => self.unclear_rest(),
            "printf" if arguments.first().is_some_and(|flag| flag == "-v") => self.unclear_rest(),
            _ => return None,
        })
    }

    /// Executes `set` with options alone, of which Debian's shell does not know `pipefail`.
    fn set(&mut self, arguments: &[String]) -> Option<()> {
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument.len() < 2 || !argument.starts_with(['-', '+']) || argument.starts_with("--") {
                return None;
            }
            let name = argument.contains('o').then(|| arguments.next()).flatten();
            self.options.set(argument, name.map(String::as_str))?;
        }
        Some(())
    }

    /// Expands a word to its fields; None if a variable in it is unknown, or the text too long.
    fn fields(&mut self, word: &Word, code: u8) -> Result<Option<Vec<String>>, Stop> {
        let (mut fields, mut field) = (Vec::new(), None::<String>);
        let mut length = 0;
        for piece in word {
            let (value, is_split) = match piece {
                Piece::Text { text, .. } => (text.clone(), false),
                Piece::Variable { name, is_quoted } => match self.value(name, code) {
                    Some(value) => (value, !is_quoted),
                    None => return Ok(None),
                },
            };
            self.spend(PIECE + value.len())?;
            length += value.len();
            if length > MAX_EXPANSION_LENGTH {
                return Ok(None);
            }
            if !is_split {
                field.get_or_insert_default().push_str(&value);
                continue;
            }
            // The shell would look for files of these names.
            if value.contains(['*', '?', '[', '\\']) {
                return Ok(None);
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
        Ok(Some(fields))
    }

    /// Returns the value of a parameter; None if it is unknown: images set variables, too.
    fn value(&self, name: &str, code: u8) -> Option<String> {
        if name == "?" {
            return Some(code.to_string());
        }
        if let Ok(index) = name.parse::<usize>() {
            let value = self.positional.get(index);
            return value.cloned().or((!self.options.nounset).then(String::new));
        }
        match self.environment.get(name) {
            Variable::Set(value) => Some(value),
            Variable::Unset | Variable::Unknown => None,
        }
    }
}
