//! Expressions that are compiled when they are first evaluated: compiling those of a large policy
//! takes long.

use std::sync::OnceLock;

use serde_json::Value;

use crate::Result;
use crate::background;

/// A part of a stored object, with the function that compiles it on first use.
pub struct Compiled<T> {
    source: Value,
    compile: fn(&Value) -> T,
    compiled: OnceLock<T>,
}

impl<T: Send + Sync> Compiled<T> {
    /// Creates a part of an object that is not compiled yet.
    ///
    /// - `source`: the part of the object.
    pub fn new(source: &Value, compile: fn(&Value) -> T) -> Compiled<T> {
        Compiled { source: source.clone(), compile, compiled: OnceLock::new() }
    }

    /// Returns the part of the object.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Returns the compiled expressions. The first call compiles them in the background, because
    /// that takes long.
    ///
    /// # Errors
    /// 429 if no background seat is free in time.
    pub async fn get(&self) -> Result<&T> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        background::evaluate(|meter| {
            if meter.count_compilation().is_ok() {
                self.compiled.get_or_init(|| (self.compile)(&self.source));
            }
        })
        .await?;
        // Already initialized above; compiles here only if the meter's time limit had passed.
        Ok(self.compiled.get_or_init(|| (self.compile)(&self.source)))
    }
}
