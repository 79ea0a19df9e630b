//! Errors of evaluations.

/// An error of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The types of arguments fit no overload.
    #[error("no such overload")]
    NoSuchOverload,
    /// The types of arguments fit no overload of a function: its name and their types.
    #[error("no such overload: {0}")]
    NoSuchOverloadOf(Box<str>),
    /// A map or object has no such key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list has no such index.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(String),
    /// The evaluation cost more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The evaluation did more than it may: too much work, too many bytes, or it took too long.
    #[error("operation interrupted: {0} limit exceeded")]
    WorkLimit(&'static str),
    /// Another error, in words.
    #[error("{0}")]
    Other(String),
}

impl EvalError {
    /// Returns `true` if the error ends the whole evaluation, so that no other operand can decide
    /// instead.
    pub(crate) fn ends_evaluation(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::WorkLimit(_))
    }
}
