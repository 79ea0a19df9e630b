//! Matching: whether a configuration is for a request, and in which version it wants to see it.

use std::sync::Arc;

use serde_json::Value;

use super::rules::Rule;
use crate::admission::json::{items, text};
use crate::admission::{AdmissionAttributes, Operation};
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::resource_info::{ResourceInfo, ResourceTable};
use crate::selector::LabelSelector;
use crate::{Error, Result};

/// `matchPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Rules match requests that name exactly their groups and versions.
    Exact,
    /// Rules also match a request for the same objects in another group or version, which are
    /// converted then.
    #[default]
    Equivalent,
}

/// The requests that a webhook, a policy or a binding is for.
#[derive(Clone, Debug)]
pub struct MatchCriteria {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Without rules everything matches (`matchResources` of a binding), or nothing (a webhook).
    matches_without_rules: bool,
    policy: MatchPolicy,
    /// The namespace selector; None for one that cannot be read, which selects nothing.
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
}

/// A match: as what the configuration sees the request.
#[derive(Clone)]
pub struct Invocation {
    /// The resource in the version that was matched.
    pub info: Arc<ResourceInfo>,
}

impl MatchCriteria {
    /// Reads the criteria of a webhook: `rules`, `matchPolicy`, `namespaceSelector` and
    /// `objectSelector` are its members.
    pub fn of_webhook(webhook: &Value) -> MatchCriteria {
        MatchCriteria {
            rules: rules(&webhook["rules"]),
            excluded: Vec::new(),
            matches_without_rules: false,
            ..MatchCriteria::read(webhook)
        }
    }

    /// Reads the criteria of `matchConstraints` or `matchResources`; null matches everything.
    pub fn of_match_resources(resources: &Value) -> MatchCriteria {
        MatchCriteria::read(resources)
    }

    fn read(value: &Value) -> MatchCriteria {
        let selector = |member: &str| match value.get(member) {
            None | Some(Value::Null) => Some(LabelSelector::default()),
            selector => LabelSelector::from_object(selector),
        };
        MatchCriteria {
            rules: rules(&value["resourceRules"]),
            excluded: rules(&value["excludeResourceRules"]),
            matches_without_rules: true,
            policy: match text(&value["matchPolicy"]) {
                "Exact" => MatchPolicy::Exact,
                _ => MatchPolicy::Equivalent,
            },
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Matches a request against the configuration; returns the invocation for it, or None if it
    /// does not match.
    ///
    /// # Errors
    /// 404 if the request matches, but for its namespace, which does not exist.
    pub fn matches(
        &self,
        attributes: &AdmissionAttributes<'_>,
        resources: &ResourceTable,
        cluster: &dyn Cluster,
    ) -> Result<Option<Invocation>> {
        // Rules are compared first: that costs least. An error of the selectors counts only for
        // what the rules match.
        let Some(info) = self.matching_resource(attributes, resources) else { return Ok(None) };
        if !self.matches_objects(attributes) || !self.matches_namespace(attributes, cluster)? {
            return Ok(None);
        }
        Ok(Some(Invocation { info }))
    }

    fn matching_resource(
        &self,
        attributes: &AdmissionAttributes<'_>,
        resources: &ResourceTable,
    ) -> Option<Arc<ResourceInfo>> {
        let resource = attributes.resource;
        let requested = resources.find(&resource.group, attributes.version, &resource.resource)?;
        if self.first_match(&self.excluded, attributes, requested, resources).is_some() {
            return None;
        }
        if self.rules.is_empty() && self.matches_without_rules {
            return Some(requested.clone());
        }
        self.first_match(&self.rules, attributes, requested, resources)
    }

    /// Returns the requested resource if a rule matches it; else, in the order of the rules, an
    /// equivalent one.
    fn first_match(
        &self,
        rules: &[Rule],
        attributes: &AdmissionAttributes<'_>,
        requested: &Arc<ResourceInfo>,
        resources: &ResourceTable,
    ) -> Option<Arc<ResourceInfo>> {
        let matches = |rule: &Rule, info: &ResourceInfo| {
            rule.matches(attributes, (&info.group, &info.version, &info.plural))
        };
        if rules.iter().any(|rule| matches(rule, requested)) {
            return Some(requested.clone());
        }
        if self.policy == MatchPolicy::Exact {
            return None;
        }
        let has_subresource = |info: &ResourceInfo| {
            attributes.subresource.is_empty() || info.subresource(attributes.subresource).is_some()
        };
        rules.iter().find_map(|rule| {
            let mut equivalents = resources.equivalents(requested);
            equivalents.find(|info| has_subresource(info) && matches(rule, info)).cloned()
        })
    }

    /// Checks whether the object selector selects the new object or the old one.
    fn matches_objects(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let Some(selector) = &self.objects else { return false };
        let selects = |object: &Value| selector.matches_map(object["metadata"].get("labels"));
        selector.is_empty()
            || (!attributes.object.is_null() && selects(attributes.object))
            || attributes.old_object.is_some_and(selects)
    }

    fn matches_namespace(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<bool> {
        let namespace = attributes.request_namespace();
        let is_namespace = attributes.resource.resource == "namespaces";
        if namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let Some(selector) = &self.namespaces else { return Ok(false) };
        if selector.is_empty() {
            return Ok(true);
        }
        // A namespace that is being written is selected by its new labels.
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_namespace && is_written && attributes.subresource.is_empty() {
            return Ok(selector.matches_map(attributes.object["metadata"].get("labels")));
        }
        let resource = GroupResource::new("", "namespaces");
        let found = cluster.get(&resource, "", namespace)?;
        let found = found.ok_or_else(|| Error::not_found(&resource, namespace))?;
        Ok(selector.matches_map(found["metadata"].get("labels")))
    }
}

fn rules(list: &Value) -> Vec<Rule> {
    items(list).iter().map(Rule::read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::testing::{Request, World};

    fn deployment(labels: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "d", "labels": labels}})
    }

    fn world() -> World {
        World::default().with(
            "",
            "namespaces",
            json!({"metadata": {"name": "ns", "labels": {"kubernetes.io/metadata.name": "ns"}}}),
        )
    }

    fn matched(criteria: &MatchCriteria, mut request: Request, version: &'static str) -> Result<String> {
        let table = coracle_resources::built_in();
        let mut attributes = request.attributes();
        attributes.version = version;
        let found = criteria.matches(&attributes, &table, &world())?;
        Ok(found.map_or("-".to_owned(), |found| found.info.api_version.clone()))
    }

    #[test]
    fn requests_match_by_rules_and_selectors() {
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]});
        let new = || Request::new("apps", "deployments", "ns", deployment(json!({"a": "b"})));
        let selecting = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        for (case, request, criteria, want) in [
            ("its rule", new(), json!({}), "apps/v1"),
            ("its label", new(), json!({"objectSelector": selecting("a", "b")}), "apps/v1"),
            ("no label", new(), json!({"objectSelector": selecting("a", "c")}), "-"),
            (
                "the old label",
                new().update(deployment(json!({"a": "c"}))),
                json!({"objectSelector": selecting("a", "c")}),
                "apps/v1",
            ),
            (
                "its namespace",
                new(),
                json!({"namespaceSelector": selecting("kubernetes.io/metadata.name", "ns")}),
                "apps/v1",
            ),
            ("another namespace", new(), json!({"namespaceSelector": selecting("x", "ns")}), "-"),
        ] {
            let mut webhook = criteria;
            webhook["rules"] = json!([rule]);
            let criteria = MatchCriteria::of_webhook(&webhook);
            assert_eq!(matched(&criteria, request, "v1").expect(case), want, "{case}");
        }
    }

    #[test]
    fn the_labels_of_a_new_namespace_are_its_own() {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "operations": ["*"]});
        let selector = json!({"matchLabels": {"a": "b"}});
        let criteria = MatchCriteria::of_webhook(&json!({"rules": [rule], "namespaceSelector": selector}));
        for (labels, want) in [(json!({"a": "b"}), "v1"), (json!({}), "-")] {
            let namespace = json!({"kind": "Namespace", "metadata": {"name": "new", "labels": labels}});
            let request = Request::new("", "namespaces", "", namespace);
            assert_eq!(matched(&criteria, request, "v1").expect("no look-up"), want);
        }
    }

    #[test]
    fn other_versions_match_if_the_policy_is_equivalent() {
        let autoscaler = || json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}});
        let request = || Request::new("autoscaling", "horizontalpodautoscalers", "ns", autoscaler());
        let rule = |group: &str, version: &str| json!({"apiGroups": [group], "apiVersions": [version], "resources": ["*"], "operations": ["*"]});
        for (policy, rules, version, want) in [
            ("Exact", vec![rule("autoscaling", "v1")], "v2", "-"),
            ("Equivalent", vec![rule("autoscaling", "v1")], "v2", "autoscaling/v1"),
            (
                "Equivalent",
                vec![rule("autoscaling", "v1"), rule("autoscaling", "v2")],
                "v2",
                "autoscaling/v2",
            ),
            ("Equivalent", vec![rule("other", "v1")], "v2", "-"),
        ] {
            let criteria = MatchCriteria::of_webhook(&json!({"matchPolicy": policy, "rules": rules}));
            assert_eq!(matched(&criteria, request(), version).expect("no error"), want, "{policy}");
        }
        let event = json!({"kind": "Event", "metadata": {"name": "e"}});
        let criteria = MatchCriteria::of_webhook(&json!({"rules": [rule("events.k8s.io", "v1")]}));
        assert_eq!(
            matched(&criteria, Request::new("", "events", "ns", event), "v1").expect("no error"),
            "events.k8s.io/v1"
        );
    }

    #[test]
    fn match_resources_exclude_and_match_all_without_rules() {
        let rule = |resource: &str| json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]});
        let request = || Request::new("apps", "deployments", "ns", deployment(json!({})));
        for (resources, want) in [
            (json!(null), "apps/v1"),
            (json!({"excludeResourceRules": [rule("deployments")]}), "-"),
            (json!({"excludeResourceRules": [rule("pods")]}), "apps/v1"),
            (json!({"resourceRules": [rule("*")], "excludeResourceRules": [rule("deployments")]}), "-"),
            (json!({"resourceRules": [rule("pods")]}), "-"),
        ] {
            let criteria = MatchCriteria::of_match_resources(&resources);
            assert_eq!(matched(&criteria, request(), "v1").expect("no error"), want, "{resources}");
        }
        let webhook = MatchCriteria::of_webhook(&json!({}));
        assert_eq!(matched(&webhook, request(), "v1").expect("no error"), "-");
    }

    #[test]
    fn a_missing_namespace_is_an_error_of_what_matches() {
        let selector = json!({"matchLabels": {"a": "b"}});
        let rule = |resource: &str| json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]});
        for (resource, want) in [("deployments", Some(404)), ("pods", None)] {
            let criteria =
                MatchCriteria::of_webhook(&json!({"rules": [rule(resource)], "namespaceSelector": selector}));
            let request = Request::new("apps", "deployments", "gone", deployment(json!({})));
            assert_eq!(matched(&criteria, request, "v1").err().map(|error| error.code()), want);
        }
    }
}
