//! The requests that were refused lately, for those who explain the state of an object.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::error::Status;
use crate::registry::{AuthorRequest, cut};
use crate::request::info::ResourceRequest;

/// The maximum number of refusals that are kept.
const MAX_REFUSALS: usize = 1000;

/// The longest name or other word that is kept, in bytes; the rest is cut off.
const MAX_TEXT_LENGTH: usize = 256;

/// The longest message that is kept, in bytes; the rest is cut off.
const MAX_MESSAGE_LENGTH: usize = 2048;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The time of the response; of several equal refusals, of the last one.
    pub time: Timestamp,
    /// The newest revision of the store at that time.
    pub revision: u64,
    /// The number of equal refusals.
    pub count: u64,
    /// The request.
    pub request: AuthorRequest,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace; empty for a cluster-scoped resource.
    pub namespace: String,
    /// The name of the object; empty if the request has none, as one for a collection.
    pub name: String,
    /// The status code of the response.
    pub code: u16,
    /// The reason of the response, such as `Conflict`.
    pub reason: String,
    /// The message of the response.
    pub message: String,
}

/// The requests that were refused lately: each once, with the number of times. The oldest are
/// forgotten.
#[derive(Default)]
pub struct Refusals(Mutex<VecDeque<Refusal>>);

impl Refusal {
    /// Creates the refusal of a request for a resource.
    ///
    /// - `(time, revision)`: the time, and the newest revision of the store then
    pub fn new(
        request: &ResourceRequest,
        author: AuthorRequest,
        status: &Status,
        (time, revision): (Timestamp, u64),
    ) -> Refusal {
        let name = name_of(request, Some(status));
        let text = |text: &str| cut(text, MAX_TEXT_LENGTH).to_owned();
        Refusal {
            time,
            revision,
            count: 1,
            request: author,
            group: text(&request.group),
            resource: text(&request.resource),
            namespace: text(&request.namespace),
            name: text(name),
            code: status.code,
            reason: text(&status.reason),
            message: cut(&status.message, MAX_MESSAGE_LENGTH).to_owned(),
        }
    }
}

/// Returns the name of the object of a request; empty if it is not known. The name of a new object
/// is in the body, and in the response that refuses it.
pub(super) fn name_of<'a>(request: &'a ResourceRequest, status: Option<&'a Status>) -> &'a str {
    // Something else was not found, such as the namespace.
    let status = status.filter(|status| request.name.is_empty() && status.code != 404);
    let name = status.and_then(|status| status.details.as_ref()?["name"].as_str());
    name.unwrap_or(&request.name)
}

impl Refusals {
    /// Adds a refusal. An equal one that is kept already is counted and dated anew, so that a
    /// client that tries again and again does not make others forgotten.
    pub fn add(&self, refusal: Refusal) {
        let mut kept = self.0.lock();
        let equal = |other: &Refusal| {
            Refusal { time: other.time, revision: other.revision, count: other.count, ..refusal.clone() }
                == *other
        };
        let is_same_object = |other: &Refusal| {
            (&other.name, &other.namespace, &other.resource, other.code)
                == (&refusal.name, &refusal.namespace, &refusal.resource, refusal.code)
        };
        let known = kept.iter().position(|other| is_same_object(other) && equal(other));
        let count = known.and_then(|index| kept.remove(index)).map_or(0, |known| known.count);
        if kept.len() >= MAX_REFUSALS {
            kept.pop_front();
        }
        kept.push_back(Refusal { count: count + refusal.count, ..refusal });
    }

    /// Returns the refusals that satisfy a condition, newest first.
    pub fn select(&self, is_selected: impl Fn(&Refusal) -> bool) -> Vec<Refusal> {
        self.0.lock().iter().rev().filter(|refusal| is_selected(refusal)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Verb;

    fn refusal(name: &str, message: &str, second: i64) -> Refusal {
        Refusal {
            time: Timestamp::from_second(second).expect("a time"),
            revision: 0,
            count: 1,
            request: AuthorRequest {
                user: "alice".into(),
                user_agent: "kubectl".into(),
                verb: Verb::Update,
                subresource: "".into(),
            },
            group: String::new(),
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            code: 409,
            reason: "Conflict".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn equal_refusals_are_counted_and_the_newest_comes_first() {
        let refusals = Refusals::default();
        for (name, message, second) in [("a", "x", 1), ("b", "x", 2), ("a", "x", 3), ("a", "y", 4)] {
            refusals.add(refusal(name, message, second));
        }
        let of_a = refusals.select(|refusal| refusal.name == "a");
        assert_eq!(of_a, [refusal("a", "y", 4), Refusal { count: 2, ..refusal("a", "x", 3) }]);
    }

    #[test]
    fn a_client_that_repeats_itself_makes_no_other_refusal_forgotten() {
        let refusals = Refusals::default();
        refusals.add(refusal("first", "x", 0));
        for second in 0..3 * MAX_REFUSALS as i64 {
            refusals.add(refusal("again", "x", second));
        }
        assert_eq!(refusals.select(|_| true).len(), 2);
        for n in 0..MAX_REFUSALS {
            refusals.add(refusal(&n.to_string(), "x", 0));
        }
        assert_eq!(refusals.select(|_| true).len(), MAX_REFUSALS);
        assert_eq!(refusals.select(|refusal| refusal.name == "first"), []);
    }
}
