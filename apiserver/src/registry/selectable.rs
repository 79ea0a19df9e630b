//! The fields that a field selector may name, kind by kind.
//!
//! Source: "Field selectors"; the registries of the real server.

use std::collections::HashMap;

use serde_json::Value;

use crate::selector::FieldSelector;
use crate::{Error, Result};

/// The selectable fields of a kind, beside `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy)]
pub struct FieldSet {
    /// In the names of the version that is asked, with where it stands in the stored form.
    fields: &'static [(&'static str, Source)],
    refusal: Refusal,
    /// Whether the kind takes `metadata.namespace`.
    namespaced: bool,
}

#[derive(Clone, Copy)]
enum Source {
    /// A JSON pointer; booleans and numbers as text, null as nothing.
    At(&'static str),
    /// The same, but a missing value is this one.
    AtOr(&'static str, &'static str),
    /// The first that is not empty.
    Either(&'static str, &'static str),
    /// A list of `{ip}`, joined by commas.
    Addresses(&'static str),
}

/// The words for an unknown field.
#[derive(Clone, Copy)]
enum Refusal {
    OnlyMetadata,
    NotSupported,
    NotSupportedFor(&'static str),
    /// The same, said of a kind by its full name.
    NotSupportedForKind(&'static str),
}

use Source::{Addresses, At, AtOr, Either};

const PLAIN: FieldSet = FieldSet { fields: &[], refusal: Refusal::OnlyMetadata, namespaced: true };

const fn own(fields: &'static [(&'static str, Source)]) -> FieldSet {
    FieldSet { fields, refusal: Refusal::NotSupported, namespaced: true }
}

const POD: FieldSet = own(&[
    ("spec.nodeName", At("/spec/nodeName")),
    ("spec.restartPolicy", At("/spec/restartPolicy")),
    ("spec.schedulerName", At("/spec/schedulerName")),
    ("spec.serviceAccountName", At("/spec/serviceAccountName")),
    ("spec.hostNetwork", AtOr("/spec/hostNetwork", "false")),
    ("status.phase", At("/status/phase")),
    ("status.podIP", At("/status/podIP")),
    ("status.podIPs", Addresses("/status/podIPs")),
    ("status.nominatedNodeName", At("/status/nominatedNodeName")),
]);
const NODE: FieldSet =
    FieldSet { namespaced: false, ..own(&[("spec.unschedulable", AtOr("/spec/unschedulable", "false"))]) };
const NAMESPACE: FieldSet = FieldSet { namespaced: false, ..own(&[("status.phase", At("/status/phase"))]) };
const SECRET: FieldSet = own(&[("type", At("/type"))]);
const SERVICE: FieldSet = own(&[("spec.clusterIP", At("/spec/clusterIP")), ("spec.type", At("/spec/type"))]);
const REPLICATION_CONTROLLER: FieldSet = own(&[("status.replicas", AtOr("/status/replicas", "0"))]);
const JOB: FieldSet = FieldSet {
    refusal: Refusal::NotSupportedFor("Job"),
    ..own(&[("status.successful", AtOr("/status/succeeded", "0"))])
};
const CERTIFICATE_SIGNING_REQUEST: FieldSet =
    FieldSet { namespaced: false, ..own(&[("spec.signerName", At("/spec/signerName"))]) };
const RESOURCE_SLICE: FieldSet = FieldSet {
    refusal: Refusal::NotSupportedForKind("resource.k8s.io/v1, Kind=ResourceSlice"),
    namespaced: false,
    ..own(&[("spec.nodeName", At("/spec/nodeName")), ("spec.driver", At("/spec/driver"))])
};
const CORE_EVENT: FieldSet = own(&[
    ("involvedObject.kind", At("/involvedObject/kind")),
    ("involvedObject.namespace", At("/involvedObject/namespace")),
    ("involvedObject.name", At("/involvedObject/name")),
    ("involvedObject.uid", At("/involvedObject/uid")),
    ("involvedObject.apiVersion", At("/involvedObject/apiVersion")),
    ("involvedObject.resourceVersion", At("/involvedObject/resourceVersion")),
    ("involvedObject.fieldPath", At("/involvedObject/fieldPath")),
    ("reason", At("/reason")),
    ("reportingComponent", At("/reportingComponent")),
    ("source", Either("/source/component", "/reportingComponent")),
    ("type", At("/type")),
]);
/// Events of group `events.k8s.io` are stored in the core form: the same values under other names, in the same order.
const EVENT: FieldSet = own(&[
    ("regarding.kind", At("/involvedObject/kind")),
    ("regarding.namespace", At("/involvedObject/namespace")),
    ("regarding.name", At("/involvedObject/name")),
    ("regarding.uid", At("/involvedObject/uid")),
    ("regarding.apiVersion", At("/involvedObject/apiVersion")),
    ("regarding.resourceVersion", At("/involvedObject/resourceVersion")),
    ("regarding.fieldPath", At("/involvedObject/fieldPath")),
    ("reason", At("/reason")),
    ("reportingController", At("/reportingComponent")),
    ("\0", Either("/source/component", "/reportingComponent")),
    ("type", At("/type")),
]);

fn set(group: &str, plural: &str) -> FieldSet {
    match (group, plural) {
        ("", "pods") => POD,
        ("", "nodes") => NODE,
        ("", "namespaces") => NAMESPACE,
        ("", "secrets") => SECRET,
        ("", "services") => SERVICE,
        ("", "replicationcontrollers") => REPLICATION_CONTROLLER,
        ("", "events") => CORE_EVENT,
        ("events.k8s.io", "events") => EVENT,
        ("batch", "jobs") => JOB,
        ("certificates.k8s.io", "certificatesigningrequests") => CERTIFICATE_SIGNING_REQUEST,
        ("resource.k8s.io", "resourceslices") => RESOURCE_SLICE,
        _ => PLAIN,
    }
}

/// The sets of the kinds that have one, by bucket.
pub fn by_bucket() -> HashMap<String, FieldSet> {
    [
        ("pods", POD),
        ("nodes", NODE),
        ("namespaces", NAMESPACE),
        ("secrets", SECRET),
        ("services", SERVICE),
        ("replicationcontrollers", REPLICATION_CONTROLLER),
        ("events", CORE_EVENT),
        ("jobs.batch", JOB),
        ("certificatesigningrequests.certificates.k8s.io", CERTIFICATE_SIGNING_REQUEST),
        ("resourceslices.resource.k8s.io", RESOURCE_SLICE),
    ]
    .into_iter()
    .map(|(bucket, set)| (bucket.to_owned(), set))
    .collect()
}

impl FieldSet {
    /// The values of an object, in the order of the set.
    pub fn values(&self, object: &Value) -> Box<[Box<str>]> {
        self.fields.iter().map(|(_, source)| source.read(object)).collect()
    }
}

impl Source {
    fn read(&self, object: &Value) -> Box<str> {
        let text = |pointer: &str| match object.pointer(pointer) {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Null) | None => Box::default(),
            Some(other) => other.to_string().into_boxed_str(),
        };
        match self {
            At(pointer) => text(pointer),
            AtOr(pointer, default) => {
                let found = text(pointer);
                if found.is_empty() { (*default).into() } else { found }
            }
            Either(first, second) => {
                let found = text(first);
                if found.is_empty() { text(second) } else { found }
            }
            Addresses(pointer) => {
                let list = object.pointer(pointer).and_then(Value::as_array);
                let ips: Vec<&str> =
                    list.into_iter().flatten().filter_map(|a| a.get("ip").and_then(Value::as_str)).collect();
                ips.join(",").into()
            }
        }
    }
}

/// A field selector that has been checked against a kind: names resolved to places.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    terms: Vec<(Place, String, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Name,
    Namespace,
    Field(usize),
}

impl Selection {
    /// # Errors
    /// 400 for a field the kind cannot be selected by.
    pub fn resolve(group: &str, plural: &str, selector: &FieldSelector) -> Result<Selection> {
        let set = set(group, plural);
        let terms = selector.terms().iter().map(|term| {
            let place = match term.field.as_str() {
                "metadata.name" => Place::Name,
                "metadata.namespace" if set.namespaced => Place::Namespace,
                name => Place::Field(
                    set.fields.iter().position(|(n, _)| *n == name).ok_or_else(|| set.refuse(name))?,
                ),
            };
            Ok((place, term.value.clone(), term.equal))
        });
        Ok(Selection { terms: terms.collect::<Result<_>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Narrows the selection to one name.
    pub fn require_name(&mut self, name: &str) {
        self.terms.push((Place::Name, name.to_owned(), true));
    }

    pub fn matches<'a>(&self, namespace: &str, name: &str, field: impl Fn(usize) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|(place, value, equal)| {
            let found = match place {
                Place::Name => name,
                Place::Namespace => namespace,
                Place::Field(position) => field(*position).unwrap_or(""),
            };
            (found == value) == *equal
        })
    }
}

impl FieldSet {
    fn refuse(&self, name: &str) -> Error {
        Error::BadRequest(match self.refusal {
            Refusal::OnlyMetadata => format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                crate::field::quote(name)
            ),
            Refusal::NotSupported => format!("field label not supported: {name}"),
            Refusal::NotSupportedForKind(kind) => format!("field label not supported for {kind}: {name}"),
            Refusal::NotSupportedFor(kind) => {
                format!("field label {} not supported for {kind}", crate::field::quote(name))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selection() {
        let pod =
            json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}});
        let values = POD.values(&pod);
        for (selector, want) in [
            ("spec.nodeName=n", true),
            ("spec.nodeName!=n", false),
            ("spec.hostNetwork=false", true),
            ("status.podIPs=1.1.1.1\\,::1", true),
            ("metadata.name=p,metadata.namespace=ns", true),
            ("metadata.namespace=other", false),
        ] {
            let parsed = FieldSelector::parse(selector).expect(selector);
            let selection = Selection::resolve("", "pods", &parsed).expect(selector);
            assert_eq!(selection.matches("ns", "p", |i| values.get(i).map(|v| &**v)), want, "{selector}");
        }
    }

    #[test]
    fn both_names_of_an_event_field_stand_in_the_same_place() {
        assert_eq!(CORE_EVENT.fields.len(), EVENT.fields.len());
    }

    #[test]
    fn refusals() {
        for (group, plural, field, want) in [
            ("", "pods", "foo", "field label not supported: foo"),
            ("", "nodes", "metadata.namespace", "field label not supported: metadata.namespace"),
            ("batch", "jobs", "foo", "field label \"foo\" not supported for Job"),
            (
                "",
                "configmaps",
                "data",
                "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            let selector = FieldSelector::parse(&format!("{field}=x")).expect("a selector");
            let error = Selection::resolve(group, plural, &selector).expect_err("refused");
            assert_eq!(error.to_string(), want);
        }
    }
}
