//! Settings of the simulation that the API does not provide.

use coracle_behavior::{AddressBlock, Profile};
use coracle_seed::Seed;
use coracle_volumes::VolumeSettings;

/// The context of the simulation.
pub type Context = coracle_controller_runtime::Context<Settings>;

/// Settings of the simulation that the API does not provide.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The number of nodes to simulate. None: neither nodes nor the scheduler are simulated, as
    /// beside another cluster.
    pub nodes: Option<usize>,
    /// The behavior of pods that nothing else is said about.
    pub profile: Profile,
    /// The addresses of load balancers. None: there are none.
    pub load_balancer_addresses: Option<AddressBlock>,
    /// The seed that addresses follow from; None: they are given in order.
    pub seed: Option<Seed>,
    /// Settings that the controllers have, too.
    pub volumes: VolumeSettings,
}

impl Settings {
    /// Returns the addresses for simulated load balancers, if nodes are simulated.
    pub fn load_balancers(&self) -> Option<AddressBlock> {
        let is_cluster = self.nodes > Some(0) && self.profile == Profile::Realistic;
        self.load_balancer_addresses.filter(|_| is_cluster)
    }
}

impl AsRef<VolumeSettings> for Settings {
    fn as_ref(&self) -> &VolumeSettings {
        &self.volumes
    }
}
