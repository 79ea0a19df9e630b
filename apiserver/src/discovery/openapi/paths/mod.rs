//! The paths of a document: the operations of a resource, with their ids, parameters and responses.
//!
//! [`VERBS`] describes the verbs, [`Verb::of_custom`] the differences of custom resources. Start at
//! [`of_version`].

mod parameters;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::schemas::{META, component, reference};
use crate::resource_info::{ResourceInfo, Subresource};
use parameters::{in_path, in_query, pretty};

/// The media types of objects.
pub(super) const FORMATS: &[&str] =
    &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];

/// The HTTP method of a verb on a resource, and its description.
#[derive(Clone, Copy)]
struct Verb {
    name: &'static str,
    method: &'static str,
    action: &'static str,
    /// The prefix of the operation's id.
    id: &'static str,
    /// The description, with `{kind}`, `{a kind}`, and `{part}`: `status of `, or nothing.
    description: &'static str,
    /// The types of options, and the members of them that are left out.
    options: &'static [(&'static str, &'static [&'static str])],
    body: RequestContent,
    response: ResponseContent,
    codes: &'static [u16],
}

#[derive(Clone, Copy, PartialEq)]
enum RequestContent {
    None,
    Object,
    Patch,
    DeleteOptions,
}

#[derive(Clone, Copy, PartialEq)]
enum ResponseContent {
    Object,
    List,
    Events,
    Status,
}

const VERBS: [Verb; 9] = [
    Verb {
        name: "list",
        method: "get",
        action: "list",
        id: "list",
        description: "list or watch objects of kind {kind}",
        options: &[("ListOptions", &[])],
        body: RequestContent::None,
        response: ResponseContent::List,
        codes: &[200],
    },
    Verb {
        name: "create",
        method: "post",
        action: "post",
        id: "create",
        description: "create {part}{a kind}",
        options: &[("CreateOptions", &[])],
        body: RequestContent::Object,
        response: ResponseContent::Object,
        codes: &[200, 201, 202],
    },
    Verb {
        name: "deletecollection",
        method: "delete",
        action: "deletecollection",
        id: "delete",
        description: "delete collection of {kind}",
        options: &[("DeleteOptions", &[]), ("ListOptions", &["allowWatchBookmarks", "watch"])],
        body: RequestContent::DeleteOptions,
        response: ResponseContent::Status,
        codes: &[200],
    },
    Verb {
        name: "get",
        method: "get",
        action: "get",
        id: "read",
        description: "read {part}the specified {kind}",
        options: &[],
        body: RequestContent::None,
        response: ResponseContent::Object,
        codes: &[200],
    },
    Verb {
        name: "update",
        method: "put",
        action: "put",
        id: "replace",
        description: "replace {part}the specified {kind}",
        options: &[("UpdateOptions", &[])],
        body: RequestContent::Object,
        response: ResponseContent::Object,
        codes: &[200, 201],
    },
    Verb {
        name: "patch",
        method: "patch",
        action: "patch",
        id: "patch",
        description: "partially update {part}the specified {kind}",
        options: &[("PatchOptions", &[])],
        body: RequestContent::Patch,
        response: ResponseContent::Object,
        codes: &[200, 201],
    },
    Verb {
        name: "delete",
        method: "delete",
        action: "delete",
        id: "delete",
        description: "delete {a kind}",
        options: &[("DeleteOptions", &[])],
        body: RequestContent::DeleteOptions,
        response: ResponseContent::Status,
        codes: &[200, 202],
    },
    Verb {
        name: "watchlist",
        method: "get",
        action: "watchlist",
        id: "watch",
        description: "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list \
                      operation instead.",
        options: &[("ListOptions", &[])],
        body: RequestContent::None,
        response: ResponseContent::Events,
        codes: &[200],
    },
    Verb {
        name: "watch",
        method: "get",
        action: "watch",
        id: "watch",
        description: "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list \
                      operation instead, filtered to a single item with the 'fieldSelector' parameter.",
        options: &[("ListOptions", &[])],
        body: RequestContent::None,
        response: ResponseContent::Events,
        codes: &[200],
    },
];

impl Verb {
    fn named(name: &str) -> Option<Verb> {
        VERBS.into_iter().find(|verb| verb.name == name)
    }

    /// Returns the verb with the description that custom resources have.
    fn of_custom(self) -> Verb {
        match self.name {
            "list" => Verb { description: "list objects of kind {kind}", ..self },
            "deletecollection" => {
                Verb { options: &[("ListOptions", &[])], body: RequestContent::None, ..self }
            }
            "get" => Verb { options: &[("GetOptions", &[])], ..self },
            "patch" => Verb { codes: &[200], ..self },
            _ => self,
        }
    }
}

/// The operations by path and method, before they are written.
type Items = BTreeMap<String, BTreeMap<&'static str, Operation>>;

struct Operation {
    members: Map<String, Value>,
    parameters: Vec<Value>,
}

/// Returns the paths of a group's version.
pub(super) fn of_version(
    group: &str,
    version: &str,
    resources: &[Arc<ResourceInfo>],
    custom: bool,
) -> Map<String, Value> {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let mut items = Items::new();
    for resource in resources {
        Writer { group, version, root: &root, resource, items: &mut items }.write();
    }
    let mut paths: Map<String, Value> = items.into_iter().map(written).collect();
    if !custom {
        let id = format!("get{}APIResources", prefix(group, version));
        let list = reference(&format!("{META}.APIResourceList"));
        let item = single_get(&tag(group, Some(version)), "get available resources", &id, FORMATS, &list);
        paths.insert(format!("{root}/"), item);
    }
    paths
}

/// Returns the item of a path with only a GET without parameters.
pub(super) fn single_get(
    tag: &str,
    description: &str,
    id: &str,
    media_types: &[&str],
    response: &Value,
) -> Value {
    json!({"get": {
        "tags": [tag],
        "description": description,
        "operationId": id,
        "responses": responses(&[200], media_types, response),
    }})
}

/// Returns the tag of a group, or of one of its versions.
pub(super) fn tag(group: &str, version: Option<&str>) -> String {
    let id = group_id(group);
    let mut chars = id.chars();
    let lower: String = chars.next().into_iter().flat_map(char::to_lowercase).chain(chars).collect();
    version.map_or(lower.clone(), |version| format!("{lower}_{version}"))
}

/// Returns the name of a group in operation IDs: `RbacAuthorization` for
/// `rbac.authorization.k8s.io`.
pub(super) fn group_id(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    group.strip_suffix(".k8s.io").unwrap_or(group).split(|c| !is_part(c)).map(title).collect()
}

fn prefix(group: &str, version: &str) -> String {
    group_id(group) + &title(version)
}

fn title(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

/// Returns a kind with its article: `a Pod`, `an Eviction`. Words that look like a plural have no
/// article.
fn with_article(kind: &str) -> String {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return kind.to_owned();
    }
    let vowel = kind.starts_with(|c: char| "aeiou".contains(c.to_ascii_lowercase()));
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// Writes the operations of one resource.
struct Writer<'a> {
    group: &'a str,
    version: &'a str,
    root: &'a str,
    resource: &'a ResourceInfo,
    items: &'a mut Items,
}

impl Writer<'_> {
    fn write(&mut self) {
        let resource = self.resource;
        let (kind, plural) = (&*resource.kind, &*resource.plural);
        let (scope, place) =
            if resource.namespaced { ("Namespaced", "/namespaces/{namespace}") } else { ("", "") };
        let below_root = |middle: &str| format!("{}{middle}/{plural}", self.root);
        let (everywhere, watch_everywhere) = (below_root(""), below_root("/watch"));
        let (collection, watch_collection) = (below_root(place), below_root(&format!("/watch{place}")));
        let (item, watch_item) = (format!("{collection}/{{name}}"), format!("{watch_collection}/{{name}}"));
        let own = format!("{scope}{kind}");
        for verb in &resource.verbs {
            match &**verb {
                "list" => {
                    self.add(&collection, "list", &own, None);
                    if resource.namespaced {
                        self.add(&everywhere, "list", &format!("{kind}ForAllNamespaces"), None);
                    }
                }
                "create" => self.add(&collection, "create", &own, None),
                "deletecollection" => {
                    self.add(&collection, "deletecollection", &format!("Collection{own}"), None);
                }
                // The deprecated watch paths, which custom resources never had.
                "watch" if !resource.is_custom() => {
                    self.add(&watch_collection, "watchlist", &format!("{own}List"), None);
                    self.add(&watch_item, "watch", &own, None);
                    if resource.namespaced {
                        let what = format!("{kind}ListForAllNamespaces");
                        self.add(&watch_everywhere, "watchlist", &what, None);
                    }
                }
                "watch" => {}
                verb => self.add(&item, verb, &own, None),
            }
        }
        for part in &resource.subresources {
            let path = format!("{item}/{}", part.name);
            let what = format!("{own}{}", title(&part.name));
            if part.kind.ends_with("Options") && !self.is_custom() {
                self.connect(&path, &what, part);
                if part.kind.ends_with("ProxyOptions") {
                    self.connect(&format!("{path}/{{path}}"), &format!("{what}WithPath"), part);
                }
            } else {
                part.verbs.iter().for_each(|verb| self.add(&path, verb, &what, Some(part)));
            }
        }
    }

    fn is_custom(&self) -> bool {
        self.resource.is_custom()
    }

    /// Returns the group, version and kind of an operation.
    fn group_version_kind<'a>(&'a self, part: Option<&'a Subresource>) -> (&'a str, &'a str, &'a str) {
        match part {
            None => (self.group, self.version, &self.resource.kind),
            Some(part) => (&part.group, &part.version, &part.kind),
        }
    }

    /// Adds the operation of a verb. `what` is the suffix of its id.
    fn add(&mut self, path: &str, verb: &str, what: &str, part: Option<&Subresource>) {
        let Some(verb) = Verb::named(verb) else { return };
        let verb = if self.is_custom() { verb.of_custom() } else { verb };
        let mut members = self.members(verb.action, verb.id, what, part);
        members.insert("description".into(), self.description(&verb, part).into());
        let is_log = part.is_some_and(|part| part.name == "log");
        let mut parameters = vec![pretty()];
        for (kind, skipped) in verb.options {
            parameters.extend(in_query(self.group, self.version, kind, skipped));
        }
        if is_log {
            parameters.extend(in_query(self.group, self.version, "PodLogOptions", &[]));
        }
        let (group, version, kind) = self.group_version_kind(part);
        let object = component(group, version, kind);
        if let Some(body) = self.body(verb.body, &object) {
            members.insert("requestBody".into(), body);
        }
        let response = match verb.response {
            _ if is_log => json!({"type": "string"}),
            ResponseContent::Object => reference(&object),
            ResponseContent::List => reference(&component(group, version, &self.resource.list_kind)),
            ResponseContent::Events => reference(&format!("{META}.WatchEvent")),
            ResponseContent::Status if verb.name == "delete" && self.deletion_answers_object() => {
                reference(&object)
            }
            ResponseContent::Status => reference(&format!("{META}.Status")),
        };
        let more: &[&str] = match verb.response {
            _ if is_log => &["text/plain"],
            ResponseContent::List | ResponseContent::Events if !self.is_custom() => {
                &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"]
            }
            _ => &[],
        };
        let responses_by_code = responses(verb.codes, &[self.formats(), more].concat(), &response);
        members.insert("responses".into(), responses_by_code);
        parameters.extend(in_path(path, kind));
        self.insert(path, verb.method, Operation { members, parameters });
    }

    /// Adds the operations of a subresource that opens a connection.
    fn connect(&mut self, path: &str, what: &str, part: &Subresource) {
        let proxied = part.kind.ends_with("ProxyOptions");
        let methods: &[&'static str] = if proxied {
            &["get", "put", "post", "delete", "options", "head", "patch"]
        } else {
            &["get", "post"]
        };
        for method in methods {
            let upper = method.to_uppercase();
            let what = format!("{}{what}", title(method));
            let mut members = self.members("connect", "connect", &what, Some(part));
            let description = format!("connect {upper} requests to {} of {}", part.name, self.resource.kind);
            members.insert("description".into(), description.into());
            members.insert("responses".into(), responses(&[200], &["*/*"], &json!({"type": "string"})));
            let mut parameters = in_query(self.group, self.version, &part.kind, &[]);
            parameters.extend(in_path(path, &part.kind));
            self.insert(path, method, Operation { members, parameters });
        }
    }

    /// Returns the members that every operation has.
    fn members(&self, action: &str, id: &str, what: &str, part: Option<&Subresource>) -> Map<String, Value> {
        // Even the scale of a custom resource has the resource's kind.
        let part = part.filter(|_| !self.is_custom());
        let (group, version, kind) = self.group_version_kind(part);
        [
            ("tags", json!([tag(self.group, Some(self.version))])),
            ("operationId", format!("{id}{}{what}", prefix(self.group, self.version)).into()),
            ("x-kubernetes-action", action.into()),
            ("x-kubernetes-group-version-kind", json!({"group": group, "version": version, "kind": kind})),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
    }

    fn description(&self, verb: &Verb, part: Option<&Subresource>) -> String {
        let kind = &*self.resource.kind;
        let watched = self.resource.verbs.iter().any(|verb| verb == "watch");
        let part = part.map_or(String::new(), |part| format!("{} of ", part.name));
        let text = verb.description.replace("{part}", &part);
        let text = text.replace("{kind}", kind).replace("{a kind}", &with_article(kind));
        if watched { text } else { text.replace("list or watch", "list") }
    }

    fn deletion_answers_object(&self) -> bool {
        let deletion = &self.resource.behavior.deletion;
        // The documents of kube-apiserver declare a Status for Namespaces too.
        deletion.returns_deleted_object && !deletion.by_finalizing
    }

    fn formats(&self) -> &'static [&'static str] {
        if self.is_custom() { &["application/json", "application/yaml"] } else { FORMATS }
    }

    fn body(&self, body: RequestContent, object: &str) -> Option<Value> {
        let any: &[&str] = if self.is_custom() { self.formats() } else { &["*/*"] };
        let (media_types, name) = match body {
            RequestContent::None => return None,
            RequestContent::Object => (any, object.to_owned()),
            RequestContent::DeleteOptions => (any, format!("{META}.DeleteOptions")),
            RequestContent::Patch => (self.patches(), format!("{META}.Patch")),
        };
        let mut written = json!({"content": content(media_types, &reference(&name))});
        if body != RequestContent::DeleteOptions {
            written["required"] = true.into();
        }
        Some(written)
    }

    fn patches(&self) -> &'static [&'static str] {
        let all = &[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        if self.is_custom() { &all[..3] } else { all }
    }

    fn insert(&mut self, path: &str, method: &'static str, operation: Operation) {
        self.items.entry(path.to_owned()).or_default().insert(method, operation);
    }
}

/// Writes a path: the parameters of all its operations are written once.
fn written((path, mut operations): (String, BTreeMap<&'static str, Operation>)) -> (String, Value) {
    let mut common: Vec<Value> = match operations.values().next() {
        None => Vec::new(),
        Some(first) => {
            let in_all = |p: &&Value| operations.values().all(|operation| operation.parameters.contains(p));
            first.parameters.iter().filter(in_all).cloned().collect()
        }
    };
    let mut item = Map::new();
    for operation in operations.values_mut() {
        operation.parameters.retain(|parameter| !common.contains(parameter));
    }
    for (method, Operation { mut members, mut parameters }) in operations {
        parameters::sort(&mut parameters);
        if !parameters.is_empty() {
            members.insert("parameters".into(), parameters.into());
        }
        item.insert(method.into(), members.into());
    }
    parameters::sort(&mut common);
    if !common.is_empty() {
        item.insert("parameters".into(), common.into());
    }
    (path, item.into())
}

fn responses(codes: &[u16], media_types: &[&str], schema: &Value) -> Value {
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    for code in codes {
        let description = match code {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        };
        responses[code.to_string()] =
            json!({"description": description, "content": content(media_types, schema)});
    }
    responses
}

fn content(media_types: &[&str], schema: &Value) -> Map<String, Value> {
    media_types.iter().map(|media_type| ((*media_type).to_owned(), json!({"schema": schema}))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_of_letters_in_operations() {
        for (group, id, name) in [
            ("", "Core", "core_v1"),
            ("rbac.authorization.k8s.io", "RbacAuthorization", "rbacAuthorization_v1"),
            ("external-secrets.io", "ExternalSecretsIo", "externalSecretsIo_v1"),
            ("bootstrap.cluster.x-k8s.io", "BootstrapClusterXK8sIo", "bootstrapClusterXK8sIo_v1"),
        ] {
            assert_eq!((&*group_id(group), &*tag(group, Some("v1"))), (id, name), "{group}");
        }
    }
}
