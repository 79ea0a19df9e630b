//! FlowSchema: the requests it matches, and their flows within its priority level.

use http::HeaderValue;
use serde_json::Value;

use crate::access::UserInfo;
use crate::access::authorize::{RequestAttributes, ResourceTarget, Target};

/// A FlowSchema, parsed for matching.
pub struct FlowSchema {
    /// The name of the FlowSchema.
    pub name: String,
    /// The uid of the FlowSchema, as a header value.
    pub uid: HeaderValue,
    /// `matchingPrecedence`: the lowest is matched first.
    pub precedence: i64,
    /// The name of its PriorityLevelConfiguration.
    pub priority_level: String,
    distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

/// The property that distinguishes flows.
#[derive(Clone, Copy)]
enum Distinguisher {
    ByUser,
    ByNamespace,
}

struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<NonResourceRule>,
}

enum Subject {
    User(String),
    Group(String),
    /// `name` may be `*`.
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

struct NonResourceRule {
    verbs: Vec<String>,
    urls: Vec<String>,
}

impl FlowSchema {
    /// Parses a stored FlowSchema; None for one without uid or priority level, which validation
    /// rejects.
    pub fn read(object: &Value) -> Option<FlowSchema> {
        let spec = &object["spec"];
        let distinguisher = match spec["distinguisherMethod"]["type"].as_str() {
            Some("ByUser") => Some(Distinguisher::ByUser),
            Some("ByNamespace") => Some(Distinguisher::ByNamespace),
            _ => None,
        };
        Some(FlowSchema {
            name: object["metadata"]["name"].as_str()?.to_owned(),
            uid: HeaderValue::from_str(object["metadata"]["uid"].as_str()?).ok()?,
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            priority_level: spec["priorityLevelConfiguration"]["name"].as_str()?.to_owned(),
            distinguisher,
            rules: items(&spec["rules"]).map(Rule::read).collect(),
        })
    }

    /// Returns whether the schema matches a request.
    pub fn matches(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, request))
    }

    /// Returns the key of a request's flow within the priority level.
    pub fn flow_of(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> String {
        let distinguisher = match self.distinguisher {
            None => "",
            Some(Distinguisher::ByUser) => &user.name,
            Some(Distinguisher::ByNamespace) => request.namespace(),
        };
        format!("{}/{distinguisher}", self.name)
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        Rule {
            subjects: items(&rule["subjects"]).filter_map(Subject::read).collect(),
            resource_rules: items(&rule["resourceRules"])
                .map(|rule| ResourceRule {
                    verbs: texts(&rule["verbs"]),
                    groups: texts(&rule["apiGroups"]),
                    resources: texts(&rule["resources"]),
                    cluster_scope: rule["clusterScope"].as_bool().unwrap_or(false),
                    namespaces: texts(&rule["namespaces"]),
                })
                .collect(),
            non_resource_rules: items(&rule["nonResourceRules"])
                .map(|rule| NonResourceRule {
                    verbs: texts(&rule["verbs"]),
                    urls: texts(&rule["nonResourceURLs"]),
                })
                .collect(),
        }
    }

    fn matches(&self, user: &UserInfo, request: &RequestAttributes<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches(user)) {
            return false;
        }
        match &request.target {
            Target::Resource(target) => {
                self.resource_rules.iter().any(|rule| rule.matches(request.verb, target))
            }
            Target::Path(path) => self.non_resource_rules.iter().any(|rule| rule.matches(request.verb, path)),
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(match subject["kind"].as_str()? {
            "User" => Subject::User(text(&subject["user"]["name"])),
            "Group" => Subject::Group(text(&subject["group"]["name"])),
            "ServiceAccount" => Subject::ServiceAccount {
                namespace: text(&subject["serviceAccount"]["namespace"]),
                name: text(&subject["serviceAccount"]["name"]),
            },
            _ => return None,
        })
    }

    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.is_in(name),
            Subject::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:");
                account.and_then(|account| account.split_once(':')).is_some_and(
                    |(its_namespace, its_name)| {
                        namespace == its_namespace && (name == "*" || name == its_name)
                    },
                )
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, verb: &str, target: &ResourceTarget<'_>) -> bool {
        let in_scope = match target.namespace {
            "" => self.cluster_scope,
            namespace => has(&self.namespaces, namespace),
        };
        in_scope && has(&self.verbs, verb) && has(&self.groups, target.group) && self.has_resource(target)
    }

    fn has_resource(&self, target: &ResourceTarget<'_>) -> bool {
        self.resources.iter().any(|listed| match (listed.as_str(), target.subresource) {
            ("*", _) => true,
            (listed, "") => listed == target.resource,
            (listed, subresource) => listed
                .split_once('/')
                .is_some_and(|(resource, sub)| resource == target.resource && sub == subresource),
        })
    }
}

impl NonResourceRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        has(&self.verbs, verb)
            && self.urls.iter().any(|url| {
                // A path stands for all below it.
                let parent = url.strip_suffix('*').unwrap_or(url);
                let parent = parent.strip_suffix('/').unwrap_or(parent);
                url == "*"
                    || url == path
                    || path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
            })
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).filter_map(Value::as_str).map(str::to_owned).collect()
}
