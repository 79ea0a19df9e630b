//! Values as parts of a line.

use serde_json::Value;

/// The characters of a line that are kept.
const MAX_LINE: usize = 300;

/// Returns the text of a value; None if it is absent, empty or not a string.
pub fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Returns a number, which is zero if it is absent.
pub fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Returns the texts among the elements of a list.
pub fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

/// Joins the parts that are not empty with colons.
pub fn join<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> String {
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

/// Formats a text as one line of bounded length, without control characters.
pub fn one_line(text: &str) -> String {
    line_of(text, MAX_LINE)
}

/// Formats a text as one line, cut after `most` characters with `...`, without control characters.
pub fn line_of(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
