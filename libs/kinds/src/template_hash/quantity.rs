//! Quantities in the dump: Go keeps a number and a scale where they fit, otherwise a decimal of any
//! size, and the text where it is canonical.
//!
//! Source: apimachinery's `ParseQuantity`.

/// The scale of the smallest quantity, `1n`.
const NANO: i32 = -9;
/// So many digits always fit into 64 bits.
const MAX_DIGITS: i32 = 18;
/// The largest quantity with a binary suffix.
const MAX_BINARY: u128 = i64::MAX as u128;

/// Dumps a quantity, which is valid and has a canonical text: no fraction.
pub(super) fn dump(text: &str) -> String {
    let unsigned = text.trim_start_matches(['+', '-']);
    let (digits, suffix) =
        unsigned.split_at(unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len()));
    let digits = digits.trim_start_matches('0');
    let (format, base, exponent) = suffix_of(suffix);
    if digits.is_empty() {
        return dump_small(0, 0, if text == "0" { text } else { "" }, format);
    }
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let is_negative = text.starts_with('-');
    let number: Option<i64> = digits.parse().ok();
    if base == 2 {
        let factor = u32::try_from(exponent).ok().and_then(|exponent| 1i64.checked_shl(exponent));
        let product = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        if let (Some(number), Some(product)) = (number, product)
            && 15 - length - exponent * 3 / 10 > 0
        {
            let is_canonical = number & 7 != 0;
            let product = if is_negative { -product } else { product };
            return dump_small(product, 0, if is_canonical { text } else { "" }, format);
        }
    } else if let Some(number) = number.filter(|_| length <= MAX_DIGITS && exponent >= NANO) {
        let is_canonical = exponent % 3 == 0 && !digits.ends_with("000");
        let number = if is_negative { -number } else { number };
        return dump_small(number, exponent, if is_canonical { text } else { "" }, format);
    }
    let power = u32::try_from(if base == 2 { exponent } else { exponent - NANO }).unwrap_or(0);
    let number = digits.parse::<u128>().ok();
    let (amount, scale) = match number.zip(u128::from(base).checked_pow(power)) {
        Some((number, factor)) if base == 2 => match number.checked_mul(factor) {
            Some(product) if product <= MAX_BINARY => (product * 1_000_000_000, 9),
            _ => (MAX_BINARY, 0),
        },
        Some((number, factor)) => (number.saturating_mul(factor), 9),
        None => (MAX_BINARY, 0),
    };
    dump_large(is_negative, amount, scale, format)
}

/// Returns the format, the base and the exponent of a suffix.
fn suffix_of(suffix: &str) -> (&'static str, u32, i32) {
    let decimal = |suffix: &str| "num".find(suffix).map(|at| -9 + 3 * index(at));
    let letter = suffix.strip_suffix('i').unwrap_or(suffix);
    let thousands = match letter {
        "k" | "K" => Some(1),
        letter => "MGTPE".find(letter).filter(|_| letter.len() == 1).map(|at| 2 + index(at)),
    };
    match (suffix, thousands) {
        ("", _) => ("DecimalSI", 10, 0),
        (_, Some(thousands)) if suffix.ends_with('i') => ("BinarySI", 2, 10 * thousands),
        (_, Some(thousands)) => ("DecimalSI", 10, 3 * thousands),
        (_, None) => match suffix.strip_prefix(['e', 'E']) {
            Some(exponent) => ("DecimalExponent", 10, exponent.parse().unwrap_or(0)),
            None => ("DecimalSI", 10, decimal(suffix).unwrap_or(0)),
        },
    }
}

fn index(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(0)
}

fn dump_small(value: i64, scale: i32, text: &str, format: &str) -> String {
    format!(
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
    )
}

fn dump_large(is_negative: bool, amount: u128, scale: i32, format: &str) -> String {
    let (high, low) = (amount >> 64, amount & u128::from(u64::MAX));
    let words = if high == 0 { low.to_string() } else { format!("{low} {high}") };
    format!(
        "{{i:(resource.int64Amount){{value:(int64)0 scale:(resource.Scale)0}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec){{unscaled:(big.Int){{neg:(bool){is_negative} abs:(big.nat)[{words}]}} \
             scale:(inf.Scale){scale}}}}} s:(string) Format:(resource.Format){format}}}"
    )
}
