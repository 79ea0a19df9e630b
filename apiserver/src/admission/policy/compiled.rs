//! Expressions that are compiled when they are first evaluated: compiling those of a large policy takes long.

use std::sync::OnceLock;

use serde_json::Value;

use crate::Result;
use crate::background;

/// The compilation of a part of a stored object.
pub struct Compiled<T> {
    source: Value,
    compile: fn(&Value) -> T,
    compiled: OnceLock<T>,
}

impl<T: Send + Sync> Compiled<T> {
    /// - `source`: the part of the object.
    pub fn new(source: &Value, compile: fn(&Value) -> T) -> Compiled<T> {
        Compiled { source: source.clone(), compile, compiled: OnceLock::new() }
    }

    /// The part of the object.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// The expressions, compiled in the background if nobody has compiled them before.
    ///
    /// # Errors
    /// 429 if there is no turn in time.
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
        Ok(self.compiled.get_or_init(|| (self.compile)(&self.source)))
    }
}
