//! The report: which lines, and how many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::Value;

use crate::event::Event;
use crate::object::{problem, rank, ready_since};
use crate::resource::{Resource, object_name};
use crate::text::{line_of, one_line, text};

/// The lines of objects.
pub const MAX_OBJECTS: usize = 40;
/// The objects of one resource, so that a hundred pods leave room for others.
pub const MAX_OF_RESOURCE: usize = 10;
/// The lines of events.
pub const MAX_EVENTS: usize = 40;
/// The warnings of objects that are not reported themselves: they may be deleted already.
pub const MAX_OTHER_WARNINGS: usize = 10;
/// The characters of an explanation.
const MAX_EXPLANATION: usize = 700;
/// The objects that are explained.
pub const MAX_EXPLAINED: usize = 10;
/// The lines about what could not be read.
const MAX_NOTES: usize = 10;

/// The objects of a cluster that are not ready, have failed or are terminating, with their newest
/// events. Its text has a line for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problems {
    /// The number of objects that are not ready; `objects` has lines of the first.
    found: usize,
    objects: Vec<String>,
    explanations: Vec<String>,
    events: Vec<String>,
    /// The lines about what could not be read, and the number of those that are left out.
    notes: Vec<String>,
    more_notes: usize,
}

impl Problems {
    /// Returns `true` if there is nothing to report: all objects are ready, and there are no
    /// warnings but those of pods before they became ready.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.events.is_empty() && self.notes.is_empty()
    }

    /// Returns the objects, such as `pod/default/web-0: Pending: Unschedulable: 0/1 nodes are
    /// available`.
    pub fn objects(&self) -> &[String] {
        &self.objects
    }

    /// Returns the explanations of the first objects, if the cluster has a Coracle server: a
    /// sentence each.
    pub fn explanations(&self) -> &[String] {
        &self.explanations
    }

    /// Returns the events, warnings first and newest first, such as `10:00:00Z Warning
    /// pod/default/web-0: FailedScheduling: ...`.
    pub fn events(&self) -> &[String] {
        &self.events
    }
}

impl Display for Problems {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Problems { objects, found, explanations, events, notes, more_notes } = self;
        if !objects.is_empty() {
            writeln!(f, "objects that are not ready ({found}):")?;
            objects.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
            if *found > objects.len() {
                writeln!(f, "  and {} more", found - objects.len())?;
            }
        }
        if !explanations.is_empty() {
            writeln!(f, "why:")?;
            explanations.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        if !events.is_empty() {
            writeln!(f, "events, warnings first, newest first:")?;
            events.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        if !notes.is_empty() {
            writeln!(f, "not read:")?;
            notes.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
            if *more_notes > 0 {
                writeln!(f, "  and {more_notes} more")?;
            }
        }
        Ok(())
    }
}

/// Builds the query that explains an object.
fn query(resource: &Resource, namespace: &Value, name: &Value) -> String {
    form_urlencoded::Serializer::new(String::new())
        .append_pair("resource", &resource.qualified())
        .append_pair("namespace", text(namespace).unwrap_or_default())
        .append_pair("name", text(name).unwrap_or_default())
        .finish()
}

/// The facts that are read, of which the report is made.
#[derive(Debug, Default)]
pub struct Findings {
    /// By the rank of the resource and its name.
    resources: BTreeMap<(usize, String), OfResource>,
    /// The pods that are ready: the uid, and the time since when.
    ready: HashMap<String, String>,
    events: Vec<Event>,
    explanations: Vec<String>,
    notes: Vec<String>,
    more_notes: usize,
}

/// The objects of a resource that have problems: how many, and the first of them.
#[derive(Debug, Default)]
struct OfResource {
    found: usize,
    first: Vec<Finding>,
}

#[derive(Debug)]
struct Finding {
    uid: String,
    /// The query of its explanation.
    query: String,
    line: String,
}

impl Findings {
    /// Adds an object, if it has a problem.
    pub fn add_object(&mut self, resource: &Resource, object: &Value) {
        let Some(why) = problem(resource, object) else {
            let ready = text(&object["metadata"]["uid"]).zip(ready_since(resource, object));
            self.ready.extend(ready.map(|(uid, since)| (uid.to_owned(), since.to_owned())));
            return;
        };
        let of_resource = self.resources.entry((rank(resource), resource.qualified())).or_default();
        of_resource.found += 1;
        if of_resource.first.len() < MAX_OF_RESOURCE {
            let metadata = &object["metadata"];
            let name =
                object_name(&resource.group, &resource.kind, &metadata["namespace"], &metadata["name"]);
            of_resource.first.push(Finding {
                query: query(resource, &metadata["namespace"], &metadata["name"]),
                uid: text(&metadata["uid"]).unwrap_or_default().to_owned(),
                line: one_line(&format!("{name}: {why}")),
            });
        }
    }

    /// Returns the queries that explain the first objects of the report.
    pub fn queries(&self) -> Vec<String> {
        let first = self.resources.values().flat_map(|of_resource| &of_resource.first);
        first.take(MAX_EXPLAINED).map(|finding| finding.query.clone()).collect()
    }

    /// Adds the explanation of an object.
    pub fn add_explanation(&mut self, sentence: &str) {
        if self.explanations.len() < MAX_EXPLAINED {
            self.explanations.push(line_of(sentence, MAX_EXPLANATION));
        }
    }

    /// Adds an event of the core group.
    pub fn add_event(&mut self, event: &Value) {
        self.events.push(Event::of(event));
    }

    /// Adds a line about something that could not be read.
    pub fn add_note(&mut self, note: &str) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(one_line(note));
        } else {
            self.more_notes += 1;
        }
    }

    /// Makes the report.
    pub fn report(self) -> Problems {
        let found = self.resources.values().map(|of_resource| of_resource.found).sum();
        let mut first: Vec<Finding> =
            self.resources.into_values().flat_map(|of_resource| of_resource.first).collect();
        first.truncate(MAX_OBJECTS);
        let uids: HashSet<&str> = first.iter().map(|finding| finding.uid.as_str()).collect();

        let (mut own, mut others): (Vec<Event>, Vec<Event>) =
            self.events.into_iter().partition(|event| uids.contains(event.uid.as_str()));
        // A warning of a pod that has become ready since is out of date.
        let is_outdated =
            |event: &Event| self.ready.get(&event.uid).is_some_and(|since| event.age.0.as_str() < &**since);
        others.retain(|event| event.is_warning && !is_outdated(event));
        // Warnings say more than that a container was created.
        let warned: HashSet<String> =
            own.iter().filter(|event| event.is_warning).map(|event| event.uid.clone()).collect();
        own.retain(|event| event.is_warning || !warned.contains(&event.uid));
        for events in [&mut own, &mut others] {
            events.sort_by(|a, b| {
                (Reverse(a.is_warning), Reverse(&a.age)).cmp(&(Reverse(b.is_warning), Reverse(&b.age)))
            });
        }
        others.truncate(MAX_OTHER_WARNINGS);
        // A stable order: the warnings of the reported objects, those of others, and then the rest.
        let mut events: Vec<Event> = own.into_iter().chain(others).collect();
        events.sort_by_key(|event| !event.is_warning);
        events.truncate(MAX_EVENTS);

        Problems {
            found,
            explanations: self.explanations,
            events: events.into_iter().map(|event| event.line).collect(),
            objects: first.into_iter().map(|finding| finding.line).collect(),
            notes: self.notes,
            more_notes: self.more_notes,
        }
    }
}
