//! The UIDs, the ends of generated names and the addresses that a control plane makes up: by
//! chance, or from a seed.
//!
//! From a seed they follow from the path or the owner of an object, and never from a shared stream
//! of numbers, so that they do not depend on the order in which objects are created.
#![warn(missing_docs)]

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use uuid::Uuid;

/// The number that UIDs, names and addresses follow from.
///
/// It makes them easy to guess, which is of no harm in a test, and it has no influence on keys and
/// tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

/// The error for an invalid seed.
#[derive(Debug, thiserror::Error)]
#[error("it must be a number from 0 to {}", Seed::MAX.0)]
pub struct InvalidSeed;

impl Seed {
    /// The greatest seed that a text can have: the greatest number that all readers of JSON have
    /// exactly.
    pub const MAX: Seed = Seed((1 << 53) - 1);

    /// Derives 128 bits from the seed and the arguments.
    ///
    /// - `purpose`: the use of the bits
    /// - `path`: the object
    /// - `count`: distinguishes several values of one object
    pub fn bits(self, purpose: &str, path: &[&str], count: u32) -> u128 {
        let mut context = Context::new(&SHA256);
        context.update(&self.0.to_be_bytes());
        context.update(&count.to_be_bytes());
        for part in [purpose].iter().chain(path) {
            // The length comes first, so that no two lists of parts look alike.
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        let digest = context.finish();
        digest.as_ref().iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte))
    }
}

impl Seed {
    /// Derives a number from the seed and an object.
    ///
    /// - `path`: its resource, namespace and name
    pub fn number(self, path: &[&str]) -> u64 {
        self.bits("number", path, 0) as u64
    }
}

impl FromStr for Seed {
    type Err = InvalidSeed;

    fn from_str(text: &str) -> Result<Seed, InvalidSeed> {
        let number = text.parse().ok().filter(|number| *number <= Seed::MAX.0);
        number.map(Seed).ok_or(InvalidSeed)
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The maximum number of paths of which the objects are counted. Those beyond have UIDs and names
/// of chance.
const MAX_PATHS: usize = 1_000_000;

/// The end of a generated name: five letters and digits, without vowels.
const ALPHANUMS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The source of what a server makes up for an object.
#[derive(Debug, Default)]
pub struct Identities(Option<Seeded>);

#[derive(Debug)]
struct Seeded {
    seed: Seed,
    /// Tells starts on the same data apart, of which each counts anew.
    epoch: u64,
    /// The number of objects that there have been at a path, and of names that were generated for
    /// an owner, by a hash of that: the next object has another UID, and the next name is another.
    counts: Mutex<HashMap<u64, u32>>,
}

impl Identities {
    /// Creates a source of identities from a seed; None for random ones.
    ///
    /// - `epoch`: distinguishes starts on the same data, so that no UID of an earlier one recurs:
    ///   the revision of the store
    pub fn new(seed: Option<Seed>, epoch: u64) -> Identities {
        Identities(seed.map(|seed| Seeded { seed, epoch, counts: Mutex::default() }))
    }

    /// Returns the seed.
    pub fn seed(&self) -> Option<Seed> {
        self.0.as_ref().map(|seeded| seeded.seed)
    }

    /// Returns the UID of an object that is about to be created.
    ///
    /// - `path`: its resource, namespace and name
    pub fn uid(&self, path: &[&str]) -> Uuid {
        let seeded = self.0.as_ref();
        let bits = seeded.and_then(|seeded| Some(seeded.bits(UID, path, seeded.count(UID, path)?)));
        bits.map_or_else(Uuid::new_v4, uuid)
    }

    /// Returns `true` if the UID of an object that is about to be created is used already: another
    /// object was created at this path in the meantime.
    pub fn is_used(&self, path: &[&str], uid: &str) -> bool {
        self.0.as_ref().is_some_and(|seeded| {
            seeded
                .count(UID, path)
                .is_some_and(|count| uuid(seeded.bits(UID, path, count)).to_string() != uid)
        })
    }

    /// Notes that an object was created: the next one at this path is another.
    pub fn created(&self, path: &[&str]) {
        self.0.iter().for_each(|seeded| _ = seeded.next(UID, path));
    }

    /// Returns the end of a generated name: five letters and digits.
    ///
    /// - `path`: the resource, the namespace, the UID of the owner, and the beginning of the name
    /// - `is_taken`: whether the next name is another
    ///
    /// Source: `k8s.io/apimachinery/pkg/util/rand`, `String`.
    pub fn suffix(&self, path: &[&str], is_taken: bool) -> String {
        let bits = self.0.as_ref().and_then(|seeded| {
            let count = if is_taken { seeded.next(NAME, path) } else { seeded.count(NAME, path) };
            Some(seeded.bits(NAME, path, count?))
        });
        let bits = bits.unwrap_or_else(|| Uuid::new_v4().as_u128()).to_be_bytes();
        bits.iter().take(5).map(|byte| char::from(ALPHANUMS[usize::from(*byte) % ALPHANUMS.len()])).collect()
    }

    /// Returns a function that chooses numbers for an object: each call returns a number below its
    /// argument.
    ///
    /// - `path`: its resource, namespace and name
    pub fn choices<'a>(&'a self, path: &'a [&'a str]) -> impl FnMut(u64) -> u64 + 'a {
        let mut count = 0;
        move |limit| {
            let bits = match &self.0 {
                Some(seeded) => seeded.seed.bits("choice", path, count),
                None => Uuid::new_v4().as_u128(),
            };
            count += 1;
            // The upper half: of a UUID by chance the lower one has bits that are fixed.
            (bits >> 64) as u64 % limit.max(1)
        }
    }

    /// Returns the identity of a process or a part of it.
    pub fn of_process(&self, name: &str) -> Uuid {
        self.0.as_ref().map_or_else(Uuid::new_v4, |seeded| uuid(seeded.seed.bits("process", &[name], 0)))
    }
}

const UID: &str = "uid";
const NAME: &str = "name";

impl Seeded {
    /// Returns the current number; None for a path that is not counted, since there are too many.
    fn count(&self, purpose: &str, path: &[&str]) -> Option<u32> {
        let key = self.key(purpose, path);
        let counts = self.counts.lock();
        let known = counts.get(&key).copied();
        known.or_else(|| (counts.len() < MAX_PATHS).then_some(0))
    }

    /// Returns the current number and increments it.
    fn next(&self, purpose: &str, path: &[&str]) -> Option<u32> {
        let key = self.key(purpose, path);
        let mut counts = self.counts.lock();
        if counts.len() >= MAX_PATHS && !counts.contains_key(&key) {
            return None;
        }
        let next = counts.entry(key).or_default();
        let count = *next;
        *next = next.wrapping_add(1);
        Some(count)
    }

    fn bits(&self, purpose: &str, path: &[&str], count: u32) -> u128 {
        let epoch = self.epoch.to_string();
        let path: Vec<&str> = [&*epoch].into_iter().chain(path.iter().copied()).collect();
        self.seed.bits(purpose, &path, count)
    }

    fn key(&self, purpose: &str, path: &[&str]) -> u64 {
        self.seed.bits(purpose, path, u32::MAX) as u64
    }
}

/// Builds a version 4 UUID.
fn uuid(bits: u128) -> Uuid {
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded() -> Identities {
        Identities::new(Some(Seed(7)), 0)
    }

    #[test]
    fn what_follows_from_a_seed_does_not_depend_on_the_order() {
        let (a, b) = (["pods", "shop", "a"], ["pods", "shop", "b"]);
        let (one, other) = (seeded(), seeded());
        let of_one = [one.uid(&a), one.uid(&b)];
        let of_other = [other.uid(&b), other.uid(&a)];
        assert_eq!(of_one, [of_other[1], of_other[0]]);
        assert_ne!(of_one[0], of_one[1]);
        assert_eq!(of_one[0].get_version_num(), 4);
        assert_ne!(Identities::new(Some(Seed(8)), 0).uid(&a), of_one[0]);
        assert_ne!(Identities::new(Some(Seed(7)), 9).uid(&a), of_one[0], "after a restart");
        assert_ne!(Identities::default().uid(&a), Identities::default().uid(&a));
    }

    #[test]
    fn the_next_object_of_a_name_has_another_uid() {
        let (identities, path) = (seeded(), ["pods", "shop", "a"]);
        let first = identities.uid(&path);
        assert_eq!(identities.uid(&path), first, "nothing was created");
        assert!(!identities.is_used(&path, &first.to_string()));
        identities.created(&path);
        assert!(identities.is_used(&path, &first.to_string()));
        let second = identities.uid(&path);
        assert_ne!(second, first);
        let again = seeded();
        again.created(&path);
        assert_eq!(again.uid(&path), second);
    }

    #[test]
    fn names_of_one_owner_differ() {
        let (identities, path) = (seeded(), ["pods", "shop", "an owner", "web-"]);
        let dry = identities.suffix(&path, false);
        let names: Vec<String> = (0..3).map(|_| identities.suffix(&path, true)).collect();
        assert_eq!(names[0], dry);
        assert!(names[0] != names[1] && names[1] != names[2]);
        let again = seeded();
        assert_eq!((0..3).map(|_| again.suffix(&path, true)).collect::<Vec<_>>(), names);
        for name in names.iter().chain([&Identities::default().suffix(&path, true)]) {
            assert!(name.len() == 5 && name.bytes().all(|byte| ALPHANUMS.contains(&byte)), "{name}");
        }
    }

    #[test]
    fn choices_are_below_their_limits() {
        for identities in [seeded(), Identities::default()] {
            let path = ["services", "shop", "web"];
            let mut choose = identities.choices(&path);
            assert!((1..100).all(|limit| choose(limit) < limit));
            assert_eq!(choose(0), 0);
        }
    }

    #[test]
    fn parts_of_a_path_are_not_run_together() {
        assert_ne!(Seed(1).bits("uid", &["ab", "c"], 0), Seed(1).bits("uid", &["a", "bc"], 0));
    }

    #[test]
    fn seeds_are_numbers() {
        assert_eq!("9007199254740991".parse::<Seed>().unwrap(), Seed::MAX);
        for wrong in ["", "-1", "1e3", "9007199254740992", "18446744073709551616", "seven"] {
            assert!(wrong.parse::<Seed>().is_err(), "{wrong}");
        }
    }
}
