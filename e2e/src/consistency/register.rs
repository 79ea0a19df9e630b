//! Linearizability of the operations on one object: a register with preconditions.

use std::collections::HashSet;

use anyhow::{Result, bail, ensure};

use super::Version;

/// The largest number of configurations (a set of operations and a state) that are tried for an
/// object.
const MAX_CONFIGURATIONS: usize = 2_000_000;

/// The input of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Reads the object.
    Read,
    /// Creates it with a value.
    Create {
        /// The value.
        value: u64,
    },
    /// Replaces a version.
    Update {
        /// The revision of the precondition.
        expected: u64,
        /// The value.
        value: u64,
    },
    /// Deletes a version.
    Delete {
        /// The revision of the precondition.
        expected: u64,
    },
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The version that was read; None if there is no object.
    Read(Option<Version>),
    /// The revision that was written.
    Written(u64),
    /// The version is deleted.
    Deleted,
    /// The object exists already, or in another version: 409.
    Conflict,
    /// The object does not exist: 404.
    NotFound,
    /// Unknown: the write may be executed now, later, or never.
    Unknown,
}

/// An operation with its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The input of the operation.
    pub input: Input,
    /// The outcome of the operation.
    pub output: Output,
    /// The time of the call, by the history's clock.
    pub called: u64,
    /// The time of the response, by the history's clock; later than all others if there was none.
    pub returned: u64,
}

/// The state of a register: the revision, None if it was never observed, and the value. None if
/// there is no object.
pub type State = Option<(Option<u64>, u64)>;

/// Checks that there is an order of the operations, consistent with their times, that explains
/// their outcomes.
///
/// # Errors
/// There is none, or it was not found within the limit of steps.
pub fn check(initial: Option<Version>, operations: &[Operation]) -> Result<()> {
    let mut operations = operations.to_vec();
    operations.sort_by_key(|operation| operation.called);
    let certain = operations.iter().filter(|operation| operation.output != Output::Unknown).count();
    let mut state: State = initial.map(|version| (Some(version.revision), version.value));
    let mut done = Done(vec![0; operations.len().div_ceil(64)]);
    let (mut certain_done, mut most, mut stuck_at) = (0, 0, None);
    let mut tried: HashSet<(Done, State)> = HashSet::new();
    let mut path: Vec<(usize, State)> = Vec::new();
    let mut from = 0;
    loop {
        if certain_done == certain {
            return Ok(());
        }
        let open = || operations.iter().enumerate().filter(|(index, _)| !done.has(*index));
        // An operation that is called after another one returned comes after it.
        let first_return = open().map(|(_, operation)| operation.returned).min().unwrap_or(u64::MAX);
        let mut next = None;
        for (index, operation) in open().skip_while(|(index, _)| *index < from) {
            if operation.called > first_return {
                break;
            }
            if let Some(after) = step(state, operation)
                && tried.insert((done.with(index), after))
            {
                next = Some((index, after));
                break;
            }
        }
        ensure!(tried.len() < MAX_CONFIGURATIONS, "not decided: the history is too large");
        if certain_done >= most && next.is_none() {
            most = certain_done;
            stuck_at =
                open().min_by_key(|(_, operation)| operation.returned).map(|(index, _)| (index, state));
        }
        let is_certain = |index: usize| operations.get(index).is_some_and(|o| o.output != Output::Unknown);
        match next {
            Some((index, after)) => {
                path.push((index, state));
                certain_done += usize::from(is_certain(index));
                done = done.with(index);
                (state, from) = (after, 0);
            }
            None => match path.pop() {
                Some((index, before)) => {
                    certain_done -= usize::from(is_certain(index));
                    done = done.without(index);
                    (state, from) = (before, index + 1);
                }
                None => {
                    let operation = stuck_at.and_then(|(index, _)| operations.get(index));
                    let state = stuck_at.and_then(|(_, state)| state);
                    bail!(
                        "not linearizable: after {most} of {certain} operations the state is {state:?}, and \
                         nothing explains {operation:?}"
                    );
                }
            },
        }
    }
}

/// Returns the state after an operation with this outcome, or `None` if the operation cannot have
/// that outcome in this state.
fn step(state: State, operation: &Operation) -> Option<State> {
    let is_at = |expected: u64| state.is_some_and(|(revision, _)| revision.is_none_or(|r| r == expected));
    let is_not_at = |expected: u64| state.is_some_and(|(revision, _)| revision != Some(expected));
    let is_above = |new: u64| state.and_then(|(revision, _)| revision).is_none_or(|revision| new > revision);
    let holds = |holds: bool, after: State| holds.then_some(after);
    match (operation.input, operation.output) {
        (Input::Read, Output::Read(None)) => holds(state.is_none(), None),
        (Input::Read, Output::Read(Some(read))) => {
            let is_it = state.is_some_and(|(_, value)| value == read.value) && is_at(read.revision);
            holds(is_it, Some((Some(read.revision), read.value)))
        }
        (Input::Create { value }, Output::Written(new)) => holds(state.is_none(), Some((Some(new), value))),
        (Input::Create { value }, Output::Unknown) => holds(state.is_none(), Some((None, value))),
        (Input::Create { .. }, Output::Conflict) => holds(state.is_some(), state),
        (Input::Update { expected, value }, Output::Written(new)) => {
            holds(is_at(expected) && is_above(new) && new > expected, Some((Some(new), value)))
        }
        (Input::Update { expected, value }, Output::Unknown) => holds(is_at(expected), Some((None, value))),
        (Input::Delete { expected }, Output::Deleted | Output::Unknown) => holds(is_at(expected), None),
        (Input::Update { expected, .. } | Input::Delete { expected }, Output::Conflict) => {
            holds(is_not_at(expected), state)
        }
        (Input::Update { .. } | Input::Delete { .. }, Output::NotFound) => holds(state.is_none(), None),
        _ => None,
    }
}

/// A set of operations, by their indexes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    fn with(&self, index: usize) -> Done {
        let mut words = self.0.clone();
        if let Some(word) = words.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
        Done(words)
    }

    fn without(&self, index: usize) -> Done {
        let mut words = self.0.clone();
        if let Some(word) = words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
        Done(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `CALLED-RETURNED operation`, such as `1-4 create 7 = 10`: value 7 at revision 10. An
    /// operation without a return time never returns.
    fn history(text: &str) -> Vec<Operation> {
        let operation = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (called, returned) = words[0].split_once('-').unwrap();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let input = match words[1] {
                "read" => Input::Read,
                "create" => Input::Create { value: number(2) },
                "update" => Input::Update { expected: number(2), value: number(3) },
                "delete" => Input::Delete { expected: number(2) },
                other => panic!("{other}"),
            };
            let (_, outcome) = line.split_once("= ").unwrap();
            let output = match (input, outcome) {
                (_, "conflict") => Output::Conflict,
                (_, "missing") => Output::NotFound,
                (_, "unknown") => Output::Unknown,
                (_, "deleted") => Output::Deleted,
                (Input::Read, "none") => Output::Read(None),
                (Input::Read, read) => {
                    let (value, revision) = read.split_once('@').unwrap();
                    let revision = revision.parse().unwrap();
                    Output::Read(Some(Version { revision, value: value.parse().unwrap() }))
                }
                (_, revision) => Output::Written(revision.parse().unwrap()),
            };
            let returned = returned.parse().unwrap_or(u64::MAX);
            Operation { input, output, called: called.parse().unwrap(), returned }
        };
        text.split(';').map(|line| operation(line.trim())).collect()
    }

    #[test]
    fn histories_that_could_have_happened_pass() {
        for (case, text) in [
            (
                "one after the other",
                "1-2 create 7 = 10; 3-4 read = 7@10; 5-6 delete 10 = deleted; 7-8 read = none",
            ),
            ("a read during a write sees either", "1-9 create 7 = 10; 2-3 read = none; 4-5 read = 7@10"),
            ("one of two creates", "1-4 create 7 = 10; 2-3 create 8 = conflict"),
            ("one of two updates", "1-2 create 1 = 5; 3-6 update 5 2 = 6; 4-5 update 5 3 = conflict"),
            (
                "an update of what is deleted meanwhile",
                "1-2 create 1 = 5; 3-6 update 5 2 = missing; 4-5 delete 5 = deleted",
            ),
            ("a lost response, done", "1- create 7 = unknown; 3-4 read = 7@9"),
            ("a lost response, done late", "1- create 7 = unknown; 3-4 read = none; 5-6 read = 7@9"),
            ("a lost response, never done", "1- create 7 = unknown; 3-4 read = none; 5-6 create 8 = 9"),
            ("an update of what nobody read", "1- create 7 = unknown; 3-4 update 9 8 = 10"),
            (
                "created again",
                "1-2 create 1 = 5; 3-4 delete 5 = deleted; 5-6 create 2 = 7; 7-8 update 5 3 = conflict",
            ),
        ] {
            check(None, &history(text)).unwrap_or_else(|error| panic!("{case}: {error}"));
        }
    }

    #[test]
    fn histories_that_cannot_have_happened_do_not() {
        for (case, text) in [
            ("a lost write", "1-2 create 7 = 10; 3-4 read = none"),
            ("a stale read", "1-2 create 7 = 10; 3-4 update 10 8 = 11; 5-6 read = 7@10"),
            ("a read that goes back", "1-9 create 7 = 10; 2-3 read = 7@10; 4-5 read = none"),
            ("both creates", "1-4 create 7 = 10; 2-3 create 8 = 11"),
            ("both updates", "1-2 create 1 = 5; 3-6 update 5 2 = 6; 4-5 update 5 3 = 7"),
            ("a conflict with nothing", "1-2 create 1 = 5; 3-4 update 5 2 = conflict"),
            ("a revision that goes back", "1-2 create 1 = 5; 3-4 update 5 2 = 4"),
            ("a value that nobody wrote", "1-2 create 1 = 5; 3-4 read = 2@5"),
            (
                "a deletion of what is gone",
                "1-2 create 1 = 5; 3-4 delete 5 = deleted; 5-6 delete 5 = deleted",
            ),
            ("what is there is missing", "1-2 create 1 = 5; 3-4 update 5 2 = missing"),
            ("a lost response cannot explain two", "1- create 7 = unknown; 3-4 read = 7@9; 5-6 read = none"),
            ("another revision of the same", "1- create 7 = unknown; 3-4 read = 7@9; 5-6 read = 7@10"),
        ] {
            assert!(check(None, &history(text)).is_err(), "{case}");
        }
        let loaded = Some(Version { revision: 3, value: 1 });
        assert!(check(loaded, &history("1-2 read = 1@3; 3-4 update 3 2 = 4")).is_ok());
        assert!(check(loaded, &history("1-2 read = none")).is_err(), "what was there before");
    }

    #[test]
    fn long_histories_are_decided() {
        // Eight clients that overlap all the time, one of which succeeds each time.
        let mut text = vec!["1-2 create 1 = 1".to_owned()];
        for round in 1..50u64 {
            let begin = round * 100;
            for client in 0..8u64 {
                let outcome =
                    if client == round % 8 { (round + 1).to_string() } else { "conflict".to_owned() };
                let (called, returned) = (begin + client, begin + 20 + client);
                text.push(format!("{called}-{returned} update {round} {} = {outcome}", round * 10 + client));
            }
        }
        assert!(check(None, &history(&text.join(";"))).is_ok());
        text.push("90000-90001 read = none".to_owned());
        let error = check(None, &history(&text.join(";"))).unwrap_err().to_string();
        assert!(error.contains("Read"), "{error}");
    }
}
