//! The audit context of a request, which collects the content of its audit events.
//!
//! Source: `k8s.io/apiserver/pkg/audit`, `AuditContext`.

use std::collections::btree_map::Entry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, header};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::event::Event;
use super::policy::{Level, RequestAuditConfig};
use crate::access::UserInfo;
use crate::access::impersonate::Impersonated;
use crate::codec::{self, protobuf, yaml};
use crate::request::negotiate::media_type;
use crate::schema::{TypeRef, schema};

/// The audit event of a request in progress. It is empty, and all methods do nothing, if the
/// request is not audited.
#[derive(Debug, Default)]
pub struct AuditContext(OnceLock<Option<Box<AuditedRequest>>>);

/// An audited request.
#[derive(Debug)]
pub struct AuditedRequest {
    /// The decision of the policy.
    pub config: RequestAuditConfig,
    event: Mutex<Event>,
    has_panicked: AtomicBool,
}

impl AuditedRequest {
    /// Locks the event, and returns it as it is at present.
    pub fn event(&self) -> MutexGuard<'_, Event> {
        // Members are replaced whole, so the event is whole after a panic elsewhere.
        self.event.lock()
    }

    /// Returns whether the request panicked.
    pub fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }
}

impl AuditContext {
    /// Begins the event of a request that is audited. Only the first call counts.
    pub fn begin(&self, config: RequestAuditConfig, mut event: Event) {
        event.level = config.level;
        let (event, has_panicked) = (Mutex::new(event), AtomicBool::new(false));
        self.0.get_or_init(|| Some(Box::new(AuditedRequest { config, event, has_panicked })));
    }

    /// Decides that the request is not audited, unless it is already.
    pub fn skip(&self) {
        self.0.get_or_init(|| None);
    }

    /// Returns `true` once it is decided whether the request is audited. The decision needs the
    /// authenticated user.
    pub fn is_decided(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the audited request; None if the request is not audited.
    pub fn request(&self) -> Option<&AuditedRequest> {
        self.0.get()?.as_deref()
    }

    /// Returns whether the request is audited.
    pub fn is_enabled(&self) -> bool {
        self.request().is_some()
    }

    fn at_level(&self, level: Level) -> Option<&AuditedRequest> {
        self.request().filter(|request| request.config.level >= level)
    }

    /// Adds an annotation. The first value of a key is kept, as in kube-apiserver; another value is
    /// ignored and logged.
    pub fn add_annotation(&self, key: impl Into<String>, value: impl Into<String>) {
        self.add_annotation_at(Level::Metadata, key, value);
    }

    /// Adds an annotation that is recorded from a level on, as [`AuditContext::add_annotation`]
    /// does.
    pub fn add_annotation_at(&self, level: Level, key: impl Into<String>, value: impl Into<String>) {
        let Some(request) = self.at_level(level) else { return };
        match request.event().annotations.entry(key.into()) {
            Entry::Vacant(entry) => _ = entry.insert(value.into()),
            Entry::Occupied(entry) => {
                let (key, kept, ignored) = (entry.key(), entry.get(), value.into());
                if *kept != ignored {
                    tracing::warn!(key, kept, ignored, "the audit annotation has a value already");
                }
            }
        }
    }

    /// Records the impersonated user.
    pub fn log_impersonated_user(&self, impersonated: &Impersonated) {
        if let Some(request) = self.request() {
            let mut event = request.event();
            event.impersonated_user = Some(UserInfo::clone(&impersonated.user));
            event.impersonation_constraint.clone_from(&impersonated.constraint);
        }
    }

    /// Records the decoded object of a request: its name and versions at every level, itself from
    /// `Request` on. The first one counts: a retried write decodes its body again.
    pub fn log_request_object(&self, object: &Value, type_ref: &TypeRef) {
        let Some(request) = self.request() else { return };
        let mut event = request.event();
        let metadata = &object["metadata"];
        let reference = event.object_ref.get_or_insert_default();
        for (member, field) in [
            ("namespace", &mut reference.namespace),
            ("name", &mut reference.name),
            ("uid", &mut reference.uid),
            ("resourceVersion", &mut reference.resource_version),
        ] {
            if field.is_empty() {
                metadata[member].as_str().unwrap_or_default().clone_into(field);
            }
        }
        if request.config.level < Level::Request || event.request_object.is_some() {
            return;
        }
        let mut json = Vec::new();
        match request.config.omit_managed_fields {
            true => codec::json::write(&without_managed_fields(object.clone()), type_ref, &mut json),
            false => codec::json::write(object, type_ref, &mut json),
        }
        event.request_object = Some(json);
    }

    /// Records the body of a patch; apply configurations in YAML as JSON. Malformed bodies are not
    /// recorded: their requests are rejected.
    pub fn log_request_patch(&self, patch: &[u8], is_yaml: bool) {
        let Some(request) = self.at_level(Level::Request) else { return };
        let json = match is_yaml {
            true => yaml::to_json(patch).ok().map(|document| document.json),
            false => serde_json::from_slice::<serde::de::IgnoredAny>(patch).ok().map(|_| compact(patch)),
        };
        request.event().request_object = json;
    }

    /// Records the status of a response, and from `RequestResponse` on the object in it.
    ///
    /// - `body`: the whole body; None if it is streamed or too large.
    pub fn log_response(&self, code: u16, headers: &HeaderMap, body: Option<&Bytes>) {
        let Some(request) = self.request() else { return };
        let wants_object = request.config.level >= Level::RequestResponse;
        let object = body.filter(|body| wants_object || may_be_status(code, body));
        let object = object.and_then(|body| object_in(headers, body));
        let status = object.as_deref().filter(|object| is_status(object)).and_then(status_in);
        let mut status = status.unwrap_or_else(|| json!({"metadata": {}}));
        status["code"] = code.into();
        let mut event = request.event();
        event.response_status = Some(status);
        if wants_object {
            event.response_object = object.map(|object| match request.config.omit_managed_fields {
                true => rewritten_without_managed_fields(object),
                false => object,
            });
        }
    }

    /// Records that the request panicked.
    pub fn log_panic(&self, message: &str) {
        if let Some(request) = self.request() {
            request.has_panicked.store(true, Ordering::Relaxed);
            request.event().response_status = Some(json!({
                "metadata": {}, "status": "Failure", "message": format!("APIServer panic'd: {message}"),
                "reason": "InternalError", "code": 500,
            }));
        }
    }
}

/// Returns whether a body may be a Status, as that of every error, and any body that begins like
/// one in JSON or protobuf.
fn may_be_status(code: u16, body: &Bytes) -> bool {
    let start = body.get(..body.len().min(64)).unwrap_or_default();
    code >= 400 || memchr::memmem::find(start, b"Status").is_some()
}

/// Returns the object in a response as JSON text; None for plain text, and for a document that is
/// not an API object.
fn object_in(headers: &HeaderMap, body: &Bytes) -> Option<Vec<u8>> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let json = match media_type(content_type) {
        "application/json" => compact(body),
        "application/yaml" => yaml::to_json(body).ok()?.json,
        "application/vnd.kubernetes.protobuf" => {
            let envelope = protobuf::open(body).ok()?;
            let (api_version, kind) = (envelope.meta.api_version.as_str(), envelope.meta.kind.as_str());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let id = schema().kind(group, version, kind)?;
            let mut object = envelope.decode(id).ok()?;
            object["kind"] = kind.into();
            object["apiVersion"] = api_version.into();
            let mut json = Vec::with_capacity(2 * body.len());
            codec::json::write_object(&object, id, &mut json);
            json
        }
        _ => return None,
    };
    let is_object =
        [r#"{"kind":"#, r#"{"apiVersion":"#].iter().any(|start| json.starts_with(start.as_bytes()));
    is_object.then_some(json)
}

fn is_status(json: &[u8]) -> bool {
    json.starts_with(br#"{"kind":"Status","apiVersion":"v1""#)
        || json.starts_with(br#"{"apiVersion":"v1","#)
            && memchr::memmem::find(json, br#""kind":"Status""#).is_some()
}

/// Returns a Status with only the members that are recorded.
fn status_in(json: &[u8]) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(json).ok()?;
    let mut status = json!({"metadata": {}});
    for member in ["status", "message", "reason", "details"] {
        let value = document[member].take();
        if !value.is_null() {
            status[member] = value;
        }
    }
    Some(status)
}

/// Returns JSON text without white space between its tokens.
fn compact(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\t' | b'\r' | b'\n' if !in_string => continue,
            _ => {}
        }
        out.push(byte);
    }
    out
}

/// Returns an object, list or table without the managed fields of its objects.
fn without_managed_fields(mut object: Value) -> Value {
    fn remove(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    remove(&mut object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(item);
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row.get_mut("object").into_iter().for_each(remove);
    }
    object
}

fn rewritten_without_managed_fields(json: Vec<u8>) -> Vec<u8> {
    let Ok(object) = codec::json::parse_own(&json) else { return json };
    let mut out = Vec::with_capacity(json.len());
    codec::json::write_untyped(&without_managed_fields(object), &mut out);
    out
}

#[cfg(test)]
mod tests;
