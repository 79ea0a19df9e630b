//! The reference of timers, `docs/reference/timers.md`, which is made of their declarations and compared with it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use coracle_clock::Timer;

/// The timers of each crate, by what declares them.
const DECLARED: [(&str, &[&Timer]); 7] = [
    ("API server", coracle_apiserver::timers::TIMERS),
    ("API server, built-in kinds", coracle_builtin::timers::TIMERS),
    ("Every controller", coracle_controller_runtime::timers::TIMERS),
    ("Controllers", coracle_controllers::timers::TIMERS),
    ("Simulated nodes", coracle_simulation::timers::TIMERS),
    ("Endpoints for tests", coracle_testing_api::timers::TIMERS),
    ("Simulated volumes", coracle_volumes::timers::TIMERS),
];

#[test]
fn the_reference_of_timers_is_up_to_date() {
    let mut text = "# Timers\n\nThe timers that wait for the clock of a control plane, by name. Made from the declarations by \
         `REGENERATE=1 cargo test -p coracle-control-plane`.\n\n\
         | class | | `settle` | a manual clock that is advanced |\n| --- | --- | --- | --- |\n\
         | semantic | Kubernetes' semantics: time must pass for it to fire | lists it | stops at each, in order |\n\
         | watchdog | a deadline that heartbeats put off as long as they come | lists it | stops at it after a change, and passes it over \
         once heartbeats are known to come |\n\
         | heartbeat | a sign of life | lists it | fires once from one stop to the next, before all others |\n\
         | periodic | a check that repeats as long as the control plane runs | lists it | fires once from one stop to the next |\n\
         | pacing | the pace of the implementation | waits for it | fires at once, and moves no time |\n\
         | upkeep | the upkeep of the implementation | does not wait for it | follows the machine's time |\n"
        .to_owned();
    let mut names = BTreeSet::new();
    for (title, timers) in DECLARED {
        let _ = write!(text, "\n## {title}\n\n| timer | class | |\n| --- | --- | --- |\n");
        for Timer { name, class, about } in timers {
            assert!(names.insert(name), "two timers have the name {name}");
            let _ = writeln!(text, "| `{name}` | {class} | {} |", about.trim());
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/timers.md");
    if std::env::var_os("REGENERATE").is_some() {
        std::fs::write(&file, &text).expect("the file is written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let hint = "is outdated: REGENERATE=1 cargo test -p coracle-control-plane";
    assert!(found == text, "docs/reference/timers.md {hint}");
}
