//! Volumes, claims, classes and CSI objects.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, NAME_TEXT, Row, boolean, integer, string};
use serde_json::Value;

use super::networking::default_marked;

/// The columns of PersistentVolume.
pub const PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    string("Capacity", Described("core.v1.PersistentVolumeSpec.capacity"), |row| {
        storage(&row.get("spec.capacity"))
    }),
    string("Access Modes", Described("core.v1.PersistentVolumeSpec.accessModes"), |row| {
        access_modes(&row.get("spec.accessModes"))
    }),
    string(
        "Reclaim Policy",
        Described("core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
        |row| row.text("spec.persistentVolumeReclaimPolicy"),
    ),
    string("Status", Described("core.v1.PersistentVolumeStatus.phase"), phase),
    string("Claim", Described("core.v1.PersistentVolumeSpec.claimRef"), |row| {
        let claim = row.get("spec.claimRef");
        if !claim.exists() {
            return "".into();
        }
        format!("{}/{}", claim.get("namespace").str(), claim.get("name").str()).into()
    }),
    string("StorageClass", Literal("StorageClass of the pv"), class),
    string("VolumeAttributesClass", Literal("VolumeAttributesClass of the pv"), |row| {
        row.set_or("spec.volumeAttributesClassName", "<unset>")
    }),
    string("Reason", Described("core.v1.PersistentVolumeStatus.reason"), |row| row.text("status.reason")),
    AGE,
    string("VolumeMode", Described("core.v1.PersistentVolumeSpec.volumeMode"), |row| {
        row.set_or("spec.volumeMode", "<unset>")
    })
    .wide(),
];

/// The columns of PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: &[Column] = &[
    NAME,
    string("Status", Described("core.v1.PersistentVolumeClaimStatus.phase"), phase),
    string("Volume", Described("core.v1.PersistentVolumeClaimSpec.volumeName"), |row| {
        row.text("spec.volumeName")
    }),
    string("Capacity", Described("core.v1.PersistentVolumeClaimStatus.capacity"), |row| {
        if_bound(row, || storage(&row.get("status.capacity")))
    }),
    string("Access Modes", Described("core.v1.PersistentVolumeClaimStatus.accessModes"), |row| {
        if_bound(row, || access_modes(&row.get("status.accessModes")))
    }),
    string("StorageClass", Literal("StorageClass of the pvc"), class),
    string("VolumeAttributesClass", Literal("VolumeAttributesClass of the pvc"), |row| {
        row.set_or("spec.volumeAttributesClassName", "<unset>")
    }),
    AGE,
    string("VolumeMode", Described("core.v1.PersistentVolumeClaimSpec.volumeMode"), |row| {
        row.set_or("spec.volumeMode", "<unset>")
    })
    .wide(),
];

/// The columns of StorageClass.
pub const STORAGE_CLASS: &[Column] = &[
    string("Name", NAME_TEXT, |row| {
        default_marked(
            row,
            &[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ],
        )
    })
    .naming(),
    string("Provisioner", Described("storage.v1.StorageClass.provisioner"), |row| row.text("provisioner")),
    string("ReclaimPolicy", Described("storage.v1.StorageClass.reclaimPolicy"), |row| {
        row.set_or("reclaimPolicy", "Delete")
    }),
    string("VolumeBindingMode", Described("storage.v1.StorageClass.volumeBindingMode"), |row| {
        row.set_or("volumeBindingMode", "Immediate")
    }),
    string("AllowVolumeExpansion", Described("storage.v1.StorageClass.allowVolumeExpansion"), |row| {
        row.flag_or("allowVolumeExpansion", false)
    }),
    AGE,
];

/// The columns of VolumeAttributesClass.
pub const VOLUME_ATTRIBUTES_CLASS: &[Column] = &[
    NAME,
    string("DriverName", Described("storage.v1.VolumeAttributesClass.driverName"), |row| {
        row.text("driverName")
    }),
    AGE,
];

/// The columns of VolumeAttachment.
pub const VOLUME_ATTACHMENT: &[Column] = &[
    NAME,
    string("Attacher", Described("storage.v1.VolumeAttachmentSpec.attacher"), |row| {
        row.text("spec.attacher")
    })
    .naming(),
    string("PV", Described("storage.v1.VolumeAttachmentSource.persistentVolumeName"), |row| {
        row.text("spec.source.persistentVolumeName")
    }),
    string("Node", Described("storage.v1.VolumeAttachmentSpec.nodeName"), |row| row.text("spec.nodeName")),
    boolean("Attached", Described("storage.v1.VolumeAttachmentStatus.attached"), |row| {
        row.flag_or("status.attached", false)
    }),
    AGE,
];

/// The columns of CSINode.
pub const CSI_NODE: &[Column] = &[
    NAME,
    integer(
        "Drivers",
        Literal("Drivers indicates the number of CSI drivers registered on the node"),
        |row| row.count("spec.drivers"),
    ),
    AGE,
];

/// The columns of CSIDriver.
pub const CSI_DRIVER: &[Column] = &[
    NAME,
    boolean("AttachRequired", Described("storage.v1.CSIDriverSpec.attachRequired"), |row| {
        row.flag_or("spec.attachRequired", true)
    }),
    boolean("PodInfoOnMount", Described("storage.v1.CSIDriverSpec.podInfoOnMount"), |row| {
        row.flag_or("spec.podInfoOnMount", false)
    }),
    boolean("StorageCapacity", Described("storage.v1.CSIDriverSpec.storageCapacity"), |row| {
        row.flag_or("spec.storageCapacity", false)
    }),
    string("TokenRequests", Described("storage.v1.CSIDriverSpec.tokenRequests"), |row| {
        let requests = row.get("spec.tokenRequests");
        if !requests.exists() {
            return "<unset>".into();
        }
        requests.items().map(|request| request.get("audience").str()).collect::<Vec<_>>().join(",").into()
    }),
    boolean("RequiresRepublish", Described("storage.v1.CSIDriverSpec.requiresRepublish"), |row| {
        row.flag_or("spec.requiresRepublish", false)
    }),
    string("Modes", Described("storage.v1.CSIDriverSpec.volumeLifecycleModes"), |row| {
        let modes = row.get("spec.volumeLifecycleModes");
        if modes.is_empty() {
            return "<none>".into();
        }
        modes.items().map(|mode| mode.str()).collect::<Vec<_>>().join(",").into()
    }),
    AGE,
];

fn phase(row: &Row<'_>) -> Value {
    if row.get("metadata.deletionTimestamp").exists() {
        "Terminating".into()
    } else {
        row.text("status.phase")
    }
}

/// Returns the cell for a bound claim. A claim without a volume has neither capacity nor access
/// modes.
fn if_bound(row: &Row<'_>, cell: impl FnOnce() -> Value) -> Value {
    if row.get("spec.volumeName").is_empty() { "".into() } else { cell() }
}

fn storage(capacity: &Field<'_>) -> Value {
    let storage = capacity.get("storage");
    if storage.exists() { storage.str().into() } else { "0".into() }
}

fn access_modes(modes: &Field<'_>) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.items().any(|item| item.str() == mode);
    SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",").into()
}

/// Returns the class. The deprecated annotation has precedence over the field.
fn class(row: &Row<'_>) -> Value {
    let annotation = row.get("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    if annotation.exists() { annotation.str().into() } else { row.text("spec.storageClassName") }
}
