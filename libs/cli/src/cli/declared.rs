//! Declared options as arguments of clap.

use std::ffi::OsString;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use coracle_control_plane::options::{Declared, Flag, Values};

/// A struct of options whose flags are arguments of a command.
#[derive(Debug)]
pub struct Flags<T>(pub T);

impl<T: Declared> Args for Flags<T> {
    fn augment_args(command: Command) -> Command {
        command.args(T::flags().filter(|flag| flag.usage.serve).map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::<T>::augment_args(command)
    }
}

impl<T: Declared> FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags<T>, clap::Error> {
        let mut flags = Flags(T::default());
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in T::flags().filter(|flag| is_given(flag, matches)) {
            let values = match flag.values {
                Values::Switch => vec![OsString::from("true")],
                _ => matches.get_many(flag.name).unwrap_or_default().cloned().collect(),
            };
            (flag.set)(&mut self.0, &values)
                .map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))?;
        }
        Ok(())
    }
}

/// Returns `true` if the command has the flag, and its value is from the command line or the
/// environment.
pub fn is_given<T>(flag: &Flag<T>, matches: &ArgMatches) -> bool {
    let is_switch = flag.values == Values::Switch;
    matches.try_contains_id(flag.name).unwrap_or(false) && (!is_switch || matches.get_flag(flag.name))
}

/// Builds the argument of a flag.
pub fn argument<T: Declared>(flag: &'static Flag<T>) -> Arg {
    let help = flag.help();
    let help = match flag.default() {
        // clap would write it so too; the parser needs none.
        Some(default) => format!("{help} [default: {default}]"),
        None => help,
    };
    let argument = Arg::new(flag.name).long(flag.name).help(help);
    let argument = match flag.usage.environment {
        // Files of variables leave out a value by an empty one.
        Some(variable) if std::env::var_os(variable).is_some_and(|value| value.is_empty()) => argument,
        Some(variable) => argument.env(variable).hide_env_values(true),
        None => argument,
    };
    let argument = match flag.usage.needs {
        Some(other) => argument.requires(other),
        None => argument,
    };
    let check = move |text: &str| {
        let value = OsString::from(text);
        (flag.check)(std::slice::from_ref(&value)).map(|()| value)
    };
    let one = |parser: ValueParser| {
        let one = argument.clone().value_name(flag.value_name).action(ArgAction::Set).value_parser(parser);
        // `flag.check` reports negative numbers.
        one.allow_negative_numbers(true)
    };
    match flag.values {
        Values::Switch => argument.action(ArgAction::SetTrue),
        Values::Number { signed } => one(check.into()).allow_hyphen_values(signed),
        Values::Text => one(check.into()),
        Values::File => one(PathBufValueParser::new().map(OsString::from).into()),
        Values::Choice(words) => one(PossibleValuesParser::new(words).map(OsString::from).into()),
        Values::Each => one(check.into()).action(ArgAction::Append),
        Values::List { hyphens } => {
            one(check.into()).action(ArgAction::Append).value_delimiter(',').allow_hyphen_values(hyphens)
        }
    }
}

/// Builds the argument of the option of this name; None if there is none.
pub fn find<T: Declared>(name: &str) -> Option<Arg> {
    T::flags().find(|flag| flag.name == name).map(argument)
}
