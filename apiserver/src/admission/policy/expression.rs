//! A compiled expression of a policy or webhook.

use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::Program;
use serde_json::Value;

/// An expression and its compiled program; a compile error is reported at evaluation.
pub struct Expression {
    /// The source text.
    pub text: String,
    pub program: Result<Program, String>,
}

impl Expression {
    pub fn read(text: &Value, env: &PolicyEnv) -> Option<Expression> {
        let text = text.as_str().filter(|text| !text.trim().is_empty())?;
        Some(Expression { text: text.to_owned(), program: env.compile(text, &[]) })
    }
}
