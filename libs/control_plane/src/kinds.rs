//! The kinds that a control plane serves, as whoever starts it passes them.

use coracle_apimachinery::resource_info::{ExtensionGroup, ResourceTable};
use coracle_behavior::Profile;

/// The kinds that a control plane serves besides those of CustomResourceDefinitions.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Makes the table of the built-in kinds.
    pub built_in: fn() -> ResourceTable,
    /// Makes the group that is served from outside of the store once somebody provides for it in a
    /// simulation of the profile, if there is one.
    pub extension: fn(Profile) -> Option<ExtensionGroup>,
}
