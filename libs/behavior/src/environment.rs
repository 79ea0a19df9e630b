//! The environment of a container, as far as it follows from the pod alone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

/// The longest text that an expansion makes, in bytes: variables that contain each other grow without bounds.
pub const LONGEST_EXPANSION: usize = 64 << 10;

/// The most bytes of values that are known in an environment; those beyond are unknown.
const LARGEST: usize = 256 << 10;

/// A variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// It has a value.
    Set(String),
    /// There is none of this name.
    Unset,
    /// It may have any value.
    Unknown,
}

/// The environment of a container.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// None: of unknown value.
    variables: BTreeMap<String, Option<String>>,
    /// The bytes of the values.
    size: usize,
    /// Whether there may be others.
    is_open: bool,
}

impl Environment {
    /// The environment that a pod gives to one of its containers. The kubelet sets the variables in their order; the value of each may
    /// refer to those before it.
    pub fn of(pod: &Pod, container: &Container) -> Environment {
        let is_open = container.env_from.as_ref().is_some_and(|sources| !sources.is_empty());
        let mut environment = Environment { is_open, ..Environment::default() };
        let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
        environment.set("HOSTNAME", hostname.or_else(|| pod.metadata.name.clone()));
        for variable in container.env.iter().flatten() {
            let value = environment.value(pod, variable);
            environment.set(&variable.name, value);
        }
        environment
    }

    fn value(&self, pod: &Pod, variable: &EnvVar) -> Option<String> {
        match &variable.value_from {
            None => self.expand(variable.value.as_deref().unwrap_or_default()),
            Some(source) => field(pod, &source.field_ref.as_ref()?.field_path),
        }
    }

    /// Sets a variable; None is an unknown value.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        let value = value.filter(|value| self.size + value.len() <= LARGEST);
        self.size += value.as_ref().map_or(0, String::len);
        let replaced = self.variables.insert(name.to_owned(), value).flatten();
        self.size -= replaced.map_or(0, |value| value.len());
    }

    /// The bytes of all values.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The variable of this name.
    pub fn get(&self, name: &str) -> Variable {
        match self.variables.get(name) {
            Some(Some(value)) => Variable::Set(value.clone()),
            Some(None) => Variable::Unknown,
            None if self.is_open || is_given(name) => Variable::Unknown,
            None => Variable::Unset,
        }
    }

    /// Expands `$(NAME)` as the kubelet does: a variable that is not set stays as it is written, and `$$` is a dollar sign. None: a
    /// variable is unknown, or the text is too long.
    pub fn expand(&self, text: &str) -> Option<String> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let reference = after.strip_prefix('(').and_then(|name| name.split_once(')'));
            rest = match (after.strip_prefix('$'), reference) {
                (Some(after), _) => {
                    expanded.push('$');
                    after
                }
                (None, Some((name, after))) => {
                    match self.get(name) {
                        Variable::Set(value) => expanded.push_str(&value),
                        Variable::Unset => expanded.extend(["$(", name, ")"]),
                        Variable::Unknown => return None,
                    }
                    after
                }
                (None, None) => {
                    expanded.push('$');
                    after
                }
            };
            if expanded.len() > LONGEST_EXPANSION {
                return None;
            }
        }
        expanded.push_str(rest);
        (expanded.len() <= LONGEST_EXPANSION).then_some(expanded)
    }
}

/// Whether images and clusters set a variable that no pod mentions.
fn is_given(name: &str) -> bool {
    matches!(name, "PATH" | "HOME" | "PWD" | "USER" | "SHELL" | "TERM" | "LANG" | "RANDOM" | "SECONDS")
        || ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part))
}

/// The field of a pod that a fieldRef names; None for one that is not known before the pod runs.
fn field(pod: &Pod, path: &str) -> Option<String> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let entry = |of: &Option<BTreeMap<String, String>>, key: &str| {
        let key = key.strip_suffix("']")?;
        Some(of.as_ref().and_then(|entries| entries.get(key).cloned()).unwrap_or_default())
    };
    if let Some(key) = path.strip_prefix("metadata.annotations['") {
        return entry(&metadata.annotations, key);
    }
    if let Some(key) = path.strip_prefix("metadata.labels['") {
        return entry(&metadata.labels, key);
    }
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec?.node_name.clone(),
        "spec.serviceAccountName" => spec?.service_account_name.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn environment(container: serde_json::Value) -> Environment {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}, "annotations": {"a/b": "4"}},
            "spec": {"nodeName": "node-0", "containers": []},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let mut full = json!({"name": "c"});
        full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        Environment::of(&pod, &serde_json::from_value(full).unwrap())
    }

    #[test]
    fn variables_come_from_values_and_fields() {
        let field =
            |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let environment = environment(json!({"env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)$(A)-$$(A)-$(LATER)"},
            field("POD", "metadata.name"), field("INDEX", "metadata.annotations['a/b']"),
            field("APP", "metadata.labels['app']"), field("NONE", "metadata.labels['x']"),
            field("NODE", "spec.nodeName"), field("IP", "status.podIP"),
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]}));
        for (name, want) in [
            ("A", "1"),
            ("B", "11-$(A)-$(LATER)"),
            ("POD", "p"),
            ("INDEX", "4"),
            ("APP", "web"),
            ("NONE", ""),
            ("NODE", "node-0"),
            ("HOSTNAME", "p"),
        ] {
            assert_eq!(environment.get(name), Variable::Set(want.to_owned()), "{name}");
        }
        for name in ["IP", "SECRET", "PATH", "WEB_SERVICE_HOST"] {
            assert_eq!(environment.get(name), Variable::Unknown, "{name}");
        }
        assert_eq!(environment.get("OTHER"), Variable::Unset);
        assert_eq!(environment.expand("$(OTHER) $(A"), Some("$(OTHER) $(A".to_owned()));
        assert_eq!(environment.expand("$(SECRET)"), None);
    }

    #[test]
    fn with_sources_any_variable_may_be_set() {
        let environment = environment(json!({"envFrom": [{"configMapRef": {"name": "m"}}]}));
        assert_eq!(environment.get("OTHER"), Variable::Unknown);
    }

    #[test]
    fn expansions_are_bounded() {
        let mut env = vec![json!({"name": "V0", "value": "0123456789"})];
        env.extend((1..64).map(|i| {
            let previous = i - 1;
            json!({"name": format!("V{i}"), "value": format!("$(V{previous})$(V{previous})")})
        }));
        let environment = environment(json!({"env": env}));
        assert!(matches!(environment.get("V12"), Variable::Set(value) if value.len() == 40_960));
        assert_eq!(environment.get("V13"), Variable::Unknown);
        assert_eq!(environment.get("V63"), Variable::Unknown);
        let mut env = vec![json!({"name": "V0", "value": "x".repeat(60_000)})];
        env.extend((1..1000).map(|i| json!({"name": format!("V{i}"), "value": "$(V0)"})));
        let environment = super::tests::environment(json!({"env": env}));
        assert!(environment.size() <= LARGEST);
        assert_eq!(environment.get("V999"), Variable::Unknown);
    }
}
