//! Completion indexes as text: increasing numbers and ranges of them, `0-3,5`.

use coracle_apimachinery::field::quote;

/// The first and last of consecutive indexes.
type Interval = (i64, i64);

/// Counts the indexes in the text, which must be below `completions`.
pub fn count(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    if text.is_empty() {
        return Ok(0);
    }
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Returns the first index that is in both texts; ignores parts that cannot be parsed.
pub fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<Interval> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut c, mut f) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some(&&(c_first, c_last)), Some(&&(f_first, f_last))) = (c.peek(), f.peek()) {
        if c_first <= f_last && f_first <= c_last {
            return Some(c_first.max(f_first));
        }
        if c_first <= f_first {
            c.next()
        } else {
            f.next()
        };
    }
    None
}

fn interval(text: &str, completions: i64) -> Result<Interval, String> {
    let limits: Vec<&str> = text.split('-').collect();
    match limits.as_slice() {
        [only] => index(only, completions).map(|index| (index, index)),
        [first, last] => match (index(first, completions)?, index(last, completions)?) {
            (first, last) if first >= last => {
                Err(format!("non-increasing order, previous: {first}, current: {last}"))
            }
            interval => Ok(interval),
        },
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(text)
        )),
    }
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {}", quote(text))),
        Ok(index) if index >= completions => Err(format!("too large index: {}", quote(text))),
        Ok(index) => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        for (text, want) in [
            ("", Ok(0)),
            ("0,2-4", Ok(4)),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
            ("x", Err("cannot convert string to integer for index: \"x\"")),
            ("-1", Err("cannot convert string to integer for index: \"\"")),
            ("5", Err("too large index: \"5\"")),
            ("3,1", Err("non-increasing order, previous: 3, current: 1")),
            ("3-1", Err("non-increasing order, previous: 3, current: 1")),
        ] {
            assert_eq!(count(text, 5), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn the_first_common_index_is_found() {
        assert_eq!(overlap("0-2,4", "3,5-6", 9), None);
        assert_eq!(overlap("0-2,4-8", "3,5-6", 9), Some(5));
        assert_eq!(overlap("x,4", "4", 9), Some(4));
        assert_eq!(overlap("", "4", 9), None);
    }
}
