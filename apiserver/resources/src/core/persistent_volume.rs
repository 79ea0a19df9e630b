//! PersistentVolume, and the volume inside a VolumeAttachment.

use coracle_apimachinery::annotations::BETA_STORAGE_CLASS;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::{IMMUTABLE, immutable};
use coracle_apimachinery::validation::volume_sources::{self, SourceOwner};
use coracle_apimachinery::validation::{content, member, node_selector, printed, resource_list};
use serde_json::{Value, json};

use crate::claim_spec::{VOLUME_MODES, validate_access_modes};

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];

/// The sources, in the order in which they are checked. Only one is allowed.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Sources whose plugins read the annotation with mount options.
const MOUNTED_WITH_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// The defaults of members of a source.
const DEFAULTS: [(&str, &str, &str); 10] = [
    ("hostPath", "type", ""),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("iscsi", "iscsiInterface", "default"),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

/// The strategy of PersistentVolume.
pub struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn default(&self, volume: &mut Value) {
        if volume["status"]["phase"].as_str().unwrap_or("").is_empty() {
            volume["status"]["phase"] = "Pending".into();
        }
        default_spec(&mut volume["spec"]);
    }

    fn prepare_for_create(&self, volume: &mut Value, context: &Context<'_>) {
        volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": context.now});
    }

    fn prepare_for_status_update(&self, volume: &mut Value, old: &Value, context: &Context<'_>) {
        let status = |volume: &Value, member: &str| {
            volume.get("status").and_then(|status| status.get(member)).cloned().unwrap_or_default()
        };
        let since = status(volume, "lastPhaseTransitionTime");
        let was_since = status(old, "lastPhaseTransitionTime");
        let same_phase = status(volume, "phase") == status(old, "phase");
        if same_phase && since.is_null() && !was_since.is_null() {
            volume["status"]["lastPhaseTransitionTime"] = was_since;
        } else if !same_phase && (since.is_null() || since == was_since) {
            volume["status"]["lastPhaseTransitionTime"] = context.now.into();
        }
    }

    fn validate(&self, volume: &Field<'_>, errors: &mut Errors) {
        validate_volume(volume, false, errors);
        validate_mount_options(volume, errors);
    }

    fn validate_update(&self, volume: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let lenient = node_selector::has_invalid_values(&old.walk("spec.nodeAffinity.required"));
        validate_volume(volume, lenient, errors);
        validate_mount_options(volume, errors);
        // kube-apiserver validates twice, and reports every error twice.
        validate_volume(volume, lenient, errors);
        validate_change(volume, old, errors);
    }

    fn warnings(&self, volume: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        warnings(volume)
    }
}

fn default_spec(spec: &mut Value) {
    if spec["persistentVolumeReclaimPolicy"].as_str().unwrap_or("").is_empty() {
        spec["persistentVolumeReclaimPolicy"] = "Retain".into();
    }
    if spec["volumeMode"].is_null() {
        spec["volumeMode"] = "Filesystem".into();
    }
    default_sources(spec);
}

/// Defaults a volume's source and capacity; an inline volume has no other defaults.
pub fn default_sources(spec: &mut Value) {
    for (source, member, value) in DEFAULTS {
        // An empty string is a value where the member is a pointer.
        let pointer = matches!(source, "hostPath" | "azureDisk");
        let unset = |had: &Value| had.is_null() || (*had == "" && !pointer);
        if let Some(source) = spec.get_mut(source).filter(|source| unset(&source[member])) {
            source[member] = value.into();
        }
    }
    if let Some(disk) = spec.get_mut("azureDisk").filter(|disk| disk["readOnly"].is_null()) {
        disk["readOnly"] = false.into();
    }
    resource_list::round_up(spec.get_mut("capacity"));
}

fn validate_volume(volume: &Field<'_>, lenient: bool, errors: &mut Errors) {
    let spec = volume.get("spec");
    let (policy, affinity) = (spec.get("persistentVolumeReclaimPolicy"), spec.get("nodeAffinity"));
    validate_access_of(&spec, errors);
    validate_capacity(&spec.get("capacity"), errors);
    member::one_of(&policy, &RECLAIM_POLICIES, errors);
    if affinity.exists() {
        let selector = affinity.get("required");
        if selector.exists() {
            node_selector::validate_node_selector(&selector, lenient, errors);
        } else {
            errors.push(selector.required("must specify required node constraints"));
        }
    }
    validate_source(&spec, SourceOwner::PersistentVolume(volume.walk("metadata.name").str()), errors);
    errors.push_if(policy.str() == "Recycle" && is_root(spec.walk("hostPath.path").str()), || {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'")
    });
    member::if_any(&spec.get("storageClassName"), content::dns1123_subdomain, errors);
    member::one_of(&spec.get("volumeMode"), &VOLUME_MODES, errors);
    validate_attributes_class(&spec, errors);
}

/// Validates a volume inside a VolumeAttachment: one of a migrated plugin, without a lifecycle of
/// its own.
pub fn validate_inline_spec(spec: &Field<'_>, errors: &mut Errors) {
    let forbid = |set: bool, member: &str, errors: &mut Errors| {
        errors.push_if(set, || {
            spec.get(member).forbidden("may not be specified in the context of inline volumes")
        });
    };
    forbid(spec.get("claimRef").exists(), "claimRef", errors);
    forbid(!spec.get("capacity").is_empty(), "capacity", errors);
    let csi = spec.get("csi");
    errors.push_if(!csi.exists(), || csi.required("has to be specified in the context of inline volumes"));
    validate_access_of(spec, errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    errors.push_if(!["", "Retain"].contains(&policy.str()), || {
        policy.forbidden("may only be Retain in the context of inline volumes")
    });
    forbid(spec.get("nodeAffinity").exists(), "nodeAffinity", errors);
    validate_source(spec, SourceOwner::PersistentVolume(""), errors);
    forbid(!spec.get("storageClassName").is_empty(), "storageClassName", errors);
    let mode = spec.get("volumeMode");
    errors.push_if(!["", "Filesystem"].contains(&mode.str()), || {
        mode.forbidden("may not specify volumeMode other than Filesystem in the context of inline volumes")
    });
}

fn validate_access_of(spec: &Field<'_>, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    member::required(&modes, errors);
    validate_access_modes(&modes, errors);
}

fn validate_capacity(capacity: &Field<'_>, errors: &mut Errors) {
    member::required(capacity, errors);
    errors.push_if(!capacity.get("storage").exists() || capacity.len() > 1, || {
        let error = capacity.not_supported(&["storage"]);
        if capacity.exists() { error } else { error.with_bad_value_text("null".to_owned()) }
    });
    for (_, amount) in capacity.entries() {
        resource_list::validate_capacity(&amount, errors);
        resource_list::validate_positive(&amount, errors);
    }
}

fn validate_source(spec: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in SOURCES {
        let source = spec.get(kind);
        if !source.exists() {
            continue;
        }
        // kube-apiserver does not count the source here.
        if found && kind != "flexVolume" {
            let name = if kind == "cephfs" { "cephFS" } else { kind };
            errors.push(
                source
                    .with_path(spec.path().child(name))
                    .forbidden("may not specify more than 1 volume type"),
            );
            continue;
        }
        found = true;
        volume_sources::validate_source(kind, &source, owner, errors);
        let affinity = spec.get("nodeAffinity");
        errors.push_if(kind == "local" && !affinity.exists(), || {
            affinity.required("Local volume requires node affinity")
        });
    }
    errors.push_if(!found, || spec.required("must specify a volume type"));
}

/// Returns `true` if an absolute path leads to `/`, once `.` and `..` are resolved.
fn is_root(path: &str) -> bool {
    let mut depth = 0usize;
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        depth = if part == ".." { depth.saturating_sub(1) } else { depth + 1 };
    }
    path.starts_with('/') && depth == 0
}

fn validate_attributes_class(spec: &Field<'_>, errors: &mut Errors) {
    let (class, csi) = (spec.get("volumeAttributesClassName"), spec.get("csi"));
    if !class.exists() {
        return;
    }
    errors.push_if(class.is_empty(), || class.required("an empty string is disallowed"));
    member::if_any(&class, content::dns1123_subdomain, errors);
    errors
        .push_if(!csi.exists(), || csi.required("has to be specified when using volumeAttributesClassName"));
}

fn validate_mount_options(volume: &Field<'_>, errors: &mut Errors) {
    let spec = volume.get("spec");
    let annotations = volume.walk("metadata.annotations");
    let supported = MOUNTED_WITH_OPTIONS.iter().any(|kind| spec.get(kind).exists());
    let options = annotations.get(MOUNT_OPTIONS);
    errors.push_if(options.exists() && !supported, || {
        options.forbidden("may not specify mount options for this volume type")
    });
}

/// Validates immutable fields: the source (except for a missing secret) and the mode. The node
/// affinity may only be added, or changed to newer labels.
fn validate_change(volume: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    const SECRET: &str = "controllerExpandSecretRef";
    let (mut new_source, old_source) = (source_of(volume), source_of(old));
    if old_source.pointer(&format!("/csi/{SECRET}")).is_none()
        && old_source.get("csi").is_some()
        && let Some(csi) = new_source.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(SECRET);
    }
    errors.push_if(new_source != old_source, || {
        let diff = printed::diff("core.PersistentVolumeSource", Some(&old_source), Some(&new_source));
        volume
            .with_path(volume.path().child("spec").child("persistentvolumesource"))
            .forbidden(format!("spec.persistentvolumesource is immutable after creation\n{diff}"))
    });
    let at_root =
        |member: &'static str| volume.get("spec").get(member).with_path(volume.path().child(member));
    immutable(&at_root("volumeMode"), &old.walk("spec.volumeMode"), errors);
    let (affinity, old_affinity) = (at_root("nodeAffinity"), old.walk("spec.nodeAffinity"));
    errors.push_if(old_affinity.exists() && !is_same_affinity(&affinity, &old_affinity), || {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        let shown = if affinity.exists() {
            printed::internal("core.VolumeNodeAffinity", affinity.value())
        } else {
            "null".to_owned()
        };
        affinity.invalid(detail).with_bad_value_text(shown)
    });
    let class = volume.walk("spec.volumeAttributesClassName");
    errors.push_if(old.walk("spec.volumeAttributesClassName").exists() && !class.exists(), || {
        class.forbidden("update from non-nil value to nil is forbidden")
    });
}

/// Returns the volume source of the spec.
fn source_of(volume: &Field<'_>) -> Value {
    let spec = volume.get("spec");
    let members = SOURCES.iter().filter_map(|kind| Some((*kind, spec.get(kind).value()?.clone())));
    members.map(|(kind, source)| (kind.to_owned(), source)).collect()
}

fn is_same_affinity(new: &Field<'_>, old: &Field<'_>) -> bool {
    let newer = |key: &str| match key {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        // kube-apiserver reads a missing entry of a Go map, so an empty key counts as the newer
        // one.
        _ => "",
    };
    let (Some(new), Some(old)) = (new.value(), old.value()) else { return false };
    let mut renewed = old.clone();
    let expressions = |affinity: &Value, term: usize, i: usize| {
        let pointer = format!("/required/nodeSelectorTerms/{term}/matchExpressions/{i}/key");
        affinity.pointer(&pointer).and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let terms = renewed.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (t, term) in terms.into_iter().flatten().enumerate() {
        let requirements = term.get_mut("matchExpressions").and_then(Value::as_array_mut);
        for (i, requirement) in requirements.into_iter().flatten().enumerate() {
            let (was, is) = (expressions(old, t, i), expressions(new, t, i));
            if newer(&was) == is {
                requirement["key"] = is.into();
            }
        }
    }
    renewed == *new
}

fn warnings(volume: &Field<'_>) -> Vec<String> {
    let spec = volume.get("spec");
    let mut warnings = Vec::new();
    for (annotation, text) in [
        (BETA_STORAGE_CLASS, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if volume.walk("metadata.annotations").get(annotation).exists() {
            warnings.push(format!("metadata.annotations[{annotation}]: {text}"));
        }
    }
    if spec.get("persistentVolumeReclaimPolicy").str() == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    for term in spec.walk("nodeAffinity.required.nodeSelectorTerms").items() {
        warnings.extend(node_selector::expression_warnings(&term));
    }
    for (source, shown, deprecated, removed) in [
        ("cephfs", "cephfs", "1.28", "1.31"),
        ("photonPersistentDisk", "photonPersistentDisk", "1.11", "1.16"),
        ("scaleIO", "scaleIO", "1.16", "1.22"),
        ("storageos", "storageOS", "1.22", "1.25"),
        ("glusterfs", "glusterfs", "1.25", "1.26"),
        ("rbd", "rbd", "1.28", "1.31"),
    ] {
        if spec.get(source).exists() {
            warnings
                .push(format!("spec.{shown}: deprecated in v{deprecated}, non-functional in v{removed}+"));
        }
    }
    warnings
}
