//! An audit event, and its text: a line of JSON as `audit.k8s.io/v1` `Event`, or the legacy line.
//!
//! Source: `k8s.io/apiserver/pkg/apis/audit/v1`; `EventString` of `k8s.io/apiserver/pkg/audit`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::policy::{API_VERSION, Level, Stage};
use crate::access::UserInfo;
use crate::codec::json;
use crate::field::quote;
use crate::schema::{TypeRef, schema};

/// The largest size of a recorded User-Agent, in bytes; the rest is cut off.
const MAX_USER_AGENT: usize = 1024;
/// An event of more bytes is written without the objects. kube-apiserver's default for backends
/// that truncate.
const MAX_EVENT: usize = 10 << 20;
/// The annotation of an event from which objects were omitted.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The object that a request refers to, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    /// The plural.
    pub resource: String,
    /// The namespace; empty for an object of the cluster.
    pub namespace: String,
    /// The name; empty for a collection.
    pub name: String,
    /// The uid in the request's object.
    pub uid: String,
    /// The API group.
    pub api_group: String,
    /// The API version.
    pub api_version: String,
    /// The resourceVersion in the request's object.
    pub resource_version: String,
    /// The subresource.
    pub subresource: String,
}

/// The recorded properties of a request.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// The level at which it is recorded.
    pub level: Level,
    /// The id that all events of the request and its response have.
    pub audit_id: String,
    /// Path and query as they were sent.
    pub request_uri: String,
    /// The verb, as in RBAC rules.
    pub verb: String,
    /// The authenticated user; empty if authentication failed.
    pub user: UserInfo,
    /// The impersonated user.
    pub impersonated_user: Option<UserInfo>,
    /// The verb that authorized a constrained impersonation.
    pub impersonation_constraint: Option<String>,
    /// The client, after the proxies before it.
    pub source_ips: Vec<String>,
    /// The User-Agent.
    pub user_agent: String,
    /// The object; None for paths outside of resources.
    pub object_ref: Option<ObjectReference>,
    /// The outcome: the members of a `metav1.Status`.
    pub response_status: Option<Value>,
    /// The request's object as JSON text.
    pub request_object: Option<Vec<u8>>,
    /// The response's object as JSON text.
    pub response_object: Option<Vec<u8>>,
    /// The time at which the request was received.
    pub received_at: Timestamp,
    /// Annotations of authorization, admission and others.
    pub annotations: BTreeMap<String, String>,
}

/// Returns a User-Agent header as it is recorded, cut to a maximum length.
pub fn user_agent(text: &str) -> String {
    let mut end = MAX_USER_AGENT;
    if text.len() <= end {
        return text.to_owned();
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...TRUNCATED", text.get(..end).unwrap_or_default())
}

impl Event {
    /// Returns the event of a stage as a line of JSON, without the line feed.
    pub fn to_json(&self, stage: Stage, at: Timestamp) -> Vec<u8> {
        let objects =
            [&self.request_object, &self.response_object].map(|object| object.as_ref().map_or(0, Vec::len));
        let is_truncated = objects.iter().sum::<usize>() > MAX_EVENT;
        let mut out = Members::begin();
        out.text("kind", "Event");
        out.text("apiVersion", API_VERSION);
        out.text("level", self.level.name());
        out.text("auditID", &self.audit_id);
        out.text("stage", stage.name());
        out.text("requestURI", &self.request_uri);
        out.text("verb", &self.verb);
        out.raw("user", &user(&self.user));
        if let Some(impersonated) = &self.impersonated_user {
            out.raw("impersonatedUser", &user(impersonated));
        }
        if let Some(constraint) = &self.impersonation_constraint {
            let mut metadata = Members::begin();
            metadata.text("impersonationConstraint", constraint);
            out.raw("authenticationMetadata", &metadata.end());
        }
        if !self.source_ips.is_empty() {
            out.value("sourceIPs", &self.source_ips.clone().into());
        }
        out.text_if_any("userAgent", &self.user_agent);
        if let Some(reference) = &self.object_ref {
            out.raw("objectRef", &reference.to_json());
        }
        if let Some(status) = &self.response_status {
            out.raw("responseStatus", &status_json(status));
        }
        let objects = [("requestObject", &self.request_object), ("responseObject", &self.response_object)];
        for (name, object) in objects {
            if let Some(object) = object.as_ref().filter(|_| !is_truncated) {
                out.raw(name, object);
            }
        }
        out.text("requestReceivedTimestamp", &micro_time(self.received_at));
        out.text("stageTimestamp", &micro_time(at));
        let mut annotations = self.annotations.clone();
        if is_truncated {
            annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        }
        if !annotations.is_empty() {
            let annotations = annotations.into_iter().map(|(key, value)| (key, value.into())).collect();
            out.value("annotations", &Value::Object(annotations));
        }
        out.end()
    }

    /// Returns the event of a stage in the legacy format, without the line feed.
    pub fn to_legacy(&self, stage: Stage) -> Vec<u8> {
        let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let list = |items: &[String]| items.iter().map(|item| quote(item)).collect::<Vec<_>>().join(",");
        let groups = match self.user.name.is_empty() || self.user.groups.is_empty() {
            true => "<none>".to_owned(),
            false => list(&self.user.groups),
        };
        let (as_user, as_groups) = match &self.impersonated_user {
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
            Some(user) if user.groups.is_empty() => (user.name.clone(), "<lookup>".to_owned()),
            Some(user) => (user.name.clone(), list(&user.groups)),
        };
        let namespace = self.object_ref.as_ref().map_or("", |reference| &reference.namespace);
        let response = match &self.response_status {
            Some(status) => status["code"].as_u64().unwrap_or_default().to_string(),
            None => "<deferred>".to_owned(),
        };
        // Go prints nanoseconds here, without trailing zeros.
        let mut line = format!("{} AUDIT:", self.received_at);
        for (key, value) in [
            ("id", self.audit_id.clone()),
            ("stage", stage.name().to_owned()),
            ("ip", or(self.source_ips.first().map_or("", String::as_str), "<unknown>")),
            ("method", self.verb.clone()),
            ("user", or(&self.user.name, "<none>")),
            ("groups", groups),
            ("as", as_user),
            ("asgroups", as_groups),
            ("user-agent", self.user_agent.clone()),
            ("namespace", or(namespace, "<none>")),
            ("uri", self.request_uri.clone()),
        ] {
            // Writing to a String does not fail.
            _ = write!(line, " {key}={}", quote(&value));
        }
        _ = write!(line, " response=\"{response}\"");
        line.into_bytes()
    }
}

impl ObjectReference {
    fn to_json(&self) -> Vec<u8> {
        let mut out = Members::begin();
        for (name, text) in [
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
            ("apiGroup", &self.api_group),
            ("apiVersion", &self.api_version),
            ("resourceVersion", &self.resource_version),
            ("subresource", &self.subresource),
        ] {
            out.text_if_any(name, text);
        }
        out.end()
    }
}

fn user(user: &UserInfo) -> Vec<u8> {
    let mut out = Members::begin();
    out.text_if_any("username", &user.name);
    out.text_if_any("uid", &user.uid);
    if !user.groups.is_empty() {
        out.value("groups", &user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
        out.value("extra", &Value::Object(extra));
    }
    out.end()
}

fn status_json(status: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.Status") {
        Some(id) => json::write(status, &TypeRef::Struct(id), &mut out),
        None => json::write_untyped(status, &mut out),
    }
    out
}

/// Formats a time as `metav1.MicroTime`.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The members of a JSON object, in the order in which they are written.
struct Members(Vec<u8>);

impl Members {
    fn begin() -> Members {
        Members(b"{".to_vec())
    }

    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        json::write_string(name, &mut self.0);
        self.0.push(b':');
        &mut self.0
    }

    fn text(&mut self, name: &str, text: &str) {
        json::write_string(text, self.key(name));
    }

    fn text_if_any(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    fn value(&mut self, name: &str, value: &Value) {
        json::write_untyped(value, self.key(name));
    }

    fn raw(&mut self, name: &str, json: &[u8]) {
        self.key(name).extend_from_slice(json);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Event {
        Event {
            level: Level::RequestResponse,
            audit_id: "id".to_owned(),
            request_uri: "/api/v1/namespaces/ns/pods?a=<b>".to_owned(),
            verb: "create".to_owned(),
            user: UserInfo::new("alice", &["devs"]),
            source_ips: vec!["10.0.0.1".to_owned()],
            user_agent: "kubectl".to_owned(),
            object_ref: Some(ObjectReference {
                resource: "pods".to_owned(),
                namespace: "ns".to_owned(),
                api_version: "v1".to_owned(),
                ..ObjectReference::default()
            }),
            received_at: "2026-01-02T03:04:05.120Z".parse().expect("a time"),
            ..Event::default()
        }
    }

    #[test]
    fn events_are_written_as_go_writes_them() {
        let at = "2026-01-02T03:04:06.000001Z".parse().expect("a time");
        let text = |event: &Event, stage| String::from_utf8(event.to_json(stage, at)).expect("text");
        let mut event = event();
        assert_eq!(
            text(&event, Stage::RequestReceived),
            "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"RequestResponse\",\"auditID\":\"id\",\
             \"stage\":\"RequestReceived\",\"requestURI\":\"/api/v1/namespaces/ns/pods?a=\\u003cb\\u003e\",\"verb\":\"create\",\
             \"user\":{\"username\":\"alice\",\"groups\":[\"devs\"]},\"sourceIPs\":[\"10.0.0.1\"],\"userAgent\":\"kubectl\",\
             \"objectRef\":{\"resource\":\"pods\",\"namespace\":\"ns\",\"apiVersion\":\"v1\"},\
             \"requestReceivedTimestamp\":\"2026-01-02T03:04:05.120000Z\",\"stageTimestamp\":\"2026-01-02T03:04:06.000001Z\"}"
        );
        event.impersonated_user = Some(UserInfo::new("bob", &[]));
        event.impersonation_constraint = Some("impersonate:user-info".to_owned());
        event.response_status = Some(json!({"metadata": {}, "code": 201}));
        event.request_object = Some(b"{\"kind\":\"Pod\"}".to_vec());
        event.annotations.insert("a".to_owned(), "b".to_owned());
        let line = text(&event, Stage::ResponseComplete);
        for part in [
            r#""impersonatedUser":{"username":"bob"},"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},"#,
            r#""responseStatus":{"metadata":{},"code":201},"requestObject":{"kind":"Pod"},"requestReceivedTimestamp""#,
            r#","annotations":{"a":"b"}}"#,
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        event.response_object = Some(vec![b' '; MAX_EVENT]);
        let line = text(&event, Stage::ResponseComplete);
        assert!(line.len() < 2000 && line.contains(r#""audit.k8s.io/truncated":"true""#), "{line}");
    }

    #[test]
    fn legacy_events_are_lines_of_text() {
        let mut event = event();
        event.response_status = Some(json!({"metadata": {}, "code": 201}));
        assert_eq!(
            String::from_utf8(event.to_legacy(Stage::ResponseComplete)).expect("text"),
            "2026-01-02T03:04:05.12Z AUDIT: id=\"id\" stage=\"ResponseComplete\" ip=\"10.0.0.1\" method=\"create\" user=\"alice\" \
             groups=\"\\\"devs\\\"\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"kubectl\" namespace=\"ns\" \
             uri=\"/api/v1/namespaces/ns/pods?a=<b>\" response=\"201\""
        );
        let empty = String::from_utf8(Event::default().to_legacy(Stage::RequestReceived)).expect("text");
        assert!(empty.contains(r#"ip="<unknown>" method="" user="<none>" groups="<none>""#), "{empty}");
        assert!(empty.ends_with(r#"namespace="<none>" uri="" response="<deferred>""#), "{empty}");
    }

    #[test]
    fn long_user_agents_are_cut() {
        assert_eq!(user_agent("kubectl"), "kubectl");
        assert_eq!(user_agent(&"x".repeat(1025)).len(), 1024 + "...TRUNCATED".len());
    }
}
