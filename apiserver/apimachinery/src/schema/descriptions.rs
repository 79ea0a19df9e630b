//! The texts of `kubectl explain`: the descriptions of types and fields.
//!
//! `descriptions.json` is generated from the sources of the `k8s-openapi` crate:
//! `tests/descriptions.rs` generates and compares it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

const TEXTS: &str = include_str!("descriptions.json");

/// Parsed while documents are generated, and dropped afterwards: more than half a megabyte that is
/// rarely used.
///
/// Type name, then JSON name of a field ("" for the type itself), then text.
pub struct Descriptions(HashMap<String, HashMap<String, String>>);

impl Descriptions {
    /// Returns all descriptions.
    pub fn parse() -> Descriptions {
        Descriptions(serde_json::from_str(TEXTS).expect("the generator writes JSON"))
    }

    /// Parses the descriptions of some types, without keeping the others in memory.
    pub fn parse_types<'a>(openapi_names: impl IntoIterator<Item = &'a str>) -> Descriptions {
        let wanted = OfTypes(openapi_names.into_iter().collect());
        let mut json = serde_json::Deserializer::from_str(TEXTS);
        Descriptions(json.deserialize_map(wanted).expect("the generator writes JSON"))
    }

    /// Returns the description of a type.
    pub fn of_type(&self, openapi_name: &str) -> Option<&str> {
        self.of_field(openapi_name, "")
    }

    /// Returns the description of a field, by its JSON name.
    pub fn of_field(&self, openapi_name: &str, field: &str) -> Option<&str> {
        if let Some(fields) = self.0.get(openapi_name) {
            return fields.get(field).map(String::as_str);
        }
        // The crate has one generic type for all lists; the common members of objects are described
        // by any of them.
        let any_kind = matches!(field, "kind" | "apiVersion");
        let pod = any_kind.then(|| self.0.get("io.k8s.api.core.v1.Pod")).flatten()?;
        pod.get(field).map(String::as_str)
    }
}

/// Keeps the descriptions of these types.
struct OfTypes<'a>(HashSet<&'a str>);

impl<'de> Visitor<'de> for OfTypes<'_> {
    type Value = HashMap<String, HashMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("descriptions by type")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut types: M) -> Result<Self::Value, M::Error> {
        let mut found = HashMap::new();
        while let Some(name) = types.next_key::<&str>()? {
            match self.0.contains(name) {
                true => _ = found.insert(name.to_owned(), types.next_value()?),
                false => _ = types.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_are_described() {
        let texts = Descriptions::parse();
        for (name, field, start) in [
            ("io.k8s.api.core.v1.Pod", "", "Pod is a collection of containers"),
            ("io.k8s.api.apps.v1.DeploymentSpec", "template", "Template describes the pods"),
            ("io.k8s.api.core.v1.ContainerPort", "hostPort", "Number of port to expose on the host."),
            ("io.k8s.api.core.v1.PodList", "kind", "Kind is a string value"),
        ] {
            let text = texts.of_field(name, field).unwrap_or_default();
            assert!(text.starts_with(start), "{name} {field}: {text}");
        }
        assert_eq!(texts.of_field("io.k8s.api.core.v1.Pod", "nope"), None);
        let pods = Descriptions::parse_types(["io.k8s.api.core.v1.Pod"]);
        assert_eq!(
            pods.of_field("io.k8s.api.core.v1.Pod", "spec"),
            texts.of_field("io.k8s.api.core.v1.Pod", "spec")
        );
        assert_eq!(pods.0.len(), 1);
        assert_eq!(texts.of_type("nope"), None);
    }
}
