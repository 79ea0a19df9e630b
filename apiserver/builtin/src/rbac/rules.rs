//! Rules: what one RBAC rule allows.

use coracle_apimachinery::field::quote;
use coracle_apiserver::access::authorize::{RequestAttributes, Target};
use serde_json::{Map, Value};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// `verbs`.
    pub verbs: Values,
    /// `apiGroups`.
    pub api_groups: Values,
    /// `resources`.
    pub resources: Values,
    /// `resourceNames`; empty allows all names.
    pub resource_names: Values,
    /// `nonResourceURLs`.
    pub non_resource_urls: Values,
}

/// Matches every value of a member.
pub const ALL: &str = "*";

impl PolicyRule {
    /// Parses a rule; members that are missing or no lists are empty.
    pub fn from_value(rule: &Value) -> PolicyRule {
        let list = |name| strings(&rule[name]).map(str::to_owned).collect();
        PolicyRule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// Reads the rules of a role object.
    pub fn of_role(role: &Value) -> Vec<PolicyRule> {
        role["rules"].as_array().map_or(&[][..], Vec::as_slice).iter().map(PolicyRule::from_value).collect()
    }

    /// Creates a rule that allows every verb on every resource of every group.
    pub fn all_resources() -> PolicyRule {
        let all = || Values::from_iter([ALL.to_owned()]);
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() }
    }

    /// Creates a rule that allows every verb on every non-resource URL.
    pub fn all_paths() -> PolicyRule {
        let all = || Values::from_iter([ALL.to_owned()]);
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() }
    }

    /// Converts the rule to JSON; empty members are omitted.
    pub fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (name, list) in self.members() {
            if !list.is_empty() {
                value.insert(name.into(), list.as_slice().to_vec().into());
            }
        }
        Value::Object(value)
    }

    /// Estimates the bytes of text in the rule, with a few for the punctuation around each value.
    pub fn size(&self) -> usize {
        const AROUND: usize = 4;
        let size = |list: &Values| list.as_slice().iter().map(|text| text.len() + AROUND).sum::<usize>();
        self.members().into_iter().map(|(_, list)| size(list)).sum()
    }

    fn members(&self) -> [(&'static str, &Values); 5] {
        [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
        ]
    }

    /// Returns `true` if the rule allows a request.
    pub fn allows(&self, request: &RequestAttributes<'_>) -> bool {
        let any_or = |list: &Values, value: &str| list.contains(ALL) || list.contains(value);
        if !any_or(&self.verbs, request.verb) {
            return false;
        }
        match request.target {
            Target::Path(path) => self.non_resource_urls.as_slice().iter().any(|url| url_covers(url, path)),
            Target::Resource(r) => {
                any_or(&self.api_groups, r.group)
                    && self.names_resource(r.resource, r.subresource)
                    && (self.resource_names.is_empty() || self.resource_names.contains(r.name))
            }
        }
    }

    /// Returns `true` if the rule's resources contain `*`, `pods`, `pods/log` or `*/log`.
    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        let list = &self.resources;
        if list.contains(ALL) {
            return true;
        }
        match subresource {
            "" => list.contains(resource),
            sub => list.contains(&format!("{resource}/{sub}")) || list.contains(&format!("{ALL}/{sub}")),
        }
    }
}

/// The values of one member of a rule, in order. A lookup takes logarithmic time at most, so that
/// long lists of names do not slow down requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    items: Vec<String>,
    /// For a long list, the indexes of the items in sorted order.
    sorted: Vec<u32>,
}

impl Values {
    /// The longest list that is searched linearly.
    const SHORT: usize = 16;

    /// Returns the values in order.
    pub fn as_slice(&self) -> &[String] {
        &self.items
    }

    /// Returns `true` if there is no value.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns `true` if a value is among these.
    pub fn contains(&self, value: &str) -> bool {
        if self.sorted.is_empty() {
            return self.items.iter().any(|item| item == value);
        }
        self.sorted.binary_search_by(|&index| self.items[index as usize].as_str().cmp(value)).is_ok()
    }
}

impl FromIterator<String> for Values {
    fn from_iter<T: IntoIterator<Item = String>>(items: T) -> Values {
        let items: Vec<String> = items.into_iter().collect();
        let mut sorted: Vec<u32> = Vec::new();
        if items.len() > Values::SHORT {
            sorted.extend((0..).take(items.len()));
            sorted.sort_unstable_by_key(|&index| &items[index as usize]);
        }
        Values { items, sorted }
    }
}

/// Formats a list as Go's `%q` prints it: `["a" "b"]`.
pub fn quoted<S: AsRef<str>>(list: &[S]) -> String {
    format!("[{}]", list.iter().map(|s| quote(s.as_ref())).collect::<Vec<_>>().join(" "))
}

/// Iterates over the strings of a JSON list.
pub fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str)
}

/// Returns `true` if a URL of a rule, which may be a prefix that ends in `*`, covers a path.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || url_prefix(rule).is_some_and(|prefix| path.starts_with(prefix))
}

/// Returns the prefix before the `*` at the end of the URL of a rule; None if it does not end with
/// `*`.
pub fn url_prefix(rule: &str) -> Option<&str> {
    rule.ends_with('*').then(|| rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::access::authorize::ResourceTarget;
    use serde_json::json;

    fn resource<'a>(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        name: &'a str,
    ) -> RequestAttributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let target = ResourceTarget { group, resource, subresource, name, ..ResourceTarget::default() };
        RequestAttributes { verb, target: Target::Resource(target) }
    }

    #[test]
    fn rules_allow_matching_requests() {
        let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/status"]});
        let named =
            json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["a"]});
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/x", "/api/*"]});
        for (rule, request, want) in [
            (&pods, resource("get", "", "pods", "p"), true),
            (&pods, resource("get", "", "pods", ""), true),
            (&pods, resource("list", "", "pods", ""), false),
            (&pods, resource("get", "apps", "pods", ""), false),
            (&pods, resource("get", "", "pods/log", ""), false),
            (&pods, resource("get", "", "nodes/status", ""), true),
            (&named, resource("delete", "apps", "deployments/scale", "a"), true),
            (&named, resource("delete", "apps", "deployments", "b"), false),
            (&named, resource("list", "apps", "deployments", ""), false),
            (&urls, RequestAttributes { verb: "get", target: Target::Path("/api/v1") }, true),
            (&urls, RequestAttributes { verb: "get", target: Target::Path("/api") }, false),
            (&urls, RequestAttributes { verb: "post", target: Target::Path("/x") }, false),
            (&urls, resource("get", "", "x", ""), false),
        ] {
            assert_eq!(PolicyRule::from_value(rule).allows(&request), want, "{rule} {request:?}");
        }
    }

    #[test]
    fn rules_keep_their_form() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n"]});
        assert_eq!(PolicyRule::from_value(&rule).to_value(), rule);
    }
}
