//! The environment of a container, as far as it follows from the pod alone.

use std::collections::BTreeMap;

use coracle_kinds::jobs::COMPLETION_INDEX;
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, ResourceFieldSelector};

/// The longest text that an expansion makes, in bytes: variables that contain each other grow
/// without bounds.
pub const MAX_EXPANSION_LENGTH: usize = 64 << 10;

/// The bytes that are expanded for an environment; the variables after them are unknown.
const MAX_EXPANDED: usize = 1 << 20;

/// The bytes of memory that a variable takes beside its name and its value.
const ENTRY: usize = 64;

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
    /// The bytes that it takes.
    size: usize,
    /// Whether other variables may be set, too.
    is_open: bool,
    /// The name of the host, as far as it is known.
    host_name: Option<String>,
}

impl Environment {
    /// Returns the environment that a pod gives to one of its containers. The kubelet sets the
    /// variables in their order; the value of each may refer to those before it.
    pub fn of(pod: &Pod, container: &Container) -> Environment {
        Environment::with(pod, container, Values::Fixed)
    }

    /// Returns the environment that a container would have if it were started now: with the labels
    /// and annotations of the pod, which may change later.
    pub fn at_start(pod: &Pod, container: &Container) -> Environment {
        Environment::with(pod, container, Values::Current)
    }

    fn with(pod: &Pod, container: &Container, values: Values) -> Environment {
        let is_open = container.env_from.as_ref().is_some_and(|sources| !sources.is_empty());
        let mut environment = Environment { is_open, ..Environment::default() };
        let mut left = MAX_EXPANDED;
        for variable in container.env.iter().flatten() {
            let value = environment.value(pod, container, variable, values);
            let is_affordable = value.as_ref().is_some_and(|value| value.len() <= left);
            // One that is unknown may be so because it is too long.
            let cost = match (&value, &variable.value) {
                (Some(value), _) => value.len(),
                (None, Some(_)) => MAX_EXPANSION_LENGTH,
                (None, None) => 0,
            };
            left = left.saturating_sub(ENTRY + cost);
            environment.set(&variable.name, value.filter(|_| is_affordable));
            if left == 0 {
                environment.is_open = true;
                break;
            }
        }
        environment
    }

    /// Returns an environment of which nothing is known.
    pub fn unknown() -> Environment {
        Environment { is_open: true, ..Environment::default() }
    }

    /// Adds the variables that the container runtime sets, which programs see and the kubelet does
    /// not.
    #[must_use]
    pub fn of_programs(mut self, pod: &Pod) -> Environment {
        let spec = pod.spec.as_ref();
        let is_of_host = spec
            .is_some_and(|spec| spec.host_network == Some(true) || spec.set_hostname_as_fqdn == Some(true));
        let chosen = |name: Option<&String>| name.cloned().filter(|name| !name.is_empty());
        let name = spec.and_then(|spec| {
            chosen(spec.hostname_override.as_ref()).or_else(|| chosen(spec.hostname.as_ref()))
        });
        let name = name.or_else(|| pod.metadata.name.clone());
        // A longer name is cut.
        self.host_name = name.filter(|name| !is_of_host && name.len() <= MAX_HOST_NAME_LENGTH);
        if self.get("HOSTNAME") == Variable::Unset {
            self.set("HOSTNAME", self.host_name.clone());
        }
        self
    }

    /// Returns the name of the host; None if it is not known.
    pub fn host_name(&self) -> Option<&str> {
        self.host_name.as_deref()
    }

    fn value(&self, pod: &Pod, container: &Container, variable: &EnvVar, values: Values) -> Option<String> {
        let Some(source) = &variable.value_from else {
            return self.expand(variable.value.as_deref().unwrap_or_default());
        };
        match (&source.field_ref, &source.resource_field_ref) {
            (Some(source), _) => field(pod, &source.field_path, values),
            (None, Some(source))
                if source.container_name.as_ref().is_none_or(|name| *name == container.name) =>
            {
                resource(container, source)
            }
            _ => None,
        }
    }

    /// Iterates over the variables with known values, by name.
    pub fn known(&self) -> impl Iterator<Item = (&str, &str)> {
        let known = self.variables.iter();
        known.filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }

    /// Sets a variable; None is an unknown value.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        self.remove(name);
        self.size += size_of(name, value.as_ref());
        self.variables.insert(name.to_owned(), value);
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: &str) {
        if let Some(value) = self.variables.remove(name) {
            self.size -= size_of(name, value.as_ref());
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the variable of this name.
    pub fn get(&self, name: &str) -> Variable {
        match self.variables.get(name) {
            Some(Some(value)) => Variable::Set(value.clone()),
            Some(None) => Variable::Unknown,
            None if self.is_open || is_of_service(name) => Variable::Unknown,
            None => Variable::Unset,
        }
    }

    /// Expands `$(NAME)` as the kubelet does: a variable that is not set stays as it is written,
    /// and `$$` is a dollar sign. None: a variable is unknown, or the text is too long.
    pub fn expand(&self, text: &str) -> Option<String> {
        self.expand_with(text, |_| {})
    }

    /// Expands a text like [`Environment::expand`].
    ///
    /// - `on_missing`: called with each variable that is not set or empty
    pub fn expand_with(&self, text: &str, mut on_missing: impl FnMut(&str)) -> Option<String> {
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
                        Variable::Set(value) => {
                            if value.is_empty() {
                                on_missing(name);
                            }
                            expanded.push_str(&value);
                        }
                        Variable::Unset => {
                            on_missing(name);
                            expanded.extend(["$(", name, ")"]);
                        }
                        Variable::Unknown => return None,
                    }
                    after
                }
                (None, None) => {
                    expanded.push('$');
                    after
                }
            };
            if expanded.len() > MAX_EXPANSION_LENGTH {
                return None;
            }
        }
        expanded.push_str(rest);
        (expanded.len() <= MAX_EXPANSION_LENGTH).then_some(expanded)
    }
}

/// The longest host name of a pod that the kubelet leaves as it is, in bytes.
const MAX_HOST_NAME_LENGTH: usize = 63;

fn size_of(name: &str, value: Option<&String>) -> usize {
    ENTRY + name.len() + value.map_or(0, String::len)
}

/// Returns `true` if a Service of the namespace may set a variable that no pod mentions.
fn is_of_service(name: &str) -> bool {
    ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part))
}

/// The fields of a pod that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// The fields that do not change once they are set.
    Fixed,
    /// All fields, as they are now.
    Current,
}

/// Returns the field of a pod that a fieldRef names; None for one that is not known yet, or does
/// not count.
fn field(pod: &Pod, path: &str, values: Values) -> Option<String> {
    let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
    let joined = |addresses: Vec<&str>| (!addresses.is_empty()).then(|| addresses.join(","));
    let entry = |of: &Option<BTreeMap<String, String>>, key: &str| {
        let key = key.strip_suffix("']")?;
        let value = of.as_ref().and_then(|entries| entries.get(key).cloned());
        match values {
            Values::Fixed => value.filter(|_| [COMPLETION_INDEX, POD_INDEX].contains(&key)),
            // The kubelet takes an absent one as empty.
            Values::Current => Some(value.unwrap_or_default()),
        }
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
        "status.hostIP" => status?.host_ip.clone(),
        "status.podIP" => status?.pod_ip.clone(),
        "status.hostIPs" => joined(status?.host_ips.iter().flatten().map(|one| one.ip.as_str()).collect()),
        "status.podIPs" => joined(status?.pod_ips.iter().flatten().map(|one| one.ip.as_str()).collect()),
        _ => None,
    }
}

/// Returns the amount of a resource that a resourceFieldRef names, in units of its divisor, rounded
/// up; None if the container has none: a limit is then that of its node.
fn resource(container: &Container, source: &ResourceFieldSelector) -> Option<String> {
    let resources = container.resources.as_ref()?;
    let (amounts, name) = match source.resource.split_once('.')? {
        ("limits", name) => (&resources.limits, name),
        ("requests", name) => (&resources.requests, name),
        _ => return None,
    };
    let amount: Quantity = amounts.as_ref()?.get(name)?.0.parse().ok()?;
    let divisor = source.divisor.as_ref().and_then(|divisor| divisor.0.parse().ok());
    let divisor = divisor.filter(|divisor: &Quantity| !divisor.is_zero()).unwrap_or(Quantity::from_int(1));
    // As the kubelet counts them.
    let units = |quantity: &Quantity| match name {
        "cpu" => quantity.milli_value(),
        _ => quantity.value(),
    };
    let (amount, divisor) = (units(&amount), units(&divisor));
    (amount >= 0 && divisor > 0).then(|| amount.unsigned_abs().div_ceil(divisor.unsigned_abs()).to_string())
}

/// The label with the ordinal of a pod of a StatefulSet.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "n", "labels": {"app": "web"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "4"},
            },
            "spec": {"nodeName": "node-0", "containers": []},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn environment(container: serde_json::Value) -> Environment {
        let mut full = json!({"name": "c"});
        full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        Environment::of(&pod(), &serde_json::from_value(full).unwrap())
    }

    #[test]
    fn variables_come_from_values_and_fields() {
        let field =
            |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let environment = environment(json!({"env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)$(A)-$$(A)-$(LATER)"},
            field("POD", "metadata.name"),
            field("INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
            field("APP", "metadata.labels['app']"), field("NODE", "spec.nodeName"), field("IP", "status.podIP"),
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]}));
        for (name, want) in
            [("A", "1"), ("B", "11-$(A)-$(LATER)"), ("POD", "p"), ("INDEX", "4"), ("NODE", "node-0")]
        {
            assert_eq!(environment.get(name), Variable::Set(want.to_owned()), "{name}");
        }
        for name in ["IP", "SECRET", "WEB_SERVICE_HOST", "APP"] {
            assert_eq!(environment.get(name), Variable::Unknown, "{name}");
        }
        assert_eq!(environment.get("HOSTNAME"), Variable::Unset);
        let of_programs = environment.clone().of_programs(&pod());
        assert_eq!(of_programs.get("HOSTNAME"), Variable::Set("p".to_owned()));
        assert_eq!(environment.expand("$(OTHER) $(A"), Some("$(OTHER) $(A".to_owned()));
        assert_eq!(environment.expand("$(SECRET)"), None);
    }

    #[test]
    fn resources_are_counted_in_units_of_their_divisor() {
        let value = |resource: &str, divisor: Option<&str>| {
            let source = json!({"resource": resource, "divisor": divisor.unwrap_or("0")});
            let environment = environment(json!({
                "env": [{"name": "A", "valueFrom": {"resourceFieldRef": source}}],
                "resources": {"limits": {"cpu": "1250m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}},
            }));
            match environment.get("A") {
                Variable::Set(value) => value,
                other => format!("{other:?}"),
            }
        };
        for (resource, divisor, want) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("1m"), "1250"),
            ("requests.cpu", None, "1"),
            ("limits.memory", None, "67108864"),
            ("requests.memory", Some("1Mi"), "32"),
            ("limits.memory", Some("1G"), "1"),
            ("limits.memory", Some("1m"), "67108864"),
            ("limits.ephemeral-storage", None, "Unknown"),
            ("limits", None, "Unknown"),
        ] {
            assert_eq!(value(resource, divisor), want, "{resource} {divisor:?}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_status() {
        let mut pod = pod();
        pod.status = serde_json::from_value(json!({
            "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
            "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
        }))
        .unwrap();
        for (path, want) in [
            ("status.hostIP", "10.0.0.1"),
            ("status.hostIPs", "10.0.0.1"),
            ("status.podIP", "10.1.0.1"),
            ("status.podIPs", "10.1.0.1,fd00::1"),
        ] {
            assert_eq!(field(&pod, path, Values::Fixed).as_deref(), Some(want), "{path}");
            assert_eq!(field(&Pod::default(), path, Values::Fixed), None);
        }
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
        assert!(environment.size() <= MAX_EXPANDED + 1000 * 2 * ENTRY);
        assert_eq!(environment.get("V999"), Variable::Unknown);
    }
}
