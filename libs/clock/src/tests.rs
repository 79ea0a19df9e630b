use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;

use super::*;

timers! {
    /// A deadline,
    /// in two lines.
    DEADLINE = semantic("deadline");
    /// A batch.
    BATCH = pacing("batch");
    /// A heartbeat.
    HEARTBEAT = heartbeat("heartbeat");
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// Returns the pending timers: the second at which each is due, its name and its key.
fn pending(clock: &Clock) -> Vec<(i64, &'static str, String)> {
    let pending = clock.timers().pending().into_iter();
    pending.map(|pending| (pending.due.as_second(), pending.timer.name, pending.key)).collect()
}

#[test]
fn declared_timers_are_listed_with_their_documentation() {
    assert_eq!(TIMERS, [&DEADLINE, &BATCH, &HEARTBEAT]);
    assert_eq!((DEADLINE.about, DEADLINE.class), (" A deadline, in two lines.", Class::Semantic));
    assert_eq!(format!("{:>8}", BATCH.class), "  pacing");
    assert!(DEADLINE.after(seconds(1)) < BATCH.after(seconds(2)), "the shortest delay comes first");
}

#[tokio::test]
async fn a_mocked_clock_stands_still_until_it_is_advanced() {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let mut later = clock.sleep(DEADLINE.after(seconds(10)));
    for (by, want) in [(0, false), (9, false), (1, true)] {
        mock.advance(seconds(by));
        assert_eq!((&mut later).now_or_never().is_some(), want, "{by}");
    }
    assert_eq!((clock.now(), clock.monotonic()), (at(10), seconds(10)));
    assert!(clock.until(&DEADLINE, at(10)).now_or_never().is_some(), "it is that time already");
    mock.set(at(5));
    assert!(later.now_or_never().is_some(), "it has ended before the clock was set back");
}

#[test]
fn what_waits_is_listed_until_it_ends_or_is_dropped() {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let late = clock.sleep(DEADLINE.after(seconds(10))).of("default/web");
    let early = clock.until(&BATCH, at(5)).of(String::from("a"));
    let unlisted = clock.until_next_of_source(at(1));
    let both = [(5, "batch", "a".to_owned()), (10, "deadline", "default/web".to_owned())];
    assert_eq!(pending(&clock), both);
    assert_eq!(clock.timers().next(1)[0].timer, &BATCH);
    mock.advance(seconds(5));
    assert_eq!(pending(&clock), both[1..], "due");
    assert!(early.now_or_never().is_some() && unlisted.now_or_never().is_some());
    drop(late);
    assert!(pending(&clock).is_empty());
}

#[tokio::test]
async fn timers_of_the_machine_are_listed_too() {
    let clock = Clock::system();
    let hour = clock.sleep(DEADLINE.after(seconds(3600))).of("x");
    let moment = clock.sleep(BATCH.after(Duration::from_millis(1)));
    assert_eq!(clock.timers().pending().len(), 2);
    drop(moment.await);
    assert_eq!(clock.timers().next(9).iter().map(|pending| &*pending.key).collect::<Vec<_>>(), ["x"]);
    drop(hour);
    assert!(clock.timers().pending().is_empty());
    assert_eq!(clock.timeout(BATCH.after(seconds(3600)), async { 7 }).await.ok(), Some(7));
    assert!(clock.timeout(BATCH.after(Duration::ZERO), std::future::pending::<()>()).await.is_err());
}

#[test]
fn a_source_is_listed_while_it_lives() {
    struct Queue(Vec<Pending>);
    impl Source for Queue {
        fn pending(&self, limit: usize) -> Vec<Pending> {
            self.0.iter().take(limit).cloned().collect()
        }
    }
    let (clock, _mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let _wait = clock.until(&BATCH, at(2)).of("b");
    let entry = |second, key: &str| Pending { due: at(second), timer: &DEADLINE, key: key.to_owned() };
    let queue = Arc::new(Queue(vec![entry(1, "a"), entry(3, "c")]));
    clock.timers().register(Arc::downgrade(&queue) as Weak<dyn Source>);
    let keys = |limit| clock.timers().next(limit).into_iter().map(|pending| pending.key).collect::<String>();
    assert_eq!([keys(usize::MAX), keys(2), keys(1)], ["abc", "ab", "a"]);
    drop(queue);
    assert_eq!(keys(usize::MAX), "b");
}

#[test]
fn an_advance_wakes_only_what_is_due() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut waits: Vec<_> = (1..=1000).map(|second| clock.until(&DEADLINE, at(second))).collect();
    for wait in &mut waits {
        assert!(pin!(wait).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    for (by, want) in [(0, 0), (1, 1), (9, 10), (990, 1000)] {
        mock.advance(seconds(by));
        assert_eq!(count.0.load(Ordering::Relaxed), want);
    }
}

#[test]
fn the_next_time_of_an_interval_is_listed_before_the_work_of_this_one_ends() {
    let (clock, manual) = Clock::manual(Some(Timestamp::UNIX_EPOCH));
    let mut interval = clock.interval(HEARTBEAT.after(seconds(10)), "a");
    let due = |second| [(second, "heartbeat", "a".to_owned())];
    assert!(pending(&clock) == due(10) && interval.tick().now_or_never().is_none());
    for second in [10, 20, 30] {
        manual.set(at(second));
        assert_eq!(manual.fire(), [&HEARTBEAT]);
        assert!(interval.tick().now_or_never().is_some(), "{second}");
        assert_eq!(pending(&clock), due(second + 10));
        assert!(!clock.activity().is_idle(), "its work goes on until it is asked again");
        assert!(interval.tick().now_or_never().is_none() && clock.activity().is_idle());
    }
    drop(interval);
    assert!(pending(&clock).is_empty());
}

#[tokio::test]
async fn work_is_under_way_from_the_moment_at_which_a_timer_fires() {
    let (clock, manual) = Clock::manual(Some(Timestamp::UNIX_EPOCH));
    let activity = clock.activity();
    let mut deadline = clock.sleep(DEADLINE.after(seconds(10)));
    let mut heartbeat = clock.sleep(HEARTBEAT.after(seconds(5)));
    assert!(activity.is_idle(), "neither is due");
    assert_eq!(clock.timers().first_due(|class| class == Class::Semantic), Some(at(10)));
    manual.set(at(9));
    assert!((&mut heartbeat).now_or_never().is_none() && activity.is_idle(), "nothing was fired");
    assert_eq!(manual.fire_heartbeats(), [&HEARTBEAT]);
    assert!(!activity.is_idle(), "the task has not seen it yet");
    let work = (&mut heartbeat).now_or_never().expect("it is due");
    assert!((&mut deadline).now_or_never().is_none() && !activity.is_idle());
    drop(work);
    assert!(activity.is_idle());
    manual.set(at(10));
    assert_eq!(manual.fire(), [&DEADLINE]);
    drop(deadline);
    assert!(activity.is_idle(), "nobody waits for it any more");
    manual.set(at(5));
    assert_eq!(clock.now(), at(10), "it does not go back");
}

/// Verifies that what sources hold back is work from the moment at which it fires, whether they
/// began to wait before or during the hold.
#[tokio::test]
async fn a_hold_ends_with_the_work_of_sources() {
    let (clock, manual) = Clock::manual(Some(Timestamp::UNIX_EPOCH));
    let mut before = clock.until_next_of_source(at(5));
    let hold = manual.hold();
    manual.set(at(6));
    let mut during = clock.until_next_of_source(at(5));
    let mut later = clock.until_next_of_source(at(7));
    assert_eq!(manual.fire_heartbeats(), [] as [&Timer; 0]);
    assert!((&mut before).now_or_never().is_none() && (&mut during).now_or_never().is_none());
    assert!(clock.now_of_sources().is_none() && clock.activity().is_idle());
    assert_eq!(hold.fire(), [] as [&Timer; 0], "sources list their timers");
    assert!(clock.now_of_sources() == Some(at(6)) && !clock.activity().is_idle());
    for wait in [&mut before, &mut during] {
        let work = wait.now_or_never().expect("it is due");
        assert!(!clock.activity().is_idle());
        drop(work);
    }
    assert!(clock.activity().is_idle() && (&mut later).now_or_never().is_none());
    let hold = manual.hold();
    manual.set(at(7));
    drop(hold);
    assert!(later.now_or_never().is_some(), "an interrupted advance fires it, too");
}

#[tokio::test]
async fn pauses_are_work() {
    let (manual, _) = Clock::manual(None);
    for (clock, delay) in [(Clock::system(), Duration::from_millis(1)), (manual, seconds(3600))] {
        let pause = clock.sleep(BATCH.after(delay));
        assert!(!clock.activity().is_idle());
        let begun = clock.activity().begun();
        let work = pause.await;
        assert!(!clock.activity().is_idle() && clock.activity().begun() == begun, "it goes on");
        drop(work);
        assert!(clock.activity().is_idle());
    }
}

#[tokio::test]
async fn the_end_of_all_work_notifies_waiters() {
    let activity = Activity::default();
    let _observation = activity.observe();
    let (first, second) = (activity.begin(), activity.begin());
    let mut idle = pin!(activity.idle());
    idle.as_mut().enable();
    drop(first);
    assert!(idle.as_mut().now_or_never().is_none());
    drop(second);
    assert!(idle.now_or_never().is_some() && activity.begun() == 2);
}

#[tokio::test]
async fn a_clock_that_is_resumed_runs_on_from_its_time() {
    let (clock, manual) = Clock::manual(Some(Timestamp::UNIX_EPOCH));
    let running = tokio::spawn(manual.clone().run());
    let wait = clock.sleep(DEADLINE.after(Duration::from_millis(20)));
    manual.set(at(-5));
    manual.resume();
    assert!(manual.is_running());
    drop(wait.await);
    let later = clock.sleep(DEADLINE.after(Duration::from_millis(5)));
    drop(later.await);
    assert!(clock.now() > at(0) && clock.now() < at(3600), "{clock:?}");
    running.abort();
}
