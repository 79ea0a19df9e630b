//! Job.
//!
//! A Job selects its pods by its own uid, unless `manualSelector` is set. The template is immutable
//! while the Job runs: while it is suspended without active pods, its scheduling directives and
//! resources may change.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::AtOr;
use coracle_apimachinery::selector::LabelSelector;
use coracle_apimachinery::selector::{Refusal, SelectableFields};
use coracle_apimachinery::strategy::defaulting::{Object, object_at, restore};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::{immutable, immutable_as, same};
use coracle_apimachinery::validation::labels::{
    SelectorOptions, has_invalid_values, validate_label_selector,
};
use coracle_apimachinery::validation::{content, printed};
use serde_json::{Value, json};

use super::{job_spec, job_status};
use crate::apps::workload;

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("status.successful", AtOr("/status/succeeded", "0"))])
        .refusing(Refusal::NotSupportedFor("Job"));

const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const OLD_NAME_LABEL: &str = "job-name";
const OLD_UID_LABEL: &str = "controller-uid";

/// The strategy of Job.
pub struct JobStrategy;

impl Strategy for JobStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object_at(object, "spec") {
            job_spec::default(spec);
        }
    }

    /// Returns a Job without labels with those of its template, as they are before the generated
    /// ones are added; None for other Jobs.
    fn managed_view(&self, object: &Value) -> Option<Value> {
        let labels =
            |pointer| object.pointer(pointer).and_then(Value::as_object).is_some_and(|m| !m.is_empty());
        if labels("/metadata/labels") || !labels("/spec/template/metadata/labels") {
            return None;
        }
        let mut view = object.clone();
        default_labels(&mut view);
        Some(view)
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        if object["spec"]["manualSelector"] != json!(true) {
            generate_selector(object);
        }
        default_labels(object);
        workload::prepare_template(object, None, "/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        default_labels(object);
        workload::prepare_template(object, Some(old), "/spec/template", context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_whole(object, None, errors);
    }

    fn orphaning_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        // kube-apiserver validates a changed Job as a new one first, so it reports its errors
        // twice.
        validate_whole(object, Some(old), errors);
        let (spec, old_spec) = (object.get("spec"), old.get("spec"));
        validate_spec(&spec, Some(&old_spec), errors);
        validate_completions(&spec, &old_spec, errors);
        immutable_as("meta.LabelSelector", &spec.get("selector"), &old_spec.get("selector"), errors);
        validate_template_change(object, old, errors);
        immutable(&spec.get("completionMode"), &old_spec.get("completionMode"), errors);
        let policy = "podFailurePolicy";
        immutable_as("batch.PodFailurePolicy", &spec.get(policy), &old_spec.get(policy), errors);
        for name in ["backoffLimitPerIndex", "managedBy"] {
            immutable(&spec.get(name), &old_spec.get(name), errors);
        }
        let policy = "successPolicy";
        immutable_as("batch.SuccessPolicy", &spec.get(policy), &old_spec.get(policy), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        job_status::validate_change(object, old, errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        match old {
            None => {
                let warnings = job_spec::warnings(&object.get("spec"));
                workload::name_warning(object).into_iter().chain(warnings).collect()
            }
            Some(old) if workload::generation_changed(object, old) => job_spec::warnings(&object.get("spec")),
            Some(_) => Vec::new(),
        }
    }
}

/// Labels the pods with the Job's name and uid, and selects them by the uid, which the caller has
/// set.
fn generate_selector(object: &mut Value) {
    let own = |name: &str| object["metadata"][name].as_str().unwrap_or("").to_owned();
    let (name, uid) = (own("name"), own("uid"));
    if let Some(labels) = object_at(object, "spec.template.metadata.labels") {
        for (label, value) in
            [(OLD_NAME_LABEL, &name), (NAME_LABEL, &name), (OLD_UID_LABEL, &uid), (UID_LABEL, &uid)]
        {
            labels.entry(label).or_insert_with(|| value.clone().into());
        }
    }
    if let Some(selected) = object_at(object, "spec.selector.matchLabels") {
        selected.entry(UID_LABEL).or_insert_with(|| uid.into());
    }
}

/// Copies the labels of the template, including the generated ones, to a Job without labels.
fn default_labels(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    let Some(metadata) = object_at(object, "metadata") else { return };
    let none = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(Object::is_empty);
    if none(metadata.get("labels")) && !none(Some(&labels)) {
        metadata.insert("labels".into(), labels);
    }
}

fn validate_whole(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    validate_generated_selector(object, old, errors);
    let spec = object.get("spec");
    validate_spec(&spec, old.map(|old| old.get("spec")).as_ref(), errors);
    let completions = spec.get("completions").int().unwrap_or(0);
    if job_spec::is_indexed(&spec) && completions > 0 {
        let name = object.walk("metadata.name");
        let last_pod = format!("{}-{}", name.str(), completions - 1);
        errors.push_if(!content::dns1123_label(&last_pod).is_empty(), || {
            name.invalid(format!("will not able to create pod with invalid DNS label: {last_pod}"))
        });
    }
}

fn validate_generated_selector(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let selector = object.walk("spec.selector");
    if object.walk("spec.manualSelector").bool() || !selector.exists() {
        return;
    }
    let (name, uid) = (object.walk("metadata.name"), object.walk("metadata.uid"));
    errors.push_if(uid.is_empty(), || uid.required(""));
    let mut expected = vec![(OLD_UID_LABEL, uid.str()), (OLD_NAME_LABEL, name.str())];
    // Jobs from before the prefixed labels do not have them.
    let had =
        |label: &str| old.is_none_or(|old| old.walk("spec.template.metadata.labels").get(label).exists());
    if had(NAME_LABEL) && had(UID_LABEL) {
        expected.extend([(UID_LABEL, uid.str()), (NAME_LABEL, name.str())]);
    }
    let labels = object.walk("spec.template.metadata.labels");
    for (key, want) in &expected {
        validate_has_label(&labels, key, want, errors);
    }
    let looked_up = |key: &str| expected.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
    let mut mistakes = Errors::new();
    validate_label_selector(&selector, SelectorOptions::default(), &mut mistakes);
    let generated =
        LabelSelector::from_object(selector.value()).is_none_or(|selector| selector.matches(looked_up));
    errors.push_if(!generated && mistakes.is_empty(), || {
        printed::invalid(&selector, "meta.LabelSelector", "`selector` not auto-generated")
    });
}

fn validate_has_label(labels: &Field<'_>, key: &str, want: &str, errors: &mut Errors) {
    let label = labels.get(key);
    let reported = Field::at(labels.value(), labels.path().key(key));
    let detail = format!("must be '{want}'");
    if !label.exists() {
        errors.push(reported.required(detail));
    } else if label.str() != want {
        errors.push(reported.invalid(detail));
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    job_spec::validate(spec, old.map(|old| old.get("template")).as_ref(), errors);
    let selector = spec.get("selector");
    let known = errors.len();
    if selector.exists() {
        let allow_invalid_values = old.is_some_and(|old| has_invalid_values(&old.get("selector")));
        let options = SelectorOptions { allow_invalid_values, ..SelectorOptions::default() };
        validate_label_selector(&selector, options, errors);
    } else {
        errors.push(selector.required(""));
    }
    if errors.len() == known || !selector.exists() {
        workload::validate_selection(&selector, &spec.get("template"), errors);
    }
}

fn validate_completions(spec: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (completions, old) = (spec.get("completions"), old.get("completions"));
    if !job_spec::is_indexed(spec) {
        return immutable(&completions, &old, errors);
    }
    let changed = completions.exists() && !same(&completions, &old);
    errors.push_if(changed && completions.int() != spec.get("parallelism").int(), || {
        completions.invalid("can only be modified in tandem with spec.parallelism")
    });
}

fn validate_template_change(object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let template = object.walk("spec.template");
    let mut allowed = old.walk("spec.template").value().cloned().unwrap_or_default();
    if !is_suspended_and_inactive(old) {
        let old = template.with_value(Some(&allowed));
        return immutable_as("core.PodTemplateSpec", &template, &old, errors);
    }
    let pod = template.get("spec").with_path(template.path().child("spec"));
    let Some(new) = pod.value().and_then(Value::as_object) else { return };
    if let Some(allowed) = object_at(&mut allowed, "spec") {
        copy_scheduling(allowed, new);
        for list in ["containers", "initContainers"] {
            copy_resources(allowed.get_mut(list), new.get(list));
        }
    }
    immutable_as("core.PodSpec", &pod, &Field::at(allowed.get("spec"), pod.path().clone()), errors);
}

/// Returns `true` if a Job is suspended and has no active pods.
fn is_suspended_and_inactive(job: &Field<'_>) -> bool {
    let status = job.get("status");
    job.walk("spec.suspend").bool()
        && (!status.get("startTime").exists() || job_status::has_condition(&status, "Suspended"))
        && status.get("active").int().unwrap_or(0) == 0
}

/// Copies the scheduling directives of the new pod template into the old one.
fn copy_scheduling(old: &mut Object, new: &Object) {
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        restore(old, Some(new), name);
    }
    let new_affinity = new.get("affinity").and_then(Value::as_object);
    if let Some(new_affinity) = new_affinity {
        if let Some(affinity) = old.entry("affinity").or_insert_with(|| json!({})).as_object_mut() {
            restore(affinity, Some(new_affinity), "nodeAffinity");
        }
    } else if let Some(affinity) = old.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            old.remove("affinity");
        }
    }
}

/// Copies the resources of the new containers into the old ones, by name and order.
fn copy_resources(old: Option<&mut Value>, new: Option<&Value>) {
    let (Some(old), Some(new)) = (old.and_then(Value::as_array_mut), new.and_then(Value::as_array)) else {
        return;
    };
    if old.len() != new.len() {
        return;
    }
    for (old, new) in old.iter_mut().zip(new) {
        if old["name"] == new["name"]
            && let Some(old) = old.as_object_mut()
        {
            restore(old, new.as_object(), "resources");
        }
    }
}
