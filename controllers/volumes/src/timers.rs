//! The timers of simulated operations on volumes.

coracle_clock::timers! {
    /// The time that the simulated provisioning of a volume takes.
    pub VOLUME_PROVISIONING = semantic("volume-provisioning");
    /// The time that the simulated deletion of a volume takes.
    pub VOLUME_DELETION = semantic("volume-deletion");
}
