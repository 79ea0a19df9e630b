//! Quantity: the numbers with suffixes of resource requests and sizes (`100m`, `1.5Gi`, `2e3`).
//!
//! The API server and the controllers both compute with it.
//!
//! Held as a whole number of nanos, the finest the API knows; finer input is rounded up, away from
//! zero. Printing gives the canonical form: no fraction, the largest suffix that keeps the number
//! whole, in the family (binary, decimal, exponent) in which it was written.
//!
//! Source: `k8s.io/apimachinery/pkg/api/resource`, `quantity.go`.

#![warn(missing_docs)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;

/// An amount with the family of suffixes in which it is printed. Compared by amount only.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    BinarySi,
    DecimalSi,
    DecimalExponent,
}

/// An error about a text that is not a quantity, with kube-apiserver's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It is not a number followed by a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// It has no digits, and its suffix is out of range.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// Its suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// Converts a whole number to a quantity of the decimal family.
    pub fn from_int(value: i64) -> Quantity {
        Quantity { nanos: i128::from(value) * NANO, format: Format::DecimalSi }
    }

    /// Returns `true` if the quantity is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Returns `true` if the quantity is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Returns `true` if the quantity is above zero.
    pub fn is_positive(&self) -> bool {
        self.nanos > 0
    }

    /// Returns `true` if the quantity is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// Returns the amount, rounded away from zero to a whole number, within the range of an int64.
    pub fn value(&self) -> i64 {
        clamp(div_up(self.nanos, NANO))
    }

    /// Returns the amount in thousandths, rounded away from zero to a whole number, within the
    /// range of an int64.
    pub fn milli_value(&self) -> i64 {
        clamp(div_up(self.nanos, NANO / 1000))
    }

    /// Rounds the quantity away from zero to a whole number of thousandths.
    pub fn rounded_up_to_milli(&self) -> Quantity {
        const MILLI: i128 = NANO / 1000;
        Quantity { nanos: div_up(self.nanos, MILLI).saturating_mul(MILLI), format: self.format }
    }

    /// Rounds the quantity away from zero to a whole number.
    pub fn rounded_up(&self) -> Quantity {
        Quantity { nanos: div_up(self.nanos, NANO).saturating_mul(NANO), format: self.format }
    }

    /// Returns the sum, in the family of `self` (of `other` if `self` is zero). Saturates at the
    /// limits of a quantity.
    pub fn plus(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// Returns the difference, in the family of `self` (of `other` if `self` is zero). Saturates at
    /// the limits of a quantity.
    pub fn minus(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format }
    }
}

fn div_up(n: i128, d: i128) -> i128 {
    let (q, r) = (n / d, n % d);
    if r == 0 { q } else { q + n.signum() }
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        Ok(Written::read(text)?.value())
    }
}

/// Returns a quantity's text as kube-apiserver prints it: canonical, unless kube-apiserver keeps
/// the text as it is.
///
/// # Errors
/// [`QuantityError`] if it is not a quantity.
pub fn printed(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    let written = Written::read(text)?;
    Ok(if written.is_kept() { Cow::Borrowed(text) } else { Cow::Owned(written.value().to_string()) })
}

/// The parts of a quantity's text.
struct Written<'a> {
    negative: bool,
    /// Without leading zeros; "0" if nothing is left.
    whole: &'a str,
    fraction: &'a str,
    base2: u32,
    base10: i32,
    format: Format,
}

impl<'a> Written<'a> {
    /// Parses the text of a quantity. A lone sign or suffix counts as zero, as it does for
    /// kube-apiserver.
    fn read(text: &'a str) -> Result<Written<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (digits, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if !suffix_shape(suffix) {
            return Err(QuantityError::Format);
        }
        let (base2, base10, format) = read_suffix(suffix).ok_or(QuantityError::Suffix)?;
        let missing = digits.is_empty() && fraction.is_empty();
        if missing && !suffix.is_empty() && (base2 >= 50 || base10 < -9) {
            return Err(QuantityError::Numeric);
        }
        let whole = digits.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Written { negative: text.starts_with('-'), whole, fraction, base2, base10, format })
    }

    fn value(&self) -> Quantity {
        let nanos = scale(self.whole, self.fraction, self.base2, self.base10);
        let small = nanos < NANO && self.format == Format::BinarySi;
        let format = if small { Format::DecimalSi } else { self.format };
        Quantity { nanos: if self.negative { -nanos } else { nanos }, format }
    }

    /// Returns `true` if kube-apiserver keeps the text as it is. Its test for canonical text is
    /// lenient, so that `1.500` and `+5` and `01Ki` stay.
    fn is_kept(&self) -> bool {
        let length = self.whole.len() + self.fraction.len();
        if self.format == Format::BinarySi {
            let fits = self.fraction.is_empty() && length + self.base2 as usize * 3 / 10 <= 14;
            return fits && self.whole.parse::<u64>().is_ok_and(|number| number & 7 != 0);
        }
        let Some(scale) =
            i32::try_from(self.fraction.len()).ok().and_then(|places| self.base10.checked_sub(places))
        else {
            return false;
        };
        let zeroes = |text: &str| text.len() - text.trim_end_matches('0').len();
        let trailing = match zeroes(self.fraction) {
            all if all == self.fraction.len() => all + zeroes(self.whole),
            some => some,
        };
        length <= 18 && scale >= -9 && scale % 3 == 0 && trailing < 3 && !self.whole.starts_with('0')
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns `true` if a suffix matches `[eEinumkKMGTP]*[-+]?[0-9]*`.
fn suffix_shape(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    digits.bytes().all(|b| b.is_ascii_digit())
}

fn read_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some((_, exponent)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((*exponent, 0, Format::BinarySi));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((0, *exponent, Format::DecimalSi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((0, exponent.parse().ok()?, Format::DecimalExponent))
}

/// Computes `whole.fraction * 2^base2 * 10^base10` in nanos, rounded up. Binary numbers are limited
/// to an int64 of units, the others to the range of nanos.
fn scale(whole: &str, fraction: &str, base2: u32, base10: i32) -> i128 {
    let limit = if base2 > 0 { i128::from(i64::MAX) * NANO } else { i128::MAX };
    // All digits as one number, and where its decimal point stands.
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let mut exponent = base10.saturating_sub(places).saturating_add(9);
    let mut number: i128 = 0;
    let mut lost = false;
    // With room for the binary exponent. Once a digit does not fit, none after it does.
    let most = i128::MAX >> base2;
    let mut is_full = false;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let longer = number.checked_mul(10).and_then(|number| number.checked_add(i128::from(digit - b'0')));
        match longer.filter(|longer| !is_full && *longer <= most) {
            Some(longer) => number = longer,
            None => {
                is_full = true;
                exponent = exponent.saturating_add(1);
                lost |= digit != b'0';
            }
        }
    }
    number = number.saturating_mul(1i128 << base2);
    while exponent > 0 && number != 0 && number < limit {
        number = number.saturating_mul(10);
        exponent -= 1;
    }
    while exponent < 0 && number != 0 {
        lost |= number % 10 != 0;
        number /= 10;
        exponent += 1;
    }
    if lost {
        number = number.saturating_add(1);
    }
    number.min(limit)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.is_whole();
        if self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANO {
            let (mut number, mut suffix) = (self.nanos / NANO, "");
            for (next, _) in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                suffix = next;
            }
            return write!(f, "{number}{suffix}");
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        while number % 1000 == 0 {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
        write!(f, "{number}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (written, canonical) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("0.1", "100m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12E2", "1200"),
            ("100e-3", "100e-3"),
            ("-1Gi", "-1Gi"),
            ("+5", "5"),
            ("0.0000000001", "1n"),
            ("1E", "1E"),
            ("8Ei", "9223372036854775807"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            let parsed: Quantity = written.parse().expect(written);
            assert_eq!(parsed.to_string(), canonical, "{written}");
        }
    }

    #[test]
    fn text_that_looks_canonical_is_kept() {
        for (written, want) in [
            ("1.500", "1.500"),
            ("1.5", "1500m"),
            ("+5", "+5"),
            ("01Ki", "01Ki"),
            ("1Ki", "1Ki"),
            ("8Ki", "8Ki"),
            ("1024Ki", "1Mi"),
            ("1000", "1k"),
            ("1100", "1100"),
            (".", "0"),
            ("m", "0"),
            ("10e20", "1e21"),
        ] {
            assert_eq!(printed(written).as_deref(), Ok(want), "{written}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in
            ["1e999999999", "9e38", "123456789012345678901234567890.123456789", "-1e60", "8191Pi", "1e-9"]
        {
            let quantity: Quantity = text.parse().expect(text);
            let printed = quantity.to_string();
            let again: Quantity = printed.parse().expect(&printed);
            assert_eq!((again.nanos, again.to_string()), (quantity.nanos, printed), "{text}");
        }
        // As many digits as there is room for, and some more.
        let digits = "9".repeat(39);
        for (places, want) in [(20, "10e18"), (30, "1e9")] {
            let quantity: Quantity = format!("{digits}e-{places}").parse().expect("a quantity");
            assert_eq!(quantity.to_string(), want, "{places}");
        }
    }

    #[test]
    fn refusals() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("two", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("--1", QuantityError::Suffix),
            ("1.2.3", QuantityError::Format),
            ("Ei", QuantityError::Numeric),
            ("1Kii", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            ("1GG", QuantityError::Suffix),
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn rounding_is_up() {
        let quantity: Quantity = "1500m".parse().expect("a quantity");
        assert_eq!((quantity.value(), quantity.milli_value()), (2, 1500));
        let largest: Quantity = "1e999999999".parse().expect("a quantity");
        for rounded in [largest.rounded_up(), largest.rounded_up_to_milli(), largest.plus(&largest)] {
            assert_eq!((rounded.value(), rounded.milli_value()), (i64::MAX, i64::MAX));
        }
        let quantity: Quantity = "100u".parse().expect("a quantity");
        assert_eq!(quantity.milli_value(), 1);
    }
}
