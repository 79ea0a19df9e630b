//! The timeline of past events: limits how much is kept and selects the next event to drop.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Event, Index, Revision};

/// The limits of history. Events are dropped while any of them is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The time for which an event is kept (default: 5 minutes). After a restart it is counted from
    /// when the event was loaded.
    pub age: Duration,
    /// The number of events that are kept (default: 100,000).
    pub events: usize,
    /// The number of bytes that only history may hold (default: 16 MiB).
    pub bytes: usize,
}

impl Default for History {
    /// Returns five minutes and 100,000 events, the defaults of etcd and of the API server's watch
    /// cache, and 16 MiB, so that a process under constant load stays small.
    fn default() -> History {
        History { age: Duration::from_secs(5 * 60), events: 100_000, bytes: 16 << 20 }
    }
}

/// The cost of an event in bytes, in addition to the body that it supersedes: the event itself, its
/// entries in the lists and the other parts of that version.
const EVENT_OVERHEAD: usize = 512;

/// The limits of cached frames. Only the newest events have one, since watchers that keep up read
/// those.
pub(crate) const CACHED_FRAMES: usize = 1024;
const CACHED_FRAME_BYTES: usize = 4 << 20;

/// The remembered events of all buckets, oldest first.
pub(crate) struct Timeline<I: Index> {
    limits: History,
    events: VecDeque<Arc<Event<I>>>,
    bytes: usize,
    /// The number of newest events that may have cached frames.
    cached_frames: usize,
    cached_frame_bytes: usize,
    /// Everything up to the revision had happened by the time.
    marks: VecDeque<(Instant, Revision)>,
    /// The revision up to which events are to be dropped.
    aged: Revision,
}

impl<I: Index> Timeline<I> {
    pub fn new(limits: History) -> Timeline<I> {
        Timeline {
            limits,
            events: VecDeque::new(),
            bytes: 0,
            cached_frames: 0,
            cached_frame_bytes: 0,
            marks: VecDeque::new(),
            aged: Revision::ZERO,
        }
    }

    /// Inserts events of another timeline, oldest first, before any of its own. The other timeline
    /// drops their frames.
    pub fn inherit(&mut self, events: Vec<Arc<Event<I>>>) {
        self.bytes += events.iter().map(|event| cost(event)).sum::<usize>();
        self.events.extend(events);
    }

    /// Drops all events at once.
    pub fn clear(&mut self) {
        *self = Timeline::new(self.limits);
    }

    pub fn push(&mut self, event: Arc<Event<I>>) {
        self.bytes += cost(&event);
        self.cached_frames += 1;
        self.cached_frame_bytes += frame_cost(&event);
        self.events.push_back(event);
        while self.cached_frames > CACHED_FRAMES || self.cached_frame_bytes > CACHED_FRAME_BYTES {
            let oldest = &self.events[self.events.len() - self.cached_frames];
            oldest.stop_caching_frame();
            self.cached_frames -= 1;
            self.cached_frame_bytes -= frame_cost(oldest);
        }
    }

    /// Records that the newest event exists at `now`, to determine the age of events later.
    pub fn mark(&mut self, now: Instant) {
        let Some(newest) = self.events.back() else { return };
        let due = self.marks.back().is_none_or(|(last, _)| now.duration_since(*last) >= self.interval());
        if due {
            self.marks.push_back((now, newest.revision));
        }
        while let Some((at, revision)) = self.marks.front().copied()
            && now.duration_since(at) >= self.limits.age
        {
            self.aged = revision;
            self.marks.pop_front();
        }
    }

    /// Returns the time after which to call `pop_excess` again; None if there are no events.
    pub fn wait(&self) -> Option<Duration> {
        match self.events.front() {
            None => None,
            Some(_) if self.has_excess() => Some(Duration::ZERO),
            Some(_) => Some(self.interval()),
        }
    }

    /// Removes and returns the oldest event if it exceeds a limit. The other events of its
    /// transaction then become eligible to be dropped as well.
    pub fn pop_excess(&mut self) -> Option<Arc<Event<I>>> {
        let event = if self.has_excess() { self.pop() } else { None }?;
        self.expire(event.revision);
        Some(event)
    }

    fn has_excess(&self) -> bool {
        self.events.front().is_some_and(|oldest| oldest.revision <= self.aged)
            || self.events.len() > self.limits.events
            || self.has_excess_bytes()
    }

    /// Returns whether the oldest event belongs to the transaction at a revision.
    pub fn begins_with(&self, revision: Revision) -> bool {
        self.events.front().is_some_and(|oldest| oldest.revision == revision)
    }

    /// Returns whether history holds more bytes than its limit.
    pub fn has_excess_bytes(&self) -> bool {
        self.bytes > self.limits.bytes
    }

    /// Makes everything up to a revision eligible to be dropped.
    pub fn expire(&mut self, up_to: Revision) {
        self.aged = self.aged.max(up_to);
    }

    fn pop(&mut self) -> Option<Arc<Event<I>>> {
        let event = self.events.pop_front()?;
        self.bytes -= cost(&event);
        if self.cached_frames > self.events.len() {
            self.cached_frames -= 1;
            self.cached_frame_bytes -= frame_cost(&event);
        }
        Some(event)
    }

    /// Returns the interval between two marks. Events are kept longer than the limit by at most
    /// this.
    fn interval(&self) -> Duration {
        self.limits.age / 64
    }
}

/// Returns the bytes that are held because of this event: those of the version that it superseded.
fn cost<I: Index>(event: &Event<I>) -> usize {
    EVENT_OVERHEAD + event.before.as_ref().map_or(0, |object| object.bytes.len())
}

fn frame_cost<I: Index>(event: &Event<I>) -> usize {
    event.after.as_ref().or(event.before.as_ref()).map_or(0, |object| object.bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EntryId, Object, index,
        testing::{Marked, key},
    };

    fn event(revision: u64, size: usize) -> Arc<Event<Marked>> {
        let stored = format!("{}@", "x".repeat(size));
        let indexed = index::read(&Marked, &key("a"), stored.as_bytes()).unwrap();
        let id = EntryId::first(Revision(revision));
        let object = Object::new(key("a"), Revision(1), id, stored.as_bytes(), indexed);
        Arc::new(Event::new(key("a"), id, Some(Arc::new(object)), None, None))
    }

    fn excess(timeline: &mut Timeline<Marked>) -> Vec<u64> {
        std::iter::from_fn(|| timeline.pop_excess()).map(|event| event.revision.0).collect()
    }

    const NO_LIMITS: History = History { age: Duration::MAX, events: usize::MAX, bytes: usize::MAX };

    #[test]
    fn events_are_forgotten_by_number_and_size() {
        let each = EVENT_OVERHEAD + 100;
        for (case, limits, sizes, want) in [
            ("without limits none", NO_LIMITS, vec![98; 5], vec![]),
            ("as many as allowed", History { events: 5, ..NO_LIMITS }, vec![98; 5], vec![]),
            ("more than allowed", History { events: 3, ..NO_LIMITS }, vec![98; 5], vec![1, 2]),
            ("as large as allowed", History { bytes: 5 * each, ..NO_LIMITS }, vec![98; 5], vec![]),
            ("a byte larger", History { bytes: 5 * each - 1, ..NO_LIMITS }, vec![98; 5], vec![1]),
            (
                "one larger than all of it",
                History { bytes: each, ..NO_LIMITS },
                vec![98, 98, 9000],
                vec![1, 2, 3],
            ),
            ("none at all", History { events: 0, ..NO_LIMITS }, vec![98; 2], vec![1, 2]),
        ] {
            let mut timeline = Timeline::new(limits);
            for (revision, size) in (1..).zip(sizes) {
                timeline.push(event(revision, size));
            }
            assert_eq!(excess(&mut timeline), want, "{case}");
            assert_eq!(excess(&mut timeline), [], "{case}: only once");
        }
    }

    #[test]
    fn events_are_forgotten_by_age() {
        let start = Instant::now();
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        let mut timeline = Timeline::new(History { age: Duration::from_secs(5 * 60), ..NO_LIMITS });
        assert_eq!(timeline.wait(), None, "nothing can age");
        timeline.push(event(1, 0));
        timeline.push(event(2, 0));
        timeline.mark(minutes(0));
        timeline.push(event(3, 0));
        timeline.mark(minutes(2));
        assert!(timeline.wait().is_some_and(|wait| wait > Duration::ZERO && wait < Duration::from_secs(60)));
        for (now, want) in [(4, vec![]), (5, vec![1, 2]), (6, vec![]), (7, vec![3]), (8, vec![])] {
            timeline.mark(minutes(now));
            assert_eq!(timeline.wait() == Some(Duration::ZERO), !want.is_empty(), "after {now} minutes");
            assert_eq!(excess(&mut timeline), want, "after {now} minutes");
        }
        assert_eq!(timeline.wait(), None);
    }

    #[test]
    fn only_new_events_hold_frames() {
        let mut timeline = Timeline::new(NO_LIMITS);
        let large = event(1, CACHED_FRAME_BYTES / 2);
        timeline.push(large.clone());
        assert_eq!(large.frame(|_| "kept".into()), "kept");
        timeline.push(event(2, CACHED_FRAME_BYTES / 4));
        assert_eq!(large.frame(|_| "again".into()), "kept");
        timeline.push(event(3, CACHED_FRAME_BYTES / 2));
        assert_eq!(large.frame(|_| "again".into()), "again", "too many bytes in frames");
        assert_eq!(timeline.cached_frames, 2);
        for revision in 4..2 * CACHED_FRAMES as u64 {
            timeline.push(event(revision, 0));
            assert!(timeline.cached_frames <= CACHED_FRAMES);
        }
        timeline.expire(Revision(u64::MAX));
        excess(&mut timeline);
        assert_eq!((timeline.cached_frames, timeline.cached_frame_bytes, timeline.bytes), (0, 0, 0));
    }
}
