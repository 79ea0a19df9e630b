//! The texts of `kubectl explain`: the descriptions of types and fields.
//!
//! `descriptions.json` is generated from the sources of the `k8s-openapi` crate: `apiserver/tests/descriptions.rs` does
//! that, and compares.

use std::collections::HashMap;

const TEXTS: &str = include_str!("descriptions.json");

/// Parsed while documents are generated, and dropped afterwards: more than half a megabyte that is rarely used.
///
/// Type name, then JSON name of a field ("" for the type itself), then text.
pub(crate) struct Descriptions(HashMap<String, HashMap<String, String>>);

impl Descriptions {
    pub(crate) fn parse() -> Descriptions {
        Descriptions(serde_json::from_str(TEXTS).expect("the generator writes JSON"))
    }

    pub(crate) fn of_type(&self, openapi_name: &str) -> Option<&str> {
        self.of_field(openapi_name, "")
    }

    pub(crate) fn of_field(&self, openapi_name: &str, field: &str) -> Option<&str> {
        if let Some(fields) = self.0.get(openapi_name) {
            return fields.get(field).map(String::as_str);
        }
        // The crate has one generic type for all lists; the common members of objects are described by any of them.
        let any_kind = matches!(field, "kind" | "apiVersion");
        let pod = any_kind.then(|| self.0.get("io.k8s.api.core.v1.Pod")).flatten()?;
        pod.get(field).map(String::as_str)
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
        assert_eq!(texts.of_type("nope"), None);
    }
}
