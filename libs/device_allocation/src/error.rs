//! Errors of allocations.

/// The reason why no allocation was computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// The devices did not suffice, and a pool of the node is invalid. Other nodes may do.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The search exceeded its budget of steps.
    #[error("timed out trying to allocate devices")]
    OutOfSteps,
    /// A claim, a class or a pool is at fault, so that no other node will do.
    #[error("{0}")]
    Fatal(String),
}

impl AllocationError {
    pub(crate) fn fatal<T>(text: String) -> Result<T, AllocationError> {
        Err(AllocationError::Fatal(text))
    }
}
