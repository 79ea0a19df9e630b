//! CertificateSigningRequest.
//!
//! The server sets the requesting user in the spec, and the spec never changes. Approval conditions
//! can be set through `/approval` only, the certificate through `/status` only.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::ResetFields;
use coracle_apimachinery::strategy::defaulting::{object_at, restore};
use coracle_apimachinery::strategy::{Context, Part, Strategy};
use coracle_apimachinery::validation::content;
use coracle_pki::{CertificateRequest, pem};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("spec.signerName", At("/spec/signerName"))]).cluster_scoped();

/// The fields that an endpoint does not write.
pub const RESET_FIELDS: ResetFields = ResetFields {
    by_subresource: &[
        ("", &[&["f:spec"], &["f:status"]]),
        ("status", &[&["f:spec"], &["f:status", "f:conditions"]]),
        ("approval", &[&["f:spec"], &["f:status", "f:certificate"]]),
    ],
};

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
/// Conditions that can only be true.
const TRUE_CONDITIONS: [&str; 3] = [APPROVED, DENIED, "Failed"];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_EXPIRATION: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The strategy of CertificateSigningRequest.
pub struct CertificateSigningRequestStrategy;

impl Strategy for CertificateSigningRequestStrategy {
    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        let user = context.user;
        let Some(spec) = object_at(object, "spec") else { return };
        for (member, value, is_set) in [
            ("username", json!(user.name), !user.name.is_empty()),
            ("uid", json!(user.uid), !user.uid.is_empty()),
            ("groups", json!(user.groups), !user.groups.is_empty()),
            ("extra", json!(user.extra), !user.extra.is_empty()),
        ] {
            if is_set {
                spec.insert(member.into(), value);
            } else {
                spec.remove(member);
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        if let Some(object) = object.as_object_mut() {
            restore(object, old.as_object(), "spec");
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        keep_conditions(object, old, APPROVED);
        keep_conditions(object, old, DENIED);
        set_condition_times(object, old, context.now);
    }

    fn prepare_for_subresource_update(
        &self,
        _: Part,
        object: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        set_condition_times(object, old, context.now);
        let conditions = object.pointer("/status/conditions").cloned();
        if let Some(object) = object.as_object_mut() {
            restore(object, old.as_object(), "spec");
            restore(object, old.as_object(), "status");
        }
        // That there are none is a change, too: validation decides about it.
        if let Some(conditions) = conditions.filter(|conditions| !conditions.is_null()) {
            if let Some(status) = object_at(object, "status") {
                status.insert("conditions".into(), conditions);
            }
        } else if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("conditions");
        }
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_request(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_change(object, old, Part::Main, errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_change(object, old, Part::Status, errors);
    }

    fn validate_subresource_update(
        &self,
        part: Part,
        object: &Field<'_>,
        old: &Field<'_>,
        errors: &mut Errors,
    ) {
        validate_change(object, old, part, errors);
    }
}

fn conditions(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Restores the approval conditions in a status update, if their number is the same.
fn keep_conditions(object: &mut Value, old: &Value, kind: &str) {
    let mut old = old.clone();
    let kept: Vec<Value> =
        conditions(&mut old).filter(|condition| condition["type"] == kind).map(|c| c.clone()).collect();
    if conditions(object).filter(|condition| condition["type"] == kind).count() != kept.len() {
        return;
    }
    let places = conditions(object).filter(|condition| condition["type"] == kind);
    for (place, condition) in places.zip(kept) {
        *place = condition;
    }
}

fn set_condition_times(object: &mut Value, old: &Value, now: &str) {
    let mut old = old.clone();
    let mut known: HashMap<(String, String), Value> = HashMap::new();
    let identity = |condition: &Value| {
        let member = |name: &str| condition[name].as_str().unwrap_or("").to_owned();
        (member("type"), member("status"))
    };
    for condition in conditions(&mut old).filter(|condition| !condition["lastTransitionTime"].is_null()) {
        let time = condition["lastTransitionTime"].clone();
        known.entry(identity(condition)).or_insert(time);
    }
    for condition in conditions(object) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = known.get(&identity(condition));
            condition["lastTransitionTime"] = same.cloned().unwrap_or_else(|| now.into());
        }
    }
}

/// The invalid values that an existing request may keep.
#[derive(Default)]
struct Tolerance {
    both_decisions: bool,
    legacy_signer: bool,
    duplicate_conditions: bool,
    unnamed_conditions: bool,
    odd_certificate: bool,
    duplicate_usages: bool,
    unknown_usages: bool,
}

impl Tolerance {
    fn after(old: &Field<'_>, new: &Field<'_>) -> Tolerance {
        let kinds: Vec<&str> =
            old.walk("status.conditions").items().map(|condition| condition.get("type").str()).collect();
        let usages: Vec<&str> = old.walk("spec.usages").items().map(|usage| usage.str()).collect();
        let repeats = |list: &[&str]| {
            let mut seen = HashSet::new();
            !list.iter().all(|item| seen.insert(*item))
        };
        let certificate = |object: &Field<'_>| object.walk("status.certificate").str().to_owned();
        Tolerance {
            both_decisions: kinds.contains(&APPROVED) && kinds.contains(&DENIED),
            legacy_signer: old.walk("spec.signerName").str() == LEGACY_SIGNER,
            duplicate_conditions: repeats(&kinds),
            unnamed_conditions: kinds.contains(&""),
            odd_certificate: certificate(old) == certificate(new)
                || check_certificates(&certificate(old)).is_err(),
            duplicate_usages: repeats(&usages),
            unknown_usages: usages.iter().any(|usage| !USAGES.contains(usage)),
        }
    }
}

fn validate_request(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let tolerance = old.map_or_else(Tolerance::default, |old| Tolerance::after(old, object));
    let spec = object.get("spec");
    let request = spec.get("request");
    if let Err(error) = check_request(request.str()) {
        errors.push(request.invalid_value(request.value().cloned().unwrap_or_default(), error.to_string()));
    }
    validate_usages(&spec.get("usages"), &tolerance, errors);
    let signer = spec.get("signerName");
    if !tolerance.legacy_signer && signer.str() == LEGACY_SIGNER {
        errors.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        validate_signer(&signer, errors);
    }
    let expiration = spec.get("expirationSeconds");
    errors.push_if(expiration.int().is_some_and(|seconds| seconds < MIN_EXPIRATION), || {
        expiration.invalid("may not specify a duration less than 600 seconds (10 minutes)")
    });
    validate_conditions(&object.walk("status.conditions"), &tolerance, errors);
    let certificate = object.walk("status.certificate");
    if !tolerance.odd_certificate
        && let Err(error) = check_certificates(certificate.str())
    {
        errors.push(certificate.invalid_value("<certificate data>", error));
    }
}

fn check_request(encoded: &str) -> Result<(), coracle_pki::Error> {
    CertificateRequest::parse(&STANDARD.decode(encoded).unwrap_or_default())?.verify_signature()
}

fn check_certificates(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let document = STANDARD.decode(encoded).unwrap_or_default();
    let mut blocks = 0;
    for block in pem::blocks(&document) {
        if block.label != b"CERTIFICATE" {
            let label = String::from_utf8_lossy(block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", quote(&label)));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        let mut rest = block.contents.as_slice();
        if rest.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !rest.is_empty() {
            (rest, _) = X509Certificate::from_der(rest).map_err(|_| "x509: malformed certificate")?;
        }
        blocks += 1;
    }
    if blocks == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}

fn validate_usages(usages: &Field<'_>, tolerance: &Tolerance, errors: &mut Errors) {
    errors.push_if(usages.is_empty(), || usages.required(""));
    for usage in usages.items() {
        let unknown = !tolerance.unknown_usages && !USAGES.contains(&usage.str());
        errors.push_if(unknown, || usage.not_supported(&USAGES));
    }
    let mut seen = HashSet::new();
    for usage in usages.items() {
        let again = !seen.insert(usage.str());
        errors.push_if(again && !tolerance.duplicate_usages, || usage.duplicate());
    }
}

/// Validates the name of a signer, such as `example.com/signer-name`.
fn validate_signer(signer: &Field<'_>, errors: &mut Errors) {
    const FORM: &str = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    if signer.is_empty() {
        return errors.push(signer.required(""));
    }
    let [domain, path] = signer.str().split('/').collect::<Vec<_>>()[..] else {
        return errors.push(signer.invalid(FORM));
    };
    errors.push_if(domain.len() > 253, || signer.too_long(253));
    let mut labels = domain.split('.').map(|label| (label, content::dns1123_label(label)));
    if let Some((label, found)) = labels.find(|(_, found)| !found.is_empty()) {
        for error in found {
            let detail = format!("validating label {}: {error}", quote(label));
            errors.push(signer.invalid_value(domain, detail));
        }
    }
    errors.push_if(!domain.contains('.'), || {
        signer.invalid_value(domain, "should be a domain with at least two segments separated by dots")
    });
    let mut labels = path.split('.').map(|label| (label, content::dns1123_subdomain(label)));
    if let Some((label, found)) = labels.find(|(_, found)| !found.is_empty()) {
        for error in found {
            let detail = format!("validating label {}: {error}", quote(label));
            errors.push(signer.invalid_value(path, detail));
        }
    }
}

fn validate_conditions(conditions: &Field<'_>, tolerance: &Tolerance, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        errors.push_if(kind.is_empty() && !tolerance.unnamed_conditions, || kind.required(""));
        let allowed: &[&str] =
            if TRUE_CONDITIONS.contains(&kind.str()) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(status.required(""));
        } else {
            errors.push_if(!allowed.contains(&status.str()), || status.not_supported(allowed));
        }
        let other = match kind.str() {
            APPROVED => Some(DENIED),
            DENIED => Some(APPROVED),
            _ => None,
        };
        let both = other.is_some_and(|other| seen.contains(&other)) && !tolerance.both_decisions;
        errors.push_if(both, || {
            let detail = "Approved and Denied conditions are mutually exclusive";
            conditions.invalid_value(kind.str(), detail)
        });
        let again = !seen.insert(kind.str());
        errors.push_if(again && !tolerance.duplicate_conditions, || kind.duplicate());
    }
}

fn validate_change(object: &Field<'_>, old: &Field<'_>, part: Part, errors: &mut Errors) {
    validate_request(object, Some(old), errors);
    let of_kind = |object: &Field<'_>, kind: &str| -> Vec<Option<Value>> {
        let conditions = object.walk("status.conditions").items();
        conditions.filter(|c| c.get("type").str() == kind).map(|c| c.value().cloned()).collect()
    };
    let conditions = object.walk("status.conditions");
    for kind in TRUE_CONDITIONS {
        errors.push_if(of_kind(object, kind).len() < of_kind(old, kind).len(), || {
            conditions.forbidden(format!("updates may not remove a condition of type {}", quote(kind)))
        });
    }
    if part != Part::Approval {
        for kind in [APPROVED, DENIED] {
            let (new, old) = (of_kind(object, kind), of_kind(old, kind));
            let what = match new.len().cmp(&old.len()) {
                std::cmp::Ordering::Greater => "add",
                std::cmp::Ordering::Equal if new != old => "modify",
                _ => continue,
            };
            errors.push(
                conditions.forbidden(format!("updates may not {what} a condition of type {}", quote(kind))),
            );
        }
    }
    let (new, old) = (object.walk("status.certificate"), old.walk("status.certificate"));
    if new.str() != old.str() {
        if part != Part::Status {
            errors.push(new.forbidden("updates may not set certificate content"));
        } else if !old.is_empty() {
            errors.push(new.forbidden("updates may not modify existing certificate content"));
        }
    }
}
