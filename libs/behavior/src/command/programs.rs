//! The programs that are known by name, without the state of a shell.

use std::time::Duration;

/// A time to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    For(Duration),
    Forever,
}

/// The time that `sleep` sleeps, the sum of its arguments; None for what it refuses.
pub fn sleep(arguments: &[String]) -> Option<Sleep> {
    if arguments.is_empty() {
        return None;
    }
    let mut total = 0.0;
    for argument in arguments {
        if matches!(argument.as_str(), "infinity" | "inf") {
            return Some(Sleep::Forever);
        }
        let (number, factor) = match argument.as_bytes().last()? {
            b's' => (&argument[..argument.len() - 1], 1.0),
            b'm' => (&argument[..argument.len() - 1], 60.0),
            b'h' => (&argument[..argument.len() - 1], 3600.0),
            b'd' => (&argument[..argument.len() - 1], 86_400.0),
            _ => (argument.as_str(), 1.0),
        };
        let is_number =
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let seconds: f64 = if is_number { number.parse().ok()? } else { return None };
        total += seconds * factor;
    }
    Some(Duration::try_from_secs_f64(total).map_or(Sleep::Forever, Sleep::For))
}

/// The text that `echo` writes.
pub fn echo(arguments: &[String]) -> String {
    let is_flag = |argument: &&String| {
        let letters = argument.strip_prefix('-').unwrap_or_default();
        !letters.is_empty() && letters.bytes().all(|letter| matches!(letter, b'n' | b'e' | b'E'))
    };
    let flags: Vec<&String> = arguments.iter().take_while(is_flag).collect();
    let words = &arguments[flags.len()..];
    let letters = || flags.iter().flat_map(|flag| flag.chars());
    let has_escapes = letters().rfind(|c| matches!(c, 'e' | 'E')) == Some('e');
    let mut text = words.join(" ");
    if has_escapes {
        text = escapes(&text);
    }
    if !letters().any(|c| c == 'n') {
        text.push('\n');
    }
    text
}

fn escapes(text: &str) -> String {
    let (mut result, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        match (c, c == '\\') {
            (_, true) => match rest.next() {
                Some('n') => result.push('\n'),
                Some('t') => result.push('\t'),
                Some('r') => result.push('\r'),
                Some('\\') => result.push('\\'),
                Some('a') => result.push('\u{7}'),
                Some(other) => result.extend(['\\', other]),
                None => result.push('\\'),
            },
            (c, false) => result.push(c),
        }
    }
    result
}

/// The text that `printf` writes: its format is repeated until no argument is left. None for conversions beyond `%s`, `%d` and `%%`.
pub fn printf(arguments: &[String]) -> Option<String> {
    let (format, arguments) = arguments.split_first()?;
    let format = escapes(format);
    let (mut text, mut left) = (String::new(), arguments.iter());
    loop {
        let before = left.len();
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            match c {
                '%' => match rest.next()? {
                    '%' => text.push('%'),
                    's' => text.push_str(left.next().map_or("", String::as_str)),
                    'd' | 'i' => {
                        let number: i64 = left.next().map_or("0", String::as_str).parse().ok()?;
                        text.push_str(&number.to_string());
                    }
                    _ => return None,
                },
                c => text.push(c),
            }
        }
        if left.len() == 0 || left.len() == before {
            return Some(text);
        }
    }
}

/// Whether `tail` follows its files, so that it never ends.
pub fn is_following(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| match argument.strip_prefix("--") {
        Some(long) => long.split('=').next() == Some("follow"),
        None => argument.strip_prefix('-').is_some_and(|letters| letters.contains(['f', 'F'])),
    })
}
