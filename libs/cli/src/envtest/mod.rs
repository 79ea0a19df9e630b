//! Coracle in the place of envtest's binaries: a folder of links ([`assets`]), and the programs
//! that they stand for, which are chosen by the name that Coracle is called by.

mod apiserver;
mod apiserver_flags;
pub mod assets;
mod environment;
mod etcd;
mod flags;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use coracle_control_plane::Kinds;

use flags::{FlagSet, Request, Values};

use crate::cli::{Log, LogFormat};
use crate::output;
use crate::process::run_to_end;

/// A program of envtest whose place Coracle takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `kube-apiserver`
    ApiServer,
    /// `etcd`
    Etcd,
}

impl Program {
    /// Returns the program that the first argument of a command line names; None for Coracle
    /// itself.
    pub fn of(called_by: &OsStr) -> Option<Program> {
        match Path::new(called_by).file_name()?.to_str()? {
            apiserver::NAME => Some(Program::ApiServer),
            etcd::NAME => Some(Program::Etcd),
            _ => None,
        }
    }

    /// Runs the program to its end with these arguments.
    pub fn run(self, arguments: impl Iterator<Item = OsString>, kinds: Kinds) -> ExitCode {
        let (flags, version) = match self {
            Program::ApiServer => (apiserver_flags::flags(), apiserver::VERSION),
            Program::Etcd => (etcd::FLAGS, etcd::VERSION),
        };
        // An argument that is no Unicode becomes one that no flag and no file has.
        let arguments: Vec<String> =
            arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
        match flags.parse(arguments.iter().map(String::as_str)) {
            Ok(Request::Help) => print(&flags.help()),
            Ok(Request::Version) => print(version),
            Ok(Request::Run(values)) => self.run_with(&flags, &values, kinds),
            Err(error) => report_failure(&error),
        }
    }

    fn run_with(self, flags: &FlagSet, values: &Values, kinds: Kinds) -> ExitCode {
        let without_effect: Vec<&str> = flags.without_effect(values).collect();
        let log = Log { log_format: LogFormat::Text, verbose: 1 };
        let report = move || {
            if !without_effect.is_empty() {
                tracing::info!(flags = without_effect.join(" "), "flags without effect");
            }
        };
        let outcome = match self {
            Program::ApiServer => match apiserver::Server::new(values) {
                Ok(server) => run_to_end(log, async {
                    report();
                    server.run(kinds).await
                }),
                Err(line) => Err(line),
            },
            Program::Etcd => match etcd::Etcd::new(values) {
                Ok(etcd) => run_to_end(log, async {
                    report();
                    etcd.run().await
                }),
                Err(line) => Err(line),
            },
        };
        outcome.unwrap_or_else(|line| report_failure(&line))
    }
}

fn print(text: &str) -> ExitCode {
    output::write(text);
    ExitCode::SUCCESS
}

/// Prints a failure as one line, as the real programs do.
fn report_failure(line: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("Error: {line}");
    ExitCode::FAILURE
}

/// The parts of the reference of flags.
#[cfg(test)]
pub(crate) mod reference {
    pub use super::apiserver_flags::{OWN, WITHOUT_EFFECT};
    use super::{apiserver, apiserver_flags, etcd};

    /// Returns the help of the programs.
    pub fn help() -> [(&'static str, String); 2] {
        [(apiserver::NAME, apiserver_flags::flags().help()), (etcd::NAME, etcd::FLAGS.help())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::tests::assert_range;

    #[test]
    fn every_number_of_the_programs_has_a_range() {
        let values = |flags: &FlagSet, argument: &str| match flags.parse([argument]) {
            Ok(Request::Run(values)) => Some(values),
            _ => None,
        };
        let is_valid = |program: Program, argument: &str| match program {
            Program::ApiServer => values(&apiserver_flags::flags(), argument)
                .is_some_and(|values| apiserver::Server::new(&values).is_ok()),
            Program::Etcd => {
                values(&etcd::FLAGS, argument).is_some_and(|values| etcd::Etcd::new(&values).is_ok())
            }
        };
        let mut found = Vec::new();
        for (program, flags) in
            [(Program::ApiServer, &apiserver_flags::flags()), (Program::Etcd, &etcd::FLAGS)]
        {
            for flag in flags.flags.iter().filter(|flag| flag.is_used && flag.kind != flags::Kind::Bool) {
                let accepts = |value: &str| is_valid(program, &format!("--{}={value}", flag.name));
                if assert_range(flag.name, None, accepts) {
                    found.push(flag.name);
                }
            }
        }
        let want = [
            "audit-log-maxage",
            "audit-log-maxbackup",
            "audit-log-maxsize",
            "event-ttl",
            "goaway-chance",
            "secure-port",
            "shutdown-delay-duration",
            "listen-client-urls",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn a_program_is_chosen_by_the_name_it_is_called_by() {
        for (called_by, want) in [
            ("/a/kube-apiserver", Some(Program::ApiServer)),
            ("etcd", Some(Program::Etcd)),
            ("./coracle", None),
            ("/etcd/coracle", None),
            ("kube-apiserver-old", None),
            ("", None),
        ] {
            assert_eq!(Program::of(OsStr::new(called_by)), want, "{called_by}");
        }
    }
}
