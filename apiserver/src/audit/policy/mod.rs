//! The audit policy: the requests to audit, and their levels. The first rule that matches a request
//! decides.
//!
//! Source: `audit.k8s.io/v1` `Policy`; `k8s.io/apiserver/pkg/audit/policy`.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::access::UserInfo;
use crate::access::authorize::{RequestAttributes, ResourceTarget, Target, aggregate};
use crate::codec::yaml;
use crate::field::{ErrorType, Errors, Field, FieldError, quote};
use crate::validation::content::dns1123_subdomain;

/// The group and version of policies and events.
pub const API_VERSION: &str = "audit.k8s.io/v1";

/// The amount of data that is recorded about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No event.
    #[default]
    None,
    /// The user, the request and its outcome, without bodies.
    Metadata,
    /// The body of the request as well.
    Request,
    /// The body of the response as well.
    RequestResponse,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// Returns the name in policies, events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// A point in the course of a request at which an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request was received.
    RequestReceived,
    /// The head of the response is sent, and its body follows: for long-running requests such as
    /// watches.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The request ended in a panic.
    Panic,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    /// Returns the name in policies and events.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// The decision of the policy about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestAuditConfig {
    /// The amount of data that is recorded.
    pub level: Level,
    /// The stages without an event.
    pub omit_stages: Vec<Stage>,
    /// Whether objects are recorded without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

/// The reasons for which a policy cannot be used: one line for the operator, in kube-apiserver's
/// words.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("failed to read file path {path:?}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The file does not contain a valid policy.
    #[error("{error}: from file {path}")]
    Invalid {
        /// The error in the policy.
        error: String,
        /// The file.
        path: String,
    },
}

/// An audit policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
    #[serde(skip)]
    config: RequestAuditConfig,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy in YAML or JSON (`--audit-policy-file`).
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn read(file: &Path) -> Result<Policy, PolicyError> {
        let path = file.display().to_string();
        let text =
            std::fs::read(file).map_err(|source| PolicyError::Unreadable { path: path.clone(), source })?;
        Policy::parse(&text).map_err(|error| PolicyError::Invalid { error, path })
    }

    /// Parses and validates a policy in YAML or JSON.
    ///
    /// # Errors
    /// The error, in kube-apiserver's format.
    pub fn parse(text: &[u8]) -> Result<Policy, String> {
        let failed = |error: &dyn fmt::Display| format!("failed decoding: {error}");
        let json = yaml::to_json(text).map_err(|error| failed(&error))?.json;
        let mut document: Value = serde_json::from_slice(&json).map_err(|error| failed(&error))?;
        // The error about a missing kind repeats the text, which may be a secret of another file.
        if !document.is_object() && !document.is_null() {
            return Err(failed(&"it is no map"));
        }
        drop_nulls(&mut document);
        check_type(&document, &json).map_err(|error| failed(&error))?;
        let mut policy: Policy = serde_json::from_value(document.clone()).map_err(|error| failed(&error))?;
        for field in unknown_fields(&document) {
            tracing::warn!(field, "the audit policy has an unknown field, which is ignored");
        }
        let errors = validate(&document);
        if !errors.is_empty() {
            return Err(aggregate(&errors.into_iter().collect::<Vec<_>>()));
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        let omitted = stages(&policy.omit_stages);
        for rule in &mut policy.rules {
            let mut omit_stages = stages(&rule.omit_stages);
            omit_stages
                .extend(omitted.iter().copied().filter(|stage| !stages(&rule.omit_stages).contains(stage)));
            rule.config = RequestAuditConfig {
                level: Level::ALL.into_iter().find(|level| level.name() == rule.level).unwrap_or_default(),
                omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(policy.omit_managed_fields),
            };
        }
        Ok(policy)
    }

    /// Returns the configuration of the first rule that matches; None if the request is not
    /// audited.
    ///
    /// - `user`: the user who sent the request, before any impersonation; None if authentication
    ///   failed.
    pub fn evaluate(
        &self,
        user: Option<&UserInfo>,
        request: &RequestAttributes<'_>,
    ) -> Option<&RequestAuditConfig> {
        let rule = self.rules.iter().find(|rule| rule.matches(user, request))?;
        (rule.config.level > Level::None).then_some(&rule.config)
    }
}

fn stages(names: &[String]) -> Vec<Stage> {
    Stage::ALL.into_iter().filter(|stage| names.iter().any(|name| name == stage.name())).collect()
}

/// Removes nulls, which Go treats as missing.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn check_type(document: &Value, json: &[u8]) -> Result<(), String> {
    let member = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (member("apiVersion"), member("kind"));
    for (name, value) in [("Kind", kind), ("apiVersion", version)] {
        if value.is_empty() {
            return Err(format!("Object '{name}' is missing in '{}'", String::from_utf8_lossy(json)));
        }
    }
    if version != API_VERSION || kind != "Policy" {
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/audit/scheme.go:30\"",
            quote(kind),
            quote(version)
        ));
    }
    Ok(())
}

/// Returns the paths of the fields in a document that the type of policies does not have.
fn unknown_fields(document: &Value) -> Vec<String> {
    const POLICY: &[&str] = &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
    const RULE: &[&str] = &[
        "level",
        "users",
        "userGroups",
        "verbs",
        "resources",
        "namespaces",
        "nonResourceURLs",
        "omitStages",
        "omitManagedFields",
    ];
    const RESOURCES: &[&str] = &["group", "resources", "resourceNames"];
    let mut unknown = Vec::new();
    let mut check = |field: &Field<'_>, known: &[&str]| {
        let others = field.entries().filter(|(name, _)| !known.contains(name));
        unknown.extend(others.map(|(name, _)| field.get(name).path().to_string()));
    };
    let root = Field::root(document);
    check(&root, POLICY);
    for rule in root.get("rules").items() {
        check(&rule, RULE);
        for resources in rule.get("resources").items() {
            check(&resources, RESOURCES);
        }
    }
    unknown
}

fn validate(document: &Value) -> Errors {
    let mut errors = Errors::new();
    let root = Field::root(document);
    validate_stages(&root.get("omitStages"), &mut errors);
    for rule in root.get("rules").items() {
        let level = rule.get("level");
        match level.str() {
            "" => errors.push(level.required("")),
            name if Level::ALL.iter().any(|level| level.name() == name) => {}
            _ => errors.push(level.not_supported(&Level::ALL.map(Level::name))),
        }
        let urls = rule.get("nonResourceURLs");
        urls.items().for_each(|url| validate_url(&url, &mut errors));
        rule.get("resources")
            .items()
            .for_each(|resources| validate_resources(&rule, &resources, &mut errors));
        validate_stages(&rule.get("omitStages"), &mut errors);
        let is_of_resources = !rule.get("resources").is_empty() || !rule.get("namespaces").is_empty();
        if is_of_resources && !urls.is_empty() {
            errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
        }
    }
    errors
}

fn validate_stages(names: &Field<'_>, errors: &mut Errors) {
    for name in names.items() {
        let allowed = Stage::ALL.map(Stage::name);
        errors.push_if(!allowed.contains(&name.str()), || {
            name.invalid(format!("allowed stages are {}", allowed.join(",")))
        });
    }
}

fn validate_url(url: &Field<'_>, errors: &mut Errors) {
    let text = url.str();
    if text == "*" {
        return;
    }
    errors.push_if(!text.starts_with('/'), || {
        url.invalid("non-resource URL rules must begin with a '/' character")
    });
    errors.push_if(text.strip_suffix(|_: char| true).is_some_and(|start| start.contains('*')), || {
        url.invalid("non-resource URL wildcards '*' must be the final character of the rule")
    });
}

/// Validates the resources of a rule. kube-apiserver omits the index in these paths.
fn validate_resources(rule: &Field<'_>, resources: &Field<'_>, errors: &mut Errors) {
    let path = |name: &str| rule.get("resources").path().child(name);
    let group = resources.get("group");
    let problems = if group.is_empty() { Vec::new() } else { dns1123_subdomain(group.str()) };
    errors.push_if(!problems.is_empty(), || {
        FieldError::new(ErrorType::Invalid, &path("group"), group.value().cloned(), problems.join(","))
    });
    let names = resources.get("resourceNames");
    errors.push_if(!names.is_empty() && resources.get("resources").is_empty(), || {
        let detail = "using resourceNames requires at least one resource";
        FieldError::new(ErrorType::Invalid, &path("resourceNames"), names.value().cloned(), detail)
    });
}

impl Rule {
    fn matches(&self, user: Option<&UserInfo>, request: &RequestAttributes<'_>) -> bool {
        let any = |list: &[String], text: &str| list.iter().any(|item| item == text);
        if !self.users.is_empty() && !user.is_some_and(|user| any(&self.users, &user.name)) {
            return false;
        }
        let is_in_group = |user: &UserInfo| user.groups.iter().any(|group| any(&self.user_groups, group));
        if !self.user_groups.is_empty() && !user.is_some_and(is_in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !any(&self.verbs, request.verb) {
            return false;
        }
        let of_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match &request.target {
            Target::Resource(target) if of_resources => {
                (self.namespaces.is_empty() || any(&self.namespaces, target.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|of| of.matches(target)))
            }
            Target::Path(path) if !of_resources && !self.non_resource_urls.is_empty() => {
                self.non_resource_urls.iter().any(|url| path_matches(path, url))
            }
            _ => !of_resources && self.non_resource_urls.is_empty(),
        }
    }
}

fn path_matches(path: &str, url: &str) -> bool {
    url == "*" || url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

impl GroupResources {
    fn matches(&self, target: &ResourceTarget<'_>) -> bool {
        if self.group != target.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == target.name);
        is_named && self.resources.iter().any(|resource| resource_matches(resource, target))
    }
}

/// Returns whether a rule's `pods`, `pods/log`, `pods/*`, `*/log` or `*` matches a resource or
/// subresource.
fn resource_matches(rule: &str, target: &ResourceTarget<'_>) -> bool {
    let (resource, subresource) = (target.resource, target.subresource);
    let is_exact = match rule.split_once('/') {
        _ if rule == "*" => true,
        None => subresource.is_empty() && rule == resource,
        Some((of, sub)) => !subresource.is_empty() && of == resource && sub == subresource,
    };
    let of_any = !subresource.is_empty() && rule.strip_prefix("*/") == Some(subresource);
    is_exact || of_any || rule.strip_suffix("/*") == Some(resource)
}

#[cfg(test)]
mod tests;
