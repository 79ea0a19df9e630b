//! The errors of this crate.

/// An error of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The operating system provided no random bytes.
    #[error("the operating system provides no random bytes for a token")]
    Random,
}
