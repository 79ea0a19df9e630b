//! The programs that are known by name, without the state of a shell.

use std::time::Duration;

/// A time to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    For(Duration),
    Forever,
}

/// Returns the time that `sleep` sleeps, the sum of its arguments; None for numbers that not every
/// `sleep` takes.
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

/// Returns the text that `echo` writes; None if it depends on the shell.
pub fn echo(arguments: &[String]) -> Option<String> {
    let is_flag = |argument: &&String| {
        let letters = argument.strip_prefix('-').unwrap_or_default();
        !letters.is_empty() && letters.bytes().all(|letter| matches!(letter, b'n' | b'e' | b'E'))
    };
    let flags: Vec<&String> = arguments.iter().take_while(is_flag).collect();
    let mut text = arguments[flags.len()..].join(" ");
    let letters = || flags.iter().flat_map(|flag| flag.chars());
    match letters().rfind(|c| matches!(c, 'e' | 'E')) {
        Some('e') => text = escapes(&text, Escapes::Echo)?,
        // Debian's shell reads escapes, others do not.
        None if text.contains('\\') => return None,
        _ => {}
    }
    if !letters().any(|c| c == 'n') {
        text.push('\n');
    }
    Some(text)
}

/// The program whose escapes are read: octal numbers begin with a 0 in those of `echo`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Echo,
    Printf,
}

/// Replaces escapes; None if one is unknown, or no character of ASCII.
fn escapes(text: &str, of: Escapes) -> Option<String> {
    let (mut result, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        result.push_str(before);
        let kind = after.chars().next()?;
        let after = &after[kind.len_utf8()..];
        let (c, left) = match kind {
            'n' => ('\n', after),
            't' => ('\t', after),
            'r' => ('\r', after),
            '\\' => ('\\', after),
            'a' => ('\u{7}', after),
            'b' => ('\u{8}', after),
            'f' => ('\u{c}', after),
            'v' => ('\u{b}', after),
            'e' if of == Escapes::Echo => ('\u{1b}', after),
            'x' if of == Escapes::Echo => number(after, 16, 2)?,
            '0' if of == Escapes::Echo => number(after, 8, 3)?,
            '0'..='7' if of == Escapes::Printf => number(&rest[before.len() + 1..], 8, 3)?,
            _ => return None,
        };
        result.push(c);
        rest = left;
    }
    result.push_str(rest);
    Some(result)
}

/// Parses a number at the beginning of a text. Returns its character and the rest of the text.
fn number(text: &str, radix: u32, most: usize) -> Option<(char, &str)> {
    let digits = text.bytes().take(most).take_while(|byte| char::from(*byte).is_digit(radix)).count();
    let value = u8::from_str_radix(text.get(..digits)?, radix).ok().filter(u8::is_ascii)?;
    Some((char::from(value), &text[digits..]))
}

/// A text is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Returns the text that `printf` writes: its format is repeated until no argument is left; None
/// for conversions other than `%s`, `%d` and `%%`.
///
/// - `limit`: in bytes
pub fn printf(arguments: &[String], limit: usize) -> Result<Option<String>, TooLong> {
    match printed(arguments, limit) {
        Some(text) if text.len() > limit => Err(TooLong),
        text => Ok(text),
    }
}

/// Returns the text that `printf` writes, or the beginning of one that is longer than the limit.
fn printed(arguments: &[String], limit: usize) -> Option<String> {
    let (format, arguments) = match arguments {
        [separator, format, arguments @ ..] if separator == "--" => (format, arguments),
        [format, arguments @ ..] if !format.starts_with('-') => (format, arguments),
        _ => return None,
    };
    let (mut text, mut left) = (String::new(), arguments.iter());
    loop {
        let before = left.len();
        let mut parts = format.split('%');
        text.push_str(&escapes(parts.next()?, Escapes::Printf)?);
        while let Some(part) = parts.next() {
            let literal = match part.chars().next() {
                // Two signs are one.
                None => {
                    text.push('%');
                    parts.next()?
                }
                Some('s') => {
                    text.push_str(left.next().map_or("", String::as_str));
                    &part[1..]
                }
                Some('d' | 'i') => {
                    let number = left.next().map_or("0", String::as_str);
                    let is_plain = number == "0" || !number.trim_start_matches('-').starts_with('0');
                    let number: i64 = number.parse().ok().filter(|_| is_plain)?;
                    text.push_str(&number.to_string());
                    &part[1..]
                }
                _ => return None,
            };
            text.push_str(&escapes(literal, Escapes::Printf)?);
            if text.len() > limit {
                return Some(text);
            }
        }
        if text.len() > limit {
            return Some(text);
        }
        if left.len() == 0 || left.len() == before {
            return Some(text);
        }
    }
}

/// Returns the line that a shell with the option `-x` writes before it executes a command; None if
/// the quoting depends on the shell.
pub fn trace(arguments: &[String]) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%".contains(c);
    let are_plain = arguments.iter().all(|argument| !argument.is_empty() && argument.chars().all(is_plain));
    are_plain.then(|| format!("+ {}\n", arguments.join(" ")))
}

/// Returns the result of `test` for texts and numbers; None for other expressions, and for wrong
/// ones.
pub fn test(words: &[&str]) -> Option<bool> {
    let number = |text: &str| text.parse::<i64>().ok();
    Some(match *words {
        [] => false,
        ["-n", text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [text] => !text.is_empty(),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        [left, "-eq", right] => number(left)? == number(right)?,
        [left, "-ne", right] => number(left)? != number(right)?,
        [left, "-lt", right] => number(left)? < number(right)?,
        [left, "-le", right] => number(left)? <= number(right)?,
        [left, "-gt", right] => number(left)? > number(right)?,
        [left, "-ge", right] => number(left)? >= number(right)?,
        _ => return None,
    })
}

/// Returns `true` if `tail` follows its files, and so never ends.
pub fn is_following(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| match argument.strip_prefix("--") {
        Some(long) => long.split('=').next() == Some("follow"),
        None => argument.strip_prefix('-').is_some_and(|letters| letters.contains(['f', 'F'])),
    })
}
