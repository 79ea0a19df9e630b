//! Rules: what one RBAC rule allows, and whether rules together cover others.

use serde_json::{Map, Value};

use super::authorize::{RequestAttributes, Target};
use crate::field::quote;

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

const ALL: &str = "*";

impl Rule {
    pub fn from_value(rule: &Value) -> Rule {
        let list = |name| strings(&rule[name]).map(str::to_owned).collect();
        Rule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a role object.
    pub fn of_role(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().map_or(&[][..], Vec::as_slice).iter().map(Rule::from_value).collect()
    }

    /// Everything, in every group, by resources.
    pub fn all_resources() -> Rule {
        let all = || vec![ALL.to_owned()];
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() }
    }

    /// Everything that is no resource.
    pub fn all_paths() -> Rule {
        let all = || vec![ALL.to_owned()];
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() }
    }

    /// The JSON form; empty members are left out.
    pub fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (name, list) in self.members() {
            if !list.is_empty() {
                value.insert(name.into(), list.to_vec().into());
            }
        }
        Value::Object(value)
    }

    fn members(&self) -> [(&'static str, &[String]); 5] {
        [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
        ]
    }

    pub fn allows(&self, request: &RequestAttributes<'_>) -> bool {
        if !any_or(&self.verbs, |v| v == request.verb) {
            return false;
        }
        match request.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|url| url_covers(url, path)),
            Target::Resource(r) => {
                any_or(&self.api_groups, |g| g == r.group)
                    && any_or(&self.resources, |rule| resource_matches(rule, r.resource, r.subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, r.name))
            }
        }
    }

    /// The smallest rules that say the same: one verb on one resource or URL each.
    fn atoms(&self) -> Vec<Rule> {
        let one = |s: &String| vec![s.clone()];
        let names: Vec<Vec<String>> = match self.resource_names.as_slice() {
            [] => vec![vec![]],
            names => names.iter().map(one).collect(),
        };
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    atoms.extend(names.iter().map(|name| Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        resource_names: name.clone(),
                        non_resource_urls: vec![],
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Rule::default()
            }));
        }
        atoms
    }

    /// Whether this rule allows all that an atom allows.
    fn covers(&self, atom: &Rule) -> bool {
        let all_in = |own: &[String], its: &[String]| has(own, ALL) || its.iter().all(|i| has(own, i));
        let names = self.resource_names.is_empty()
            || (!atom.resource_names.is_empty()
                && atom.resource_names.iter().all(|n| has(&self.resource_names, n)));
        all_in(&self.verbs, &atom.verbs)
            && all_in(&self.api_groups, &atom.api_groups)
            && atom.resources.iter().all(|r| {
                let (resource, subresource) = r.split_once('/').unwrap_or((r, ""));
                any_or(&self.resources, |rule| resource_matches(rule, resource, subresource))
            })
            && names
            && atom
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }

    /// As escalation errors print it: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    fn compact(&self) -> String {
        let titles = ["APIGroups", "Resources", "NonResourceURLs", "ResourceNames", "Verbs"];
        let parts: Vec<String> = titles
            .iter()
            .zip(self.members())
            .filter(|(_, (_, list))| !list.is_empty())
            .map(|(title, (_, list))| format!("{title}:{}", quoted(list)))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// What of `wanted` no rule of `owned` covers, in small rules.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let covered = |atom: &Rule| owned.iter().any(|rule| rule.covers(atom));
    wanted.iter().flat_map(Rule::atoms).filter(|atom| !covered(atom)).collect()
}

/// Small rules as lines: verbs on the same thing joined, sorted, each once.
pub fn describe(atoms: Vec<Rule>) -> String {
    let mut joined: Vec<Rule> = Vec::new();
    for atom in atoms {
        let same = |rule: &&mut Rule| {
            atom.non_resource_urls.is_empty()
                && rule.api_groups == atom.api_groups
                && rule.resources == atom.resources
                && rule.resource_names == atom.resource_names
        };
        match joined.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(atom.verbs),
            None => joined.push(atom),
        }
    }
    let mut lines: Vec<String> = joined.iter().map(Rule::compact).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

/// A list as Go's `%q` prints it: `["a" "b"]`.
pub fn quoted(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|s| quote(s)).collect::<Vec<_>>().join(" "))
}

/// The strings of a JSON list.
pub fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str)
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|i| i == item)
}

fn any_or(list: &[String], matches: impl Fn(&str) -> bool) -> bool {
    list.iter().any(|item| item == ALL || matches(item))
}

/// `pods`, `pods/log` or `*/log` against a resource and a subresource.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((r, s)) => !subresource.is_empty() && s == subresource && (r == ALL || r == resource),
    }
}

/// A URL, or a prefix that ends in `*`.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authorize::ResourceTarget;
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
    fn what_a_rule_allows() {
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
            assert_eq!(Rule::from_value(rule).allows(&request), want, "{rule} {request:?}");
        }
    }

    #[test]
    fn what_is_missing() {
        let pods =
            json!({"verbs": ["get", "list"], "apiGroups": ["", "x"], "resources": ["pods", "pods/log"]});
        for (owned, wanted, want) in [
            (json!([pods]), json!([pods]), ""),
            (
                json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]),
                json!([pods]),
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"list\"]}\n{APIGroups:[\"x\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"x\"], Resources:[\"pods/log\"], Verbs:[\"list\"]}",
            ),
            (
                json!([]),
                json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]),
                "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}",
            ),
            (
                json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n"]}]),
                json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n", "m"]},
                       {"verbs": ["get"], "apiGroups": [""], "resources": ["a"]}]),
                "{APIGroups:[\"\"], Resources:[\"a\"], ResourceNames:[\"m\"], Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"a\"], Verbs:[\"get\"]}",
            ),
            (
                json!([{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]),
                json!([{"verbs": ["get"], "nonResourceURLs": ["/a/b", "/a"]}]),
                "{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}",
            ),
        ] {
            let rules = |list: &Value| Rule::of_role(&json!({"rules": list}));
            assert_eq!(describe(missing(&rules(&owned), &rules(&wanted))), want, "{owned} {wanted}");
        }
    }

    #[test]
    fn rules_keep_their_form() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["a"], "resourceNames": ["n"]});
        assert_eq!(Rule::from_value(&rule).to_value(), rule);
    }
}
