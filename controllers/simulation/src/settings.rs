//! What the simulation cannot learn from the API.

use coracle_volumes::VolumeSettings;

/// The context of the simulation.
pub type Context = coracle_controller_runtime::Context<Settings>;

/// What the simulation cannot learn from the API.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How many nodes to simulate. None: neither nodes nor the scheduler are simulated, as beside another cluster.
    pub nodes: Option<usize>,
    /// Settings that the controllers have, too.
    pub volumes: VolumeSettings,
}

impl AsRef<VolumeSettings> for Settings {
    fn as_ref(&self) -> &VolumeSettings {
        &self.volumes
    }
}
