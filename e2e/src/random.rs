//! Random numbers for tests, repeatable by their seed.

use std::env;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A random number generator (xorshift) with a seed.
pub struct Rng(pub u64);

impl Rng {
    /// Returns a number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap_or_default()
    }

    /// Returns `true` with probability `1/bound`.
    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// Runs `run` repeatedly, each time with the next seed, for five seconds or `HUNT_SECONDS`. `run`
/// gets the time at which these are over. The error names the seed; `HUNT_SEED` starts with it.
///
/// # Errors
/// The error of the first run that fails.
pub async fn run_seeds(description: impl Debug, run: impl AsyncFn(Rng, Instant) -> Result<()>) -> Result<()> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = Duration::from_secs(number("HUNT_SECONDS").unwrap_or(5));
    let first = number("HUNT_SEED").unwrap_or(1);
    let began = Instant::now();
    let mut runs = 0;
    while runs == 0 || began.elapsed() < seconds {
        let seed = first + runs;
        let rng = Rng(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        run(rng, began + seconds).await.with_context(|| format!("HUNT_SEED={seed}, {description:?}"))?;
        runs += 1;
    }
    println!("{description:?}: {runs} runs in {:?}", began.elapsed());
    Ok(())
}
