//! The bound of the work of a search.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use crate::error::AllocationError;

/// The number of steps that searches may still do: each device that is considered is one, each of
/// its amounts, taints and values that is compared, and each unit of the cost of an expression.
///
/// Slices and claims are written by clients, and the time of a search can grow exponentially with
/// them. kube-scheduler stops a search after ten seconds; steps give the same result on each
/// machine.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
    /// The expressions that were charged.
    compiled: RefCell<HashSet<String>>,
}

impl Budget {
    /// Creates a budget of this number of steps.
    pub fn new(steps: u64) -> Budget {
        Budget { left: Cell::new(steps), compiled: RefCell::default() }
    }

    /// Returns the number of steps that are left.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes the steps of the compilation of an expression, once for each. They do not depend on
    /// whether it is compiled already, as results would then depend on it.
    pub(crate) fn spend_once(&self, expression: &str, steps: u64) -> Result<(), AllocationError> {
        if self.compiled.borrow().contains(expression) {
            return Ok(());
        }
        self.compiled.borrow_mut().insert(expression.to_owned());
        self.spend(steps)
    }

    /// Takes steps from the budget. Once it is exceeded, nothing is left.
    pub(crate) fn spend(&self, steps: u64) -> Result<(), AllocationError> {
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or(AllocationError::OutOfSteps)
    }
}
