//! Errors of reconciliations.

/// An error of a reconciliation. The key is queued again after each of these.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API rejected a request or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something is not yet as it must be, and no watch event will report when it is.
    #[error("{0}")]
    Unfinished(String),
}

impl Error {
    /// Returns `true` if the API responded with this status code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Error::Api(kube::Error::Api(status)) if status.code == code)
    }

    /// Returns the message for events and conditions: the API server's, if it responded with one.
    pub fn message(&self) -> String {
        match self {
            Error::Api(kube::Error::Api(status)) => status.message.clone(),
            error => error.to_string(),
        }
    }
}
