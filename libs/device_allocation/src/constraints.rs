//! Constraints of a claim: attributes in which its devices are the same, or differ.
//!
//! Source: `constraint.go` of the structured allocator.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceConstraint};

/// The name of a request, and that of the chosen alternative in it.
pub(crate) type RequestName<'a> = (&'a str, Option<&'a str>);

/// A constraint with the devices that it has been given so far.
#[derive(Debug)]
pub(crate) struct Constraint<'a> {
    /// The requests that it is for; all if it is empty.
    requests: &'a [String],
    attribute: &'a str,
    seen: Seen<'a>,
}

#[derive(Debug)]
enum Seen<'a> {
    /// The common value, and the number of devices that have it.
    Match(Option<&'a DeviceAttribute>, usize),
    /// The values by the names of requests, and the number of devices. Of several devices of a
    /// request only the last one counts, as for kube-scheduler.
    Distinct(BTreeMap<&'a str, &'a DeviceAttribute>, usize),
}

impl<'a> Constraint<'a> {
    /// Creates a constraint without devices; None if its type is unknown.
    pub fn new(constraint: &'a DeviceConstraint) -> Option<Constraint<'a>> {
        let (attribute, seen) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (attribute, Seen::Match(None, 0)),
            (None, Some(attribute)) => (attribute, Seen::Distinct(BTreeMap::new(), 0)),
            (None, None) => return None,
        };
        Some(Constraint { requests: constraint.requests.as_deref().unwrap_or_default(), attribute, seen })
    }

    /// Returns the number of values that a device is compared with.
    pub fn len(&self) -> usize {
        match &self.seen {
            Seen::Match(..) => 1,
            Seen::Distinct(values, _) => values.len().saturating_add(1),
        }
    }

    /// Adds a device. Returns `false` if the device does not meet the constraint, and is not added.
    pub fn add(&mut self, request: RequestName<'a>, driver: &str, device: &'a Device) -> bool {
        if !self.is_for(request) {
            return true;
        }
        let Some(attribute) = attribute(driver, device, self.attribute) else { return false };
        match &mut self.seen {
            Seen::Match(common, count) => {
                let fits = *count == 0 || common.is_some_and(|common| have_same_value(common, attribute));
                if fits {
                    *common = if *count == 0 { Some(attribute) } else { *common };
                    *count += 1;
                }
                fits
            }
            Seen::Distinct(values, count) => {
                let fits = *count == 0
                    || has_value(attribute)
                        && !values.values().any(|other| have_same_value(other, attribute));
                if fits {
                    values.insert(request.0, attribute);
                    *count += 1;
                }
                fits
            }
        }
    }

    /// Removes the device that was added last for a request.
    pub fn remove(&mut self, request: RequestName<'a>) {
        if !self.is_for(request) {
            return;
        }
        match &mut self.seen {
            Seen::Match(_, count) => *count = count.saturating_sub(1),
            Seen::Distinct(values, count) => {
                values.remove(request.0);
                *count = count.saturating_sub(1);
            }
        }
    }

    fn is_for(&self, (request, alternative): RequestName<'_>) -> bool {
        let is_named = |name: &String| match (name.strip_prefix(request), alternative) {
            (Some(""), _) => true,
            (Some(rest), Some(alternative)) => rest.strip_prefix('/') == Some(alternative),
            _ => false,
        };
        self.requests.is_empty() || self.requests.iter().any(is_named)
    }
}

/// Returns the attribute of a fully qualified name. The domain of attributes without one is the
/// driver.
fn attribute<'d>(driver: &str, device: &'d Device, name: &str) -> Option<&'d DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| domain == driver)
    })
}

fn has_value(attribute: &DeviceAttribute) -> bool {
    let DeviceAttribute { string, int, bool, version, .. } = attribute;
    string.is_some() || int.is_some() || bool.is_some() || version.is_some()
}

fn have_same_value(one: &DeviceAttribute, other: &DeviceAttribute) -> bool {
    let DeviceAttribute { string, int, bool, version, .. } = one;
    let is_equal =
        (string, int) == (&other.string, &other.int) && (bool, version) == (&other.bool, &other.version);
    has_value(one) && is_equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn device(value: Value) -> Device {
        serde_json::from_value(json!({"name": "d", "attributes": value})).unwrap()
    }

    #[test]
    fn devices_have_the_same_value_or_different_ones() {
        let text = |value: &str| device(json!({"model": {"string": value}}));
        let qualified = device(json!({"a.example/model": {"string": "x"}}));
        let number = device(json!({"model": {"int": 1}}));
        for (case, kind, devices, want) in [
            ("same", "matchAttribute", [text("x"), text("x")], [true, true]),
            ("other", "matchAttribute", [text("x"), text("y")], [true, false]),
            ("with its domain", "matchAttribute", [text("x"), qualified], [true, true]),
            ("another type", "matchAttribute", [text("x"), number.clone()], [true, false]),
            ("without it", "matchAttribute", [device(json!({})), number.clone()], [false, true]),
            ("distinct", "distinctAttribute", [text("x"), text("y")], [true, true]),
            ("distinct types", "distinctAttribute", [text("x"), number], [true, true]),
            ("not distinct", "distinctAttribute", [text("x"), text("x")], [true, false]),
        ] {
            let constraint = serde_json::from_value(json!({kind: "a.example/model"})).unwrap();
            let mut constraint = Constraint::new(&constraint).unwrap();
            let [one, other] = &devices;
            let got = [("r", one), ("s", other)]
                .map(|(request, device)| constraint.add((request, None), "a.example", device));
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn constraints_are_for_the_requests_that_they_name() {
        let constraint =
            serde_json::from_value(json!({"matchAttribute": "d/a", "requests": ["one", "two/large"]}))
                .unwrap();
        let constraint = Constraint::new(&constraint).unwrap();
        for (request, alternative, want) in [
            ("one", None, true),
            ("one", Some("small"), true),
            ("two", Some("large"), true),
            ("two", Some("small"), false),
            ("two", None, false),
            ("three", None, false),
        ] {
            assert_eq!(constraint.is_for((request, alternative)), want, "{request} {alternative:?}");
        }
    }

    #[test]
    fn a_removed_device_leaves_its_value_to_others() {
        let one = device(json!({"model": {"string": "x"}}));
        let other = device(json!({"model": {"string": "y"}}));
        let constraint = serde_json::from_value(json!({"matchAttribute": "a.example/model"})).unwrap();
        let mut constraint = Constraint::new(&constraint).unwrap();
        assert!(constraint.add(("r", None), "a.example", &one));
        constraint.remove(("r", None));
        assert!(constraint.add(("r", None), "a.example", &other));
    }
}
