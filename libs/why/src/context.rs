//! The state of one explanation: read access with caches, names, and the bounds of recursion.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use jiff::Timestamp;
use serde_json::Value;

use crate::explanation::Cause;
use crate::objects::{Objects, Refusal, Resource, Version};
use crate::reason::Reason;
use crate::text::{self, cut, text, text_or_empty};
use crate::{gone, not_ready, present};

/// The causes of causes that are followed.
pub const MAX_DEPTH: usize = 4;

/// The objects of lists that are visited in one explanation.
const MAX_VISITED: usize = 200_000;

/// The versions of an object's past that are visited.
const MAX_VERSIONS: usize = 1000;

/// The characters of a name that are kept.
const MAX_NAME: usize = 253;

/// The object that a rule is about.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
}

impl<'a> Target<'a> {
    /// Returns a target for an object of a list.
    pub fn listed(resource: &'a str, object: &'a Value) -> Target<'a> {
        let metadata = &object["metadata"];
        let (namespace, name) = (text_or_empty(&metadata["namespace"]), text_or_empty(&metadata["name"]));
        Target { resource, namespace, name, object }
    }

    pub fn spec(self) -> &'a Value {
        &self.object["spec"]
    }

    pub fn status(self) -> &'a Value {
        &self.object["status"]
    }

    pub fn uid(self) -> &'a str {
        text_or_empty(&self.object["metadata"]["uid"])
    }

    pub fn annotation(self, name: &str) -> Option<&'a str> {
        text(&self.object["metadata"]["annotations"][name])
    }

    pub fn is_terminating(self) -> bool {
        is_terminating(self.object)
    }
}

/// Returns `true` if deletion of an object has been requested.
pub fn is_terminating(object: &Value) -> bool {
    text(&object["metadata"]["deletionTimestamp"]).is_some()
}

/// A resource and a namespace; None stands for all.
type ListKey = (String, Option<String>);

/// The state of one explanation.
pub struct Context<'a> {
    objects: &'a dyn Objects,
    pub now: Timestamp,
    resources: Vec<Resource>,
    lists: RefCell<HashMap<ListKey, Rc<Vec<Value>>>>,
    visited: RefCell<HashSet<(String, String, String)>>,
    /// The objects of lists that may still be visited.
    budget: Cell<usize>,
    /// Whether a list is incomplete, since too many objects have been visited.
    is_truncated: Cell<bool>,
    depth: Cell<usize>,
    max_depth: usize,
    /// Whether only the objects that are directly waited for are causes.
    is_direct: bool,
}

impl<'a> Context<'a> {
    pub fn new(objects: &'a dyn Objects, now: Timestamp) -> Context<'a> {
        Context {
            objects,
            now,
            resources: objects.resources(),
            lists: RefCell::default(),
            visited: RefCell::default(),
            budget: Cell::new(MAX_VISITED),
            is_truncated: Cell::new(false),
            depth: Cell::new(0),
            max_depth: MAX_DEPTH,
            is_direct: false,
        }
    }

    /// Creates a context in which causes have no causes.
    pub fn shallow(objects: &'a dyn Objects, now: Timestamp) -> Context<'a> {
        Context { max_depth: 0, ..Context::new(objects, now) }
    }

    /// Creates a context for many objects, in which the causes are the direct ones.
    pub fn direct(objects: &'a dyn Objects, now: Timestamp) -> Context<'a> {
        Context { max_depth: 1, is_direct: true, ..Context::new(objects, now) }
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(resource, namespace, name)
    }

    /// Returns the objects of a resource. The list is empty once too many objects have been
    /// visited.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Rc<Vec<Value>> {
        let key = (resource.to_owned(), namespace.map(str::to_owned));
        if let Some(list) = self.lists.borrow().get(&key) {
            return list.clone();
        }
        let budget = self.budget.get();
        let mut list = match budget {
            0 => Vec::new(),
            _ => self.objects.list(resource, namespace),
        };
        if budget == 0 || list.len() > budget {
            self.is_truncated.set(true);
        }
        list.truncate(budget);
        self.budget.set(budget.saturating_sub(list.len()));
        let list = Rc::new(list);
        self.lists.borrow_mut().insert(key, list.clone());
        list
    }

    /// Returns `true` if a list is incomplete.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated.get() || self.objects.is_truncated()
    }

    pub fn past(&self, resource: &str, namespace: &str, name: &str) -> Vec<Version> {
        let mut versions = self.objects.past(resource, namespace, name);
        versions.truncate(MAX_VERSIONS);
        versions
    }

    pub fn refusals(&self, resource: &str, namespace: &str, name: &str) -> Vec<Refusal> {
        self.objects.refusals(resource, namespace, name)
    }

    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the resource to which an owner reference refers, or `None` if it is not served.
    pub fn resource_of(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let group = group_of_version(api_version);
        self.resources
            .iter()
            .find(|resource| resource.kind == kind && group_of_version(&resource.api_version) == group)
    }

    /// Returns the newest event of an object with one of these reasons.
    pub fn last_event(&self, target: Target, reasons: &[&str]) -> Option<Value> {
        let namespace = if target.namespace.is_empty() { "default" } else { target.namespace };
        let kind = self.kind(target.resource);
        let events = self.list("events", Some(namespace));
        let is_meant = |event: &&Value| {
            let object = &event["involvedObject"];
            let is_named = object["name"] == target.name && text_or_empty(&object["kind"]) == kind;
            let uid = text(&object["uid"]);
            is_named
                && uid.is_none_or(|uid| target.uid().is_empty() || uid == target.uid())
                && text(&event["reason"]).is_some_and(|reason| reasons.contains(&reason))
        };
        events.iter().filter(is_meant).max_by_key(|event| event_time(event).to_owned()).cloned()
    }

    /// Returns the kind of a resource.
    pub fn kind(&self, resource: &str) -> String {
        let served = self.resources.iter().find(|served| served.name == resource);
        served.map_or_else(
            || plural_of(resource).trim_end_matches('s').to_owned(),
            |served| served.kind.clone(),
        )
    }

    /// Returns the full name of an object, such as `pod/shop/web-0` or `statefulset.apps/shop/web`.
    pub fn reference(&self, resource: &str, namespace: &str, name: &str) -> String {
        reference(&self.kind(resource), group_of_resource(resource), namespace, name)
    }

    pub fn reference_of(&self, target: Target) -> String {
        self.reference(target.resource, target.namespace, target.name)
    }

    /// Returns the name of an object for a sentence, such as `pod/web-0` or `widget.example.com/w`.
    pub fn short(&self, resource: &str, name: &str) -> String {
        let group = group_of_resource(resource);
        let is_built_in = !group.contains('.') || group.ends_with(".k8s.io");
        reference(&self.kind(resource), if is_built_in { "" } else { group }, "", name)
    }

    pub fn short_of(&self, target: Target) -> String {
        self.short(target.resource, target.name)
    }

    /// Describes a time, and how long ago it is.
    pub fn moment(&self, at: &str) -> String {
        text::moment(self.now, at)
    }

    /// Marks an object as explained; returns false if it is so already.
    pub fn visit(&self, resource: &str, namespace: &str, name: &str) -> bool {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.visited.borrow_mut().insert(key)
    }

    /// Explains another object as a cause, with its own causes. Nothing if that object is as it
    /// should be, has been explained, or is too far away.
    pub fn explain(&self, resource: &str, namespace: &str, name: &str) -> Vec<Cause> {
        self.deeper(resource, namespace, name, || {
            let object = self.get(resource, namespace, name)?;
            let target = Target { resource, namespace, name, object: &object };
            match target.is_terminating() {
                true => present::reason(self, target),
                false => not_ready::reason(self, target),
            }
        })
    }

    /// Explains the deletion of another object as a cause.
    pub fn explain_deletion(&self, resource: &str, namespace: &str, name: &str) -> Vec<Cause> {
        self.deeper(resource, namespace, name, || gone::reason(self, resource, namespace, name))
    }

    fn deeper(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        reason: impl FnOnce() -> Option<Reason>,
    ) -> Vec<Cause> {
        let depth = self.depth.get();
        // Of many objects each may name the same cause.
        if depth >= self.max_depth || !self.is_direct && !self.visit(resource, namespace, name) {
            return Vec::new();
        }
        self.depth.set(depth + 1);
        let reason = reason();
        self.depth.set(depth);
        let Some(reason) = reason else { return Vec::new() };
        let cause = Cause::of(self.reference(resource, namespace, name));
        if self.is_direct {
            return vec![cause];
        }
        let cause = cause.waits_for(reason.sentence);
        std::iter::once(cause).chain(reason.causes).collect()
    }
}

/// Returns the time of an event.
pub fn event_time(event: &Value) -> &str {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().find_map(text).unwrap_or_default()
}

/// Returns the full name of an object, by its kind and group.
pub fn reference(kind: &str, group: &str, namespace: &str, name: &str) -> String {
    let mut path = cut(kind, MAX_NAME).to_lowercase();
    if !group.is_empty() {
        path = format!("{path}.{}", cut(group, MAX_NAME));
    }
    for part in [namespace, name].into_iter().filter(|part| !part.is_empty()) {
        path = format!("{path}/{}", cut(part, MAX_NAME));
    }
    path
}

/// Returns the group of an apiVersion: `apps` for `apps/v1`, and `""` for `v1`.
pub fn group_of_version(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the group of a resource: `apps` for `statefulsets.apps`.
pub fn group_of_resource(resource: &str) -> &str {
    resource.split_once('.').map_or("", |(_, group)| group)
}

fn plural_of(resource: &str) -> &str {
    resource.split_once('.').map_or(resource, |(plural, _)| plural)
}
