//! Functions, and the overloads of a call.

use super::failure::Result;
use crate::meter::Meter;
use crate::types::Type;
use crate::value::Value;

/// The evaluation of a function. The receiver of a member function is the first argument. Texts
/// among the arguments are counted as read already; a function counts what else it visits, and what
/// it makes.
pub type Call = for<'a> fn(&[Value<'a>], &Meter) -> Result<Value<'a>>;

/// A line of a module's table: the name, the signatures, the meaning.
pub type Line = (&'static str, &'static str, Call);

/// A function with all its overloads.
#[derive(Debug)]
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The overloads, in the order of their declaration.
    pub overloads: Vec<Overload>,
    /// The meaning.
    pub call: Call,
}

/// One signature.
#[derive(Clone, Debug)]
pub struct Overload {
    /// Whether it is called in member style.
    pub member: bool,
    /// The types of the receiver and the arguments.
    pub params: Vec<Type>,
    /// The type of the result.
    pub result: Type,
}

/// The meaning of a call: the function, and which of its overloads fit the types of the arguments.
#[derive(Clone, Debug)]
pub struct CallRef {
    pub function: &'static Function,
    pub overloads: Vec<&'static Overload>,
    /// The receiver is part of the function's name and no value.
    pub qualified: bool,
}
