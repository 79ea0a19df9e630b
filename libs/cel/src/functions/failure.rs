//! The failures of functions.

use crate::error::EvalError;
use crate::value::Value;

pub type Result<T> = std::result::Result<T, EvalError>;

/// Returns the error of a function that has no overload for its arguments.
pub fn no_overload<'a>() -> Result<Value<'a>> {
    Err(EvalError::NoSuchOverload)
}

/// Returns the error of a call whose arguments fit no overload. A function with one implementation
/// for all overloads does not list the arguments; it gives its name if it does not support the
/// first argument at all.
pub fn no_such_overload(name: &str, args: &[Value<'_>]) -> EvalError {
    use Value::{Bool, Bytes, Double, Duration, Int, List, Map, String as Text, Timestamp, Uint};
    let first = args.first().unwrap_or(&Value::Null);
    // Some types are asked for a function of the name, which they do not have.
    let is_receiver = matches!(first, Text(_) | Duration(_) | Timestamp(_));
    let is_of_kind = match name {
        "_+_" => {
            matches!(
                first,
                Bytes(_) | Double(_) | Duration(_) | Int(_) | List(_) | Text(_) | Timestamp(_) | Uint(_)
            )
        }
        "_-_" => matches!(first, Double(_) | Duration(_) | Int(_) | Timestamp(_) | Uint(_)),
        "_*_" | "_/_" => first.is_number(),
        "_%_" => matches!(first, Int(_) | Uint(_)),
        "-_" => matches!(first, Bool(_) | Double(_) | Duration(_) | Int(_)),
        "!_" | "_==_" | "_!=_" | "@in" | "contains" | "startsWith" | "endsWith" | "matches"
        | "containsIP" | "containsCIDR" => true,
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            matches!(
                first,
                Bool(_) | Bytes(_) | Double(_) | Duration(_) | Int(_) | Text(_) | Timestamp(_) | Uint(_)
            )
        }
        "size" => matches!(first, Bytes(_) | List(_) | Map(_) | Text(_)),
        _ => {
            let types: Vec<String> = args.iter().map(|arg| arg.type_of().name().to_owned()).collect();
            return EvalError::NoSuchOverloadOf(format!("{name}({})", types.join(", ")).into());
        }
    };
    if is_of_kind || is_receiver {
        EvalError::NoSuchOverload
    } else {
        EvalError::NoSuchOverloadOf(name.into())
    }
}

/// Returns an error with a message.
pub fn error<T>(text: impl Into<String>) -> Result<T> {
    Err(EvalError::Other(text.into()))
}
