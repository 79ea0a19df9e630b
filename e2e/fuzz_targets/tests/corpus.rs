//! Every target over its kept inputs, and over mutations of them. A failing input is printed and
//! kept in a file.
//!
//! The mutations are the same each time. `FUZZ_SECONDS=600` spends that long on each target
//! instead, with another sequence for each `FUZZ_SEED`; `FUZZ_TARGET` names the only target to run.
//! Speed is that of a release build:
//! `FUZZ_SECONDS=60 cargo test --release -p coracle-fuzz-targets -- --nocapture`.

// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coracle_fuzz_targets::{TARGETS, Target};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Mutations of the seeds of a target, unless `FUZZ_SECONDS` says how long.
const MUTATIONS: usize = 2000;
/// The longest that the mutations of one target take, unless `FUZZ_SECONDS` says so.
const TIME: Duration = Duration::from_secs(4);
/// The longest that one input takes, beside other tests.
const TIME_OF_ONE: Duration = Duration::from_secs(5);
/// The memory that one input takes at most.
const MEMORY: usize = 64 << 20;
/// The longest input.
const LENGTH: usize = 64 << 10;

/// Splitmix64: small, and good enough to choose with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Pieces that have a meaning somewhere.
const PIECES: [&str; 36] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    "\n",
    "null",
    "true",
    "0",
    "-1",
    "9223372036854775808",
    "1e400",
    "0.1",
    "\u{0}",
    "\u{7f}",
    "\u{fffd}",
    "%2F",
    "%00",
    "&",
    "=",
    "!=",
    " in (",
    ")",
    "..",
    "~1",
    "/-",
    "$patch",
    "$retainKeys",
    "f:",
    "k:{}",
    ".",
    "\n%%\n",
    "*a",
];

/// Applies a few changes to a seed, with pieces of another.
fn mutated(seeds: &[(PathBuf, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let mut data = seeds[random.below(seeds.len())].1.clone();
    for _ in 0..=random.below(5) {
        let at = random.below(data.len() + 1);
        let end = (at + 1 + random.below(30)).min(data.len());
        match random.below(9) {
            0 if at < data.len() => data[at] ^= 1 << random.below(8),
            1 if at < data.len() => data[at] = random.next() as u8,
            2 => drop(data.splice(at..at, random.pick(&PIECES).bytes())),
            3 => drop(data.splice(at..end, random.pick(&PIECES).bytes())),
            4 => drop(data.drain(at..end)),
            5 => {
                let piece = data[at..end].to_vec();
                let times = 1 << random.below(8);
                drop(data.splice(at..at, piece.repeat(times)));
            }
            6 => {
                let other = &seeds[random.below(seeds.len())].1;
                let from = random.below(other.len() + 1);
                let to = (from + 1 + random.below(60)).min(other.len());
                drop(data.splice(at..end, other[from..to].iter().copied()));
            }
            7 => {
                let other = random.below(data.len() + 1);
                let piece = data[at..end].to_vec();
                drop(data.splice(other..other, piece));
            }
            8 if random.below(8) == 0 => data.truncate(at),
            _ => {}
        }
    }
    data.truncate(LENGTH);
    data
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    seeds.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs one input within its bounds. Whether it was valid.
fn run(target: Target, data: &[u8], origin: &str) -> bool {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let started = Instant::now();
    let outcome = catch_unwind(|| (target.run)(data));
    let (took, bytes) = (started.elapsed(), ALLOCATOR.peak_usage().saturating_sub(before));
    if let Ok(valid) = outcome
        && took <= TIME_OF_ONE
        && bytes <= MEMORY
    {
        return valid;
    }
    let file = std::env::temp_dir().join(format!("{}-{:08x}", target.name, crc32fast::hash(data)));
    fs::write(&file, data).unwrap();
    let (name, file, shown) = (target.name, file.display(), String::from_utf8_lossy(data));
    panic!("{name} fails for {origin} in {took:?} and {bytes} bytes; the input is in {file}:\n{shown}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs as one test, so that targets do not count each other's memory and time.
#[test]
fn properties_hold_for_seeds_and_mutations() {
    let only = std::env::var("FUZZ_TARGET").ok();
    for target in TARGETS.into_iter().filter(|target| only.as_deref().is_none_or(|only| only == target.name))
    {
        let seeds = corpus(target.name);
        // Work that is done once does not count for an input.
        (target.run)(b"");
        let mut valid = 0;
        for (path, data) in &seeds {
            (target.run)(data);
            valid += usize::from(run(target, data, &path.display().to_string()));
        }
        let (count, name) = (seeds.len(), target.name);
        assert!(valid > 0, "{name}: none of {count} seeds is valid");
        let mut random = Random(number("FUZZ_SEED").unwrap_or(7));
        let (mut runs, mut valid, started) = (0, 0, Instant::now());
        let seconds = number("FUZZ_SECONDS").map(Duration::from_secs);
        while started.elapsed() < seconds.unwrap_or(TIME) && (seconds.is_some() || runs < MUTATIONS) {
            let data = mutated(&seeds, &mut random);
            valid += usize::from(run(target, &data, "a mutation"));
            runs += 1;
        }
        println!(
            "{name}: {count} seeds, {runs} mutations in {:.1?}, {valid} of them valid",
            started.elapsed()
        );
        assert!(runs >= 20 && valid > 0, "{name}: {valid} valid ones of {runs} mutations test nothing");
    }
}

/// Checks that each target has a program that `cargo fuzz` runs.
#[test]
fn every_target_has_a_fuzz_program() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for Target { name, .. } in TARGETS {
        let path = format!("fuzz_targets/{name}.rs");
        let program = fs::read_to_string(fuzz.join(&path)).unwrap();
        assert!(program.contains(&format!("run(\"{name}\", data)")), "{path}");
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{path} is not in the manifest");
    }
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len(), "names are unique");
}
