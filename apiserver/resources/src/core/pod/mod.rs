//! Pod: the rules beyond those of its spec.
//!
//! The rules of the spec are in `pod_spec`; those of updates and of the pod's subresources in the
//! modules below.

mod members;
mod resize;
mod status;
mod update;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::{Addresses, At, AtOr};
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::ResetFields;
use coracle_apimachinery::strategy::{Context, Part, Strategy};
use coracle_apimachinery::validation::ip;
use serde_json::{Value, json};

use self::members::{keep_metadata, set};
use crate::pod_spec::annotations::{APP_ARMOR, app_armor_profile};
use crate::pod_spec::{self, PodValidationOptions, annotations, scheduling};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields = SelectableFields::of(&[
    ("spec.nodeName", At("/spec/nodeName")),
    // Its old name.
    ("spec.host", At("/spec/nodeName")),
    ("spec.restartPolicy", At("/spec/restartPolicy")),
    ("spec.schedulerName", At("/spec/schedulerName")),
    ("spec.serviceAccountName", At("/spec/serviceAccountName")),
    ("spec.hostNetwork", AtOr("/spec/hostNetwork", "false")),
    ("status.phase", At("/status/phase")),
    ("status.podIP", At("/status/podIP")),
    ("status.podIPs", Addresses("/status/podIPs")),
    ("status.nominatedNodeName", At("/status/nominatedNodeName")),
]);

/// The fields that an endpoint does not write.
pub const RESET_FIELDS: ResetFields = ResetFields {
    by_subresource: &[(
        "status",
        &[&["f:spec"], &["f:metadata", "f:deletionTimestamp"], &["f:metadata", "f:ownerReferences"]],
    )],
};

/// The strategy of Pod.
pub struct PodStrategy;

impl Strategy for PodStrategy {
    fn default(&self, pod: &mut Value) {
        pod_spec::default_pod(pod);
    }

    fn prepare_for_create(&self, pod: &mut Value, context: &Context<'_>) {
        pod["status"] = json!({"phase": "Pending", "qosClass": status::qos_class(&Field::root(pod))});
        if let Some(spec) = pod["spec"].as_object_mut() {
            // Admission may have set the service account.
            pod_spec::mirror_service_account(spec);
        }
        // A LimitRange may have set requests of containers.
        pod_spec::resources::default_pod_level(&mut pod["spec"]);
        pod_spec::drop_disabled(&mut pod["spec"], None, context.features);
        set_scheduling_gated(pod, context.now);
        scheduling::merge_label_keys(pod);
        copy_app_armor_annotations(pod);
    }

    fn prepare_for_update(&self, pod: &mut Value, old: &Value, context: &Context<'_>) {
        pod_spec::drop_disabled(&mut pod["spec"], old.get("spec"), context.features);
    }

    fn prepare_for_status_update(&self, pod: &mut Value, old: &Value, context: &Context<'_>) {
        status::prepare(pod, old, context.features);
    }

    fn prepare_for_subresource_update(
        &self,
        part: Part,
        pod: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        match part {
            Part::EphemeralContainers => {
                let containers = pod.pointer("/spec/ephemeralContainers").cloned();
                pod["spec"] = old["spec"].clone();
                set(&mut pod["spec"], "ephemeralContainers", containers);
                keep_metadata(pod, old);
            }
            Part::Resize => resize::prepare(pod, old),
            _ => return,
        }
        pod_spec::drop_disabled(&mut pod["spec"], old.get("spec"), context.features);
    }

    fn is_new_generation(&self, pod: &Value, old: &Value) -> bool {
        !update::same(&pod["spec"], &old["spec"])
    }

    fn validate(&self, pod: &Field<'_>, errors: &mut Errors) {
        validate_whole(pod, &PodValidationOptions::for_pod(), errors);
        let spec = pod.get("spec");
        let (ephemeral, node) = (spec.get("ephemeralContainers"), spec.get("nodeName"));
        errors.push_if(!ephemeral.is_empty(), || ephemeral.forbidden("cannot be set on create"));
        errors.push_if(!node.is_empty() && !spec.get("schedulingGates").is_empty(), || {
            node.forbidden("cannot be set until all schedulingGates have been cleared")
        });
        annotations::validate_profiles_match(&pod.walk("metadata.annotations"), &spec, errors);
    }

    fn validate_update(&self, pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let options = PodValidationOptions::for_pod_update(old);
        validate_whole(pod, &options, errors);
        validate_annotations_update(pod, old, &options, errors);
        update::validate(&pod.get("spec"), &old.get("spec"), &options, errors);
    }

    fn validate_status_update(&self, pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_annotations_update(pod, old, &PodValidationOptions::for_pod_update(old), errors);
        status::validate(pod, old, errors);
    }

    fn validate_subresource_update(&self, part: Part, pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let options = PodValidationOptions::for_pod_update(old);
        match part {
            Part::EphemeralContainers => {
                validate_whole(pod, &options, errors);
                validate_annotations_update(pod, old, &options, errors);
                update::validate_ephemeral_containers(pod, old, errors);
            }
            Part::Resize => {
                validate_whole(pod, &options, errors);
                resize::validate(pod, old, errors);
            }
            _ => {}
        }
    }

    fn warnings(&self, pod: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        match old {
            None => pod_spec::pod_warnings(pod),
            // Updates of pods are rarely made by people, so warnings about the spec would not be
            // read.
            Some(old) => status::warnings(pod, old),
        }
    }

    fn status_warnings(&self, pod: &Field<'_>) -> Vec<String> {
        let lists = [pod.walk("status.podIPs"), pod.walk("status.hostIPs")];
        let addresses = lists.iter().flat_map(|list| list.items()).map(|item| item.get("ip"));
        addresses.filter_map(|address| ip::address_warning(&address)).collect()
    }
}

/// Validates a pod at any time, except for its metadata.
fn validate_whole(pod: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let (metadata, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations::validate(&metadata.get("annotations"), &spec, options, errors);
    pod_spec::validate_pod_spec(&spec, &metadata, options, errors);
    if spec.get("serviceAccountName").is_empty() {
        let volumes = spec.get("volumes");
        for source in volumes.items().flat_map(|volume| volume.walk("projected.sources").items()) {
            let token = source.get("serviceAccountToken");
            errors.push_if(token.exists(), || {
                token.forbidden("must not be specified when serviceAccountName is not set")
            });
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            pod_spec::validate_image_is_trimmed(&container, errors);
        }
    }
}

fn validate_annotations_update(
    pod: &Field<'_>,
    old: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let new = pod.walk("metadata.annotations");
    annotations::validate_update(&new, &old.walk("metadata.annotations"), errors);
    annotations::validate(&new, &pod.get("spec"), options, errors);
}

/// Sets the condition `PodScheduled` with the reason `SchedulingGated` on a pod with scheduling
/// gates.
fn set_scheduling_gated(pod: &mut Value, now: &str) {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Copies AppArmor profiles that are set by annotation only to the field, unless the pod's own
/// profile is the same.
///
/// Source: KEP-24, "Version skew strategy".
fn copy_app_armor_annotations(pod: &mut Value) {
    if pod.pointer("/spec/os/name").and_then(Value::as_str) == Some("windows") {
        return;
    }
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    let annotations = pod.pointer("/metadata/annotations").cloned().unwrap_or_default();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container.get("name").and_then(Value::as_str).unwrap_or("");
            let annotation = annotations.get(format!("{APP_ARMOR}{name}"));
            let profile = annotation.and_then(Value::as_str).and_then(app_armor_profile);
            let has_own = container.pointer("/securityContext/appArmorProfile").is_some();
            if let Some(profile) = profile.filter(|profile| !has_own && of_pod.as_ref() != Some(profile)) {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}
