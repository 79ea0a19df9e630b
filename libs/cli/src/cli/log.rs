//! The flags of the log.

use clap::{ArgAction, Args, ValueEnum};

/// The log of the process.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Log {
    /// The format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Log more; may be repeated.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}
