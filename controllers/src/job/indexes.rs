//! Sets of completion indexes, in the format `0,2-4,7`.

use std::fmt;

/// A set of indexes, kept as intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    /// First and last of consecutive indexes: ascending, and with a gap between one and the next.
    intervals: Vec<(i32, i32)>,
}

impl Indexes {
    /// Parses the indexes below `completions` from a text. Parts that cannot be parsed are skipped.
    pub fn parse(text: &str, completions: i32) -> Indexes {
        let intervals = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok().filter(|first| *first >= 0)?, last.parse().ok()?))
        });
        let below =
            intervals.map(|(first, last): (i32, i32)| (first, last.min(completions.saturating_sub(1))));
        Indexes::of_intervals(below.filter(|(first, last)| first <= last).collect())
    }

    fn of_intervals(mut intervals: Vec<(i32, i32)>) -> Indexes {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Indexes { intervals: merged }
    }

    /// Returns `true` if the set has this index.
    pub fn contains(&self, index: i32) -> bool {
        let after = self.intervals.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|i| self.intervals.get(i)).is_some_and(|(_, last)| *last >= index)
    }

    /// Returns the number of indexes.
    pub fn len(&self) -> i32 {
        // Indexes are below the completions, which are an i32.
        self.intervals.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Returns this set with these further indexes.
    pub fn with(&self, indexes: impl IntoIterator<Item = i32>) -> Indexes {
        let more = indexes.into_iter().map(|index| (index, index));
        Indexes::of_intervals(self.intervals.iter().copied().chain(more).collect())
    }

    /// Returns the indexes that are in either set.
    pub fn union(&self, other: &Indexes) -> Indexes {
        Indexes::of_intervals(self.intervals.iter().chain(&other.intervals).copied().collect())
    }

    /// Returns the number of indexes that are in both sets.
    pub fn count_common(&self, other: &Indexes) -> i32 {
        let (mut count, mut others) = (0, other.intervals.iter().copied().peekable());
        for (first, last) in &self.intervals {
            while let Some((other_first, other_last)) = others.peek() {
                count += (last.min(other_last) - first.max(other_first) + 1).max(0);
                if other_last > last {
                    break;
                }
                others.next();
            }
        }
        count
    }

    /// Returns the lowest indexes below `completions` that are not in the set, at most `count` of
    /// them.
    pub fn lowest_missing(&self, completions: i32, count: usize) -> Vec<i32> {
        let (mut missing, mut next) = (Vec::new(), 0);
        let end = (completions, completions);
        for (first, last) in self.intervals.iter().chain([&end]) {
            let room = count - missing.len();
            missing.extend((next..(*first).min(completions)).take(room));
            next = last.saturating_add(1);
        }
        missing
    }
}

impl fmt::Display for Indexes {
    /// Formats three or more consecutive indexes as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.intervals.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for (text, completions, want, len) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0,1", 5, "0,1", 2),
            ("0-1", 5, "0,1", 2),
            ("0,1,2", 5, "0-2", 3),
            ("0,2-4,7,8", 9, "0,2-4,7,8", 6),
            ("0-100", 5, "0-4", 5),
            ("3,7", 5, "3", 1),
            ("x,1,-2,3-y,2", 5, "1,2", 2),
            ("4,0-1", 5, "0,1,4", 3),
            ("1", 0, "", 0),
        ] {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (want, len), "{text}");
        }
    }

    #[test]
    fn sets_agree_with_sets_of_numbers() {
        use std::collections::BTreeSet;
        let sets: Vec<BTreeSet<i32>> =
            (0..64).map(|bits| (0..6).filter(|i| bits & (1 << i) != 0).collect()).collect();
        for a in &sets {
            let this = Indexes::default().with(a.iter().copied());
            assert_eq!(Indexes::parse(&this.to_string(), 6), this);
            let missing: Vec<i32> = (0..6).filter(|i| !a.contains(i)).collect();
            assert_eq!(this.lowest_missing(6, 10), missing);
            assert_eq!(this.lowest_missing(6, 2), missing.iter().copied().take(2).collect::<Vec<_>>());
            assert!((0..6).all(|i| this.contains(i) == a.contains(&i)));
            for b in &sets {
                let other = Indexes::default().with(b.iter().copied());
                assert_eq!(this.count_common(&other) as usize, a.intersection(b).count());
                assert_eq!(this.union(&other), Indexes::default().with(a.union(b).copied()));
            }
        }
    }
}
