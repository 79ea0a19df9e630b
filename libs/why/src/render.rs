//! Explanations and trees as plain text for a terminal.

use std::fmt::{Display, Formatter, Result};

use crate::explanation::{Answer, Cause, Explanation, Question};
use crate::reason::State;
use crate::tree::{Tree, TreeNode};

/// The beginning of the last sentence of an answer.
const REMEDY: &str = " To change that: ";

/// The columns of a line, unless the formatter has a width.
const WIDTH: usize = 100;

impl Display for Question {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Question::Present => "Why is it still there?",
            Question::NotReady => "Why is it not ready?",
            Question::Gone => "Why is it gone?",
        })
    }
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            State::Ready => "ready",
            State::Progressing => "progressing",
            State::Terminating => "terminating",
            State::Failing => "failing",
            State::Missing => "missing",
        })
    }
}

/// The object, a headline for each question with its answer, and an indented line for each cause. Its
/// lines have as many columns as the width of the formatter: `{explanation:80}`.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}", self.object)?;
        if self.answers.is_empty() {
            return f.write_str(
                "\n  It exists, it is not being deleted, and nothing is known to keep it from being ready.",
            );
        }
        for Answer { question, sentence, causes } in &self.answers {
            write!(f, "\n{question}")?;
            let (reason, remedy) = sentence.split_once(REMEDY).unwrap_or((sentence, ""));
            write_wrapped(f, reason, "  ", "  ")?;
            if !remedy.is_empty() {
                // A command stays in one line, which can be copied.
                write!(f, "\n {REMEDY}{remedy}")?;
            }
            for cause in causes {
                write_wrapped(f, &cause.beside(sentence).to_string(), "    - ", "      ")?;
            }
        }
        Ok(())
    }
}

impl Cause {
    /// Returns the cause without the parts that a sentence already has.
    fn beside(&self, sentence: &str) -> Cause {
        let other = |text: &str| if sentence.contains(text) { String::new() } else { text.to_owned() };
        Cause { remedy: other(&self.remedy), waits_for: other(&self.waits_for), ..self.clone() }
    }
}

/// Writes a text on a new line, and further ones if it is long. A word is never divided, since it
/// may be part of a command.
fn write_wrapped(f: &mut Formatter<'_>, text: &str, first: &str, rest: &str) -> Result {
    let columns = f.width().unwrap_or(WIDTH);
    let mut width = first.chars().count();
    write!(f, "\n{first}")?;
    for (word, index) in text.split(' ').zip(0_usize..) {
        let length = word.chars().count();
        if index > 0 && width + 1 + length > columns {
            write!(f, "\n{rest}{word}")?;
            width = rest.chars().count() + length;
        } else {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{word}")?;
            width += space.len() + length;
        }
    }
    Ok(())
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Cause { object, field, manager, since, waits_for, remedy } = self;
        let parts = [
            ("", object),
            ("", field),
            ("by ", manager),
            ("since ", since),
            ("", waits_for),
            ("remedy: ", remedy),
        ];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        for ((name, text), index) in parts.zip(0_usize..) {
            let separator = match index {
                0 => "",
                1 => ": ",
                _ => "; ",
            };
            write!(f, "{separator}{name}{text}")?;
        }
        Ok(())
    }
}

/// A line for each object, its dependents indented below it.
impl Display for Tree {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_node(f, &self.root, "", "")?;
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\nand {omitted} more"),
        }
    }
}

fn write_node(f: &mut Formatter<'_>, node: &TreeNode, first: &str, rest: &str) -> Result {
    let TreeNode { object, state, reason, is_requested, dependents } = node;
    write!(f, "{first}{object}  {state}")?;
    if !reason.is_empty() {
        write!(f, ": {reason}")?;
    }
    if *is_requested {
        f.write_str("  <--")?;
    }
    for (dependent, index) in dependents.iter().zip(1_usize..) {
        let (first, below) =
            if index == dependents.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        f.write_str("\n")?;
        write_node(f, dependent, &format!("{rest}{first}"), &format!("{rest}{below}"))?;
    }
    Ok(())
}
