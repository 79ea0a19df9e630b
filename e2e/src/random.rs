//! Rng, for tests that do random things.

use std::env;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A rng that a failing run can be repeated with: xorshift from a seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or_default()
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// One hunt after the other, each with chances of its own, for a few seconds, or for as many as `HUNT_SECONDS` says; a hunt is told when
/// that is over. One that finds something tells its seed; `HUNT_SEED` begins with it.
///
/// # Errors
/// What a hunt found.
pub async fn run_seeds(what: impl Debug, hunt: impl AsyncFn(Rng, Instant) -> Result<()>) -> Result<()> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = Duration::from_secs(number("HUNT_SECONDS").unwrap_or(5));
    let first = number("HUNT_SEED").unwrap_or(1);
    let began = Instant::now();
    let mut hunted = 0;
    while hunted == 0 || began.elapsed() < seconds {
        let seed = first + hunted;
        let rng = Rng(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        hunt(rng, began + seconds).await.with_context(|| format!("HUNT_SEED={seed}, {what:?}"))?;
        hunted += 1;
    }
    println!("{what:?}: {hunted} hunts in {:?}", began.elapsed());
    Ok(())
}
