//! The rights that are missing, and their description.

use std::collections::{BTreeSet, HashMap};

use crate::rbac::rules::{PolicyRule, Values, quoted};

/// The target of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RightTarget<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        /// None: all names.
        name: Option<&'a str>,
    },
    Url(&'a str),
}

/// The missing rights, as far as they fit into the limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing<'a> {
    pub(super) rights: Vec<(RightTarget<'a>, &'a str)>,
    /// The remaining bytes of the description.
    pub(super) remaining_bytes: usize,
    pub(super) is_truncated: bool,
}

impl Missing<'_> {
    /// Returns `true` if no right is missing.
    pub fn is_empty(&self) -> bool {
        self.rights.is_empty() && !self.is_truncated
    }

    /// Returns one rule for each missing right.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let one = |text: &str| Values::from_iter([text.to_owned()]);
        let rule = |(target, verb): &(RightTarget<'_>, &str)| match target {
            RightTarget::Resource { group, resource, name } => PolicyRule {
                verbs: one(verb),
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.iter().map(|name| (*name).to_owned()).collect(),
                ..PolicyRule::default()
            },
            RightTarget::Url(url) => {
                PolicyRule { verbs: one(verb), non_resource_urls: one(url), ..PolicyRule::default() }
            }
        };
        self.rights.iter().map(rule).collect()
    }

    /// Formats the missing rights as in escalation errors: a line for each resource, name and URL
    /// with its verbs joined, sorted, each line once.
    pub fn describe(&self) -> String {
        let mut lines = BTreeSet::new();
        let mut resources: HashMap<RightTarget<'_>, Vec<&str>> = HashMap::new();
        for (target, verb) in &self.rights {
            match target {
                RightTarget::Resource { .. } => resources.entry(*target).or_default().push(verb),
                RightTarget::Url(_) => drop(lines.insert(target.describe(&[verb]))),
            }
        }
        lines.extend(resources.into_iter().map(|(target, verbs)| target.describe(&verbs)));
        let mut text = lines.into_iter().collect::<Vec<_>>().join("\n");
        if self.is_truncated {
            text.push_str("\n...and more");
        }
        text
    }

    /// Reserves space in the description.
    pub(super) fn reserve(&mut self, text: usize) {
        match self.remaining_bytes.checked_sub(text) {
            Some(left) => self.remaining_bytes = left,
            None => self.is_truncated = true,
        }
    }
}

impl RightTarget<'_> {
    /// Describes a missing rule, for example as `{APIGroups:[""], Resources:["pods"], Verbs:["get"
    /// "list"]}`.
    fn describe(&self, verbs: &[&str]) -> String {
        let verbs = quoted(verbs);
        match self {
            RightTarget::Resource { group, resource, name } => {
                let name = name.map_or(String::new(), |name| format!("ResourceNames:{}, ", quoted(&[name])));
                let (group, resource) = (quoted(&[group]), quoted(&[resource]));
                format!("{{APIGroups:{group}, Resources:{resource}, {name}Verbs:{verbs}}}")
            }
            RightTarget::Url(url) => format!("{{NonResourceURLs:{}, Verbs:{verbs}}}", quoted(&[url])),
        }
    }
}
