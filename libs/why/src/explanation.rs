//! Explanations as they are exchanged in JSON.

use serde::{Deserialize, Serialize};

use crate::text::cut;

/// The causes of an answer that are listed.
pub const MAX_CAUSES: usize = 20;

/// The characters of a sentence that are kept.
pub const MAX_SENTENCE: usize = 1500;

/// The characters of each member of a cause that are kept.
pub const MAX_MEMBER: usize = 700;

/// The explanation of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object with its group and namespace: `pod/shop/web-0`, `statefulset.apps/shop/web`,
    /// `persistentvolume/pv-1`.
    pub object: String,
    /// The questions that apply, with their answers.
    #[serde(default)]
    pub answers: Vec<Answer>,
}

/// The answer to one question about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// The answer in one or two sentences.
    pub sentence: String,
    /// The causes, each before those that it has itself; at most 20, and one that counts the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
}

/// A question about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// The object is still there: deletion has been requested, or its owner is gone.
    Present,
    /// The object is not ready, or not complete.
    NotReady,
    /// The object existed, and does not exist now.
    Gone,
}

/// A cause. Members that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The object that the cause is about, written like [`Explanation::object`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The field of the object: `metadata.finalizers: example.com/hold`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The field manager that wrote the field, or the user that made the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// The time in RFC 3339 since which it holds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// The condition that has to come true, or the state of the object that is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    /// The action that changes it, often a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Cause {
    /// Starts a cause that is about an object.
    pub(crate) fn of(object: String) -> Cause {
        Cause { object, ..Cause::default() }
    }

    pub(crate) fn field(self, field: impl Into<String>) -> Cause {
        Cause { field: field.into(), ..self }
    }

    pub(crate) fn manager(self, manager: impl Into<String>) -> Cause {
        Cause { manager: manager.into(), ..self }
    }

    pub(crate) fn since(self, since: impl Into<String>) -> Cause {
        Cause { since: since.into(), ..self }
    }

    pub(crate) fn waits_for(self, waits_for: impl Into<String>) -> Cause {
        Cause { waits_for: waits_for.into(), ..self }
    }

    pub(crate) fn remedy(self, remedy: impl Into<String>) -> Cause {
        Cause { remedy: remedy.into(), ..self }
    }

    fn bounded(self) -> Cause {
        let cut = |member: String| cut(&member, MAX_MEMBER);
        Cause {
            object: cut(self.object),
            field: cut(self.field),
            manager: cut(self.manager),
            since: cut(self.since),
            waits_for: cut(self.waits_for),
            remedy: cut(self.remedy),
        }
    }
}

impl Answer {
    /// Builds an answer with bounded texts and a bounded number of causes.
    pub(crate) fn bounded(question: Question, sentence: &str, causes: Vec<Cause>) -> Answer {
        let more = causes.len().saturating_sub(MAX_CAUSES);
        let mut causes: Vec<Cause> = causes.into_iter().take(MAX_CAUSES).map(Cause::bounded).collect();
        if more > 0 {
            causes.push(Cause::default().waits_for(format!("and {more} more")));
        }
        Answer { question, sentence: cut(sentence, MAX_SENTENCE), causes }
    }
}
