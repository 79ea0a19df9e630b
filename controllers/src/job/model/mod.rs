//! Random histories of a Job against the plan: pods end and are deleted, the user changes the Job,
//! the controller reads pods through a cache that lags, its requests fail from some point on, and
//! it restarts. At all times each pod is counted at most once. Afterwards the Job ends in a bounded
//! number of passes, and no pod keeps its finalizer.
//!
//! `PROPTEST_CASES` is the number of histories.

mod world;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use world::World;

/// The next event of a history. Its numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
enum Event {
    /// The controller reconciles the Job, with a current or stale cache of pods; a number of
    /// requests succeed.
    Pass {
        is_fresh: bool,
        requests: usize,
    },
    Restart,
    /// A pod ends, well or not.
    End(usize, bool),
    Delete(usize),
    /// The nodes end the pods that are terminating.
    Terminate,
    Parallelism(i32),
    Suspend(bool),
    Wait(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (any::<bool>(), prop_oneof![3 => Just(usize::MAX), 1 => 0..12_usize])
            .prop_map(|(is_fresh, requests)| Event::Pass { is_fresh, requests }),
        1 => Just(Event::Restart),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(pod, is_success)| Event::End(pod, is_success)),
        2 => any::<usize>().prop_map(Event::Delete),
        2 => Just(Event::Terminate),
        1 => (0..5).prop_map(Event::Parallelism),
        1 => any::<bool>().prop_map(Event::Suspend),
        2 => (1..700_i64).prop_map(Event::Wait),
    ]
}

fn setting() -> impl Strategy<Value = Value> {
    let completions = prop_oneof![1 => Just(None), 4 => (1..5).prop_map(Some)];
    (completions, 1..4, 0..6, any::<bool>(), any::<bool>(), prop::option::of(0..3)).prop_map(
        |(completions, parallelism, backoff, is_indexed, replaces_failed, per_index)| {
            let mut spec = json!({"completions": completions, "parallelism": parallelism, "backoffLimit": backoff,
                "podReplacementPolicy": if replaces_failed { "Failed" } else { "TerminatingOrFailed" }});
            if is_indexed && completions.is_some() {
                spec["completionMode"] = json!("Indexed");
                if let Some(limit) = per_index {
                    spec["backoffLimitPerIndex"] = json!(limit);
                    spec["backoffLimit"] = json!(i32::MAX);
                }
            }
            spec
        },
    )
}

fn check(spec: Value, events: &[Event]) -> Result<(), TestCaseError> {
    let mut world = World::new(spec);
    for event in events {
        match event {
            Event::Pass { is_fresh, requests } => world.pass(*is_fresh, *requests),
            Event::Restart => world.restart(),
            Event::End(pod, is_success) => world.end(*pod, *is_success),
            Event::Delete(pod) => world.delete(*pod),
            Event::Terminate => world.terminate(),
            Event::Parallelism(parallelism) => world.change(|spec| spec.parallelism = Some(*parallelism)),
            Event::Suspend(suspend) => world.change(|spec| spec.suspend = Some(*suspend)),
            Event::Wait(seconds) => world.wait(*seconds),
        }
        world.invariants().map_err(TestCaseError::fail)?;
    }
    world.change(|spec| (spec.suspend, spec.parallelism) = (Some(false), spec.parallelism.map(|p| p.max(1))));
    for _ in 0..40 {
        if world.is_finished() {
            break;
        }
        world.pass(true, usize::MAX);
        world.invariants().map_err(TestCaseError::fail)?;
        world.end_all();
        world.terminate();
        world.wait(700);
    }
    prop_assert!(world.is_finished(), "the Job does not end: {:?}", world.status());
    world.at_the_end().map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_pod_is_counted_once_and_the_job_ends(
        spec in setting(),
        events in prop::collection::vec(event(), 0..60),
    ) {
        check(spec, &events)?;
    }
}
