use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

use crate::cli::{self, Cli};

/// The forms in which a value may have a number: `N` stands for it.
const FORMS: [&str; 6] = ["N", "Ns", "interval=N", "127.0.0.1:N", "http://h:N", "a/b=https://h:N"];

/// Numbers that make no sense anywhere.
const ABSURD: [&str; 9] = [
    "-1",
    "-9223372036854775808",
    "1e30",
    "NaN",
    "inf",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999",
];

/// Returns `true` if a flag takes a number: it accepts one in some form, and no other text in its
/// place. Asserts that such a flag refuses all absurd numbers.
///
/// - `accepts`: returns `true` if the program accepts the flag with this value
/// - `allows_zero`: whether 0 has a meaning; `None` if that is not checked
pub(crate) fn assert_range(flag: &str, allows_zero: Option<bool>, accepts: impl Fn(&str) -> bool) -> bool {
    let mut is_number = false;
    for form in FORMS {
        let with = |number: &str| form.replace('N', number);
        let accepts = |number: &str| accepts(&with(number));
        if !(accepts("1") || accepts("0")) || accepts("x") {
            continue;
        }
        is_number = true;
        for absurd in ABSURD {
            assert!(!accepts(absurd), "{flag} accepts {:?}", with(absurd));
        }
        if let Some(allows_zero) = allows_zero {
            assert_eq!(accepts("0"), allows_zero, "{flag}={}", with("0"));
        }
    }
    is_number
}

/// Returns `true` if a value is accepted. Other required flags may be missing.
fn accepts(subcommand: &str, long: &str, value: &str) -> bool {
    let mut line = vec!["coracle".to_owned(), subcommand.to_owned(), format!("--{long}={value}")];
    // Without a cluster its flags are refused together.
    if long.starts_with("etcd-") && long != "etcd-servers" {
        line.push("--etcd-servers=http://a:1".to_owned());
    }
    match Cli::try_parse_from(line).map(|cli| cli.command) {
        Ok(cli::Command::Serve { serve, .. } | cli::Command::Run { serve, .. }) => serve.options().is_ok(),
        Ok(cli::Command::Restore { etcd, .. }) => etcd.options().is_ok(),
        Ok(_) => true,
        // It is reported after all values are known to be valid.
        Err(error) => error.kind() == ErrorKind::MissingRequiredArgument,
    }
}

/// Iterates over the flags that take a value.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        arg.get_long().is_some() && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
    })
}

#[test]
fn every_number_on_the_command_line_has_a_range() {
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    for subcommand in command.get_subcommands() {
        for arg in flags(subcommand) {
            let (name, long) = (subcommand.get_name(), arg.get_long().unwrap());
            let flag = format!("{name} --{long}");
            // The help says what 0 means, if it is allowed.
            let help = arg.get_help().unwrap_or_default().to_string();
            let mentions_zero = help.split(|c: char| !c.is_alphanumeric()).any(|word| word == "0");
            if assert_range(&flag, Some(mentions_zero), |value| accepts(name, long, value)) {
                found.push(flag);
            }
        }
    }
    for known in [
        "serve --nodes",
        "run --nodes",
        "serve --event-ttl",
        "serve --max-store-bytes",
        "serve --durability",
        "serve --listen",
        "serve --goaway-chance",
        "serve --shutdown-delay-duration",
        "serve --etcd-servers",
        "serve --etcd-compaction-interval",
        "serve --audit-log-maxage",
        "serve --audit-log-maxbackup",
        "serve --audit-log-maxsize",
        "serve --webhook-service-url",
        "serve --horizontal-pod-autoscaler-sync-period",
        "controllers --horizontal-pod-autoscaler-sync-period",
        "restore --bump-revision",
        "restore --etcd-compaction-interval",
    ] {
        assert!(found.iter().any(|name| name == known), "{known} is not among {found:?}");
    }
}

#[test]
fn errors_name_the_flag_the_value_and_the_range() {
    for (line, want) in [
        (
            "serve --nodes=5000000",
            "invalid value '5000000' for '--nodes <N>': it must be 0, or a whole number from 1 to 5000",
        ),
        (
            "run --event-ttl=2562047h -- true",
            "invalid value '2562047h' for '--event-ttl <DURATION>': it must be 0, or a duration from 1s to 87600h0m0s",
        ),
        (
            "controllers --kubeconfig=a --horizontal-pod-autoscaler-sync-period=0",
            "invalid value '0' for '--horizontal-pod-autoscaler-sync-period <DURATION>': it must be a duration from 1s to 24h0m0s",
        ),
        (
            "serve --durability=interval=70000",
            "invalid value 'interval=70000' for '--durability <WHEN>': MS: it must be 0, or a whole number from 1 to 60000",
        ),
        (
            "serve --audit-log-maxsize=-1",
            "invalid value '-1' for '--audit-log-maxsize <MB>': it must be 0, or a whole number from 1 to 1048576",
        ),
    ] {
        let arguments = ["coracle"].into_iter().chain(line.split_whitespace());
        let error = Cli::try_parse_from(arguments).expect_err(line);
        assert_eq!(crate::process::one_line(&error), want);
    }
}
