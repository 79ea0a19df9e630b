//! Settings of the controllers and drivers of volumes.

use std::path::PathBuf;

use crate::migration::{HOST_PATH_MIGRATION, Migration};

/// Settings of the controllers and drivers of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// The parent of the directories that stand for volumes (`volumes/`), and of those that pods
    /// see of them (`pods/`).
    pub data: PathBuf,
    /// The CSI drivers that took over from in-tree plugins.
    pub migration: Migration,
    /// KEP-2644's gate: volumes are kept by a finalizer until what is behind them is deleted.
    pub honors_policy: bool,
}

impl VolumeSettings {
    /// Returns the settings for the enabled feature gates. `is_enabled` takes Kubernetes' names of
    /// gates.
    pub fn new(data: PathBuf, is_enabled: impl Fn(&str) -> bool) -> VolumeSettings {
        VolumeSettings {
            data,
            migration: Migration { host_path: is_enabled(HOST_PATH_MIGRATION) },
            honors_policy: is_enabled("HonorPVReclaimPolicy"),
        }
    }
}

impl Default for VolumeSettings {
    fn default() -> VolumeSettings {
        // Of these gates one alone is off by default.
        VolumeSettings::new("/tmp/hostpath_pv".into(), |gate| gate != HOST_PATH_MIGRATION)
    }
}
