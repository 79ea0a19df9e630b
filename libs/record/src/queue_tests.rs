//! The queue without a thread, so that what is full stays full.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::{ClockStep, Version};

const STEP: usize = 256;

fn step(second: i64) -> Entry {
    let from = Timestamp::UNIX_EPOCH;
    Entry::ClockStep(ClockStep { fork: "".into(), from, to: Timestamp::from_second(second).unwrap() })
}

fn gap(reason: GapReason, entries: u64, from: i64, to: i64) -> Entry {
    let time = |second| Timestamp::from_second(second).ok();
    Entry::Gap(Gap { reason, entries, from: time(from), to: time(to) })
}

fn take(queue: &Queue) -> Vec<Entry> {
    let mut batch = Vec::new();
    queue.take(&mut batch, None);
    batch
}

#[test]
fn a_full_queue_drops_entries_and_counts_them_where_they_are_missing() {
    let queue = Queue::new(3 * STEP, Duration::ZERO);
    for second in 1..=7 {
        queue.push(step(second));
    }
    assert_eq!(queue.dropped(), 4);
    assert_eq!(take(&queue), [step(1), step(2), step(3), gap(GapReason::QueueFull, 4, 4, 7)]);
    queue.push(step(8));
    assert_eq!(take(&queue), [step(8)], "the gap is reported once");
}

#[test]
fn a_gap_is_before_the_first_entry_that_finds_space_again() {
    let queue = Queue::new(4 * STEP, Duration::ZERO);
    let large = Entry::Version(Box::new(Version {
        fork: "".into(),
        revision: 1,
        time: Timestamp::UNIX_EPOCH,
        bucket: "pods".into(),
        key: "shop/web".into(),
        author: None,
        object: Some(vec![b'x'; 3 * STEP].into()),
    }));
    queue.push(step(1));
    queue.push(step(2));
    queue.push(large);
    queue.push(step(3));
    assert_eq!(take(&queue), [step(1), step(2), gap(GapReason::QueueFull, 1, 0, 0), step(3)]);
}

#[test]
fn an_entry_larger_than_the_queue_is_taken_alone() {
    let queue = Queue::new(1, Duration::ZERO);
    queue.push(step(1));
    queue.push(step(2));
    assert_eq!(take(&queue), [step(1), gap(GapReason::QueueFull, 1, 2, 2)]);
}

#[test]
fn a_caller_waits_for_space_no_longer_than_its_patience() {
    // With the bound of an hour the test would not end if the second push waited for anything but
    // space.
    let queue = Arc::new(Queue::new(STEP, Duration::from_secs(3600)));
    queue.push(step(1));
    let taker = {
        let queue = queue.clone();
        std::thread::spawn(move || {
            // Until the caller waits.
            while !queue.state.lock().is_pressed {
                std::thread::yield_now();
            }
            take(&queue)
        })
    };
    queue.push(step(2));
    assert_eq!(taker.join().unwrap(), [step(1)]);
    assert_eq!(take(&queue), [step(2)], "nothing is dropped");

    let queue = Queue::new(STEP, Duration::from_millis(1));
    queue.push(step(1));
    queue.push(step(2));
    assert_eq!(queue.dropped(), 1, "the patience ends");
}

#[test]
fn callers_are_not_delayed_again_while_the_queue_stays_full() {
    let queue = Queue::new(STEP, Duration::from_millis(1));
    queue.push(step(1));
    queue.push(step(2));
    assert!(queue.state.lock().is_overrun);
    queue.state.lock().is_pressed = false;
    queue.push(step(3));
    assert!(!queue.state.lock().is_pressed, "the third entry did not wait");
}

#[test]
fn closing_releases_callers_that_wait() {
    let queue = Arc::new(Queue::new(STEP, Duration::from_secs(3600)));
    queue.push(step(1));
    let caller = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.push(step(2)))
    };
    while !queue.state.lock().is_pressed {
        std::thread::yield_now();
    }
    queue.close();
    caller.join().unwrap();
    assert_eq!(queue.dropped(), 1);
    queue.push(step(3));
    assert_eq!((queue.dropped(), take(&queue).len()), (2, 1), "later entries are refused");
}

#[test]
fn nobody_waits_for_a_thread_that_has_ended() {
    let queue = Arc::new(Queue::new(STEP, Duration::from_secs(3600)));
    let caller = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.flush())
    };
    while queue.state.lock().flushes_wanted == 0 {
        std::thread::yield_now();
    }
    queue.report_end();
    caller.join().unwrap();
    queue.flush();
    queue.push(step(1));
    queue.push(step(2));
    assert_eq!(queue.dropped(), 2);
}
