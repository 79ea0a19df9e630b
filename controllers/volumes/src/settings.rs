//! Settings of the controllers and drivers of volumes.

use std::path::PathBuf;

use crate::migration::{HOST_PATH_MIGRATION, Migration};

/// The parents of the directories that stand for volumes (`volumes/`), and of those that pods see
/// of them (`pods/`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDirectories {
    /// That of this control plane, the only one that is written to.
    pub own: PathBuf,
    /// The directories of the control planes that this one is a fork of, the nearest first.
    pub origins: Vec<PathBuf>,
}

impl DataDirectories {
    /// Returns the directory of a control plane that is not a fork.
    pub fn new(own: PathBuf) -> DataDirectories {
        DataDirectories { own, origins: Vec::new() }
    }
}

/// Settings of the controllers and drivers of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// The files of volumes.
    pub data: DataDirectories,
    /// The CSI drivers that took over from in-tree plugins.
    pub migration: Migration,
    /// KEP-2644's gate: volumes are kept by a finalizer until what is behind them is deleted.
    pub honors_policy: bool,
}

impl VolumeSettings {
    /// Returns the settings for the enabled feature gates. `is_enabled` takes Kubernetes' names of
    /// gates.
    pub fn new(data: DataDirectories, is_enabled: impl Fn(&str) -> bool) -> VolumeSettings {
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
        VolumeSettings::new(DataDirectories::new("/tmp/hostpath_pv".into()), |gate| {
            gate != HOST_PATH_MIGRATION
        })
    }
}
