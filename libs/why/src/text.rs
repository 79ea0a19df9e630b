//! Values of objects as bounded parts of sentences.

use jiff::Timestamp;
use serde_json::Value;

/// The characters of a quoted text, such as a message or a name, that are kept.
pub const MAX_QUOTED: usize = 300;

/// The names in an enumeration before the rest is counted.
const MAX_NAMES: usize = 3;

/// Returns the string in a value, or `None` if it is absent, empty or not a string.
pub fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Returns the string in a value, or an empty one.
pub fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the number in a value, or 0 if it is absent.
pub fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Returns the elements of a list.
pub fn items(list: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the strings among the elements of a list.
pub fn texts(list: &Value) -> impl Iterator<Item = &str> {
    items(list).filter_map(text)
}

/// Returns a text as one line of at most `max` characters, without control characters.
pub fn cut(text: &str, max: usize) -> String {
    let bounded = text
        .char_indices()
        .nth(max.saturating_mul(2))
        .map_or(text, |(end, _)| text.get(..end).unwrap_or(text));
    let words = bounded.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Returns a text from an object as one line of bounded length, without a full stop at its end.
pub fn quoted(text: &str) -> String {
    cut(text, MAX_QUOTED).trim_end_matches(['.', ' ']).to_owned()
}

/// Enumerates names: `a`, `a and b`, `a, b, c and 2 more`.
pub fn enumerate<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    match (shown.split_last(), more) {
        (None, _) => String::new(),
        (Some(_), 1..) => format!("{} and {more} more", shown.join(", ")),
        (Some((last, [])), 0) => (*last).to_owned(),
        (Some((last, first)), 0) => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns a text with its first letter capitalized.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns a text with a full stop at its end. A text that ends with a command gets none, since the
/// stop would become a part of the command.
pub fn with_stop(text: &str) -> String {
    let last = text.rsplit(". ").next().unwrap_or(text);
    let is_stopped = text.is_empty() || text.ends_with('.') || last.contains("kubectl ");
    if is_stopped { text.to_owned() } else { format!("{text}.") }
}

/// Returns a number with a noun, such as `1 pod` or `3 pods`.
pub fn plural(count: impl Into<i128>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// Returns the reason and the message of a condition or an event: `Reason: message`.
pub fn reason_and_message(value: &Value) -> String {
    let parts = [text(&value["reason"]), text(&value["message"])];
    quoted(&parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// Reads a time in RFC 3339.
pub fn time(text: &str) -> Option<Timestamp> {
    // No valid time is longer.
    text.parse().ok().filter(|_| text.len() < 64)
}

/// Describes a time: `10:02:00Z`, with the date if it is another day.
pub fn clock(now: Timestamp, at: &str) -> String {
    let Some(time) = time(at) else { return cut(at, 40) };
    let day = |time: Timestamp| time.strftime("%Y-%m-%d").to_string();
    match day(now) == day(time) {
        true => time.strftime("%H:%M:%SZ").to_string(),
        false => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }
}

/// Describes a time, and how long ago it is: `10:02:00Z (3 minutes ago)`, with the date if it is
/// another day.
pub fn moment(now: Timestamp, at: &str) -> String {
    let clock = clock(now, at);
    let Some(time) = time(at) else { return clock };
    let seconds = now.as_second().saturating_sub(time.as_second());
    match seconds {
        1.. => format!("{clock} ({} ago)", duration(seconds)),
        0 => format!("{clock} (now)"),
        _ => format!("{clock} (in {})", duration(seconds.saturating_neg())),
    }
}

/// Describes a number of seconds in its largest unit.
pub fn duration(seconds: i64) -> String {
    match seconds {
        ..120 => plural(seconds, "second"),
        120..7_200 => plural(seconds / 60, "minute"),
        7_200..172_800 => plural(seconds / 3_600, "hour"),
        _ => plural(seconds / 86_400, "day"),
    }
}

/// Returns the seconds since the time in a value, or `None` if it has no valid time.
pub fn seconds_since(now: Timestamp, at: &Value) -> Option<i64> {
    Some(now.as_second().saturating_sub(time(text(at)?)?.as_second()))
}
