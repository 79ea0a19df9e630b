//! The rules of a structural schema for values, besides their types.

use coracle_pattern::Pattern;
use serde_json::{Map, Value};

/// The rules for a value that do not depend on others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Members that must be there.
    pub required: Vec<String>,
    /// The only values; empty for any.
    pub enumeration: Vec<Value>,
    /// The least number.
    pub minimum: Option<Bound>,
    /// The greatest number.
    pub maximum: Option<Bound>,
    /// The factor that a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The number of characters of a string.
    pub length: Size,
    /// The number of items of an array.
    pub items: Size,
    /// The number of members of an object.
    pub properties: Size,
    /// The pattern that a string must match.
    pub pattern: Option<Pattern>,
    /// The declared format of a string or number, such as `date-time`.
    pub format: Option<String>,
}

/// The end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The number.
    pub value: f64,
    /// Whether the bound itself is out of the range.
    pub exclusive: bool,
}

/// The bounds of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The smallest count.
    pub min: Option<usize>,
    /// The largest count.
    pub max: Option<usize>,
}

impl Rules {
    pub(super) fn read(schema: &Map<String, Value>) -> Rules {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|value| Bound { value, exclusive: flag(exclusive) })
        };
        let size =
            |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let text = |name: &str| schema.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        Rules {
            required: texts(schema.get("required")).collect(),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            length: Size { min: size("minLength"), max: size("maxLength") },
            items: Size { min: size("minItems"), max: size("maxItems") },
            properties: Size { min: size("minProperties"), max: size("maxProperties") },
            pattern: text("pattern").map(Pattern::new),
            format: text("format").map(str::to_owned),
        }
    }
}

/// Iterates over the texts of a list.
pub(super) fn texts(list: Option<&Value>) -> impl Iterator<Item = String> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}
