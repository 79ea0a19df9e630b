//! Names of annotations that more than one module reads.

/// The annotation that preceded `storageClassName`, of claims and volumes.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The template's generation of a DaemonSet, which the real server has as an annotation in its versioned form only.
pub const DEPRECATED_TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
