//! `/version`: the version of Kubernetes that this server implements.

use serde_json::Value;

/// The implemented release. The part after the plus is build metadata of semantic versions.
pub const GIT_VERSION: &str = "v1.36.2+coracle";
const MAJOR: &str = "1";
const MINOR: &str = "36";

/// A member of the response.
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The value.
    pub value: &'static str,
    /// Included even if it is empty.
    pub required: bool,
}

const fn required(name: &'static str, value: &'static str) -> Field {
    Field { name, value, required: true }
}

const fn optional(name: &'static str, value: &'static str) -> Field {
    Field { name, value, required: false }
}

/// The members in order. Clients read the versions and the platform; the rest has always been
/// there.
pub const FIELDS: &[Field] = &[
    required("major", MAJOR),
    required("minor", MINOR),
    optional("emulationMajor", MAJOR),
    optional("emulationMinor", MINOR),
    optional("minCompatibilityMajor", MAJOR),
    optional("minCompatibilityMinor", "35"),
    required("gitVersion", GIT_VERSION),
    required("gitCommit", ""),
    required("gitTreeState", ""),
    required("buildDate", "1970-01-01T00:00:00Z"),
    required("goVersion", ""),
    required("compiler", "gc"),
    required("platform", PLATFORM),
];

/// Go's name of the platform.
const PLATFORM: &str = if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
    "darwin/arm64"
} else if cfg!(target_os = "macos") {
    "darwin/amd64"
} else if cfg!(target_os = "windows") {
    "windows/amd64"
} else if cfg!(target_arch = "aarch64") {
    "linux/arm64"
} else {
    "linux/amd64"
};

/// Returns the labels of the metric `kubernetes_build_info`.
pub fn build_info() -> [(&'static str, &'static str); 9] {
    let value = |name: &str| FIELDS.iter().find(|field| field.name == name).map_or("", |field| field.value);
    [
        ("major", "major"),
        ("minor", "minor"),
        ("git_version", "gitVersion"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("build_date", "buildDate"),
        ("go_version", "goVersion"),
        ("compiler", "compiler"),
        ("platform", "platform"),
    ]
    .map(|(label, name)| (label, value(name)))
}

/// Returns the body of `/version`, always indented.
pub(super) fn body() -> String {
    let members: Vec<String> =
        FIELDS.iter().map(|field| format!("  \"{}\": {}", field.name, Value::from(field.value))).collect();
    format!("{{\n{}\n}}", members.join(",\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn the_body_is_what_clients_parse() {
        let body: Map<String, Value> = serde_json::from_str(&body()).expect("JSON");
        assert_eq!((&body["major"], &body["minor"]), (&"1".into(), &"36".into()));
        assert_eq!(body["gitVersion"], GIT_VERSION);
        assert_eq!(body.len(), 13);
    }

    #[test]
    fn build_info_has_no_gaps() {
        for (label, name) in [("git_version", GIT_VERSION), ("compiler", "gc"), ("major", "1")] {
            assert!(build_info().contains(&(label, name)), "{label}");
        }
    }
}
