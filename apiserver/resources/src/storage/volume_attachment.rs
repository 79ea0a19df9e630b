//! VolumeAttachment.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::keep_metadata;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::immutable::immutable_as;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use serde_json::{Value, json};

use crate::core::persistent_volume;

const MAX_METADATA: usize = 256 * 1024;
const MAX_MESSAGE: usize = 1024;

/// The strategy of VolumeAttachment.
pub struct VolumeAttachmentStrategy;

impl Strategy for VolumeAttachmentStrategy {
    fn default(&self, attachment: &mut Value) {
        if let Some(spec) = attachment.pointer_mut("/spec/source/inlineVolumeSpec") {
            persistent_volume::default_sources(spec);
        }
    }

    fn prepare_for_create(&self, attachment: &mut Value, _: &Context<'_>) {
        attachment["status"] = json!({"attached": false});
    }

    fn prepare_for_status_update(&self, attachment: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(attachment, old);
    }

    fn validate(&self, attachment: &Field<'_>, errors: &mut Errors) {
        validate(attachment, errors);
    }

    fn validate_update(&self, attachment: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate(attachment, errors);
        immutable_as("storage.VolumeAttachmentSpec", &attachment.get("spec"), &old.get("spec"), errors);
    }

    fn validate_status_update(&self, attachment: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate_update(attachment, old, errors);
    }
}

fn validate(attachment: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let spec = attachment.get("spec");
    let (source, node) = (spec.get("source"), spec.get("nodeName"));
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    validate_csi_driver_name(&spec.get("attacher"), errors);
    match (inline.exists(), name.exists()) {
        (false, false) => errors.push(source.required(ONE)),
        (true, true) => errors.push(source.forbidden(ONE)),
        (false, true) => {
            errors.push_if(name.is_empty(), || name.required("must specify non empty persistentVolumeName"))
        }
        (true, false) => persistent_volume::validate_inline_spec(&inline, errors),
    }
    errors.invalid_each(&node, content::dns1123_subdomain(node.str()));
    validate_status(&attachment.get("status"), errors);
    if name.exists() {
        errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
    }
}

fn validate_status(status: &Field<'_>, errors: &mut Errors) {
    let details = status.get("attachmentMetadata");
    let size: usize = details.entries().map(|(key, value)| key.len() + value.len()).sum();
    errors.push_if(size > MAX_METADATA, || details.too_long(MAX_METADATA));
    for error in ["attachError", "detachError"].map(|member| status.get(member)) {
        let (message, code) = (error.get("message"), error.get("errorCode"));
        // Reported with the other limit, as in kube-apiserver.
        errors.push_if(message.len() > MAX_MESSAGE, || message.too_long(MAX_METADATA));
        errors.push_if(code.int().is_some_and(|code| code < 0), || {
            code.invalid(format!("must be between 0 and {}, inclusive", i32::MAX))
        });
    }
}
