//! Conversion webhooks: the strategy `Webhook` of a definition.
//!
//! A list is converted in one call. The webhook may change everything but the metadata; only labels
//! and annotations are taken from its response.
//!
//! Source: `apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`, including the
//! messages.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::Weak;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::codec::limits::{Limits, measure};
use crate::field::{Errors, Field, Path, quote};
use crate::object_meta::ObjectMeta;
use crate::registry::Registry;
use crate::resource_info::Converter;
use crate::schema::schema;
use crate::validation::labels::validate_labels;
use crate::validation::metadata::validate_annotations;
use crate::webhook::{CallError, ClientConfig, ConversionFailure, Post, TransportError, excerpt};
use crate::{Error, Result, codec};

/// Timeout of a conversion.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest size of a response, in bytes, beyond four times the size of the request.
const MAX_GROWTH: usize = 8 << 20;
/// The largest size of a message from the webhook, such as an error, that is sent to the client, in
/// bytes.
const MAX_MESSAGE: usize = 16 << 10;

/// Converts objects by a webhook.
pub(super) struct WebhookConverter {
    /// The registry through which services are resolved. Weak, since the registry owns the
    /// resources and they own this.
    registry: Weak<Registry>,
    config: ClientConfig,
    /// The version of ConversionReview; None if the definition lists no supported one.
    review_version: Option<&'static str>,
}

impl WebhookConverter {
    /// Creates the converter of a definition.
    ///
    /// - `webhook`: `spec.conversion.webhook`.
    pub fn new(registry: Weak<Registry>, webhook: &Value) -> WebhookConverter {
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        WebhookConverter {
            registry,
            config: ClientConfig::read(&webhook["clientConfig"]),
            review_version: versions.filter_map(Value::as_str).find_map(|version| match version {
                "v1" => Some("apiextensions.k8s.io/v1"),
                "v1beta1" => Some("apiextensions.k8s.io/v1beta1"),
                _ => None,
            }),
        }
    }

    /// Sends objects to the webhook, and returns the converted objects of its response.
    async fn request(&self, objects: &[Value], to: &str) -> Result<Vec<Value>, Failure> {
        let call = |text: String| Failure { kind: ConversionFailure::Call, text };
        let version =
            self.review_version.ok_or_else(|| call("no supported conversion review versions".to_owned()))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review(objects, version, &uid, to);
        let registry =
            self.registry.upgrade().ok_or_else(|| call("the server is shutting down".to_owned()))?;
        let post = Post {
            config: &self.config,
            limit: body.len().saturating_mul(4).saturating_add(MAX_GROWTH),
            body: body.into(),
            timeout: TIMEOUT,
            sends_timeout: true,
        };
        let bytes = registry.webhook_clients().post(post, &*registry).await.map_err(|error| match error {
            // The deadline is that of the client, not of a request.
            CallError::Transport { cause: TransportError::Deadline, .. } => {
                call(format!("{error} (Client.Timeout exceeded while awaiting headers)"))
            }
            error => call(error.to_string()),
        })?;
        // A converted object is about as large as the original.
        let limits = Limits::RESPONSE.plus(4, objects.iter().map(measure).sum());
        read(&bytes, version, &uid, limits)
            .map_err(|text| Failure { kind: ConversionFailure::MalformedResponse, text })
    }
}

/// The failure of a conversion.
struct Failure {
    /// The label of its counter.
    kind: ConversionFailure,
    text: String,
}

/// An unset response as Go writes it: a webhook may fill it in and send the review back.
const EMPTY_RESPONSE: &str = r#"{"uid":"","convertedObjects":null,"result":{"metadata":{}}}"#;

/// Returns the ConversionReview to send to the webhook.
fn review(objects: &[Value], version: &str, uid: &str, to: &str) -> String {
    // The objects are written where they are: a copy would take as much memory as all of them.
    let objects = serde_json::to_string(objects).unwrap_or_default();
    let [version, uid, to] = [version, uid, to].map(Value::from);
    format!(
        r#"{{"kind":"ConversionReview","apiVersion":{version},"request":{{"uid":{uid},"desiredAPIVersion":{to},"objects":{objects}}},"response":{EMPTY_RESPONSE}}}"#
    )
}

/// Returns the objects in a response. A `request` in the response is skipped.
fn read(bytes: &[u8], version: &str, uid: &str, limits: Limits) -> Result<Vec<Value>, String> {
    let id = schema().kind("apiextensions.k8s.io", "v1", "ConversionReview");
    let id = id.ok_or_else(|| "ConversionReview has no type".to_owned())?;
    let mut review =
        codec::json::decode_response(bytes, id, &["request"], limits).map_err(|error| error.to_string())?;
    let text = |value: &Value| excerpt(value.as_str().unwrap_or_default(), MAX_MESSAGE).to_owned();
    if version == "apiextensions.k8s.io/v1" {
        let got = (text(&review["apiVersion"]), text(&review["kind"]));
        if (got.0.as_str(), got.1.as_str()) != (version, "ConversionReview") {
            return Err(format!(
                "expected webhook response of {}, got {}",
                printed(version, "ConversionReview"),
                printed(&got.0, &got.1)
            ));
        }
    }
    let mut response = review["response"].take();
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    if version == "apiextensions.k8s.io/v1" && response["uid"] != uid {
        let got = text(&response["uid"]);
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&got)));
    }
    let status = text(&response["result"]["status"]);
    if status != "Success" {
        let message = text(&response["result"]["message"]);
        return Err(match message.is_empty() {
            false => message,
            true => format!("response.result.status was '{status}', not 'Success'"),
        });
    }
    Ok(match response["convertedObjects"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    })
}

impl Converter for WebhookConverter {
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            let Some(first) = objects.first() else { return Ok(objects) };
            let is_list = objects.len() > 1;
            let kind = first["kind"].as_str().unwrap_or_default();
            let kind = if is_list { format!("{kind}List") } else { kind.to_owned() };
            let what = printed(first["apiVersion"].as_str().unwrap_or_default(), &kind);
            let failed = |text: String| Error::Unclassified(format!("conversion webhook for {what} {text}"));
            let (kept, sent): (Vec<_>, Vec<_>) =
                objects.into_iter().enumerate().partition(|(_, object)| object["apiVersion"] == to);
            let (places, sent): (Vec<usize>, Vec<Value>) = sent.into_iter().unzip();
            let began = Instant::now();
            let observe = |failure: Option<ConversionFailure>| {
                if let Some(registry) = self.registry.upgrade() {
                    registry.conversion_metrics().conversion(began.elapsed(), failure);
                }
            };
            let converted = self.request(&sent, to).await.map_err(|Failure { kind, text }| {
                observe(Some(kind));
                failed(format!("failed: {text}"))
            })?;
            if converted.len() != sent.len() {
                observe(Some(ConversionFailure::PartialResponse));
                return Err(failed(format!("returned {} objects, expected {}", converted.len(), sent.len())));
            }
            let mut all = kept;
            for (index, ((original, converted), place)) in sent.iter().zip(converted).zip(places).enumerate()
            {
                let object = accept(original, converted, to).map_err(|error| {
                    observe(Some(ConversionFailure::InvalidConvertedObject));
                    failed(match (error, is_list) {
                        (ConversionError::Type(text), false) => {
                            format!("returned invalid object at index 0: {text}")
                        }
                        (ConversionError::Object(text), false) => format!("returned invalid object: {text}"),
                        (ConversionError::Metadata(text), false) => {
                            format!("returned invalid metadata: {text}")
                        }
                        (ConversionError::Type(text) | ConversionError::Object(text), true) => {
                            format!("returned invalid converted object at index {}: {text}", index + 1)
                        }
                        (ConversionError::Metadata(text), true) => {
                            format!("returned invalid metadata in object at index {}: {text}", index + 1)
                        }
                    })
                })?;
                all.push((place, object));
            }
            observe(None);
            all.sort_by_key(|(place, _)| *place);
            Ok(all.into_iter().map(|(_, object)| object).collect())
        })
    }
}

/// An error in a converted object.
#[derive(Debug, PartialEq)]
enum ConversionError {
    Type(String),
    Object(String),
    Metadata(String),
}

/// Checks a converted object, and restores its metadata.
fn accept(original: &Value, mut converted: Value, to: &str) -> Result<Value, ConversionError> {
    let text =
        |value: &Value, name: &str| excerpt(value[name].as_str().unwrap_or_default(), MAX_MESSAGE).to_owned();
    if text(&converted, "apiVersion") != to {
        let got = text(&converted, "apiVersion");
        return Err(ConversionError::Type(format!("invalid groupVersion (expected {to}, received {got})")));
    }
    let (want, got) = (text(original, "kind"), text(&converted, "kind"));
    if want != got {
        return Err(ConversionError::Type(format!("invalid kind (expected {want}, received {got})")));
    }
    for (what, want, got) in [
        ("name", original.name(), converted.name()),
        ("namespace", original.namespace(), converted.namespace()),
        ("UID", original.uid(), converted.uid()),
    ] {
        if want != got {
            let got = excerpt(got, MAX_MESSAGE);
            return Err(ConversionError::Object(format!("must have the same {what}: {want} != {got}")));
        }
    }
    let received = converted.get("metadata");
    let received = received
        .ok_or_else(|| ConversionError::Metadata("missing metadata in converted object".to_owned()))?;
    let received = received.as_object().ok_or_else(|| {
        ConversionError::Metadata("invalid metadata of type string in converted object".to_owned())
    })?;
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for name in ["labels", "annotations"] {
        match received.get(name) {
            None | Some(Value::Null) => _ = metadata.remove(name),
            Some(Value::Object(map)) => {
                check_texts(name, map)?;
                let kept = metadata.get(name).and_then(Value::as_object);
                if kept.map_or(!map.is_empty(), |kept| kept != map) {
                    check_content(name, &received[name])?;
                }
                metadata.insert(name.to_owned(), map.clone().into());
            }
            Some(other) => {
                let go_type = go_type(other);
                let text = format!("invalid metadata.{name} of type {go_type} in converted object");
                return Err(ConversionError::Metadata(text));
            }
        }
    }
    converted["metadata"] = metadata.into();
    Ok(converted)
}

fn check_texts(name: &str, map: &Map<String, Value>) -> Result<(), ConversionError> {
    match map.iter().find(|(_, value)| !value.is_string()) {
        None => Ok(()),
        Some((key, value)) => Err(ConversionError::Metadata(format!(
            "metadata.{name}[{}] must be a string, but is {} in converted object",
            excerpt(key, MAX_MESSAGE),
            go_type(value)
        ))),
    }
}

/// Checks changed labels or annotations.
fn check_content(name: &str, map: &Value) -> Result<(), ConversionError> {
    let mut errors = Errors::new();
    if name == "labels" {
        validate_labels(&Field::at(Some(map), Path::of("metadata.labels")), &mut errors);
    } else {
        // The path is the one that kube-apiserver's errors have.
        validate_annotations(&Field::at(Some(map), Path::of("metadata.annotation")), &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(ConversionError::Metadata(errors.summary())) }
}

/// Returns the type that Go decodes a JSON value as.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a group, version and kind as Go does.
fn printed(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(version: &str, labels: Value) -> Value {
        json!({"apiVersion": format!("e.x/{version}"), "kind": "Widget",
               "metadata": {"name": "w", "uid": "u", "labels": labels}})
    }

    #[test]
    fn converted_objects_keep_all_metadata_but_labels_and_annotations() {
        let original = object("v1", json!({"a": "b"}));
        let with = |change: fn(&mut Value)| {
            let mut converted = object("v2", json!({"c": "d"}));
            change(&mut converted);
            converted
        };
        let got = accept(&original, with(|o| o["metadata"]["generation"] = 7.into()), "e.x/v2");
        assert_eq!(got, Ok(object("v2", json!({"c": "d"}))));
        for (change, want) in [
            (
                (|o| o["apiVersion"] = "e.x/v3".into()) as fn(&mut Value),
                ConversionError::Type("invalid groupVersion (expected e.x/v2, received e.x/v3)".into()),
            ),
            (
                |o| o["kind"] = "X".into(),
                ConversionError::Type("invalid kind (expected Widget, received X)".into()),
            ),
            (
                |o| o["metadata"]["name"] = "x".into(),
                ConversionError::Object("must have the same name: w != x".into()),
            ),
            (
                |o| o["metadata"]["uid"] = "x".into(),
                ConversionError::Object("must have the same UID: u != x".into()),
            ),
            (
                |o| o["metadata"]["labels"] = json!({"a": 1}),
                ConversionError::Metadata(
                    "metadata.labels[a] must be a string, but is int64 in converted object".into(),
                ),
            ),
            (
                |o| o["metadata"]["labels"] = json!({"a": "x".repeat(64)}),
                ConversionError::Metadata(format!(
                    "metadata.labels: Invalid value: {:?}: must be no more than 63 bytes",
                    "x".repeat(64)
                )),
            ),
        ] {
            assert_eq!(accept(&original, with(change), "e.x/v2"), Err(want));
        }
    }

    #[test]
    fn responses_are_checked() {
        let version = "apiextensions.k8s.io/v1";
        let review = |response: Value| json!({"apiVersion": version, "kind": "ConversionReview", "response": response});
        for (document, want) in [
            (review(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]})), Ok(1)),
            (review(json!(null)), Err("no response provided")),
            (review(json!({"uid": "x"})), Err(r#"expected response.uid="u", got "x""#)),
            (
                review(json!({"uid": "u", "result": {"status": "Failed"}})),
                Err("response.result.status was 'Failed', not 'Success'"),
            ),
            (review(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}})), Err("no")),
            (
                json!({"response": {"uid": "u"}}),
                Err(
                    "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
                ),
            ),
        ] {
            let got = read(document.to_string().as_bytes(), version, "u", Limits::RESPONSE)
                .map(|objects| objects.len());
            assert_eq!(got, want.map_err(str::to_owned));
        }
    }

    #[test]
    fn requests_are_conversion_reviews() {
        let objects = [object("v1", json!({})), object("v1", json!({"a": "b"}))];
        let sent: Value =
            serde_json::from_str(&review(&objects, "apiextensions.k8s.io/v1", "u", "e.x/v2")).expect("JSON");
        let want = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "u", "desiredAPIVersion": "e.x/v2", "objects": objects},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        assert_eq!(sent, want);
    }

    #[test]
    fn converted_objects_may_be_as_many_and_large_as_the_originals_several_times() {
        let version = "apiextensions.k8s.io/v1";
        let review = |objects: &[Value]| {
            json!({"apiVersion": version, "kind": "ConversionReview",
                   "response": {"uid": "u", "result": {"status": "Success"}, "convertedObjects": objects}})
            .to_string()
        };
        let large = vec![json!({"spec": vec![json!({"": 0}); 1000]}); 100];
        let of_small = read(review(&large).as_bytes(), version, "u", Limits::RESPONSE);
        assert!(of_small.is_err_and(|text| text.contains("exceeded max number of objects and arrays")));
        let limits = Limits::RESPONSE.plus(4, large.iter().map(measure).sum());
        let larger = vec![json!({"spec": vec![json!({"": 0}); 3900]}); 100];
        assert_eq!(read(review(&larger).as_bytes(), version, "u", limits).map(|all| all == larger), Ok(true));
    }
}
