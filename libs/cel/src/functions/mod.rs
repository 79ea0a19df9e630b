//! The functions: their names, signatures and meanings.

mod conversions;
mod failure;
mod format;
mod function;
mod kubernetes;
mod lists;
mod network;
mod operators;
mod printing;
mod regex;
mod signature;
mod strings;
mod times;

use std::collections::HashMap;
use std::sync::OnceLock;

pub use failure::no_such_overload;
pub use format::{Part, fits, misfit, parse as parse_format};
pub use function::{CallRef, Function, Overload};
pub use printing::shown;
pub use regex::{check_pattern, is_pattern};

use function::Line;
use signature::overload;

/// Returns the function of a name.
pub fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<HashMap<&str, Function>> = OnceLock::new();
    let read = || {
        let tables: [&[Line]; 7] = [
            operators::TABLE,
            conversions::TABLE,
            strings::TABLE,
            lists::TABLE,
            times::TABLE,
            kubernetes::TABLE,
            network::TABLE,
        ];
        let mut functions: HashMap<&str, Function> = HashMap::new();
        for (name, signatures, call) in tables.into_iter().flatten() {
            let overloads = signatures.split_whitespace().filter_map(overload);
            let function = functions.entry(name).or_insert_with(|| Function {
                name,
                overloads: Vec::new(),
                call: *call,
            });
            function.overloads.extend(overloads);
        }
        functions
    };
    FUNCTIONS.get_or_init(read).get(name)
}
