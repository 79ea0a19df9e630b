//! The authors of writes, as the history of the store keeps them.
//!
//! Each write is committed with the [`Origin`] of its request. History keeps an [`Author`] with
//! each event: a shared description of the request, and the time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashSet};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::request::info::Verb;

/// The maximum number of descriptions that are shared. A client that sends a new user agent with
/// each request only makes them less shared.
const MAX_SHARED: usize = 4096;

/// The longest text of a description, in bytes; the rest is cut off.
pub(crate) const MAX_TEXT_LENGTH: usize = 256;

/// The author of a write: the request, and the time on the clock of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The request.
    pub request: Arc<AuthorRequest>,
    /// The time of the write.
    pub time: Timestamp,
}

/// The description of a request that writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorRequest {
    /// The name of the user, after impersonation.
    pub user: Arc<str>,
    /// The `User-Agent`; "" if there is none.
    pub user_agent: Arc<str>,
    /// The verb.
    pub verb: Verb,
    /// The subresource; "" for the object itself.
    pub subresource: Arc<str>,
}

/// The request that a write is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The name of the user, after impersonation.
    pub user: &'a str,
    /// The `User-Agent`; "" if there is none.
    pub user_agent: &'a str,
    /// The verb.
    pub verb: Verb,
    /// The subresource; "" for the object itself.
    pub subresource: &'a str,
}

impl Origin<'static> {
    /// Creates the origin of a write that the server makes itself.
    pub(in crate::registry) fn server(verb: Verb) -> Origin<'static> {
        Origin { user: "system:apiserver", user_agent: "", verb, subresource: "" }
    }
}

/// The shared descriptions of requests.
#[derive(Default)]
pub(in crate::registry) struct Authors(Mutex<HashSet<Arc<AuthorRequest>>>);

impl Authors {
    /// Returns the author of a write. Writes with the same origin share its description.
    pub fn author(&self, origin: Origin<'_>, time: Timestamp) -> Author {
        let Origin { user, user_agent, verb, subresource } = origin;
        let [user, user_agent, subresource] =
            [user, user_agent, subresource].map(|text| cut(text, MAX_TEXT_LENGTH));
        let key = Key(Origin { user, user_agent, verb, subresource });
        let mut shared = self.0.lock();
        if let Some(request) = shared.get(&key) {
            return Author { request: request.clone(), time };
        }
        if shared.len() >= MAX_SHARED {
            shared.clear();
        }
        let request = Arc::new(AuthorRequest {
            user: user.into(),
            user_agent: user_agent.into(),
            verb,
            subresource: subresource.into(),
        });
        shared.insert(request.clone());
        Author { request, time }
    }
}

/// A description that is looked for.
struct Key<'a>(Origin<'a>);

// As the derived one of `AuthorRequest`.
impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Origin { user, user_agent, verb, subresource } = self.0;
        (user, user_agent, verb, subresource).hash(state);
    }
}

impl Equivalent<Arc<AuthorRequest>> for Key<'_> {
    fn equivalent(&self, request: &Arc<AuthorRequest>) -> bool {
        let AuthorRequest { user, user_agent, verb, subresource } = &**request;
        self.0 == Origin { user, user_agent, verb: *verb, subresource }
    }
}

/// Returns the beginning of a text, of at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn origin<'a>(user: &'a str, user_agent: &'a str) -> Origin<'a> {
        Origin { user, user_agent, verb: Verb::Patch, subresource: "status" }
    }

    #[test]
    fn requests_of_one_sort_share_a_description() {
        let authors = Authors::default();
        let [first, second] = [(); 2].map(|()| authors.author(origin("alice", "kubectl"), NOW));
        assert!(Arc::ptr_eq(&first.request, &second.request));
        let other = authors.author(Origin { verb: Verb::Update, ..origin("alice", "kubectl") }, NOW);
        assert_ne!(first.request, other.request);
        assert_eq!(&*other.request.subresource, "status");
    }

    #[test]
    fn descriptions_are_bounded_in_number_and_length() {
        let authors = Authors::default();
        for n in 0..MAX_SHARED + 10 {
            authors.author(origin("mallory", &n.to_string()), NOW);
        }
        assert_eq!(authors.0.lock().len(), 10);
        let long = "ä".repeat(MAX_TEXT_LENGTH);
        let author = authors.author(origin(&long, &format!("x{long}")), NOW);
        assert_eq!(author.request.user.len(), MAX_TEXT_LENGTH);
        assert_eq!(author.request.user_agent.len(), MAX_TEXT_LENGTH - 1);
    }
}
