//! The fields that a field selector may name, kind by kind.
//!
//! Source: "Field selectors"; the registries of kube-apiserver.

use std::iter;
use std::sync::Arc;

use serde_json::Value;

use super::FieldSelector;
use crate::{Error, Result};

/// The selectable fields of a kind, in addition to `metadata.name` and `metadata.namespace`.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableFields {
    fields: Fields,
    refusal: Refusal,
    /// Whether the kind takes `metadata.namespace`.
    namespaced: bool,
}

/// The field labels of the requested version, with the location of their values in the storage
/// version.
#[derive(Clone, Debug, PartialEq)]
enum Fields {
    BuiltIn(&'static [(&'static str, FieldSource)]),
    /// Labels with JSON pointers.
    Custom(Arc<[(String, String)]>),
}

/// The location of a field's value in an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldSource {
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// The message names only metadata.
    OnlyMetadata,
    /// The field is not supported.
    NotSupported,
    /// The field is not supported for a kind.
    NotSupportedFor(&'static str),
    /// The same message, with the full name of the kind.
    NotSupportedForKind(&'static str),
}

use FieldSource::{Addresses, At, AtOr, Either};

impl SelectableFields {
    /// The selectable fields of a kind with only metadata.
    pub const METADATA: SelectableFields =
        SelectableFields { fields: Fields::BuiltIn(&[]), refusal: Refusal::OnlyMetadata, namespaced: true };

    /// Creates a set of fields: their labels, and the locations of their values.
    pub const fn of(fields: &'static [(&'static str, FieldSource)]) -> SelectableFields {
        SelectableFields { fields: Fields::BuiltIn(fields), refusal: Refusal::NotSupported, namespaced: true }
    }

    /// Returns the fields of a custom resource: its `selectableFields`, as (label, JSON pointer).
    pub fn of_custom_resource(fields: Vec<(String, String)>, namespaced: bool) -> SelectableFields {
        SelectableFields { fields: Fields::Custom(fields.into()), refusal: Refusal::NotSupported, namespaced }
    }

    /// Iterates over the labels of the fields of a custom resource.
    pub fn custom(&self) -> impl Iterator<Item = &str> {
        let fields = match &self.fields {
            Fields::BuiltIn(_) => &[],
            Fields::Custom(fields) => &**fields,
        };
        fields.iter().map(|(label, _)| label.as_str())
    }

    /// Removes `metadata.namespace`, for a cluster-scoped kind.
    pub const fn cluster_scoped(mut self) -> SelectableFields {
        self.namespaced = false;
        self
    }

    /// Sets another message for an unknown field.
    pub const fn refusing(mut self, refusal: Refusal) -> SelectableFields {
        self.refusal = refusal;
        self
    }

    /// Returns `true` if objects can be selected by metadata only, so that they need not be parsed.
    pub fn is_metadata_alone(&self) -> bool {
        match &self.fields {
            Fields::BuiltIn(fields) => fields.is_empty(),
            Fields::Custom(fields) => fields.is_empty(),
        }
    }

    /// Returns the values of the fields of an object in its stored form, in the order of the
    /// fields.
    pub fn values(&self, object: &Value) -> Box<[Box<str>]> {
        match &self.fields {
            Fields::BuiltIn(fields) => fields.iter().map(|(_, source)| source.read(object)).collect(),
            Fields::Custom(fields) => fields.iter().map(|(_, pointer)| text_at(object, pointer)).collect(),
        }
    }

    /// Returns the JSON pointers of all values that [`SelectableFields::values`] reads.
    pub fn pointers(&self) -> Vec<&str> {
        match &self.fields {
            Fields::BuiltIn(fields) => fields.iter().flat_map(|(_, source)| source.pointers()).collect(),
            Fields::Custom(fields) => fields.iter().map(|(_, pointer)| pointer.as_str()).collect(),
        }
    }

    fn position(&self, label: &str) -> Option<usize> {
        match &self.fields {
            Fields::BuiltIn(fields) => fields.iter().position(|(known, _)| *known == label),
            Fields::Custom(fields) => fields.iter().position(|(known, _)| known == label),
        }
    }

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

fn text_at(object: &Value, pointer: &str) -> Box<str> {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Null) | None => Box::default(),
        Some(other) => other.to_string().into_boxed_str(),
    }
}

impl FieldSource {
    fn pointers(self) -> impl Iterator<Item = &'static str> {
        let (first, second) = match self {
            At(pointer) | AtOr(pointer, _) | Addresses(pointer) => (pointer, None),
            Either(first, second) => (first, Some(second)),
        };
        iter::once(first).chain(second)
    }

    fn read(&self, object: &Value) -> Box<str> {
        let text = |pointer: &str| text_at(object, pointer);
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
    /// Resolves the fields of a selector to their places in an object.
    ///
    /// # Errors
    /// 400 for a field the kind cannot be selected by.
    pub fn resolve(fields: &SelectableFields, selector: &FieldSelector) -> Result<Selection> {
        let terms = selector.terms().iter().map(|term| {
            let place = match term.field.as_str() {
                "metadata.name" => Place::Name,
                "metadata.namespace" if fields.namespaced => Place::Namespace,
                name => Place::Field(fields.position(name).ok_or_else(|| fields.refuse(name))?),
            };
            Ok((place, term.value.clone(), term.equal))
        });
        Ok(Selection { terms: terms.collect::<Result<_>>()? })
    }

    /// Returns whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether it selects by more than name and namespace.
    pub fn has_own_fields(&self) -> bool {
        self.terms.iter().any(|(place, ..)| matches!(place, Place::Field(_)))
    }

    /// Returns the name that all selected objects have, if a term says so.
    pub fn required_name(&self) -> Option<&str> {
        let names = self.terms.iter().filter(|(place, _, equal)| *place == Place::Name && *equal);
        names.map(|(_, name, _)| name.as_str()).next()
    }

    /// Narrows the selection to one name.
    pub fn require_name(&mut self, name: &str) {
        self.terms.push((Place::Name, name.to_owned(), true));
    }

    /// Returns whether an object matches; `field` returns the value of the field at an index of the
    /// kind's fields.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selection() {
        let pod =
            json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}});
        let fields = SelectableFields::of(&[
            ("spec.nodeName", At("/spec/nodeName")),
            ("spec.hostNetwork", AtOr("/spec/hostNetwork", "false")),
            ("status.podIPs", Addresses("/status/podIPs")),
        ]);
        let values = fields.values(&pod);
        for (selector, want) in [
            ("spec.nodeName=n", true),
            ("spec.nodeName!=n", false),
            ("spec.hostNetwork=false", true),
            ("status.podIPs=1.1.1.1\\,::1", true),
            ("metadata.name=p,metadata.namespace=ns", true),
            ("metadata.namespace=other", false),
        ] {
            let parsed = FieldSelector::parse(selector).expect(selector);
            let selection = Selection::resolve(&fields, &parsed).expect(selector);
            assert_eq!(selection.matches("ns", "p", |i| values.get(i).map(|v| &**v)), want, "{selector}");
        }
    }

    #[test]
    fn refusals() {
        let own = SelectableFields::of(&[("spec.a", At("/spec/a"))]);
        for (fields, field, want) in [
            (own.clone(), "foo", "field label not supported: foo"),
            (
                own.clone().cluster_scoped(),
                "metadata.namespace",
                "field label not supported: metadata.namespace",
            ),
            (
                own.clone().refusing(Refusal::NotSupportedFor("Job")),
                "foo",
                "field label \"foo\" not supported for Job",
            ),
            (
                own.refusing(Refusal::NotSupportedForKind("resource.k8s.io/v1, Kind=ResourceSlice")),
                "foo",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: foo",
            ),
            (
                SelectableFields::METADATA,
                "data",
                "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            let selector = FieldSelector::parse(&format!("{field}=x")).expect("a selector");
            let error = Selection::resolve(&fields, &selector).expect_err("refused");
            assert_eq!(error.to_string(), want);
        }
    }
}
