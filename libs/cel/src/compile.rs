//! Compilation: from the text of an expression to its program.

use crate::checker::Checker;
use crate::cost::{self, Range};
use crate::env::Env;
use crate::names;
use crate::parser;
use crate::planner;
use crate::program::{CompileError, Program};
use crate::source::Issues;

impl Env {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// The errors in it, in the words of cel-go.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let (mut expr, nodes) = parser::parse(text, self.binds()).map_err(CompileError::Issues)?;
        names::resolve(&mut expr, self);
        let mut checker = Checker::new(self, nodes);
        checker.check(&expr);
        let (output, types, calls, issues) = checker.finish(&expr);
        if !issues.is_empty() {
            return Err(CompileError::Issues(Issues::new(text, issues)));
        }
        let cost = self.root().map_or(Range::default(), |root| cost::estimate(&expr, &types, &calls, root));
        let plan = planner::plan(&expr, &calls).map_err(CompileError::Program)?;
        Ok(Program::new(&expr, plan, output, cost))
    }
}
