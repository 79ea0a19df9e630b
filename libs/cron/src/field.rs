//! The fields of a schedule: lists of values, ranges and steps.

/// The unit of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Field {
    /// Returns the lowest and the highest value.
    fn bounds(self) -> (u8, u8) {
        match self {
            Field::Minute => (0, 59),
            Field::Hour => (0, 23),
            Field::DayOfMonth => (1, 31),
            Field::Month => (1, 12),
            Field::DayOfWeek => (0, 6),
        }
    }

    /// Returns the names of the values, starting with the lowest value.
    fn names(self) -> &'static [&'static str] {
        match self {
            Field::Month => MONTHS,
            Field::DayOfWeek => DAYS,
            _ => &[],
        }
    }
}

/// The values that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    bits: u64,
    /// Whether the field has `*` or `?` without a step, and so restricts nothing.
    pub is_star: bool,
}

impl Bits {
    pub fn contains(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits.checked_shr(value).unwrap_or(0) & 1 == 1)
    }
}

pub fn parse_field(text: &str, field: Field) -> Result<Bits, String> {
    let mut all = Bits::default();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let Bits { bits, is_star } = parse_range(range, field)?;
        all = Bits { bits: all.bits | bits, is_star: all.is_star | is_star };
    }
    Ok(all)
}

fn parse_range(range: &str, field: Field) -> Result<Bits, String> {
    let (interval, step) = match range.split('/').collect::<Vec<_>>().as_slice() {
        [interval] => (*interval, None),
        [interval, step] => (*interval, Some(*step)),
        _ => {
            // The interval is parsed first, so its errors are reported first.
            let interval = range.split('/').next().unwrap_or(range);
            Interval::parse(interval, range, field)?;
            return Err(format!("too many slashes: {range}"));
        }
    };
    let (least, greatest) = field.bounds();
    let Interval { first, mut last, is_single, is_star } = Interval::parse(interval, range, field)?;
    let step = step.map_or(Ok(1), |step| {
        if is_single {
            last = greatest.into();
        }
        number(step)
    })?;
    if first < least.into() {
        return Err(format!("beginning of range ({first}) below minimum ({least}): {range}"));
    }
    if last > greatest.into() {
        return Err(format!("end of range ({last}) above maximum ({greatest}): {range}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    let values = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let bits = values.fold(0, |bits, value| bits | 1 << value);
    Ok(Bits { bits, is_star: is_star && step == 1 })
}

struct Interval {
    first: i64,
    last: i64,
    /// Whether only one value is given.
    is_single: bool,
    is_star: bool,
}

impl Interval {
    fn parse(interval: &str, range: &str, field: Field) -> Result<Interval, String> {
        let limits: Vec<&str> = interval.split('-').collect();
        let is_single = limits.len() == 1;
        let (least, greatest) = field.bounds();
        let of = |first, last| Interval { first, last, is_single, is_star: false };
        if matches!(limits.first(), Some(&("*" | "?"))) {
            return Ok(Interval { is_star: true, ..of(least.into(), greatest.into()) });
        }
        let value = |text: &str| {
            let named = field.names().iter().position(|name| name.eq_ignore_ascii_case(text));
            named
                .and_then(|i| i64::try_from(i).ok())
                .map_or_else(|| number(text), |i| Ok(i + i64::from(least)))
        };
        match limits.as_slice() {
            [only] => value(only).map(|only| of(only, only)),
            [first, last] => Ok(of(value(first)?, value(last)?)),
            [first, ..] => value(first).and(Err(format!("too many hyphens: {range}"))),
            [] => Ok(of(least.into(), greatest.into())),
        }
    }
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = text.parse::<i64>().map_err(|_| {
        let why = if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")
    })?;
    if number < 0 {
        return Err(format!("negative number ({number}) not allowed: {text}"));
    }
    Ok(number)
}
