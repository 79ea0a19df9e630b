//! The variables of an evaluation.

use crate::error::EvalError;
use crate::value::Value;

/// The values of variables.
pub trait Activation<'a> {
    /// Returns the value of a variable; None if it has none. A variable may itself be the result of
    /// an evaluation that failed.
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;

    /// Returns the value of a member of a variable, if it is computed separately; None to read it
    /// from the variable.
    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<Value<'a>, EvalError>> {
        let _ = (name, member);
        None
    }
}

/// No variables.
pub const NO_VARIABLES: &[(&str, Value<'static>)] = &[];

impl<'a> Activation<'a> for [(&str, Value<'a>)] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| Ok(value.clone()))
    }
}

impl<'a> Activation<'a> for &[(&str, Value<'a>)] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        (**self).resolve(name)
    }
}

impl<'a, const N: usize> Activation<'a> for [(&str, Value<'a>); N] {
    fn resolve(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.as_slice().resolve(name)
    }
}
