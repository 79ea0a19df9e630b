//! Claims and volumes, for the controllers and the simulated drivers alike: what
//! kube-controller-manager, external provisioners, the scheduler and the kubelet decide in the same
//! way, and the directories that stand for volumes.
//!
//! - [`search`] finds a volume for a claim, [`bind`] decides how both change;
//! - [`migration`] knows which CSI drivers took over from in-tree plugins, [`attachment`] which
//!   volumes are attached;
//! - [`provisioner`] is the loop of all provisioners of directories, [`host_path`] the source of
//!   volumes of this machine;
//! - [`indexes`] finds pods, volumes and attachments by what they refer to;
//! - [`confined_fs`] is the only way to a file.
#![warn(missing_docs)]

pub mod attachment;
pub mod bind;
pub mod confined_fs;
pub mod host_path;
pub mod indexes;
pub mod migration;
pub mod provisioner;
pub mod search;
mod settings;
pub mod timers;

pub use settings::{DataDirectories, VolumeSettings};
