//! The answers to commands that are executed in a container: a table that an annotation has.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::overrides::{EXIT_CODES, duration};
use coracle_pattern::glob::matches;

/// The longest command that is looked up, in bytes. With the limits of patterns it bounds a lookup,
/// which takes as long as the product of the three at worst.
const MAX_COMMAND_LENGTH: usize = 1 << 10;
/// The longest pattern, in bytes.
const MAX_PATTERN_LENGTH: usize = 256;
/// The maximum number of patterns of an annotation.
const MAX_PATTERNS: usize = 64;

/// The answers to commands, by patterns of these: `{"date": {"stdout": "today\n"}}`. A pattern is
/// the program and its arguments, separated by single spaces, in which `*` stands for any
/// characters; before it may stand the name of a container and a colon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(Vec<(String, Answer)>);

/// The answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The output.
    pub stdout: Vec<u8>,
    /// The output of errors.
    pub stderr: String,
    /// The exit code.
    pub exit_code: i32,
    /// The time that the command takes.
    pub after: Duration,
}

/// An answer as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct Written {
    stdout: String,
    stdout_base64: String,
    stderr: String,
    exit_code: i32,
    after: String,
}

impl Answers {
    /// Returns the answer to a command in a container: that of the longest pattern that matches.
    pub fn find(&self, container: &str, command: &[String]) -> Option<&Answer> {
        let command = command.join(" ");
        if command.len() > MAX_COMMAND_LENGTH {
            return None;
        }
        let fits = |pattern: &str| match pattern.split_once(':').filter(|(name, _)| is_container(name)) {
            Some((name, pattern)) => name == container && matches(pattern, &command),
            None => matches(pattern, &command),
        };
        let fitting = self.0.iter().filter(|(pattern, _)| fits(pattern));
        fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, answer)| answer)
    }
}

/// Returns `true` if a text may be the name of a container, and so is not the beginning of a
/// command.
fn is_container(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_part)
}

impl FromStr for Answers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Answers, &'static str> {
        const EXPECTED: &str =
            "not a JSON object from commands to answers such as {\"date\": {\"stdout\": \"today\"}}";
        let written: BTreeMap<String, Written> = serde_json::from_str(text).map_err(|_| EXPECTED)?;
        if written.len() > MAX_PATTERNS || written.keys().any(|pattern| pattern.len() > MAX_PATTERN_LENGTH) {
            return Err("more than 64 commands, or one of more than 256 bytes");
        }
        let answer = |(pattern, written): (String, Written)| {
            let Written { stdout, stdout_base64, stderr, exit_code, after } = written;
            let decoded = STANDARD.decode(stdout_base64).map_err(|_| "a stdoutBase64 that is not base64")?;
            if !stdout.is_empty() && !decoded.is_empty() {
                return Err("an answer with both stdout and stdoutBase64");
            }
            if !EXIT_CODES.contains(&exit_code) {
                return Err("an exitCode that is not a number from 0 to 255");
            }
            let stdout = if decoded.is_empty() { stdout.into_bytes() } else { decoded };
            let after = if after.is_empty() { Duration::ZERO } else { duration(&after)? };
            Ok((pattern, Answer { stdout, stderr, exit_code, after }))
        };
        written.into_iter().map(answer).collect::<Result<_, _>>().map(Answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_that_matches_answers() {
        let answers: Answers = r#"{
            "*": {"stderr": "unknown", "exitCode": 127},
            "cat *": {"stdout": "any"},
            "cat /etc/hosts": {"stdout": "hosts"},
            "db:cat *": {"stdout": "of the database"},
            "curl http://*": {"stdout": "page", "after": "2s"},
            "tar cf - *": {"stdoutBase64": "AAE="}
        }"#
        .parse()
        .unwrap();
        let answer = |container: &str, command: &str| {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let answer = answers.find(container, &command).unwrap();
            let text = String::from_utf8_lossy(&answer.stdout).into_owned() + &answer.stderr;
            (text, answer.exit_code, answer.after.as_secs())
        };
        for (container, command, want) in [
            ("web", "ls", ("unknown", 127, 0)),
            ("web", "cat /tmp/x", ("any", 0, 0)),
            ("db", "cat /tmp/x", ("of the database", 0, 0)),
            ("db", "cat /etc/hosts", ("hosts", 0, 0)),
            ("web", "curl http://x/y", ("page", 0, 2)),
            ("web", "tar cf - /data", ("\0\u{1}", 0, 0)),
        ] {
            assert_eq!(
                answer(container, command),
                (want.0.to_owned(), want.1, want.2),
                "{container} {command}"
            );
        }
        assert_eq!(answers.find("web", &["x".repeat(MAX_COMMAND_LENGTH + 1)]), None);
        assert_eq!(Answers::default().find("web", &["ls".to_owned()]), None);
    }

    #[test]
    fn wrong_tables_are_refused() {
        let many: Vec<String> = (0..=MAX_PATTERNS).map(|i| format!("\"{i}\": {{}}")).collect();
        for wrong in [
            "",
            "[]",
            "{\"ls\": \"text\"}",
            "{\"ls\": {\"stdOut\": \"\"}}",
            "{\"ls\": {\"exitCode\": 256}}",
            "{\"ls\": {\"exitCode\": -1}}",
            "{\"ls\": {\"stdoutBase64\": \"?\"}}",
            "{\"ls\": {\"stdoutBase64\": \"AAE=\", \"stdout\": \"x\"}}",
            "{\"ls\": {\"after\": \"soon\"}}",
            &format!("{{\"{}\": {{}}}}", "x".repeat(MAX_PATTERN_LENGTH + 1)),
            &format!("{{{}}}", many.join(",")),
        ] {
            assert!(wrong.parse::<Answers>().is_err(), "{wrong}");
        }
    }
}
