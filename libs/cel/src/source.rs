//! Source text: positions, and issues printed with the line in which they occur.

use std::fmt::{self, Write as _};

/// An error in an expression, at an offset in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The offset in the expression, in characters.
    pub offset: usize,
    /// The error message.
    pub message: String,
}

/// Everything that is wrong with an expression; at least one [`Issue`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Issues {
    /// The issues, in the order in which they are printed.
    pub issues: Vec<Issue>,
    text: String,
}

impl Issues {
    /// Sorts the issues of the expression `text` by their position.
    pub fn new(text: &str, mut issues: Vec<Issue>) -> Issues {
        issues.sort_by_key(|issue| issue.offset);
        Issues { issues, text: text.to_owned() }
    }
}

/// The number of issues that are printed.
const MAX_PRINTED: usize = 100;
/// The longest line that is printed with an issue, in bytes.
const MAX_SNIPPET: usize = 16_384;

/// Prints the issues in cel-go's format, with its limits.
impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().take(MAX_PRINTED).enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            // An empty expression has no place in it.
            if self.text.is_empty() {
                write!(f, "ERROR: <input>:1:0: {}", issue.message)?;
                continue;
            }
            let (mut line, mut column) = (1, 0);
            for c in self.text.chars().take(issue.offset) {
                if c == '\n' {
                    (line, column) = (line + 1, 0);
                } else {
                    column += 1;
                }
            }
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
            let text = self.text.split('\n').nth(line - 1).unwrap_or("");
            if text.len() > MAX_SNIPPET {
                continue;
            }
            let text = text.replace('\t', " ");
            write!(f, "\n | {text}\n | ")?;
            // The mark is as wide as the text above it: wide characters have wide dots.
            let mut chars = text.chars();
            for c in chars.by_ref().take(column) {
                f.write_char(if c.len_utf8() > 1 { '．' } else { '.' })?;
            }
            f.write_char(if chars.next().is_some_and(|c| c.len_utf8() > 1) { '＾' } else { '^' })?;
        }
        match self.issues.len().saturating_sub(MAX_PRINTED) {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors were truncated"),
        }
    }
}
