//! A shell on a client's input, as `kubectl exec -it POD -- sh` starts it. It executes nothing:
//! each line is answered by the annotation, or followed as a script is, together with the lines
//! before it.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use coracle_behavior::{EXEC, Ending, Execution, Output, PodBehavior};
use coracle_clock::Clock;
use coracle_streaming::{Closed, Command, Receiver};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::command::{NOT_FOUND, execute};
use crate::forwarding::PAGE;

/// The longest line that is read, in bytes.
const MAX_LINE_LENGTH: usize = 1 << 10;
/// The maximum number of lines of a shell.
const MAX_LINES: usize = 1000;
/// The longest script of lines that follow each other, in bytes: all of them are read again for
/// each line.
const MAX_SCRIPT_LENGTH: usize = 8 << 10;
/// The bytes of input that are kept while a line is executed.
const MAX_PENDING: usize = 64 << 10;
const INTERRUPTED: i32 = 130;
/// The last output of a script that has not ended before its end, before the exit code.
const MARK: &str = "coracle-end-of-line ";
/// Options by which a shell writes more than commands do.
const TRACING: [&str; 3] = ["xtrace", "verbose", "set -"];

/// The end of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShellEnd {
    pub code: i32,
    /// Whether the client's input ended, rather than the shell by itself.
    pub by_input: bool,
}

/// A shell in a container.
pub struct Shell {
    pub pod: Pod,
    pub container: Container,
    pub behavior: PodBehavior,
    session: Session,
    /// The lines that were read.
    lines: usize,
}

/// The lines that a shell has followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    script: String,
    /// The bytes of output that were shown.
    shown: usize,
    /// The time that they took.
    elapsed: Duration,
    /// The exit code of the last one.
    code: i32,
}

/// The course of a line.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    execution: Execution,
    /// The session after it.
    session: Session,
    /// Whether the shell ends with this line.
    is_last: bool,
}

impl Shell {
    pub fn new(pod: Pod, container: Container, behavior: PodBehavior) -> Shell {
        Shell { pod, container, behavior, session: Session::default(), lines: 0 }
    }

    /// Reads lines until the input ends or one of them ends the shell.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn run(
        &mut self,
        command: &Command,
        mut stdin: Receiver,
        clock: &Clock,
        tty: bool,
    ) -> Result<ShellEnd, Closed> {
        let ended = |code| Ok(ShellEnd { code, by_input: false });
        let mut editor = Editor { tty, ..Editor::default() };
        let mut pending = VecDeque::new();
        let prompt =
            || async { if tty { command.stdout(Bytes::from_static(b"/ # ")).await } else { Ok(()) } };
        prompt().await?;
        loop {
            let Some(byte) = pending.pop_front() else {
                // All that was typed is shown before more of it is waited for.
                command.stdout(std::mem::take(&mut editor.echo).into()).await?;
                match stdin.next().await {
                    Some(data) => pending.extend(data),
                    None if editor.line.is_empty() => {
                        return Ok(ShellEnd { code: self.session.code, by_input: true });
                    }
                    None => pending.push_back(b'\n'),
                }
                continue;
            };
            let key = editor.push(byte);
            if !matches!(key, Key::Typed) {
                command.stdout(std::mem::take(&mut editor.echo).into()).await?;
            }
            match key {
                Key::Typed => continue,
                Key::End => return ended(self.session.code),
                Key::Interrupt => {}
                Key::Line(line) => {
                    // Many lines at once do not keep other clients waiting.
                    tokio::task::yield_now().await;
                    let Step { execution, session, is_last } = self.step(&line, clock.now());
                    let interrupted = interrupted(&mut stdin, &mut pending, tty);
                    tokio::select! {
                        code = execute(&execution, command, clock, tty) => {
                            let code = code.ok_or(Closed)?;
                            self.session = session;
                            if is_last {
                                return ended(code);
                            }
                        }
                        () = interrupted => self.session.code = INTERRUPTED,
                    }
                    self.lines += 1;
                    if self.lines >= MAX_LINES {
                        return ended(self.session.code);
                    }
                }
            }
            prompt().await?;
        }
    }

    /// Runs a line in the current session.
    fn step(&self, line: &str, now: Timestamp) -> Step {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let with_code = |code| Session { code, ..self.session.clone() };
        if words.is_empty() {
            let ending = Some(Ending { after: Duration::ZERO, code: self.session.code });
            let execution = Execution { ending, ..Execution::default() };
            return Step { execution, session: self.session.clone(), is_last: false };
        }
        if let Some(execution) = self.behavior.answer(&self.container, &words) {
            let code = execution.ending.map_or(0, |ending| ending.code);
            return Step { execution, session: with_code(code), is_last: false };
        }
        let followed = match words[..] {
            // The code of a line that the annotation answers is known here alone.
            [ref exit] if exit == "exit" => format!("exit {}", self.session.code),
            _ => line.to_owned(),
        };
        let script = format!("{}{followed}\n", self.session.script);
        let marked = ["sh", "-c", &format!("{script}echo \"{MARK}$?\"")].map(str::to_owned);
        let elapsed = SignedDuration::try_from(self.session.elapsed).unwrap_or_default();
        let started = now.saturating_sub(elapsed).unwrap_or(now);
        let is_plain = script.len() <= MAX_SCRIPT_LENGTH
            && line.len() < MAX_LINE_LENGTH
            && !line.ends_with('\\')
            && !TRACING.iter().any(|option| line.contains(option));
        let follow = || self.behavior.follow(&self.pod, &self.container, &marked, started);
        match is_plain.then(follow).flatten() {
            Some(execution) => self.session.after(script, execution),
            None => {
                let text = format!("sh: {line}: not simulated; {EXEC} says what commands answer ({PAGE})\n");
                let output = vec![Output { at: Duration::ZERO, data: text.into_bytes(), is_error: true }];
                let ending = Some(Ending { after: Duration::ZERO, code: NOT_FOUND });
                let execution = Execution { output, ending };
                Step { execution, session: with_code(NOT_FOUND), is_last: false }
            }
        }
    }
}

impl Session {
    /// Returns the step of the last line of a script, without the output that was already shown.
    fn after(&self, script: String, whole: Execution) -> Step {
        let (mut output, mut passed, mut marked) = (Vec::new(), 0, None);
        for Output { at, data: mut text, is_error } in whole.output {
            let mark = text.windows(MARK.len()).rposition(|window| window == MARK.as_bytes());
            if let Some(mark) = mark {
                let code = String::from_utf8_lossy(&text.split_off(mark)[MARK.len()..]).trim().parse().ok();
                marked = code;
            }
            let new = text.split_off(self.shown.saturating_sub(passed).min(text.len()));
            passed += text.len() + new.len();
            if !new.is_empty() {
                output.push(Output { at: at.saturating_sub(self.elapsed), data: new, is_error });
            }
        }
        let ending = whole.ending.map(|ending| Ending {
            after: ending.after.saturating_sub(self.elapsed),
            code: marked.unwrap_or(ending.code),
        });
        let elapsed = whole.ending.map_or(self.elapsed, |ending| ending.after);
        let code = ending.map_or(0, |ending| ending.code);
        let session = Session { script, shown: passed, elapsed, code };
        Step { execution: Execution { output, ending }, session, is_last: marked.is_none() }
    }
}

/// Reads on while a line is executed, and returns once a terminal interrupts that.
async fn interrupted(stdin: &mut Receiver, pending: &mut VecDeque<u8>, tty: bool) {
    while pending.len() < MAX_PENDING {
        let Some(data) = stdin.next().await else { break };
        if let Some(position) = data.iter().position(|byte| tty && *byte == Editor::INTERRUPT) {
            pending.clear();
            pending.extend(data.iter().skip(position + 1));
            return;
        }
        pending.extend(data);
    }
    std::future::pending().await
}

/// The line that is being typed.
#[derive(Default)]
struct Editor {
    tty: bool,
    line: Vec<u8>,
    /// The echo of the typed characters on a terminal.
    echo: Vec<u8>,
}

enum Key {
    Typed,
    Line(String),
    Interrupt,
    End,
}

impl Editor {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const DELETE: [u8; 2] = [8, 127];

    fn push(&mut self, byte: u8) -> Key {
        match byte {
            b'\n' | b'\r' => {
                self.show(b"\r\n");
                let line = std::mem::take(&mut self.line);
                return Key::Line(String::from_utf8_lossy(&line).into_owned());
            }
            Self::INTERRUPT if self.tty => {
                self.line.clear();
                self.show(b"^C\r\n");
                return Key::Interrupt;
            }
            Self::END if self.tty && self.line.is_empty() => {
                self.show(b"\r\n");
                return Key::End;
            }
            _ if self.tty && Self::DELETE.contains(&byte) => {
                // The bytes of a character go together.
                while let Some(last) = self.line.pop() {
                    if last & 0xc0 != 0x80 {
                        self.show(b"\x08 \x08");
                        break;
                    }
                }
            }
            _ if self.tty && byte < b' ' => {}
            _ if self.line.len() < MAX_LINE_LENGTH => {
                self.line.push(byte);
                self.show(&[byte]);
            }
            _ => {}
        }
        Key::Typed
    }

    fn show(&mut self, bytes: &[u8]) {
        if self.tty {
            self.echo.extend(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_behavior::Profile;
    use serde_json::json;

    use super::*;

    fn shell() -> Shell {
        let pod = json!({
            "metadata": {"name": "p", "annotations": {EXEC: r#"{"ls *": {"stdout": "bin\n", "exitCode": 0}, "fail": {"exitCode": 3}}"#}},
            "spec": {"containers": [{"name": "c"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container = pod.spec.as_ref().unwrap().containers[0].clone();
        let (behavior, _) = PodBehavior::of(&pod, &[], Profile::Realistic);
        Shell::new(pod, container, behavior)
    }

    #[test]
    fn lines_follow_each_other() {
        let mut shell = shell();
        let mut line = |line: &str| {
            let Step { execution, session, is_last } = shell.step(line, Timestamp::UNIX_EPOCH);
            shell.session = session;
            let text: Vec<u8> = execution.output.iter().flat_map(|output| output.data.clone()).collect();
            let text = String::from_utf8(text).unwrap();
            let text = text.split(';').next().unwrap_or_default().to_owned();
            let (after, code) = execution.ending.map(|ending| (ending.after.as_secs(), ending.code)).unwrap();
            (text, after, code, is_last)
        };
        for (text, want, after, code, is_last) in [
            ("echo a", "a\n", 0, 0, false),
            ("", "", 0, 0, false),
            ("X=1; sleep 2", "", 2, 0, false),
            ("printf $X", "1", 0, 0, false),
            ("ls /", "bin\n", 0, 0, false),
            ("vi x", "sh: vi x: not simulated", 0, 127, false),
            ("echo $X; sleep 3; echo end", "1\nend\n", 3, 0, false),
            ("false", "", 0, 1, false),
            ("echo $?", "1\n", 0, 0, false),
            ("set -x", "sh: set -x: not simulated", 0, 127, false),
            ("echo a \\", "sh: echo a \\: not simulated", 0, 127, false),
            ("fail", "", 0, 3, false),
            ("exit", "", 0, 3, true),
        ] {
            assert_eq!(line(text), (want.to_owned(), after, code, is_last), "{text}");
        }
    }

    #[test]
    fn a_terminal_shows_what_is_typed() {
        let mut editor = Editor { tty: true, ..Editor::default() };
        let typed = "ecgo\u{7f}\u{7f}hö\u{7f}o\r";
        let lines: Vec<String> = typed
            .bytes()
            .filter_map(|byte| match editor.push(byte) {
                Key::Line(line) => Some(line),
                _ => None,
            })
            .collect();
        assert_eq!(lines, ["echo"]);
        assert!(editor.echo.ends_with(b"\x08 \x08o\r\n"));
        let long = "x".repeat(MAX_LINE_LENGTH * 2);
        long.bytes().for_each(|byte| drop(editor.push(byte)));
        assert_eq!(editor.line.len(), MAX_LINE_LENGTH);
        assert!(matches!(editor.push(Editor::INTERRUPT), Key::Interrupt));
        assert!(matches!(editor.push(Editor::END), Key::End));
    }
}
