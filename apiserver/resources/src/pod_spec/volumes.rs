//! Volumes of a pod: each has a name and one source, the sources have rules of their own.
//!
//! Start at [`validate`]; the table of sources is [`SOURCES`], in the order in which kube-apiserver
//! checks them.

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::validation::volume_sources::{self, SourceOwner};
use coracle_apimachinery::validation::{content, paths, resource_list};

use super::options::PodValidationOptions;
use super::projected;
use super::volume_members::{downward_api_file, file_mode, key_to_path, require};
use crate::claim_spec::validate_claim_template;

/// The mountable volumes of a pod, by name.
pub type Mountable<'a> = BTreeMap<&'a str, Field<'a>>;

/// The sources, in the order in which kube-apiserver checks them, and the field it reports for an
/// additional source: with its own spelling, errors included.
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
pub fn validate<'a>(
    volumes: &Field<'a>,
    pod: &str,
    options: &PodValidationOptions,
    errors: &mut Errors,
) -> Mountable<'a> {
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

fn validate_sources(volume: &Field<'_>, pod: &str, options: &PodValidationOptions, errors: &mut Errors) {
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

fn validate_source(kind: &str, source: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
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

/// Validates the name of the claim of an ephemeral volume, which consists of the names of the pod
/// and the volume.
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

/// Validates the keys of a Secret or ConfigMap that become files.
fn validate_keys(source: &Field<'_>, name: &str, errors: &mut Errors) {
    require(source, &[name], errors);
    file_mode(&source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        key_to_path(&item, errors);
    }
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
