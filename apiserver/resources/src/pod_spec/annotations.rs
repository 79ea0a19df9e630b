//! Annotations of pods: mirror pods, deletion cost, and the profiles and tolerations that preceded
//! fields.

use std::cell::LazyCell;
use std::collections::HashSet;

use coracle_apimachinery::codec::{Decoded, json as codec};
use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::go_value::cannot_unmarshal;
use coracle_apimachinery::validation::paths;
use serde_json::{Value, json};

use super::container_lists::containers;
use super::options::PodValidationOptions;
use super::scheduling;

/// The annotation of mirror pods.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
/// The deprecated annotation of a pod's seccomp profile.
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The prefix of the deprecated annotations of containers' seccomp profiles.
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The prefix of the deprecated annotations of containers' AppArmor profiles.
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates a pod's or template's annotations; `path` is where they are reported.
pub fn validate(
    annotations: &Field<'_>,
    spec: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let mirror = annotations.entry(MIRROR);
    errors.push_if(mirror.exists() && spec.get("nodeName").is_empty(), || {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set")
    });
    validate_tolerations(annotations, options, errors);
    let cost = annotations.entry(DELETION_COST);
    errors.push_if(!options.allow_invalid_deletion_cost && !is_deletion_cost(&cost), || {
        cost.invalid("must be a 32bit integer")
    });
    validate_seccomp(&annotations.get(SECCOMP_POD), errors);
    for (key, value) in annotations.entries() {
        if key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp(&value.with_path(annotations.path().child(key)), errors);
        }
    }
    let known: LazyCell<HashSet<&str>, _> =
        LazyCell::new(|| containers(spec).map(|c| c.get("name").str()).collect());
    for (key, value) in annotations.entries() {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            validate_app_armor(&value, container, &known, errors);
        }
    }
}

/// Returns `true` if the deletion cost is absent, or an `i32` without a leading `+` or a
/// superfluous leading `0`.
///
/// Source: `GetDeletionCostFromPodAnnotations`, which accepts `-01`.
pub fn is_deletion_cost(cost: &Field<'_>) -> bool {
    let text = cost.str();
    let plain = text.starts_with('-') || text == "0" || text.starts_with(|c: char| ('1'..='9').contains(&c));
    !cost.exists() || (plain && text.parse::<i32>().is_ok())
}

/// Returns the deletion cost among annotations.
pub fn deletion_cost<'a>(annotations: &Field<'a>) -> Field<'a> {
    annotations.get(DELETION_COST)
}

fn validate_tolerations(annotations: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    match json_in(annotations, TOLERATIONS, "[]v1.Toleration", Value::is_array) {
        Some(Ok(tolerations)) => {
            let path = annotations.path().child(TOLERATIONS);
            scheduling::validate_tolerations(&Field::at(Some(&tolerations), path), options, errors);
        }
        Some(Err(error)) => errors.push(annotations.invalid_value(TOLERATIONS, error)),
        None => {}
    }
}

/// Returns the JSON in an annotation, or the message of Go's decoder; None if there is none.
///
/// - `go_type`: the name of its type in Go
/// - `fits`: whether a value other than null may be of that type
pub fn json_in(
    annotations: &Field<'_>,
    name: &str,
    go_type: &str,
    fits: fn(&Value) -> bool,
) -> Option<Result<Value, String>> {
    let text = annotations.get(name);
    if text.is_empty() {
        return None;
    }
    let decoded = codec::decode_value(text.str().as_bytes()).map_err(|error| error.to_string());
    Some(decoded.and_then(|Decoded { value, .. }| match fits(&value) || value.is_null() {
        true => Ok(value),
        false => Err(cannot_unmarshal(&value, &format!("value of type {go_type}"))),
    }))
}

fn validate_seccomp(profile: &Field<'_>, errors: &mut Errors) {
    match profile.str() {
        _ if !profile.exists() => {}
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => errors
                .extend(paths::descending(path).into_iter().map(|error| profile.invalid_value(path, error))),
            None => errors.push(profile.invalid("must be a valid seccomp profile")),
        },
    }
}

fn validate_app_armor(value: &Field<'_>, container: &str, known: &HashSet<&str>, errors: &mut Errors) {
    errors.push_if(!known.contains(container), || value.invalid_value(container, "container not found"));
    let profile = value.str();
    let formed =
        matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
    errors.push_if(!formed, || value.invalid(format!("invalid AppArmor profile name: {}", quote(profile))));
}

/// Requires that profiles set by annotation and by field agree.
pub fn validate_profiles_match(annotations: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let pod = spec.get("securityContext");
    let agree = |key: &str, profile: &Field<'_>, what: &str, defaults: &[&str], errors: &mut Errors| {
        let annotation = annotations.get(key);
        if !annotation.exists() || !profile.exists() {
            return;
        }
        let text = annotation.str();
        let (kind, file) = (profile.get("type"), profile.get("localhostProfile"));
        let fits = match kind.str() {
            "Unconfined" => text == "unconfined",
            "RuntimeDefault" => defaults.contains(&text),
            "Localhost" => match text.strip_prefix("localhost/") {
                None => false,
                Some(path) => {
                    errors.push_if(!file.exists() || path != file.str(), || {
                        file.forbidden(format!("{what} profile in annotation and field must match"))
                    });
                    true
                }
            },
            _ => true,
        };
        errors.push_if(!fits, || kind.forbidden(format!("{what} type in annotation and field must match")));
    };
    const SECCOMP_DEFAULTS: [&str; 2] = ["runtime/default", "docker/default"];
    agree(SECCOMP_POD, &pod.get("seccompProfile"), "seccomp", &SECCOMP_DEFAULTS, errors);
    for container in containers(spec) {
        let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").str());
        let profile = container.walk("securityContext.seccompProfile");
        agree(&key, &profile, "seccomp", &SECCOMP_DEFAULTS, errors);
    }
    if spec.walk("os.name").str() == "windows" {
        return;
    }
    for container in containers(spec) {
        let key = format!("{APP_ARMOR}{}", container.get("name").str());
        let own = container.walk("securityContext.appArmorProfile");
        let path = own.path().clone();
        let profile = if own.exists() { own } else { pod.get("appArmorProfile").with_path(path) };
        agree(&key, &profile, "apparmor", &["runtime/default"], errors);
    }
}

/// Validates changes of a pod's annotations.
pub fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let guarded = |key: &str| {
        if key.starts_with(APP_ARMOR) {
            Some("AppArmor annotations")
        } else {
            (key == MIRROR).then_some("mirror pod annotation")
        }
    };
    for (key, before) in old.entries() {
        let unchanged = new.get(key).value() == before.value();
        if let Some(what) = guarded(key).filter(|_| !unchanged) {
            errors.push(new.entry(key).forbidden(format!("may not remove or update {what}")));
        }
    }
    for (key, entry) in new.entries() {
        if let Some(what) = guarded(key).filter(|_| !old.get(key).exists()) {
            errors.push(entry.forbidden(format!("may not add {what}")));
        }
    }
}

/// Converts an AppArmor annotation to the value of the field; None if the field has no such value.
pub fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => annotation
            .strip_prefix("localhost/")
            .filter(|profile| !profile.is_empty())
            .map(|profile| json!({"type": "Localhost", "localhostProfile": profile})),
    }
}
