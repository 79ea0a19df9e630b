//! Regular expressions: compiled within a size, kept, and matched in linear time.
//!
//! Linear in the text, times the states of the pattern: both are counted before a match.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_pattern::PatternError;
use parking_lot::Mutex;
use regex::Regex;

use super::failure::{Result, error};
use crate::meter::Meter;

/// The sizes of a compiled regular expression, in bytes. The least one that suffices says about how
/// many states it has.
const SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];
/// Steps of a compilation, by the size that suffices.
const STEPS_OF_COMPILATION: u64 = 50_000;
/// Steps for a byte that is matched, of a regular expression of the least size.
const STEPS_OF_BYTE: u64 = 8;
/// The most compiled regular expressions that are kept: 64 MiB at worst.
const MAX_KEPT: usize = 64;

/// A compiled regular expression.
pub struct Compiled {
    regex: Regex,
    /// The size of the program as a multiple of the least size.
    factor: u64,
}

impl Compiled {
    /// Returns the regular expression to match a text with, and counts the match.
    pub fn for_text(&self, text: &str, meter: &Meter) -> Result<&Regex> {
        meter.visit((text.len() as u64).saturating_mul(STEPS_OF_BYTE * self.factor))?;
        Ok(&self.regex)
    }
}

static KEPT: Mutex<BTreeMap<String, Arc<Compiled>>> = Mutex::new(BTreeMap::new());

/// Compiles a regular expression. The most recent ones are cached.
pub fn compiled(pattern: &str, meter: &Meter) -> Result<Arc<Compiled>> {
    let kept = KEPT.lock().get(pattern).cloned();
    if let Some(compiled) = kept {
        return Ok(compiled);
    }
    meter.visit(STEPS_OF_COMPILATION)?;
    // Others may use those that are kept meanwhile.
    let compiled = match compile(pattern) {
        Ok(compiled) => Arc::new(compiled),
        Err(wrong) => return error(wrong.to_string()),
    };
    let mut kept = KEPT.lock();
    if kept.len() >= MAX_KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), compiled.clone());
    Ok(compiled)
}

fn compile(pattern: &str) -> std::result::Result<Compiled, PatternError> {
    for size in SIZES {
        match coracle_pattern::compile_within(pattern, size) {
            Err(PatternError::TooLarge) => {}
            compiled => return compiled.map(|regex| Compiled { regex, factor: (size / SIZES[0]) as u64 }),
        }
    }
    Err(PatternError::TooLarge)
}

/// Returns `true` if a text is a valid pattern. It is not compiled, since that takes long and an
/// expression may have thousands of patterns.
pub fn is_pattern(pattern: &str) -> bool {
    coracle_pattern::parse(pattern).is_ok()
}

/// Fails for an invalid pattern, with Go's text.
pub fn check_pattern(pattern: &str) -> std::result::Result<(), String> {
    coracle_pattern::parse(pattern).map(|_| ()).map_err(|error| error.to_string())
}
