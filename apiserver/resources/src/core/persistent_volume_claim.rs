//! PersistentVolumeClaim. The rules of its spec are in `claim_spec`: claims also stand inside other
//! objects.

use coracle_apimachinery::annotations::BETA_STORAGE_CLASS;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::{IMMUTABLE, immutable};
use coracle_apimachinery::validation::{content, printed, resource_list};
use serde_json::{Value, json};

use crate::claim_spec::{ClaimOptions, claim_spec_warnings, default_claim_spec, validate_claim_spec};

const BETA_STORAGE_CLASS_WARNING: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;

/// The strategy of PersistentVolumeClaim.
pub struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn default(&self, claim: &mut Value) {
        default_claim(claim);
    }

    fn prepare_for_create(&self, claim: &mut Value, _: &Context<'_>) {
        claim["status"] = json!({"phase": "Pending"});
        prepare_claim_spec(&mut claim["spec"], None);
    }

    fn prepare_for_update(&self, claim: &mut Value, old: &Value, _: &Context<'_>) {
        prepare_claim_spec(&mut claim["spec"], old.get("spec"));
    }

    fn validate(&self, claim: &Field<'_>, errors: &mut Errors) {
        validate_claim_spec(&claim.get("spec"), ClaimOptions::default(), errors);
    }

    fn validate_update(&self, claim: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_claim_spec(&claim.get("spec"), ClaimOptions::after(&old.get("spec")), errors);
        validate_change(claim, old, errors);
    }

    fn validate_status_update(&self, claim: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_status(&claim.get("status"), errors);
    }

    fn warnings(&self, claim: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        if beta_class(claim).exists() {
            warnings
                .push(format!("metadata.annotations[{BETA_STORAGE_CLASS}]: {BETA_STORAGE_CLASS_WARNING}"));
        }
        warnings.extend(claim_spec_warnings(&claim.get("spec")));
        warnings
    }
}

/// Defaults a claim, or a StatefulSet's template.
pub fn default_claim(claim: &mut Value) {
    if claim["status"]["phase"].as_str().unwrap_or("").is_empty() {
        claim["status"]["phase"] = "Pending".into();
    }
    default_claim_spec(&mut claim["spec"]);
    for list in ["/status/capacity", "/status/allocatedResources"] {
        resource_list::round_up(claim.pointer_mut(list));
    }
}

/// Drops the fields of disabled features (sources in other namespaces), and aligns `dataSource`
/// with `dataSourceRef`. A claim that had a source keeps it.
fn prepare_claim_spec(spec: &mut Value, old: Option<&Value>) {
    let had = |member: &str| old.is_some_and(|old| old.get(member).is_some());
    let namespace = |spec: &Value| spec.pointer("/dataSourceRef/namespace").is_some_and(|ns| ns != "");
    if namespace(spec) && !had("dataSourceRef") {
        remove(spec, "dataSourceRef");
    }
    if !had("dataSource")
        && !had("dataSourceRef")
        && spec.get("dataSourceRef").is_none()
        && !spec.get("dataSource").is_some_and(is_claim_or_snapshot)
    {
        remove(spec, "dataSource");
    }
    let copied = |from: &Value| {
        let members = ["apiGroup", "kind", "name"].map(|member| (member, from.get(member)));
        members.into_iter().filter_map(|(m, v)| Some((m.to_owned(), v?.clone()))).collect::<Value>()
    };
    match (spec.get("dataSource"), spec.get("dataSourceRef")) {
        (Some(source), None) => spec["dataSourceRef"] = copied(source),
        (None, Some(reference)) if !namespace(spec) => spec["dataSource"] = copied(reference),
        _ => {}
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |member| source.get(member).and_then(Value::as_str).unwrap_or("");
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn remove(object: &mut Value, member: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(member);
    }
}

/// Validates immutable fields: the volume's name can be set once, a missing class can be set, and
/// bound claims can change their size and volume attributes class.
fn validate_change(claim: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (mut new_spec, mut old_spec) = (spec_of(claim), spec_of(old));
    if old_spec["volumeName"].as_str().unwrap_or("").is_empty() {
        copy(&mut old_spec, &new_spec, "volumeName");
    }
    validate_class_change(claim, old, &mut new_spec, errors);
    if claim.walk("status.phase").str() == "Bound" {
        if new_spec.pointer("/resources/requests").is_some() {
            new_spec["resources"]["requests"]["storage"] =
                old_spec["resources"]["requests"]["storage"].clone();
        }
        copy(&mut new_spec, &old_spec, "volumeAttributesClassName");
    }
    errors.push_if(!is_same_spec(&new_spec, &old_spec), || {
        let diff = printed::diff("core.PersistentVolumeClaimSpec", Some(&old_spec), Some(&new_spec));
        claim.get("spec").forbidden(format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        ))
    });
    validate_size_change(claim, old, errors);
    // kube-apiserver reports this error at the root.
    let mode = claim.walk("spec.volumeMode").with_path(claim.path().child("volumeMode"));
    immutable(&mode, &old.walk("spec.volumeMode"), errors);
    validate_attributes_class_change(claim, old, errors);
}

fn spec_of(claim: &Field<'_>) -> Value {
    claim.get("spec").value().cloned().unwrap_or_else(|| json!({}))
}

fn copy(to: &mut Value, from: &Value, member: &str) {
    match from.get(member) {
        Some(value) => to[member] = value.clone(),
        None => remove(to, member),
    }
}

/// Compares specs with amounts as numbers: `1k` is `1000`.
fn is_same_spec(new: &Value, old: &Value) -> bool {
    let numbers = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["/resources/limits", "/resources/requests"] {
            let amounts = spec.pointer_mut(list).and_then(Value::as_object_mut);
            for amount in amounts.into_iter().flat_map(|list| list.values_mut()) {
                let parsed = amount.as_str().and_then(|text| text.parse::<coracle_quantity::Quantity>().ok());
                *amount = parsed.map_or(Value::Null, |quantity| quantity.milli_value().into());
            }
        }
        spec
    };
    new == old || numbers(new) == numbers(old)
}

fn beta_class<'a>(claim: &Field<'a>) -> Field<'a> {
    claim.walk("metadata.annotations").get(BETA_STORAGE_CLASS)
}

/// Validates a change of the class. It cannot change, but it may move from the annotation to its
/// field, and a claim without one may get one. An allowed change is removed from `new_spec`.
fn validate_class_change(claim: &Field<'_>, old: &Field<'_>, new_spec: &mut Value, errors: &mut Errors) {
    let class = claim.walk("spec.storageClassName");
    let appeared = class.exists() && !old.walk("spec.storageClassName").exists();
    let (before, after) = (beta_class(old), beta_class(claim));
    let matches = before.exists() && class.str() == before.str();
    if appeared && matches && (!after.exists() || after.str() == before.str()) {
        remove(new_spec, "storageClassName");
        return;
    }
    errors.push_if(before.str() != after.str(), || {
        let path = claim.path().child("metadata").child("annotations").child(BETA_STORAGE_CLASS);
        after.with_path(path).invalid(IMMUTABLE)
    });
    if appeared && (!before.exists() || matches) {
        remove(new_spec, "storageClassName");
    }
}

fn validate_size_change(claim: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    const REQUEST: &str = "spec.resources.requests.storage";
    let request = claim.walk(REQUEST);
    let size = resource_list::amount(&request);
    let capacity = resource_list::amount(&old.walk("status.capacity.storage"));
    errors.push_if(size < resource_list::amount(&old.walk(REQUEST)) && size <= capacity, || {
        request.forbidden("field can not be less than status.capacity")
    });
}

fn validate_attributes_class_change(claim: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    const APPLIED: &str = "is forbidden when status.currentVolumeAttributesClassName is not nil";
    let class = claim.walk("spec.volumeAttributesClassName");
    let changed = class.value() != old.walk("spec.volumeAttributesClassName").value();
    if changed && old.walk("status.currentVolumeAttributesClassName").exists() {
        errors.push_if(!class.exists(), || class.forbidden(format!("update to nil {APPLIED}")));
        errors.push_if(class.exists() && class.is_empty(), || {
            class.forbidden(format!("update to empty string {APPLIED}"))
        });
    }
}

fn validate_status(status: &Field<'_>, errors: &mut Errors) {
    const RESIZE_STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (_, amount) in status.get("capacity").entries() {
        resource_list::validate_capacity(&amount, errors);
    }
    let states = status.get("allocatedResourceStatuses");
    for (name, state) in states.entries() {
        validate_resource_key(name, &states, errors);
        errors.push_if(!RESIZE_STATES.contains(&state.str()), || {
            let key = Value::from(name);
            Field::at(Some(&key), states.path().clone()).not_supported(&RESIZE_STATES)
        });
    }
    let allocated = status.get("allocatedResources");
    for (name, amount) in allocated.entries() {
        if !validate_resource_key(name, &allocated, errors) {
            continue;
        }
        let found = errors.len();
        resource_list::validate_capacity(&amount, errors);
        if errors.len() == found {
            resource_list::validate_amount("storage", &amount, errors);
        }
    }
}

/// Validates the name of a resource. Of Kubernetes' native resources only `storage` is valid.
/// Returns whether the name is valid.
fn validate_resource_key(name: &str, list: &Field<'_>, errors: &mut Errors) -> bool {
    let found = content::qualified_name(name);
    let foreign = found.is_empty() && resource_list::is_native(name) && name != "storage";
    let passed = found.is_empty() && !foreign;
    errors.extend(found.into_iter().map(|e| list.invalid_value(name, e)));
    errors.push_if(foreign, || {
        let key = Value::from(name);
        Field::at(Some(&key), list.path().clone()).not_supported(&["storage"])
    });
    passed
}
