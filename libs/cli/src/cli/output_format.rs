//! The format in which a command prints its result.

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

/// The format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
}

impl OutputFormat {
    /// Formats a result.
    ///
    /// - `text`: formats it as text, with the end of its last line
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn format<T: Serialize>(self, result: &T, text: impl FnOnce(&T) -> String) -> Result<String> {
        match self {
            OutputFormat::Text => Ok(text(result)),
            OutputFormat::Json => {
                serde_json::to_string_pretty(result).map(|json| json + "\n").context("the result")
            }
        }
    }
}
