//! PersistentVolumeClaim, and claims inside other objects: a StatefulSet's templates, a pod's ephemeral volumes.
//!
//! Their strategies call [`default_claim`], [`validate_claim_template`] and the like. A Pod's ephemeral claim template
//! and the claim that is created from it have the same rules.

use serde_json::{Value, json};

use crate::field::{Errors, Field};
use crate::resources::strategy::{Context, Strategy};
use crate::validation::immutable::{IMMUTABLE, immutable};
use crate::validation::labels::{self, SelectorOptions};
use crate::validation::{content, member, metadata, printed, resource_list};

/// The annotation that preceded `storageClassName`.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const BETA_STORAGE_CLASS_WARNING: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;

/// The access modes of volumes and claims.
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// The values of `volumeMode`.
pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

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

/// Defaults a claim's spec; an ephemeral claim template has no other defaults.
pub fn default_claim_spec(spec: &mut Value) {
    if spec["volumeMode"].is_null() {
        spec["volumeMode"] = "Filesystem".into();
    }
    for list in ["/resources/limits", "/resources/requests"] {
        resource_list::round_up(spec.pointer_mut(list));
    }
}

/// Drops the fields of disabled features (sources in other namespaces), and aligns `dataSource` with `dataSourceRef`.
/// A claim that had a source keeps it.
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

/// What an existing claim may keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimOptions {
    /// The options for the label selector.
    pub selector: SelectorOptions,
    /// Allows an apiGroup of the data source that is no subdomain.
    pub allow_invalid_api_groups: bool,
}

impl ClaimOptions {
    /// The options for an update of the old spec.
    pub fn after(old: &Field<'_>) -> ClaimOptions {
        let mut found = Errors::new();
        labels::validate_label_selector(&old.get("selector"), SelectorOptions::default(), &mut found);
        let has_group = |member| old.get(member).get("apiGroup").exists();
        ClaimOptions {
            selector: SelectorOptions {
                allow_invalid_values: !found.is_empty(),
                ..SelectorOptions::default()
            },
            allow_invalid_api_groups: has_group("dataSource") || has_group("dataSourceRef"),
        }
    }
}

/// Validates a claim template inside a pod: labels, annotations and spec, and nothing else.
pub fn validate_claim_template(template: &Field<'_>, errors: &mut Errors) {
    metadata::validate_template(&template.get("metadata"), errors);
    validate_claim_spec(&template.get("spec"), ClaimOptions::default(), errors);
}

/// Validates a claim's spec.
pub fn validate_claim_spec(spec: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    errors.push_if(modes.is_empty(), || modes.required("at least 1 access mode is required"));
    labels::validate_label_selector(&spec.get("selector"), options.selector, errors);
    validate_access_modes(&modes, errors);
    validate_request(spec, errors);
    member::if_any(&spec.get("storageClassName"), content::dns1123_subdomain, errors);
    let mode = spec.get("volumeMode");
    errors
        .push_if(mode.exists() && !VOLUME_MODES.contains(&mode.str()), || mode.not_supported(&VOLUME_MODES));
    validate_data_sources(spec, options, errors);
    member::if_any(&spec.get("volumeAttributesClassName"), content::dns1123_subdomain, errors);
}

/// Validates the access modes; errors are reported for the list.
pub fn validate_access_modes(modes: &Field<'_>, errors: &mut Errors) {
    for mode in modes.items().filter(|mode| !ACCESS_MODES.contains(&mode.str())) {
        errors.push(mode.with_path(modes.path().clone()).not_supported(&ACCESS_MODES));
    }
    let is_single = |mode: &str| mode == "ReadWriteOncePod";
    let single = modes.items().any(|mode| is_single(mode.str()));
    let other = modes.items().any(|mode| !is_single(mode.str()) && ACCESS_MODES.contains(&mode.str()));
    errors
        .push_if(single && other, || modes.forbidden("may not use ReadWriteOncePod with other access modes"));
}

fn validate_request(spec: &Field<'_>, errors: &mut Errors) {
    let path = spec.path().child("resources").key("storage");
    let request = spec.walk("resources.requests").get("storage").with_path(path);
    if request.exists() {
        resource_list::validate_positive(&request, errors);
    } else {
        errors.push(request.required(""));
    }
}

fn validate_data_sources(spec: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for source in [&source, &reference] {
        if source.exists() {
            validate_data_source(source, options, errors);
        }
    }
    if !source.exists() || !reference.exists() {
        return;
    }
    // The real server prints the path of the member in place of the value, which results in an empty object.
    let error = |detail| spec.invalid_value(json!({}), detail);
    if !reference.get("namespace").is_empty() {
        errors.push(error("may not be specified when dataSourceRef.namespace is specified"));
    } else if ["apiGroup", "kind", "name"].iter().any(|m| source.get(m).value() != reference.get(m).value()) {
        errors.push(error("must match dataSourceRef"));
    }
}

fn validate_data_source(source: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let (name, kind, group) = (source.get("name"), source.get("kind"), source.get("apiGroup"));
    member::required(&name, errors);
    member::required(&kind, errors);
    errors.push_if(group.is_empty() && kind.str() != "PersistentVolumeClaim", || {
        source.invalid_value(
            kind.str(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        )
    });
    if !group.is_empty() && !options.allow_invalid_api_groups {
        errors.invalid_each(&group, content::dns1123_subdomain(group.str()));
    }
    member::if_any(&source.get("namespace"), content::dns1123_label, errors);
}

/// Immutable fields: the volume's name can be set once, a missing class can be set, and bound claims can change their
/// size and volume attributes class.
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
    // The real server reports this error at the root.
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

/// Amounts are compared as numbers: `1k` is `1000`.
fn is_same_spec(new: &Value, old: &Value) -> bool {
    let numbers = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["/resources/limits", "/resources/requests"] {
            let amounts = spec.pointer_mut(list).and_then(Value::as_object_mut);
            for amount in amounts.into_iter().flat_map(|list| list.values_mut()) {
                let parsed = amount.as_str().and_then(|text| text.parse::<crate::quantity::Quantity>().ok());
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

/// The class cannot change, but it may move from the annotation to its field, and a claim without one may get one. An
/// allowed change is removed from `new_spec`.
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

/// Of Kubernetes' native resources only `storage` is valid. Returns whether the name is valid.
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

/// Warnings about a claim's spec, including those of ephemeral volumes.
pub fn claim_spec_warnings(spec: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["requests", "limits"] {
        let amount = spec.get("resources").get(list).get("storage");
        if resource_list::amount(&amount).milli_value() % 1000 != 0 {
            warnings.push(format!(
                "{}.resources.{list}[storage]: fractional byte value {} is invalid, must be an integer",
                spec.path(),
                crate::field::quote(amount.str())
            ));
        }
    }
    warnings
}
