//! The flags of the commands that use the endpoints for tests.

use clap::{Args, Subcommand};
use coracle_testing_api::{ClockMode, ClockRequest, SettleRequest};

/// The flags of `settle`.
#[derive(Debug, Args)]
pub struct SettleFlags {
    /// The time for which nothing may have been written, such as 50ms.
    #[arg(long = "for", value_name = "DURATION", default_value = "50ms")]
    quiet_for: String,
    /// The longest wait, up to 1h.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: String,
    /// A user agent, with `*` for any characters: a client of it must have made a request before. May be repeated.
    #[arg(long = "user-agent", value_name = "PATTERN")]
    user_agents: Vec<String>,
}

impl From<SettleFlags> for SettleRequest {
    fn from(SettleFlags { quiet_for, timeout, user_agents }: SettleFlags) -> SettleRequest {
        SettleRequest { quiet_for: Some(quiet_for), timeout: Some(timeout), user_agents }
    }
}

/// The ways to move a manual clock on.
#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Moves a manual clock on, from timer to timer, and waits at each until the control plane has settled.
    Advance {
        /// Such as 90s, 24h or 1h30m.
        #[arg(value_name = "DURATION", allow_hyphen_values = true)]
        by: String,
    },
    /// Moves a manual clock to the time of the next timer.
    Next {
        /// The number of times at which timers fire.
        #[arg(value_name = "N", default_value_t = 1)]
        count: u64,
    },
    /// Moves a manual clock to a time that is not earlier than its own.
    Set {
        /// Such as 2027-01-01T00:00:00Z.
        #[arg(value_name = "TIME", allow_hyphen_values = true)]
        to: String,
    },
    /// Lets a manual clock run by itself, from its time on.
    Resume,
}

impl From<ClockAction> for ClockRequest {
    fn from(action: ClockAction) -> ClockRequest {
        let nothing = ClockRequest::default();
        match action {
            ClockAction::Advance { by } => ClockRequest { advance: Some(by), ..nothing },
            ClockAction::Next { count } => ClockRequest { next: Some(count), ..nothing },
            ClockAction::Set { to } => ClockRequest { set: Some(to), ..nothing },
            ClockAction::Resume => ClockRequest { mode: Some(ClockMode::Real), ..nothing },
        }
    }
}
