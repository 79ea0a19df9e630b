//! The command lines of kube-apiserver and etcd: which flags there are, and how their arguments are
//! read.
//!
//! Source: the conventions of Go's `pflag` and `flag` packages. Tools and people know their
//! messages.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean of one word; needs no value to be true.
    Bool,
    /// A whole number.
    Int,
    /// Any text; the last one counts.
    Text,
    /// Elements separated by commas; repetitions add to it.
    List,
}

impl Kind {
    /// Returns Go's word for the type.
    fn name(self) -> &'static str {
        match self {
            Kind::Bool => "",
            Kind::Int => "int",
            Kind::Text => "string",
            Kind::List => "strings",
        }
    }
}

/// A flag of a program.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Whether the flag has an effect. All other flags are accepted, and reported once.
    pub is_used: bool,
}

/// The Go package whose rules apply to a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// kube-apiserver's: long names have two dashes.
    Pflag,
    /// etcd's: one dash or two.
    Flag,
}

/// An error about a command line, with the message of Go's packages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// No such flag of one letter.
    #[error("unknown shorthand flag: {letter:?} in {argument}")]
    UnknownShorthand {
        /// The letter.
        letter: char,
        /// The whole argument.
        argument: String,
    },
    /// No such flag, as Go's `flag` package reports it.
    #[error("flag provided but not defined: -{0}")]
    Undefined(String),
    /// The value is missing.
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    /// The value is of another type.
    #[error("invalid argument {value:?} for \"--{name}\" flag: {why}")]
    Invalid {
        /// The flag.
        name: String,
        /// The value.
        value: String,
        /// The reason.
        why: String,
    },
    /// A name that no flag can have.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// An argument that is not a flag.
    #[error("{program:?} does not take any arguments, got {argument:?}")]
    Argument {
        /// The program.
        program: &'static str,
        /// The argument.
        argument: String,
    },
}

/// The request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The list of flags.
    Help,
    /// The version.
    Version,
    /// To run with these values.
    Run(Values),
}

/// The values of the flags that were given, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<&'static str, Vec<String>>);

impl Values {
    /// Returns the last value of a flag; None for an empty one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the last value of a flag of [`Kind::Bool`].
    pub fn boolean(&self, name: &str) -> Option<bool> {
        // Its value was checked: each that is true has this beginning.
        self.text(name).map(|value| value.starts_with(['1', 't', 'T']))
    }

    /// Returns the elements of a list.
    pub fn list(&self, name: &str) -> Vec<String> {
        let values = self.0.get(name).into_iter().flatten().flat_map(|value| value.split(','));
        values.filter(|element| !element.is_empty()).map(str::to_owned).collect()
    }

    /// Iterates over the values of a repeated flag.
    pub fn each(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns `true` if a flag was given, even if its value is empty.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Iterates over the names of the given flags.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

/// The flags of one program.
pub struct FlagSet {
    /// The program's name.
    pub program: &'static str,
    /// The dialect of its command line.
    pub dialect: Dialect,
    /// Its flags.
    pub flags: &'static [Flag],
}

impl FlagSet {
    /// Reads a command line, without the program's name. Empty arguments count as absent.
    ///
    /// # Errors
    /// The first argument that is wrong.
    pub fn parse<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Request, FlagError> {
        let mut values = Values::default();
        let mut arguments = arguments.into_iter();
        let mut rest: Option<String> = None;
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                rest = rest.or_else(|| arguments.by_ref().find(|rest| !rest.is_empty()).map(str::to_owned));
                break;
            }
            let Some(word) = self.word(argument)? else {
                rest = rest.or_else(|| Some(argument.to_owned()).filter(|argument| !argument.is_empty()));
                continue;
            };
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            match name {
                "help" | "h" => return Ok(Request::Help),
                "version" if value != Some("false") => return Ok(Request::Version),
                "version" => continue,
                _ => {}
            }
            let Some(flag) = self.flags.iter().find(|flag| flag.name == name) else {
                return Err(self.unknown(name, argument));
            };
            let value = match (value, flag.kind) {
                (Some(value), _) => value,
                (None, Kind::Bool) => "true",
                (None, _) => arguments.next().ok_or_else(|| FlagError::NoValue(argument.to_owned()))?,
            };
            check(flag, value)?;
            values.0.entry(flag.name).or_default().push(value.to_owned());
        }
        match rest {
            Some(argument) => Err(FlagError::Argument { program: self.program, argument }),
            None => Ok(Request::Run(values)),
        }
    }

    /// Returns the argument without its dashes; None if it is not a flag.
    fn word<'a>(&self, argument: &'a str) -> Result<Option<&'a str>, FlagError> {
        let word = match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
            (Some(word), _) => word,
            (None, Some(word)) if !word.is_empty() && self.dialect == Dialect::Flag => word,
            // The only flags of one letter are kube-apiserver's help and verbosity.
            (None, Some(word)) if !word.is_empty() => match word.chars().next() {
                Some('h' | 'v') if word.len() == 1 || word.as_bytes().get(1) == Some(&b'=') => word,
                letter => {
                    let letter = letter.unwrap_or_default();
                    return Err(FlagError::UnknownShorthand { letter, argument: argument.to_owned() });
                }
            },
            _ => return Ok(None),
        };
        match word.chars().next() {
            None | Some('-' | '=') => Err(FlagError::Syntax(argument.to_owned())),
            Some(_) => Ok(Some(word)),
        }
    }

    fn unknown(&self, name: &str, argument: &str) -> FlagError {
        match self.dialect {
            Dialect::Pflag if !argument.starts_with("--") => FlagError::UnknownShorthand {
                letter: name.chars().next().unwrap_or_default(),
                argument: argument.to_owned(),
            },
            Dialect::Pflag => FlagError::Unknown(name.to_owned()),
            Dialect::Flag => FlagError::Undefined(name.to_owned()),
        }
    }

    /// Iterates over the given flags that have no effect.
    pub fn without_effect<'a>(&'a self, values: &'a Values) -> impl Iterator<Item = &'static str> + 'a {
        values.names().filter(|name| self.flags.iter().any(|flag| flag.name == *name && !flag.is_used))
    }

    /// Returns the text of `--help`: a line for each flag.
    pub fn help(&self) -> String {
        let mut text = format!("Usage:\n  {} [flags]\n\nFlags:\n", self.program);
        for flag in self.flags {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", format!("      --{} {}", flag.name, flag.kind.name()).trim_end());
        }
        text + "      --help\n      --version\n"
    }
}

fn check(flag: &Flag, value: &str) -> Result<(), FlagError> {
    const BOOLS: [&str; 12] =
        ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    let syntax = |function: &str| Err(format!("strconv.{function}: parsing {value:?}: invalid syntax"));
    let checked = match flag.kind {
        Kind::Bool if !BOOLS.contains(&value) => syntax("ParseBool"),
        Kind::Int if value.parse::<i64>().is_err() => syntax("ParseInt"),
        _ => Ok(()),
    };
    let invalid = |why| FlagError::Invalid { name: flag.name.to_owned(), value: value.to_owned(), why };
    checked.map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn flag(name: &'static str, kind: Kind) -> Flag {
        Flag { name, kind, is_used: true }
    }

    const FLAGS: &[Flag] = &[
        flag("allow", Kind::Bool),
        flag("port", Kind::Int),
        flag("dir", Kind::Text),
        flag("plugins", Kind::List),
        Flag { name: "v", kind: Kind::Int, is_used: false },
    ];

    fn parse(dialect: Dialect, arguments: &[&str]) -> Result<Request, FlagError> {
        FlagSet { program: "server", dialect, flags: FLAGS }.parse(arguments.iter().copied())
    }

    #[test]
    fn arguments_are_read_as_pflag_reads_them() {
        for (arguments, want) in [
            (&[][..], ""),
            (&["--dir=/x", "--port=1"], "dir=/x port=1"),
            (&["--dir", "/x", "--port", "1"], "dir=/x port=1"),
            (&["--dir", "--port"], "dir=--port"),
            (&["--dir=a=b"], "dir=a=b"),
            (&["--dir="], "dir="),
            (&["--plugins=a,b", "--plugins", "c", "--plugins="], "plugins=a,b plugins=c plugins="),
            (&["--allow"], "allow=true"),
            (&["--allow=F"], "allow=F"),
            (&["", "--allow", ""], "allow=true"),
            (&["--"], ""),
            (&["-v=4"], "v=4"),
            (&["-v", "4"], "v=4"),
            (&["--version=false"], ""),
        ] {
            let Ok(Request::Run(values)) = parse(Dialect::Pflag, arguments) else {
                panic!("{arguments:?} is rejected");
            };
            let all =
                values.0.iter().flat_map(|(name, values)| values.iter().map(move |v| format!("{name}={v}")));
            assert_eq!(all.collect::<Vec<_>>().join(" "), want, "{arguments:?}");
        }
    }

    #[test]
    fn wrong_arguments_get_the_message_of_gos_packages() {
        for (dialect, arguments, want) in [
            (Dialect::Pflag, &["--nope"][..], "unknown flag: --nope"),
            (Dialect::Pflag, &["--nope=1"], "unknown flag: --nope"),
            (Dialect::Pflag, &["-x"], "unknown shorthand flag: 'x' in -x"),
            (Dialect::Pflag, &["-dir=/x"], "unknown shorthand flag: 'd' in -dir=/x"),
            (Dialect::Pflag, &["--dir"], "flag needs an argument: --dir"),
            (Dialect::Pflag, &["--=x"], "bad flag syntax: --=x"),
            (Dialect::Pflag, &["---x"], "bad flag syntax: ---x"),
            (
                Dialect::Pflag,
                &["--port=x"],
                "invalid argument \"x\" for \"--port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                Dialect::Pflag,
                &["--allow=maybe"],
                "invalid argument \"maybe\" for \"--allow\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (Dialect::Pflag, &["--allow", "false"], "\"server\" does not take any arguments, got \"false\""),
            (Dialect::Pflag, &["x", "--allow"], "\"server\" does not take any arguments, got \"x\""),
            (
                Dialect::Pflag,
                &["--", "", "--allow"],
                "\"server\" does not take any arguments, got \"--allow\"",
            ),
            (Dialect::Flag, &["-nope"], "flag provided but not defined: -nope"),
            (Dialect::Flag, &["--nope"], "flag provided but not defined: -nope"),
        ] {
            let error = parse(dialect, arguments).expect_err("an error").to_string();
            assert_eq!(error, want, "{arguments:?}");
        }
    }

    #[test]
    fn help_and_version_come_before_whatever_follows() {
        for (arguments, want) in [
            (["--help", "--nope"], Request::Help),
            (["-h", "--nope"], Request::Help),
            (["--version", "--nope"], Request::Version),
        ] {
            assert_eq!(parse(Dialect::Pflag, &arguments), Ok(want), "{arguments:?}");
        }
        assert_eq!(parse(Dialect::Flag, &["-help"]), Ok(Request::Help));
    }

    #[test]
    fn values_are_looked_up_by_name() {
        let Ok(Request::Run(values)) = parse(
            Dialect::Pflag,
            &[
                "--plugins=a,b",
                "--plugins=c,",
                "--dir=x",
                "--dir=y",
                "--port=1",
                "-v=2",
                "--allow",
                "--allow=F",
            ],
        ) else {
            panic!("rejected");
        };
        assert_eq!(values.list("plugins"), ["a", "b", "c"]);
        assert_eq!((values.text("dir"), values.text("other")), (Some("y"), None));
        assert_eq!((values.boolean("allow"), values.boolean("other")), (Some(false), None));
        assert_eq!(values.each("dir").collect::<Vec<_>>(), ["x", "y"]);
        let set = FlagSet { program: "server", dialect: Dialect::Pflag, flags: FLAGS };
        assert_eq!(set.without_effect(&values).collect::<Vec<_>>(), ["v"]);
    }

    #[test]
    fn help_has_a_line_for_each_flag() {
        let set = FlagSet { program: "server", dialect: Dialect::Pflag, flags: FLAGS };
        let help = set.help();
        for flag in FLAGS {
            let is_its_line =
                |line: &str| line.split_whitespace().next() == Some(&format!("--{}", flag.name));
            assert!(help.lines().any(is_its_line), "{}", flag.name);
        }
    }
}
