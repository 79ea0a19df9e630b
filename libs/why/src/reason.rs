//! The finding of a rule.

use serde::{Deserialize, Serialize};

use crate::explanation::{Answer, Cause, Question};

/// The state of an object in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The object is ready or complete, or has no notion of being ready.
    Ready,
    /// The object is not ready, and nothing has failed.
    Progressing,
    /// Deletion of the object has been requested.
    Terminating,
    /// Something of the object has failed.
    Failing,
    /// The object does not exist, and others name it as their owner.
    Missing,
}

/// The finding of a rule about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub state: State,
    /// A few words for the tree of owners.
    pub short: String,
    /// The answer in full sentences.
    pub sentence: String,
    pub causes: Vec<Cause>,
}

impl Reason {
    pub fn failing(short: impl Into<String>, sentence: impl Into<String>) -> Reason {
        Reason { state: State::Failing, short: short.into(), sentence: sentence.into(), causes: Vec::new() }
    }

    pub fn progressing(short: impl Into<String>, sentence: impl Into<String>) -> Reason {
        Reason { state: State::Progressing, ..Reason::failing(short, sentence) }
    }

    /// Creates a finding about a healthy object.
    pub fn ready(short: impl Into<String>, sentence: impl Into<String>) -> Reason {
        Reason { state: State::Ready, ..Reason::failing(short, sentence) }
    }

    pub fn terminating(short: impl Into<String>, sentence: impl Into<String>) -> Reason {
        Reason { state: State::Terminating, ..Reason::failing(short, sentence) }
    }

    /// Adds causes.
    pub fn because(mut self, causes: impl IntoIterator<Item = Cause>) -> Reason {
        self.causes.extend(causes);
        self
    }

    /// Joins two findings about an object: the sentences and the causes of both.
    pub fn joined(first: Option<Reason>, second: Option<Reason>) -> Option<Reason> {
        let Some(second) = second else { return first };
        let Some(first) = first else { return Some(second) };
        // A command ends without a full stop.
        let separator = if first.sentence.ends_with('.') { "" } else { ";" };
        let sentence = format!("{}{separator} {}", first.sentence, second.sentence);
        Some(Reason { sentence, ..first }.because(second.causes))
    }

    pub fn answer(self, question: Question) -> Answer {
        Answer::bounded(question, &self.sentence, self.causes)
    }
}
