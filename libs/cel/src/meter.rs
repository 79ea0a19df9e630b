//! The work of evaluations: how many values they visit, how many bytes they make, how long they
//! take.
//!
//! Costs are upstream's, and decide what is accepted. They bound neither time nor memory: a
//! comparison costs by the length of the outer list alone, and `format` nothing for the text that
//! it makes. A [`Meter`] counts what is really done, and ends an evaluation that does more than
//! expressions within their cost limits do.
#![expect(clippy::disallowed_methods, reason = "a bound of the time that an expression may take")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::EvalError;
use crate::value::Value;

/// Bytes of text that are read or compared as fast as one value is visited.
const BYTES_OF_STEP: usize = 64;
/// Steps between two looks at the clock.
const STEPS_OF_LOOK: u64 = 4096;
/// Nested evaluation: of nodes within nodes, and of variables that are expressions themselves.
const MAX_EVALUATION_DEPTH: usize = 260;
/// Nesting of the values that expressions make. Comparing, printing and dropping them recurses.
pub(crate) const MAX_VALUE_DEPTH: u32 = 250;

/// The work that evaluations may do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Evaluated nodes, and values that are visited, copied or compared.
    pub steps: u64,
    /// Bytes of all values that are made, whether or not they are dropped meanwhile.
    pub bytes: u64,
    /// Time from the creation of the meter.
    pub time: Duration,
}

impl Limits {
    /// The limits of a request: several times the work of the most expensive evaluation within
    /// upstream's cost limits.
    pub const REQUEST: Limits = Limits { steps: 50_000_000, bytes: 16 << 20, time: Duration::from_secs(10) };
    /// The limits of an evaluation that keeps others waiting. Nearly all expressions in use stay
    /// within a quarter of them.
    pub const BRIEF: Limits = Limits { steps: 20_000, bytes: 256 << 10, time: Duration::from_millis(2) };
}

/// Counts the work of evaluations, and ends the one that exceeds the limits. Every later one ends
/// at once.
#[derive(Debug)]
pub struct Meter {
    steps: Cell<u64>,
    /// Steps left at the next look at the clock.
    next_look: Cell<u64>,
    bytes: Cell<u64>,
    depth: Cell<usize>,
    deadline: Instant,
    exceeded: Cell<Option<&'static str>>,
}

impl Meter {
    /// Creates a meter that has counted nothing yet.
    pub fn new(limits: Limits) -> Meter {
        let now = Instant::now();
        Meter {
            steps: Cell::new(limits.steps),
            next_look: Cell::new(limits.steps.saturating_sub(STEPS_OF_LOOK)),
            bytes: Cell::new(limits.bytes),
            depth: Cell::new(0),
            // Beyond what the clock counts there is no deadline to meet.
            deadline: now.checked_add(limits.time).unwrap_or(now + Duration::from_secs(1 << 30)),
            exceeded: Cell::new(None),
        }
    }

    /// Returns `true` if a limit was exceeded.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.get().is_some()
    }

    /// Counts the compilation of what is evaluated, which takes longer than a brief evaluation may.
    ///
    /// # Errors
    /// [`EvalError::WorkLimit`] if the limits are brief.
    pub fn count_compilation(&self) -> Result<(), EvalError> {
        self.visit(Limits::BRIEF.steps + 1)
    }

    /// Counts steps of the caller's own.
    ///
    /// # Errors
    /// [`EvalError::WorkLimit`] if there are too many.
    pub fn count(&self, steps: u64) -> Result<(), EvalError> {
        self.visit(steps)
    }

    fn exceed<T>(&self, limit: &'static str) -> Result<T, EvalError> {
        // The limit that was exceeded first is reported.
        let limit = self.exceeded.get().unwrap_or(limit);
        self.exceeded.set(Some(limit));
        self.steps.set(0);
        Err(EvalError::WorkLimit(limit))
    }

    /// Counts steps.
    pub(crate) fn visit(&self, steps: u64) -> Result<(), EvalError> {
        let Some(left) = self.steps.get().checked_sub(steps) else { return self.exceed("work") };
        self.steps.set(left);
        if left > self.next_look.get() {
            return Ok(());
        }
        if self.exceeded.get().is_some() {
            return self.exceed("work");
        }
        self.next_look.set(left.saturating_sub(STEPS_OF_LOOK));
        if Instant::now() > self.deadline { self.exceed("time") } else { Ok(()) }
    }

    /// Counts the reading of text or bytes.
    pub(crate) fn read(&self, bytes: usize) -> Result<(), EvalError> {
        if bytes < BYTES_OF_STEP { Ok(()) } else { self.visit((bytes / BYTES_OF_STEP) as u64) }
    }

    /// Counts bytes that are about to be made.
    pub(crate) fn make(&self, bytes: usize) -> Result<(), EvalError> {
        let Some(left) = self.bytes.get().checked_sub(bytes as u64) else { return self.exceed("memory") };
        self.bytes.set(left);
        self.read(bytes)
    }

    /// Counts a text or bytes that are made, before they become a value.
    pub(crate) fn text<'a>(&self, text: String) -> Result<Value<'a>, EvalError> {
        self.make(text.len())?;
        Ok(Value::text(text))
    }

    /// Counts the items of a list that is made.
    pub(crate) fn list<'a>(&self, items: Vec<Value<'a>>) -> Result<Value<'a>, EvalError> {
        self.make_items(items.len())?;
        Ok(Value::list(items))
    }

    /// Counts items of lists or entries of maps that are about to be made.
    pub(crate) fn make_items(&self, items: usize) -> Result<(), EvalError> {
        self.visit(items as u64)?;
        self.make(items.saturating_mul(size_of::<Value<'_>>()))
    }

    /// Fails for a value that is nested too deep.
    pub(crate) fn check_depth(&self, value: &Value<'_>) -> Result<(), EvalError> {
        if value.depth() > MAX_VALUE_DEPTH { self.exceed("nesting") } else { Ok(()) }
    }

    /// Runs a nested evaluation.
    pub(crate) fn nested<T>(&self, evaluate: impl FnOnce() -> Result<T, EvalError>) -> Result<T, EvalError> {
        self.visit(1)?;
        if self.depth.get() >= MAX_EVALUATION_DEPTH {
            return self.exceed("nesting");
        }
        self.depth.set(self.depth.get() + 1);
        let evaluated = evaluate();
        self.depth.set(self.depth.get() - 1);
        evaluated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends more than a limit.
    type Spend = fn(&Meter) -> Result<(), EvalError>;

    const LIMITS: Limits = Limits { steps: 100_000, bytes: 1000, time: Duration::from_secs(600) };

    #[test]
    fn each_limit_ends_the_work_for_good() {
        let late = Limits { time: Duration::ZERO, ..LIMITS };
        let spend: [(&str, Limits, Spend); 3] = [
            ("work", LIMITS, |meter| meter.visit(100_001)),
            ("memory", LIMITS, |meter| meter.make(1001)),
            ("time", late, |meter| {
                std::thread::sleep(Duration::from_millis(1));
                meter.visit(STEPS_OF_LOOK)
            }),
        ];
        for (limit, limits, spend) in spend {
            let meter = Meter::new(limits);
            assert_eq!(meter.visit(1), Ok(()), "{limit}");
            assert_eq!(spend(&meter), Err(EvalError::WorkLimit(limit)));
            assert!(meter.is_exceeded());
            assert_eq!(meter.visit(1), Err(EvalError::WorkLimit(limit)), "and again");
            assert_eq!(meter.visit(0), Err(EvalError::WorkLimit(limit)), "and again");
        }
    }

    #[test]
    fn small_texts_are_free_and_large_ones_count() {
        let meter = Meter::new(LIMITS);
        assert_eq!((meter.read(63), meter.steps.get()), (Ok(()), 100_000));
        assert_eq!((meter.read(6400), meter.steps.get()), (Ok(()), 99_900));
    }
}
