//! The estimates of functions.

use super::range::{CALL, CHECK, LIST, REGEX_LENGTH, Range, TRAVERSAL, of_selector};
use crate::functions::Overload;
use crate::types::Type;

/// The greatest size of a named format, in characters.
const MAX_FORMAT: u64 = 64;
/// The greatest size of the pattern of a named format, in characters.
const MAX_FORMAT_PATTERN: f64 = 128.0;
/// The sizes of IP addresses, in bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// The facts about the receiver or an argument of a call.
pub struct Operand {
    /// Its size, if it is known.
    pub size: Option<Range>,
    /// Its type.
    pub ty: Type,
    /// The type and the size of the items of a list.
    pub item: Option<(Type, Range)>,
    /// The literal that it is.
    pub literal: Option<i64>,
}

impl Operand {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// Returns a literal number of items; `other` if the operand is not one.
    fn count(&self, other: u64) -> u64 {
        self.literal.map_or(other, |value| u64::try_from(value).unwrap_or(0))
    }
}

/// The cost of a call, and the size of its result.
pub struct CallEstimate {
    pub cost: Range,
    pub size: Option<Range>,
}

fn only(cost: Range) -> Option<CallEstimate> {
    Some(CallEstimate { cost, size: None })
}

fn sized(cost: Range, size: Range) -> Option<CallEstimate> {
    Some(CallEstimate { cost, size: Some(size) })
}

/// Estimates the cost of a call without that of its arguments.
pub fn estimate(name: &str, overload: &Overload, target: Option<&Operand>, args: &[Operand]) -> CallEstimate {
    of_lists(name, overload, target, args)
        .or_else(|| of_texts(name, target, args))
        .or_else(|| of_kubernetes(name, overload, target, args))
        .or_else(|| of_language(name, overload, target, args))
        .unwrap_or(CallEstimate { cost: Range::fixed(CALL), size: None })
}

/// Estimates a list of a size, with a cost for each item.
fn list(factor: f64, size: Range) -> Option<CallEstimate> {
    sized(size.by(factor).plus(Range::fixed(CALL)).plus(Range::fixed(LIST)), size)
}

/// Estimates calls with lists and sets.
fn of_lists(
    name: &str,
    overload: &Overload,
    target: Option<&Operand>,
    args: &[Operand],
) -> Option<CallEstimate> {
    let squared = |operand: &Operand| operand.size().times(operand.size());
    let compared = |item: Option<&Type>| match item {
        Some(Type::List(item)) if matches!(**item, Type::String | Type::Bytes) => 2.0 + TRAVERSAL,
        _ => 2.0,
    };
    match (name, target, args) {
        ("slice", Some(target), [start, end]) => {
            let size = end.count(target.size().max).wrapping_sub(start.count(0));
            list(1.0, Range::fixed(size))
        }
        ("lists.range", None, [count]) => list(1.0, Range::fixed(count.count(u64::MAX))),
        ("reverse", Some(target), []) => list(1.0, target.size()),
        ("flatten", Some(target), []) => list(1.0, target.size()),
        ("flatten", Some(target), [depth]) => list(depth.count(u64::MAX) as f64, target.size()),
        ("distinct", Some(target), []) => list(2.0, squared(target)),
        ("sort", Some(target), []) => list(compared(overload.params.first()), squared(target)),
        ("@sortByAssociatedKeys", Some(_), [keys]) => list(compared(overload.params.get(1)), squared(keys)),
        ("sets.contains" | "sets.intersects", None, [a, b]) => {
            only(a.size().times(b.size()).plus(Range::fixed(CALL)))
        }
        ("sets.equivalent", None, [a, b]) => only(a.size().times(b.size()).by(2.0).plus(Range::fixed(CALL))),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            // The items are compared one by one, the characters of texts too.
            only(match &target.item {
                Some((Type::String | Type::Bytes, size)) => {
                    target.size().times(Range::ONE.plus(size.by(TRAVERSAL)))
                }
                Some(_) => target.size(),
                None => target.size().by(TRAVERSAL),
            })
        }
        _ => None,
    }
}

/// Estimates calls with texts and regular expressions.
fn of_texts(name: &str, target: Option<&Operand>, args: &[Operand]) -> Option<CallEstimate> {
    match (name, target, args) {
        ("url" | "jsonpatch.escapeKey", None, [text]) => sized(text.size().by(TRAVERSAL), text.size()),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
            sized(text.size().by(TRAVERSAL), text.size())
        }
        ("replace", Some(text), [old, new, ..]) => {
            sized(text.size().by(2.0 * TRAVERSAL), replaced(text.size(), old.size(), new.size()))
        }
        ("split", Some(text), _) => {
            let limit = args.get(1).and_then(|limit| limit.literal);
            let max = limit.map_or(text.size().max, i64::cast_unsigned);
            sized(text.size().by(2.0 * TRAVERSAL), Range { min: 0, max })
        }
        ("join", Some(list), _) => {
            let mut size = match &list.item {
                Some((_, item)) => list.size().times(*item),
                None => Range::ZERO,
            };
            if let Some(separator) = args.first() {
                let gaps =
                    Range { min: list.size().min.saturating_sub(1), max: list.size().max.saturating_sub(1) };
                size = size.plus(separator.size().times(gaps));
            }
            sized(size.by(TRAVERSAL), size)
        }
        ("find" | "findAll", Some(text), [pattern, ..]) => {
            let size = Range { min: 0, max: text.size().max };
            sized(matched(text.size(), pattern.size()), size)
        }
        _ => None,
    }
}

/// Returns the cost of matching a text with a pattern. Even an empty text has a cost.
fn matched(text: Range, pattern: Range) -> Range {
    text.plus(Range::ONE).by(TRAVERSAL).times(pattern.by(REGEX_LENGTH))
}

/// Returns the size of a text after a replacement.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let count = |text: u64, old: u64| (text as f64 / old as f64).ceil() as u64;
    let (mut found, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        (found.max, kept.max) = (text.max.saturating_add(1), text.max);
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        found.max = count(text.max, old.min);
    }
    if old.max == 0 {
        (found.min, kept.min) = (text.min.saturating_add(1), text.min);
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        found.min = count(text.min, old.max);
    }
    found.times(new).plus(kept)
}

/// Estimates calls about authorization, addresses, quantities, versions, formats and URLs.
fn of_kubernetes(
    name: &str,
    overload: &Overload,
    target: Option<&Operand>,
    args: &[Operand],
) -> Option<CallEstimate> {
    let is_text = |at: usize| overload.params.get(at) == Some(&Type::String);
    match (name, target, args) {
        ("check", ..) => only(Range::fixed(CHECK)),
        ("fieldSelector" | "labelSelector", _, [selector]) => only(of_selector(selector.size())),
        ("ip", ..) if !is_text(0) => only(Range::fixed(CALL)),
        (
            "ip" | "isIP" | "cidr" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            [text, ..],
        ) => only(text.size().by(TRAVERSAL)),
        ("ip.isCanonical", _, [text]) => only(text.size().by(2.0 * TRAVERSAL)),
        ("containsIP" | "containsCIDR", _, [other]) => {
            let mut cost = ADDRESS.plus(ADDRESS).by(TRAVERSAL);
            if name == "containsCIDR" {
                cost = cost.plus(ADDRESS.by(TRAVERSAL)).plus(Range::ONE);
            }
            if is_text(1) {
                cost = cost.plus(other.size().by(TRAVERSAL));
            }
            only(cost)
        }
        ("validate", _, [text]) => only(text.size().by(TRAVERSAL).by(MAX_FORMAT_PATTERN * REGEX_LENGTH)),
        ("_==_", None, [a, b]) if a.ty == b.ty => match &a.ty {
            Type::Opaque(name) => match &**name {
                "kubernetes.NamedFormat" => only(Range { min: 1, max: MAX_FORMAT }.by(TRAVERSAL)),
                "kubernetes.URL" => {
                    only(Range { min: 1, max: b.size.unwrap_or(Range::ONE).max }.by(TRAVERSAL))
                }
                _ => only(Range::ONE),
            },
            _ => None,
        },
        _ => None,
    }
}

/// Estimates the functions of the language. The cost of an overload for texts depends on their
/// sizes.
fn of_language(
    name: &str,
    overload: &Overload,
    target: Option<&Operand>,
    args: &[Operand],
) -> Option<CallEstimate> {
    let first = overload.params.first();
    let texts = matches!(first, Some(Type::String | Type::Bytes));
    match (name, target, args) {
        ("format", Some(text), _) => only(text.size().by(TRAVERSAL)),
        ("bytes", None, [text]) if first == Some(&Type::String) => {
            let size = text.size();
            sized(size.by(TRAVERSAL), Range { min: size.min, max: size.max.wrapping_mul(4) })
        }
        ("string", None, [bytes]) if first == Some(&Type::Bytes) => {
            let size = bytes.size();
            sized(size.by(TRAVERSAL), Range { min: size.min / 4, max: size.max })
        }
        ("strings.quote", None, [text]) => {
            let size = text.size();
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            sized(size.by(TRAVERSAL), Range { min: size.min + 2, max })
        }
        ("startsWith" | "endsWith", _, [part]) => only(part.size().by(TRAVERSAL)),
        ("@in", None, [_, list]) if matches!(overload.params.get(1), Some(Type::List(_))) => {
            only(list.size())
        }
        ("matches", Some(text), [pattern]) => only(matched(text.size(), pattern.size())),
        ("contains", Some(text), [part]) => only(text.size().by(TRAVERSAL).times(part.size().by(TRAVERSAL))),
        ("_+_", None, [a, b]) if texts => {
            let size = a.size().plus(b.size());
            sized(size.by(TRAVERSAL), size)
        }
        ("_+_", None, [a, b]) if matches!(first, Some(Type::List(_))) => {
            sized(Range::fixed(CALL), a.size().plus(b.size()))
        }
        ("_<_" | "_<=_" | "_>_" | "_>=_", None, [a, b]) if texts => only(compared(a, b)),
        ("_==_" | "_!=_", None, [a, b]) => only(compared(a, b)),
        _ => None,
    }
}

/// Returns the cost of a comparison, which reads the shorter of two values.
fn compared(a: &Operand, b: &Operand) -> Range {
    let max = a.size().max.min(b.size().max);
    Range { min: u64::from(max > 0), max }.by(TRAVERSAL)
}
