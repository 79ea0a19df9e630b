//! The lists of a pod's spec that have its containers.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::pods;

/// The type of a container, by the list of the pod's spec that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// An init container, sidecars included.
    Init,
    /// An app container.
    App,
    /// An ephemeral container.
    Ephemeral,
}

impl ContainerType {
    /// All types, in the order in which they start.
    pub const ALL: [ContainerType; 3] = [ContainerType::Init, ContainerType::App, ContainerType::Ephemeral];

    /// Returns the member of a pod's spec that lists containers of this type.
    pub fn list(self) -> &'static str {
        match self {
            ContainerType::Init => "initContainers",
            ContainerType::App => "containers",
            ContainerType::Ephemeral => "ephemeralContainers",
        }
    }

    /// Returns the member of a pod's status that lists their statuses.
    pub fn statuses(self) -> &'static str {
        match self {
            ContainerType::Init => "initContainerStatuses",
            ContainerType::App => "containerStatuses",
            ContainerType::Ephemeral => "ephemeralContainerStatuses",
        }
    }
}

/// Iterates over all containers of a pod: init, app and ephemeral containers.
pub fn containers<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    ContainerType::ALL.map(|kind| spec.get(kind.list())).into_iter().flat_map(|list| list.items())
}

/// Returns `true` if an init container is a sidecar.
pub fn is_sidecar(container: &Field<'_>) -> bool {
    container.value().is_some_and(pods::is_sidecar)
}
