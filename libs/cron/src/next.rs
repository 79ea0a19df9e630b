//! The times of a schedule.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

use crate::{Fields, Schedule, Times};

/// A schedule without a time within so many years never has one.
const YEARS: i16 = 5;

impl Schedule {
    /// Returns the first time after `after`; None if there is none within five years. Times that a
    /// change of the clocks skips do not exist; those that it repeats exist twice.
    ///
    /// - `zone`: the time zone of the fields, unless the schedule has one of its own
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        match &self.times {
            Times::Every(period) => second.checked_add(*period).ok(),
            Times::Fields(fields) => {
                fields.next(second.checked_add(1.second()).ok()?, self.zone.as_ref().unwrap_or(zone))
            }
        }
    }
}

impl Fields {
    fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut time = from.to_zoned(zone.clone());
        let last_year = time.year().checked_add(YEARS)?;
        // Each turn moves on to a later month, day, hour or minute.
        while time.year() <= last_year {
            time = if !self.month.contains(time.month()) {
                time.first_of_month().ok()?.checked_add(1.month()).ok()?.start_of_day().ok()?
            } else if !self.matches_day(&time) {
                time.tomorrow().ok()?.start_of_day().ok()?
            } else if !self.hour.contains(time.hour()) {
                let within = i64::from(time.minute()) * 60 + i64::from(time.second());
                later(&time, 3600 - within)?
            } else if !self.minute.contains(time.minute()) || time.second() != 0 {
                later(&time, 60 - i64::from(time.second()))?
            } else {
                return Some(time.timestamp());
            };
        }
        None
    }

    /// Returns `true` if the day matches. If both day fields are restricted, one that matches is
    /// enough.
    fn matches_day(&self, time: &Zoned) -> bool {
        let of_month = self.day_of_month.contains(time.day());
        let of_week = self.day_of_week.contains(time.weekday().to_sunday_zero_offset());
        match self.day_of_month.is_star || self.day_of_week.is_star {
            true => of_month && of_week,
            false => of_month || of_week,
        }
    }
}

fn later(time: &Zoned, seconds: i64) -> Option<Zoned> {
    time.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zone;

    fn times(schedule: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), time_zone(zone).unwrap());
        let first = schedule.next(from.parse().unwrap(), &zone);
        let times = std::iter::successors(first, |time| schedule.next(*time, &zone));
        times.take(count).map(|time| time.to_string()).collect()
    }

    #[test]
    fn times_follow_the_fields() {
        for (schedule, from, want) in [
            ("* * * * *", "2026-01-01T00:00:00Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"][..]),
            ("* * * * *", "2026-01-01T00:00:59.5Z", &["2026-01-01T00:01:00Z"]),
            ("*/20 3 * * *", "2026-01-01T03:20:00Z", &["2026-01-01T03:40:00Z", "2026-01-02T03:00:00Z"]),
            ("5/30 * * * *", "2026-01-01T00:00:00Z", &["2026-01-01T00:05:00Z", "2026-01-01T00:35:00Z"]),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z", &["2028-02-29T00:00:00Z"]),
            ("0 0 1 jan *", "2026-06-01T00:00:00Z", &["2027-01-01T00:00:00Z"]),
            ("0 0 * * mon-tue", "2026-01-01T00:00:00Z", &["2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"]),
            ("0 0 4 * mon", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z"]),
            ("0 0 */2 * mon", "2026-01-01T00:00:00Z", &["2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z"]),
            ("0 0 ? * mon", "2026-01-01T00:00:00Z", &["2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"]),
            ("@weekly", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]),
            ("@every 90s", "2026-01-01T00:00:00.7Z", &["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]),
            ("@every 1ms", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]),
        ] {
            assert_eq!(times(schedule, "UTC", from, want.len()), want, "{schedule}");
        }
    }

    #[test]
    fn impossible_dates_never_come() {
        for schedule in ["0 0 31 2 *", "59 23 30 feb *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(times(schedule, "UTC", "2026-01-01T00:00:00Z", 1), [""; 0], "{schedule}");
        }
        assert_eq!(times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), [""; 0], "2100 is no leap year");
    }

    #[test]
    fn times_are_those_of_the_zone() {
        for (case, schedule, zone, from, want) in [
            ("ahead", "30 3 29 2 *", "Asia/Tokyo", "2024-02-01T00:00:00Z", &["2024-02-28T18:30:00Z"][..]),
            (
                "skipped",
                "30 2 * * *",
                "Europe/Berlin",
                "2026-03-28T00:00:00Z",
                &["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"],
            ),
            (
                "repeated",
                "30 2 * * *",
                "Europe/Berlin",
                "2026-10-25T00:00:00Z",
                &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
            ),
            (
                "in the schedule",
                "TZ=Asia/Tokyo 0 0 * * *",
                "Europe/Berlin",
                "2026-01-01T00:00:00Z",
                &["2026-01-01T15:00:00Z"],
            ),
            (
                "a day without midnight",
                "0 * * * *",
                "America/Santiago",
                "2026-09-06T03:00:00Z",
                &["2026-09-06T04:00:00Z"],
            ),
        ] {
            assert_eq!(times(schedule, zone, from, want.len()), want, "{case}");
        }
    }
}
