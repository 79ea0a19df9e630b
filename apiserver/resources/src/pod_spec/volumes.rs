//! Volumes of a pod: each has a name and one source, the sources have rules of their own.
//!
//! Start at [`validate`]; the table of sources is [`SOURCES`], in the order in which the real server checks them.

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::validation::volume_sources::{self, SourceOwner};
use coracle_apimachinery::validation::{content, paths, resource_list};

use super::env::{self, Shown};
use super::{Options, projected};
use crate::claim_spec::validate_claim_template;

/// The message about an invalid file mode.
pub const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The mountable volumes of a pod, by name.
pub type Mountable<'a> = BTreeMap<&'a str, Field<'a>>;

/// The sources, in the order in which the real server checks them, and the field it reports for an additional source:
/// with its own spelling, errors included.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Validates the volumes of a pod and returns those that can be mounted.
pub fn validate<'a>(volumes: &Field<'a>, pod: &str, options: &Options, errors: &mut Errors) -> Mountable<'a> {
    // Claims of this pod's ephemeral volumes, which no other volume may use.
    let made: BTreeSet<String> = volumes
        .items()
        .filter(|volume| !pod.is_empty() && volume.get("ephemeral").exists())
        .map(|volume| format!("{pod}-{}", volume.get("name").str()))
        .collect();
    let mut mountable = Mountable::new();
    for volume in volumes.items() {
        if errors.is_full() {
            break;
        }
        let name = volume.get("name");
        let before = errors.len();
        validate_sources(&volume, pod, options, errors);
        if name.is_empty() {
            errors.push(name.required(""));
        } else {
            errors.invalid_each(&name, content::dns1123_label(name.str()));
        }
        errors.push_if(mountable.contains_key(name.str()), || name.duplicate());
        if errors.len() == before {
            mountable.insert(name.str(), volume.clone());
        }
        let claim = volume.walk("persistentVolumeClaim.claimName");
        errors.push_if(made.contains(claim.str()), || {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume")
        });
    }
    mountable
}

fn validate_sources(volume: &Field<'_>, pod: &str, options: &Options, errors: &mut Errors) {
    let mut found = false;
    for (kind, reported) in SOURCES {
        let source = volume.get(kind);
        if !source.exists() {
            continue;
        }
        if found {
            let surplus = source.with_path(volume.path().child(reported));
            errors.push(surplus.forbidden("may not specify more than 1 volume type"));
        } else {
            validate_source(kind, &source, options, errors);
        }
        let name = volume.get("name");
        match kind {
            "iscsi" => validate_iscsi_name_length(&name, &source, errors),
            "ephemeral" if !found => validate_claim_name(&name, pod, errors),
            _ => {}
        }
        found = true;
    }
    errors.push_if(!found, || volume.required("must specify a volume type"));
}

fn validate_source(kind: &str, source: &Field<'_>, options: &Options, errors: &mut Errors) {
    match kind {
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            errors.push_if(resource_list::amount(&limit).is_negative(), || {
                limit.forbidden("SizeLimit field must be a valid resource quantity")
            });
        }
        "gitRepo" => {
            let directory = source.get("directory");
            require(source, &["repository"], errors);
            errors.invalid_each(&directory, paths::descending(directory.str()));
        }
        "secret" => validate_keys(source, "secretName", errors),
        "configMap" => validate_keys(source, "name", errors),
        "persistentVolumeClaim" => require(source, &["claimName"], errors),
        "downwardAPI" => {
            file_mode(&source.get("defaultMode"), errors);
            for item in source.get("items").items() {
                downward_api_file(&item.with_path(source.path().clone()), errors);
            }
        }
        "projected" => projected::validate(source, options, errors),
        "ephemeral" => {
            let template = source.get("volumeClaimTemplate");
            if template.exists() {
                validate_claim_template(&template, errors);
            } else {
                errors.push(template.required(""));
            }
        }
        "image" => {
            if options.is_pod {
                require(source, &["reference"], errors);
            }
            pull_policy(&source.get("pullPolicy"), errors);
        }
        _ => volume_sources::validate_source(kind, source, SourceOwner::Pod, errors),
    }
}

/// The claim of an ephemeral volume is named after pod and volume.
fn validate_claim_name(volume: &Field<'_>, pod: &str, errors: &mut Errors) {
    if pod.is_empty() || volume.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", volume.str());
    for error in content::dns1123_subdomain(&claim) {
        errors.push(volume.invalid(format!("PVC name {}: {error}", quote(&claim))));
    }
}

fn validate_iscsi_name_length(volume: &Field<'_>, source: &Field<'_>, errors: &mut Errors) {
    let length = volume.len() + 1 + source.get("targetPortal").len();
    errors.push_if(source.get("initiatorName").exists() && length > 64, || {
        volume.invalid(
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        )
    });
}

/// Required members.
fn require(source: &Field<'_>, members: &[&str], errors: &mut Errors) {
    for member in members {
        let member = source.get(member);
        errors.push_if(member.is_empty(), || member.required(""));
    }
}

/// Validates a file mode.
pub fn file_mode(mode: &Field<'_>, errors: &mut Errors) {
    errors.push_if(mode.int().is_some_and(|mode| !(0..=0o777).contains(&mode)), || mode.invalid(FILE_MODE));
}

/// The keys of a Secret or ConfigMap that become files.
fn validate_keys(source: &Field<'_>, name: &str, errors: &mut Errors) {
    require(source, &[name], errors);
    file_mode(&source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        key_to_path(&item, errors);
    }
}

/// Validates the mapping of a key to a path.
pub fn key_to_path(item: &Field<'_>, errors: &mut Errors) {
    require(item, &["key", "path"], errors);
    let path = item.get("path");
    errors.invalid_each(&path, paths::not_reserved(path.str()));
    file_mode(&item.get("mode"), errors);
}

/// One file of the downward API. The real server reports its errors for the volume, without the index of the file.
pub fn downward_api_file(file: &Field<'_>, errors: &mut Errors) {
    let path = file.get("path");
    require(file, &["path"], errors);
    errors.invalid_each(&path, paths::not_reserved(path.str()));
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.exists() {
        env::validate_field_ref(&field, Shown::InFile, errors);
        errors.push_if(resource.exists(), || {
            file.invalid_value(
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )
        });
    } else if resource.exists() {
        env::validate_resource_ref(&resource, Shown::InFile, errors);
    } else {
        errors.push(file.required("one of fieldRef and resourceFieldRef is required"));
    }
    file_mode(&file.get("mode"), errors);
}

/// Validates an optional image pull policy.
pub fn pull_policy(policy: &Field<'_>, errors: &mut Errors) {
    const POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        errors.push_if(!POLICIES.contains(&policy.str()), || policy.not_supported(&POLICIES));
    }
}
