//! Settings of the simulation that the API does not provide.

use coracle_behavior::Profile;
use coracle_volumes::VolumeSettings;

/// The context of the simulation.
pub type Context = coracle_controller_runtime::Context<Settings>;

/// Settings of the simulation that the API does not provide.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The number of nodes to simulate. None: neither nodes nor the scheduler are simulated, as beside another cluster.
    pub nodes: Option<usize>,
    /// The behavior of pods that nothing else is said about.
    pub profile: Profile,
    /// Settings that the controllers have, too.
    pub volumes: VolumeSettings,
}

impl AsRef<VolumeSettings> for Settings {
    fn as_ref(&self) -> &VolumeSettings {
        &self.volumes
    }
}
