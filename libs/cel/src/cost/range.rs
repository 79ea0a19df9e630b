//! Costs of single operations, and ranges of costs and sizes.

/// The cost of a call, of a variable and of the selection of a member.
pub const CALL: u64 = 1;
/// The costs of literals of lists, maps and objects.
pub const LIST: u64 = 10;
/// The cost of the literal of a map.
pub const MAP: u64 = 30;
/// The cost of the literal of an object.
pub const OBJECT: u64 = 40;
/// The cost of a check of the authorizer: an expression may have two of them.
pub const CHECK: u64 = 350_000;
/// The cost of a character that is read.
pub const TRAVERSAL: f64 = 0.1;
/// The number of states that a character of a regular expression stands for.
pub const REGEX_LENGTH: f64 = 0.25;
/// The cost of each requirement of a selector, of which there are as many as half of its
/// characters.
pub const REQUIREMENT: u64 = LIST + OBJECT;

/// A range of costs or of sizes. Sums and products stop at the greatest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub const ZERO: Range = Range::fixed(0);
    pub const ONE: Range = Range::fixed(1);
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub const fn fixed(value: u64) -> Range {
        Range { min: value, max: value }
    }

    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub fn by(self, factor: f64) -> Range {
        Range { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }
}

/// Returns a product, rounded up. The conversion saturates at the maximum.
pub fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}

/// Returns the cost of a selector of `length` characters: it is read and becomes a list of
/// requirements.
pub fn of_selector(length: Range) -> Range {
    let requirements = length.by(0.5).by(REQUIREMENT as f64);
    Range::fixed(LIST).plus(length.by(TRAVERSAL)).plus(requirements)
}
