//! The due times of a CronJob. `coracle-cron` has the grammar and the times of schedules.

use coracle_cron::Schedule;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The number of missed times above which an event is recorded.
const TOO_MANY_MISSED: i64 = 100;
/// The largest number of times that are iterated to find the last one.
const MAX_STEPS: usize = 100_000;

/// A schedule in its time zone.
pub struct ZonedSchedule {
    schedule: Schedule,
    zone: TimeZone,
}

/// The reasons for which a CronJob has no valid schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    UnknownTimeZone(String),
    Unparseable(String),
}

/// The most recent scheduled time that has passed since the last run, and the number of missed
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTime {
    /// The start of the period in which times count.
    pub earliest: Timestamp,
    /// The most recent scheduled time that is not in the future; None if there is none.
    pub most_recent: Option<Timestamp>,
    /// The number of missed times, a rough estimate.
    pub missed: i64,
}

impl DueTime {
    pub fn is_too_many(&self) -> bool {
        self.missed > TOO_MANY_MISSED
    }
}

/// The error of a schedule without any time, such as February 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverDue;

impl ZonedSchedule {
    pub fn of(cron_job: &CronJob) -> Result<ZonedSchedule, ScheduleError> {
        let spec = &cron_job.spec;
        // A zone in the schedule counts more than the field.
        let zone = spec.time_zone.as_deref().filter(|_| !spec.schedule.contains("TZ"));
        let zone = coracle_cron::time_zone(zone.unwrap_or("UTC")).map_err(ScheduleError::UnknownTimeZone)?;
        let schedule = Schedule::parse(&spec.schedule).map_err(ScheduleError::Unparseable)?;
        Ok(ZonedSchedule { schedule, zone })
    }

    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }

    /// Formats a time as in the annotation of a Job.
    pub fn local_time(&self, time: Timestamp) -> String {
        let local = time.to_zoned(self.zone.clone());
        match local.offset().is_zero() {
            true => local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            false => local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        }
    }

    /// Returns the most recent scheduled time since the last run, and the number of missed ones.
    ///
    /// - `has_deadline`: whether times before the starting deadline are left out
    ///
    /// # Errors
    /// The schedule has no time.
    ///
    /// Source: kube-controller-manager's `mostRecentScheduleTime`.
    pub fn due_time(
        &self,
        cron_job: &CronJob,
        now: Timestamp,
        has_deadline: bool,
    ) -> Result<DueTime, NeverDue> {
        let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        let created = cron_job.metadata.creation_timestamp.as_ref();
        let mut earliest = last.or(created).map_or(now, |time| time.0);
        let deadline = cron_job.spec.starting_deadline_seconds;
        if let Some(seconds) = deadline.filter(|_| has_deadline) {
            let deadline = now.saturating_sub(SignedDuration::from_secs(seconds));
            earliest = earliest.max(deadline.unwrap_or(Timestamp::MIN));
        }
        let first = self.next(earliest).ok_or(NeverDue)?;
        if now < first {
            return Ok(DueTime { earliest, most_recent: None, missed: 0 });
        }
        let Some(second) = self.next(first).filter(|second| *second <= now) else {
            return Ok(DueTime { earliest, most_recent: Some(first), missed: 0 });
        };
        let interval = (second.as_second() - first.as_second()).max(1);
        let missed = now.duration_since(first).as_secs() / interval + 1;
        let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(interval));
        let start = first.saturating_add(skipped).unwrap_or(first);
        let times = std::iter::successors(self.next(start), |time| self.next(*time));
        let most_recent = times.take_while(|time| *time <= now).take(MAX_STEPS).last();
        Ok(DueTime { earliest, most_recent, missed })
    }

    /// Returns the time of the next reconciliation, or `None` if the schedule has no further time.
    ///
    /// Source: kube-controller-manager's `nextScheduleTimeDuration`.
    pub fn next_after(&self, cron_job: &CronJob, now: Timestamp) -> Option<Timestamp> {
        let from = match self.due_time(cron_job, now, false) {
            Err(NeverDue) => now,
            Ok(DueTime { most_recent: Some(recent), .. }) => recent,
            Ok(DueTime { earliest, missed: 0, .. }) => earliest,
            Ok(_) => now,
        };
        self.next(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cron_job(schedule: &str, zone: Option<&str>, last: Option<&str>, deadline: Option<i64>) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedule": schedule, "timeZone": zone, "startingDeadlineSeconds": deadline, "jobTemplate": {}},
            "status": {"lastScheduleTime": last},
        }))
        .unwrap()
    }

    #[test]
    fn the_last_time_that_has_come_is_due() {
        for (case, schedule, last, deadline, now, recent, missed) in [
            ("none yet", "0 * * * *", None, None, "2026-01-01T00:59:59Z", None, 0),
            (
                "on the second",
                "0 * * * *",
                None,
                None,
                "2026-01-01T01:00:00Z",
                Some("2026-01-01T01:00:00Z"),
                0,
            ),
            ("two", "0 * * * *", None, None, "2026-01-01T02:30:00Z", Some("2026-01-01T02:00:00Z"), 2),
            (
                "since the last",
                "0 * * * *",
                Some("2026-01-01T02:00:00Z"),
                None,
                "2026-01-01T02:30:00Z",
                None,
                0,
            ),
            ("many", "* * * * *", None, None, "2026-01-01T02:00:30Z", Some("2026-01-01T02:00:00Z"), 120),
            (
                "many within the deadline",
                "* * * * *",
                None,
                Some(90),
                "2026-01-01T02:00:30Z",
                Some("2026-01-01T02:00:00Z"),
                0,
            ),
            ("irregular", "0 0 * 2 *", None, None, "2026-07-01T00:00:00Z", None, 151),
            ("every", "@every 7s", None, None, "2026-01-01T00:01:00Z", Some("2026-01-01T00:00:56Z"), 8),
        ] {
            let cron_job = cron_job(schedule, None, last, deadline);
            let due = ZonedSchedule::of(&cron_job).unwrap();
            let due = due.due_time(&cron_job, now.parse().unwrap(), true).unwrap();
            let found = due.most_recent.map(|time| time.to_string());
            assert_eq!((found.as_deref(), due.missed), (recent, missed), "{case}");
        }
    }

    #[test]
    fn a_schedule_that_never_fires_is_never_due() {
        let cron_job = cron_job("0 0 31 2 *", None, None, None);
        let (schedule, now) =
            (ZonedSchedule::of(&cron_job).unwrap(), "2026-07-01T00:00:00Z".parse().unwrap());
        assert_eq!(schedule.due_time(&cron_job, now, true), Err(NeverDue));
        assert_eq!(schedule.next_after(&cron_job, now), None);
    }

    #[test]
    fn the_next_time_is_after_the_last_run() {
        for (case, last, now, want) in [
            ("new", None, "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"),
            ("due, but not run", None, "2026-01-01T01:30:00Z", "2026-01-01T02:00:00Z"),
            ("run", Some("2026-01-01T01:00:00Z"), "2026-01-01T01:00:01Z", "2026-01-01T02:00:00Z"),
            (
                "clock turned back",
                Some("2026-01-01T05:00:00Z"),
                "2026-01-01T01:00:00Z",
                "2026-01-01T06:00:00Z",
            ),
        ] {
            let cron_job = cron_job("0 * * * *", None, last, None);
            let next = ZonedSchedule::of(&cron_job).unwrap().next_after(&cron_job, now.parse().unwrap());
            assert_eq!(next.map(|time| time.to_string()).as_deref(), Some(want), "{case}");
        }
    }

    #[test]
    fn zones_are_known_or_not() {
        let of = |schedule: &str, zone| ZonedSchedule::of(&cron_job(schedule, zone, None, None)).map(|_| ());
        assert_eq!(of("0 0 * * *", Some("Asia/Tokyo")), Ok(()));
        let unknown = ScheduleError::UnknownTimeZone("unknown time zone Mars/Base".to_owned());
        assert_eq!(of("0 0 * * *", Some("Mars/Base")), Err(unknown));
        assert!(matches!(of("0 0 * *", None), Err(ScheduleError::Unparseable(_))));
        let schedule = ZonedSchedule::of(&cron_job("0 0 * * *", Some("Asia/Tokyo"), None, None)).unwrap();
        assert_eq!(schedule.local_time("2026-01-01T15:00:00Z".parse().unwrap()), "2026-01-02T00:00:00+09:00");
        let schedule = ZonedSchedule::of(&cron_job("0 0 * * *", None, None, None)).unwrap();
        assert_eq!(schedule.local_time("2026-01-01T15:00:00Z".parse().unwrap()), "2026-01-01T15:00:00Z");
    }
}
