//! The findings about many objects, for a picture of all of them.

use std::rc::Rc;

use jiff::Timestamp;
use serde_json::Value;

use crate::context::{Context, Target};
use crate::explanation::{Cause, MAX_MEMBER};
use crate::objects::{Objects, Resource};
use crate::reason::State;
use crate::text::{cut, enumerate, quoted, texts};
use crate::{finalizers, not_ready};

/// The objects that are named as waited for by one object.
const MAX_WAITS: usize = 10;

/// The finding about one of many objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The state of the object.
    pub state: State,
    /// The reason for the state in a few words; empty if there is nothing to say.
    pub reason: String,
    /// The objects that this one waits for directly, by their [references](Survey::reference).
    pub waits_for: Vec<String>,
}

/// The rules over the objects of one moment. Lists are read once for all objects.
pub struct Survey<'a>(Context<'a>);

impl<'a> Survey<'a> {
    /// Starts a survey.
    ///
    /// - `now`: the time by which ages and deadlines are judged
    pub fn new(objects: &'a dyn Objects, now: Timestamp) -> Survey<'a> {
        Survey(Context::direct(objects, now))
    }

    /// Returns the served resources.
    pub fn resources(&self) -> &[Resource] {
        self.0.resources()
    }

    /// Returns all objects of a resource. The list is empty once too many objects have been read.
    pub fn list(&self, resource: &str) -> Rc<Vec<Value>> {
        self.0.list(resource, None)
    }

    /// Returns `true` if lists so far are incomplete, since too many objects have been read.
    pub fn is_truncated(&self) -> bool {
        self.0.is_truncated()
    }

    /// Returns the full name of an object as explanations write it, such as `pod/shop/web-0`.
    pub fn reference(&self, resource: &str, namespace: &str, name: &str) -> String {
        self.0.reference(resource, namespace, name)
    }

    /// Returns the state of an object, the reason for it, and the objects that it waits for.
    pub fn finding(&self, resource: &str, object: &Value) -> Finding {
        let target = Target::listed(resource, object);
        let (state, reason, causes): (State, String, Vec<Cause>) = match target.is_terminating() {
            true => {
                let blockers = finalizers::blockers(&self.0, target);
                let causes = blockers.into_iter().flat_map(|blocker| blocker.causes).collect();
                (State::Terminating, terminating(target), causes)
            }
            false => match not_ready::reason(&self.0, target) {
                Some(reason) => (reason.state, reason.short, reason.causes),
                None => (State::Ready, String::new(), Vec::new()),
            },
        };
        let own = self.0.reference_of(target);
        let mut waits_for: Vec<String> = Vec::new();
        for cause in causes {
            let is_new =
                !cause.object.is_empty() && cause.object != own && !waits_for.contains(&cause.object);
            if is_new && waits_for.len() < MAX_WAITS {
                waits_for.push(cause.object);
            }
        }
        Finding { state, reason: cut(&reason, MAX_MEMBER), waits_for }
    }
}

/// Returns the state of an object, and a short reason for it.
pub(crate) fn state(ctx: &Context, target: Target) -> (State, String) {
    if target.is_terminating() {
        return (State::Terminating, terminating(target));
    }
    match not_ready::reason(ctx, target) {
        Some(reason) => (reason.state, reason.short),
        None => (State::Ready, String::new()),
    }
}

/// Lists the finalizers of a terminating object in a few words.
fn terminating(target: Target) -> String {
    let finalizers: Vec<String> =
        texts(&target.object["metadata"]["finalizers"]).take(10).map(quoted).collect();
    match finalizers.is_empty() {
        true => String::new(),
        false => format!("finalizers {}", enumerate(&finalizers)),
    }
}
