//! Checks of watches and lists against acknowledged writes: etcd's guarantees for watches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, bail, ensure};

use super::Version;

/// An item that a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// An object was added, modified or deleted.
    Event {
        /// The type of the event.
        kind: EventKind,
        /// The object.
        key: String,
        /// The version of the object; for a deletion, the last value at the revision of the
        /// deletion.
        version: Version,
    },
    /// A bookmark: all events up to the revision were sent.
    Bookmark(u64),
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
}

/// Objects by their keys.
pub type Objects = BTreeMap<String, Version>;

/// A watch, resumed as often as it ended: all that it reported after a state.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The state from which the watch began.
    pub initial: Objects,
    /// The revision of that state.
    pub after: u64,
    /// The items that it reported.
    pub observed: Vec<Observed>,
}

/// A list, exactly at its revision.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The revision.
    pub revision: u64,
    /// The objects.
    pub objects: Objects,
}

/// The writes of a history.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// The key under which each value was stored, if its write was done.
    pub values: HashMap<u64, String>,
    /// Acknowledged creations and updates, by revision.
    pub acknowledged: BTreeMap<u64, (String, u64)>,
    /// Acknowledged deletions: the key, and the revision of the deleted version.
    pub deleted: BTreeSet<(String, u64)>,
}

/// Checks a watch that has certainly observed everything up to a revision.
///
/// Ordered: revisions increase. Unique: none is reported twice. Reliable: no acknowledged write is
/// missing. Resumable: this holds over its ends and resumptions. Bookmarkable: nothing up to a
/// bookmark follows it. And each event has the type that follows from the object's state before it,
/// with a value that was written.
///
/// # Errors
/// The violated guarantee.
pub fn check_stream(stream: &Stream, writes: &Writes, complete_to: u64) -> Result<()> {
    let mut objects = stream.initial.clone();
    let mut last = stream.after;
    let mut written = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for observed in &stream.observed {
        let (kind, key, version) = match observed {
            Observed::Bookmark(revision) => {
                ensure!(*revision >= last, "a bookmark of revision {revision} after revision {last}");
                last = *revision;
                continue;
            }
            Observed::Event { kind, key, version } => (*kind, key, *version),
        };
        ensure!(version.revision > last, "{observed:?} after revision {last}");
        last = version.revision;
        let writer = writes.values.get(&version.value);
        ensure!(writer == Some(key), "{observed:?} has a value that was not written there");
        let before = objects.get(key).copied();
        match (kind, before) {
            (EventKind::Added, None) | (EventKind::Modified, Some(_)) => {
                objects.insert(key.clone(), version);
                written.insert(version.revision, (key.clone(), version.value));
            }
            (EventKind::Deleted, Some(before)) if before.value == version.value => {
                objects.remove(key);
                ended.insert((key.clone(), before.revision));
            }
            _ => bail!("{observed:?} of an object that was {before:?}"),
        }
    }
    for (revision, acknowledged) in writes.acknowledged.range(stream.after + 1..) {
        match written.get(revision) {
            Some(observed) => {
                ensure!(observed == acknowledged, "{acknowledged:?} at {revision} is {observed:?}")
            }
            None => ensure!(*revision > complete_to, "{acknowledged:?} at {revision} is missing"),
        }
    }
    for (key, revision) in &writes.deleted {
        let was_there = written.get(revision).is_some_and(|(written, _)| written == key)
            || stream.initial.get(key).is_some_and(|version| version.revision == *revision);
        let is_missing = was_there && !ended.contains(&(key.clone(), *revision));
        // A deletion has no revision of its own in its response; those at the very end may be above
        // `complete_to`.
        ensure!(!is_missing || *revision > complete_to, "the deletion of {key} at {revision} is missing");
    }
    Ok(())
}

/// Checks that a list equals the state after a watch's events, at its revision.
///
/// # Errors
/// The difference.
pub fn check_list(listed: &Listed, stream: &Stream) -> Result<()> {
    if listed.revision < stream.after {
        return Ok(());
    }
    let mut objects = stream.initial.clone();
    for observed in &stream.observed {
        let Observed::Event { kind, key, version } = observed else { continue };
        if version.revision > listed.revision {
            break;
        }
        match kind {
            EventKind::Deleted => objects.remove(key),
            EventKind::Added | EventKind::Modified => objects.insert(key.clone(), *version),
        };
    }
    for key in objects.keys().chain(listed.objects.keys()) {
        let (want, have) = (objects.get(key), listed.objects.get(key));
        ensure!(want == have, "the list at {}: {key} is {have:?}, by the watch {want:?}", listed.revision);
    }
    Ok(())
}

/// Checks that two watches report the same events for the revisions that both have observed.
///
/// # Errors
/// The first difference.
pub fn check_same(one: &Stream, other: &Stream) -> Result<()> {
    let after = one.after.max(other.after);
    let events = |stream: &Stream| -> Vec<Observed> {
        let later = |observed: &&Observed| matches!(observed, Observed::Event { version, .. } if version.revision > after);
        stream.observed.iter().filter(later).cloned().collect()
    };
    let (one, other) = (events(one), events(other));
    let first = one.iter().zip(&other).position(|(one, other)| one != other);
    match first {
        None => Ok(()),
        Some(at) => {
            let (one, other) = (one.get(at).context("an event")?, other.get(at).context("an event")?);
            bail!("one watch has {one:?} where another has {other:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `+a1@5`: object `a` was added with value 1 at revision 5; `~` modified, `-` deleted;
    /// `=9`: a bookmark.
    fn observed(text: &str) -> Vec<Observed> {
        let observed = |word: &str| {
            let (sign, rest) = word.split_at(1);
            let kind = match sign {
                "=" => return Observed::Bookmark(rest.parse().unwrap()),
                "+" => EventKind::Added,
                "~" => EventKind::Modified,
                "-" => EventKind::Deleted,
                other => panic!("{other}"),
            };
            let (name, version) = rest.split_at(1);
            let (value, revision) = version.split_once('@').unwrap();
            let version = Version { value: value.parse().unwrap(), revision: revision.parse().unwrap() };
            Observed::Event { kind, key: name.to_owned(), version }
        };
        text.split_whitespace().map(observed).collect()
    }

    fn stream(text: &str) -> Stream {
        let initial = Objects::from([("z".to_owned(), Version { revision: 3, value: 9 })]);
        Stream { initial, after: 3, observed: observed(text) }
    }

    /// Builds writes of the values 1 and 2 of `a` at revisions 5 and 6, the second of which was
    /// deleted; 3 of `b` at 8; 9 of `z` before.
    fn writes() -> Writes {
        let values = [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (9, "z")];
        let acknowledged = [(5, ("a", 1)), (6, ("a", 2)), (8, ("b", 3))];
        Writes {
            values: values.map(|(value, key)| (value, key.to_owned())).into(),
            acknowledged: acknowledged
                .map(|(revision, (key, value))| (revision, (key.to_owned(), value)))
                .into(),
            deleted: BTreeSet::from([("a".to_owned(), 6)]),
        }
    }

    const WHOLE: &str = "+a1@5 ~a2@6 =6 -a2@7 +b3@8 =9";

    #[test]
    fn watches_keep_their_guarantees() {
        for (case, text, want) in [
            ("whole", WHOLE, None),
            ("with a write of unknown outcome", "+a1@5 ~a2@6 -a2@7 +b3@8 ~b4@9 -z9@10", None),
            ("not ordered", "+a1@5 +b3@8 ~a2@6", Some("after revision 8")),
            ("not unique", "+a1@5 ~a2@6 ~a2@6 -a2@7 +b3@8", Some("after revision 6")),
            ("not reliable", "+a1@5 -a1@7 +b3@8", Some("(\"a\", 2) at 6 is missing")),
            ("a deletion is missing", "+a1@5 ~a2@6 +b3@8", Some("deletion of a at 6 is missing")),
            ("the end is missing", "+a1@5 ~a2@6 -a2@7", Some("(\"b\", 3) at 8 is missing")),
            ("a bookmark ahead", "+a1@5 =6 ~a2@6 -a2@7 +b3@8", Some("after revision 6")),
            ("a bookmark behind", "+a1@5 ~a2@6 =5", Some("a bookmark of revision 5")),
            ("added twice", "+a1@5 +a2@6 -a2@7 +b3@8", Some("of an object that was")),
            ("modified before it is there", "~a1@5", Some("of an object that was None")),
            ("deleted twice", "+a1@5 ~a2@6 -a2@7 -a2@8", Some("of an object that was None")),
            ("another value", "+a2@5 ~a1@6 -a1@7 +b3@8", Some("is (\"a\", 2)")),
            ("a value that nobody wrote", "+a8@4", Some("not written")),
            ("a value of another object", "+b1@4", Some("not written")),
            ("deleted with an old value", "+a1@5 ~a2@6 -a1@7", Some("of an object that was")),
        ] {
            let checked = check_stream(&stream(text), &writes(), 8).map_err(|error| error.to_string());
            match want {
                None => assert_eq!(checked, Ok(()), "{case}"),
                Some(want) => {
                    let error = checked.expect_err(case);
                    assert!(error.contains(want), "{case}: {error}");
                }
            }
        }
        let early = check_stream(&stream("+a1@5 ~a2@6"), &writes(), 5);
        assert!(early.is_ok(), "what follows need not be there yet: {early:?}");
    }

    #[test]
    fn lists_are_the_state_at_their_revision() {
        for (revision, objects, is_right) in [
            (4, "z9@3", true),
            (5, "z9@3 a1@5", true),
            (6, "z9@3 a2@6", true),
            (7, "z9@3", true),
            (9, "z9@3 b3@8", true),
            (6, "z9@3 a1@5", false),
            (7, "z9@3 a2@6", false),
            (8, "z9@3", false),
            (8, "b3@8", false),
        ] {
            let objects = observed(&objects.split(' ').map(|word| format!("+{word} ")).collect::<String>());
            let objects = objects.into_iter().filter_map(|observed| match observed {
                Observed::Event { key, version, .. } => Some((key, version)),
                Observed::Bookmark(_) => None,
            });
            let listed = Listed { revision, objects: objects.collect() };
            assert_eq!(check_list(&listed, &stream(WHOLE)).is_ok(), is_right, "{listed:?}");
        }
    }

    #[test]
    fn watches_agree() {
        let later = Stream { after: 6, ..stream("-a2@7 +b3@8") };
        assert!(check_same(&stream(WHOLE), &later).is_ok());
        let other = Stream { after: 6, ..stream("+b3@7") };
        assert!(check_same(&stream(WHOLE), &other).is_err());
    }
}
