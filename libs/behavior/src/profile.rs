//! The profile of a simulation.

use std::fmt::{self, Display};
use std::str::FromStr;

/// The behavior of simulated pods that nothing else is said about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Containers do what their commands say plainly, and those that are not restarted end.
    #[default]
    Realistic,
    /// Containers run until they are stopped.
    Inert,
}

impl Profile {
    /// The names of all profiles.
    pub const NAMES: &'static [&'static str] = &["realistic", "inert"];
}

impl Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Realistic => "realistic",
            Profile::Inert => "inert",
        })
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        match text {
            "realistic" => Ok(Profile::Realistic),
            "inert" => Ok(Profile::Inert),
            _ => Err(format!("one of {} is expected", Profile::NAMES.join(", "))),
        }
    }
}
