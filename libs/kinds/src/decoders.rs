//! The decoders of kinds that both controllers and simulated nodes keep, compiled here for both.
//!
//! A crate optimised for size links the generic functions that an earlier crate has instantiated.
//! Without these, each crate would carry its own copies, about 300 kB of code that would be
//! resident.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};

/// Reads an object of a kind.
pub type Decoder<K> = fn(&str) -> serde_json::Result<K>;

macro_rules! decoders {
    ($($name:ident: $kind:ty),* $(,)?) => {$(
        #[doc = concat!("Reads a ", stringify!($kind), ".")]
        pub static $name: Decoder<$kind> = |text| serde_json::from_str(text);
    )*};
}

decoders! {
    CSI_DRIVER: CSIDriver,
    LEASE: Lease,
    NAMESPACE: Namespace,
    NODE: Node,
    PERSISTENT_VOLUME: PersistentVolume,
    PERSISTENT_VOLUME_CLAIM: PersistentVolumeClaim,
    POD: Pod,
    POD_DISRUPTION_BUDGET: PodDisruptionBudget,
    STORAGE_CLASS: StorageClass,
    VOLUME_ATTACHMENT: VolumeAttachment,
}
