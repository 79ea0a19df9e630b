//! Names of annotations that more than one module reads.

/// The annotation that preceded `storageClassName`, of claims and volumes.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
