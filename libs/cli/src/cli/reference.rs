//! The reference of flags, `docs/reference/flags.md`, and the expected help: both are made of the command line, and compared with it.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};
use coracle_control_plane::options::{AdmissionFlags, AuditFlags, Declared, ShutdownFlags, form::Form};
use coracle_control_plane::{Etcd, Options, ServiceAccountIssuer, range};

use super::Cli;
use crate::envtest::reference::{OWN, WITHOUT_EFFECT, help};

/// Compares a file of the repository with its expected text; with `REGENERATE` set it is written instead.
fn assert_file(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("REGENERATE").is_some() {
        std::fs::write(&file, text).expect("the file is written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let line = found.lines().zip(text.lines()).find(|(found, text)| found != text);
    assert!(found == text, "{path} is outdated: REGENERATE=1 cargo test -p coracle-cli. First {line:#?}");
}

fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

#[test]
fn the_help_is_as_expected() {
    let mut command = command();
    let mut text = format!("{}\n", command.render_help());
    for subcommand in command.get_subcommands_mut() {
        let help = subcommand.render_help();
        let _ = write!(text, "\n# {}\n\n{help}", subcommand.get_name());
    }
    for (program, help) in help() {
        let _ = write!(text, "\n# {program}\n\n{help}");
    }
    assert_file("libs/cli/src/cli/reference/help.txt", &text);
}

#[test]
fn the_reference_of_flags_is_up_to_date() {
    let mut text = "# Flags\n\nMade from the declarations in `libs/control_plane/src/options/mod.rs` by `REGENERATE=1 cargo test -p \
         coracle-cli`. A number outside of its\nrange is refused with exit code 2 and a line that names the flag, the value and \
         the range.\n"
        .to_owned();
    let command = command();
    let rows = |name: &str| -> Vec<String> {
        let subcommand = command.find_subcommand(name).expect("the subcommand exists");
        subcommand.get_arguments().filter(|arg| is_shown(arg)).map(row).collect()
    };
    for subcommand in command.get_subcommands() {
        let (title, rows) = match subcommand.get_name() {
            "serve" => ("`coracle serve`, `coracle run` and `coracle up`".to_owned(), rows("serve")),
            // It has those of `serve`.
            "run" => continue,
            "up" => {
                let of_serve = rows("serve");
                let others = rows("up").into_iter().filter(|row| !of_serve.contains(row)).collect();
                ("`coracle up`: flags with other defaults than `coracle serve`".to_owned(), others)
            }
            name => (format!("`coracle {name}`"), rows(name)),
        };
        if !rows.is_empty() {
            let _ = write!(text, "\n## {title}\n\n| flag | default | range | |\n| --- | --- | --- | --- |\n");
            text.extend(rows);
        }
    }
    text += "\n## `kube-apiserver` in envtest's place\n\nThese flags have kube-apiserver's meaning. An invalid value is an error, \
             with exit code 1.\n\n| flag | range | |\n| --- | --- | --- |\n";
    let mut rows: Vec<(&str, String, String)> = OWN
        .iter()
        .map(|(name, _, doc)| (*name, String::new(), doc.trim_end_matches('.').to_owned()))
        .collect();
    rows.extend(drop_in::<Options>().chain(drop_in::<ServiceAccountIssuer>()));
    rows.extend(drop_in::<AdmissionFlags>().chain(drop_in::<AuditFlags>()).chain(drop_in::<ShutdownFlags>()));
    rows.sort_unstable();
    for (name, range, doc) in rows {
        let _ = writeln!(text, "| `--{name}` | {range} | {doc} |");
    }
    text += "\nThese are accepted and have no effect:\n\n";
    let mut names: Vec<&str> =
        WITHOUT_EFFECT.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
    names.sort_unstable();
    for name in names {
        let dashes = if name.len() == 1 { "-" } else { "--" };
        let _ = writeln!(text, "- `{dashes}{name}`");
    }
    assert_file("docs/reference/flags.md", &text);
}

fn is_shown(arg: &Arg) -> bool {
    arg.get_long().is_some()
        && !arg.is_hide_set()
        && !matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong)
}

/// Returns the row of a flag. The default is at the end of its help, or known to clap.
fn row(arg: &Arg) -> String {
    let name = arg.get_long().unwrap_or_default();
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.map(|names| format!(" {}", names.join(" "))).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, default) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let known: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match default.strip_suffix(']') {
        Some(default) => default.to_owned(),
        None if arg.get_action().takes_values() => known.join(","),
        None => String::new(),
    };
    let words: Vec<_> =
        arg.get_possible_values().iter().map(|word| format!("`{}`", word.get_name())).collect();
    let words = if words.is_empty() || !arg.get_action().takes_values() {
        String::new()
    } else {
        format!(": {}", words.join(", "))
    };
    let default = match default.contains(['`', ' ']) || default.is_empty() {
        true => default,
        false => format!("`{default}`"),
    };
    let short = arg.get_short().map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    let range = range_of(name).unwrap_or_default();
    let variable = arg.get_env().map(|name| format!("; also by `{}`", name.to_string_lossy()));
    let variable = variable.unwrap_or_default();
    format!("| {short}`--{name}{value}` | {default} | {range} | {help}{words}{variable} |\n")
}

/// Returns the range of the flag of this name.
fn range_of(name: &str) -> Option<String> {
    fn find<T: Declared>(name: &str) -> Option<String> {
        (T::flags().find(|flag| flag.name == name)?.range)()
    }
    match name {
        "bump-revision" => Form::range(&range::BUMP_REVISION),
        _ => find::<Options>(name)
            .or_else(|| find::<Etcd>(name))
            .or_else(|| find::<AuditFlags>(name))
            .or_else(|| find::<ShutdownFlags>(name)),
    }
}

/// Iterates over the rows of the declared flags of the drop-in.
fn drop_in<T: Declared>() -> impl Iterator<Item = (&'static str, String, String)> {
    let flags = T::flags().filter(|flag| flag.usage.drop_in);
    flags.map(|flag| (flag.name, (flag.range)().unwrap_or_default(), flag.help()))
}
