//! Forms: how the values of options are written on the command line.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use coracle_apimachinery::features;
use coracle_apiserver::serve::GoawayChance;
use coracle_behavior::Profile;
use coracle_builtin::authorization::Mode;
use coracle_storage::log::Durability;
use coracle_testing_api::ClockMode;

use super::range::{self, Range, RangedValue};
use super::values::Values;

/// The form of an option of the type `T` on the command line.
pub trait Form<T> {
    /// The values that the flag takes.
    const VALUES: Values;

    /// Reads the values of a flag that is given. Of a flag with one value the last one counts.
    ///
    /// # Errors
    /// The reason, in a form that follows the flag and the value.
    fn read(&self, texts: &[OsString]) -> Result<T, String>;

    /// Writes a value, such as the default; None for an absent one.
    fn write(&self, value: &T) -> Option<String>;

    /// The range of the number in the value.
    fn range(&self) -> Option<String> {
        None
    }

    /// Replaces a number outside of its range by the nearest inside.
    fn clamp(&self, _: &mut T) {}
}

/// The last value as text.
fn last(texts: &[OsString]) -> Result<&str, String> {
    text(texts.last().map(OsString::as_os_str).unwrap_or_default())
}

fn text(value: &OsStr) -> Result<&str, String> {
    value.to_str().ok_or_else(|| "it must be UTF-8".to_owned())
}

impl<T: RangedValue> Form<T> for Range<T> {
    const VALUES: Values = T::VALUES;

    fn read(&self, texts: &[OsString]) -> Result<T, String> {
        range::parse(*self, last(texts)?)
    }

    fn write(&self, value: &T) -> Option<String> {
        Some(value.write_short())
    }

    fn range(&self) -> Option<String> {
        let zero = if self.or_zero { "0, or " } else { "" };
        Some(format!("{zero}{} to {}", self.least.write_short(), self.most.write_short()))
    }

    fn clamp(&self, value: &mut T) {
        *value = Range::clamp(self, *value);
    }
}

/// A range whose lower bound is one of the flag alone: the library accepts less.
pub struct AtMost<T>(pub Range<T>);

impl<T: RangedValue> Form<T> for AtMost<T> {
    const VALUES: Values = T::VALUES;

    fn read(&self, texts: &[OsString]) -> Result<T, String> {
        self.0.read(texts)
    }

    fn write(&self, value: &T) -> Option<String> {
        self.0.write(value)
    }

    fn range(&self) -> Option<String> {
        Form::range(&self.0)
    }

    fn clamp(&self, value: &mut T) {
        *value = self.0.most.min(*value);
    }
}

/// One text that the type parses.
pub struct Parsed;

impl<T: FromStr<Err: Display> + Display> Form<T> for Parsed {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<T, String> {
        last(texts)?.parse().map_err(|why: T::Err| why.to_string())
    }

    fn write(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }
}

/// One text that the type parses, which has no default.
pub struct MaybeParsed;

impl<T: FromStr<Err: Display> + Display> Form<Option<T>> for MaybeParsed {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<Option<T>, String> {
        last(texts)?.parse().map(Some).map_err(|why: T::Err| why.to_string())
    }

    fn write(&self, value: &Option<T>) -> Option<String> {
        value.as_ref().map(T::to_string)
    }
}

/// One text that the type parses, or `none`.
pub struct ParsedOrNone;

impl<T: FromStr<Err: Display> + Display> Form<Option<T>> for ParsedOrNone {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<Option<T>, String> {
        match last(texts)? {
            "none" => Ok(None),
            text => text.parse().map(Some).map_err(|why: T::Err| why.to_string()),
        }
    }

    fn write(&self, value: &Option<T>) -> Option<String> {
        Some(value.as_ref().map_or_else(|| "none".to_owned(), T::to_string))
    }
}

/// An address and a port. A port alone, `:PORT` too, is of the loopback address, and so is `localhost`: leaving out the address never
/// exposes the server.
pub struct Listen;

impl Form<SocketAddr> for Listen {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<SocketAddr, String> {
        let text = last(texts)?;
        let port = match text.rsplit_once(':') {
            Some(("" | "localhost", port)) => port,
            Some(_) => {
                return text.parse().map_err(|_| "an address such as 127.0.0.1:6443 is expected".to_owned());
            }
            None => text,
        };
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = if is_number { port.parse().ok() } else { None };
        let port: u16 = port.ok_or_else(|| {
            "a port from 0 to 65535 is expected, or an address such as 127.0.0.1:6443".to_owned()
        })?;
        Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
    }

    fn write(&self, value: &SocketAddr) -> Option<String> {
        Some(value.to_string())
    }
}

/// Reads an address to listen on as `--listen` does.
///
/// # Errors
/// It is neither an address nor a port.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    Listen.read(&[text.into()])
}

/// The path of a file or directory.
pub struct File;

impl Form<Option<PathBuf>> for File {
    const VALUES: Values = Values::File;

    fn read(&self, texts: &[OsString]) -> Result<Option<PathBuf>, String> {
        Ok(texts.last().map(PathBuf::from))
    }

    fn write(&self, value: &Option<PathBuf>) -> Option<String> {
        value.as_ref().map(|path| path.display().to_string())
    }
}

fn each<T: FromStr<Err: Display>>(texts: &[OsString]) -> Result<Vec<T>, String> {
    texts.iter().map(|value| text(value)?.parse().map_err(|why: T::Err| why.to_string())).collect()
}

/// A value for each repetition of the flag.
pub struct Each;

impl<T: FromStr<Err: Display> + Display> Form<Vec<T>> for Each {
    const VALUES: Values = Values::Each;

    fn read(&self, texts: &[OsString]) -> Result<Vec<T>, String> {
        each(texts)
    }

    fn write(&self, value: &Vec<T>) -> Option<String> {
        List.write(&value.iter().map(T::to_string).collect())
    }
}

/// A path for each repetition of the flag.
pub struct EachFile;

impl Form<Vec<PathBuf>> for EachFile {
    const VALUES: Values = Values::Each;

    fn read(&self, texts: &[OsString]) -> Result<Vec<PathBuf>, String> {
        each(texts)
    }

    fn write(&self, value: &Vec<PathBuf>) -> Option<String> {
        List.write(&value.iter().map(|path| path.display().to_string()).collect())
    }
}

/// Texts separated by commas.
pub struct List;

impl Form<Vec<String>> for List {
    const VALUES: Values = Values::List { hyphens: false };

    fn read(&self, texts: &[OsString]) -> Result<Vec<String>, String> {
        each(texts)
    }

    fn write(&self, value: &Vec<String>) -> Option<String> {
        Some(value.join(",")).filter(|text| !text.is_empty())
    }
}

/// A list of names to include, and of `-NAME` to exclude.
pub struct Selection;

impl Form<Vec<String>> for Selection {
    const VALUES: Values = Values::List { hyphens: true };

    fn read(&self, texts: &[OsString]) -> Result<Vec<String>, String> {
        each(texts)
    }

    fn write(&self, value: &Vec<String>) -> Option<String> {
        List.write(value)
    }
}

/// A flag that is true without a value.
pub struct Switch;

impl Form<bool> for Switch {
    const VALUES: Values = Values::Switch;

    fn read(&self, texts: &[OsString]) -> Result<bool, String> {
        // Each text for true of Go's ParseBool has this beginning, and none for false.
        Ok(last(texts)?.starts_with(['1', 't', 'T']))
    }

    fn write(&self, value: &bool) -> Option<String> {
        value.then(|| "true".to_owned())
    }
}

/// Feature gates: `A=true,B=false`.
pub struct Gates;

impl Form<BTreeMap<String, bool>> for Gates {
    const VALUES: Values = Values::List { hyphens: false };

    fn read(&self, texts: &[OsString]) -> Result<BTreeMap<String, bool>, String> {
        let gate = |gate: &OsString| {
            let gate = text(gate)?;
            let (name, value) =
                gate.split_once('=').ok_or_else(|| format!("missing bool value for {gate}"))?;
            let value = value
                .parse()
                .map_err(|_| format!("invalid value of {name}={value}: neither true nor false"))?;
            features::check(name, value).map_err(|error| error.to_string())?;
            Ok((name.to_owned(), value))
        };
        texts.iter().map(gate).collect()
    }

    fn write(&self, _: &BTreeMap<String, bool>) -> Option<String> {
        None
    }
}

/// The modes of authorization that `serve` has.
pub struct Authorization;

impl Form<Mode> for Authorization {
    const VALUES: Values = Values::Choice(&["RBAC", "AlwaysAllow"]);

    fn read(&self, texts: &[OsString]) -> Result<Mode, String> {
        match last(texts)? {
            "RBAC" => Ok(Mode::Rbac),
            "AlwaysAllow" => Ok(Mode::AlwaysAllow),
            _ => Err("neither RBAC nor AlwaysAllow".to_owned()),
        }
    }

    fn write(&self, mode: &Mode) -> Option<String> {
        let name = match mode {
            Mode::Rbac => "RBAC",
            Mode::AlwaysAllow => "AlwaysAllow",
        };
        Some(name.to_owned())
    }
}

/// A profile of the simulation.
pub struct ProfileName;

impl Form<Profile> for ProfileName {
    const VALUES: Values = Values::Choice(Profile::NAMES);

    fn read(&self, texts: &[OsString]) -> Result<Profile, String> {
        last(texts)?.parse()
    }

    fn write(&self, profile: &Profile) -> Option<String> {
        Some(profile.to_string())
    }
}

/// The mode of a clock.
pub struct ClockName;

impl Form<ClockMode> for ClockName {
    const VALUES: Values = Values::Choice(&["real", "manual"]);

    fn read(&self, texts: &[OsString]) -> Result<ClockMode, String> {
        match last(texts)? {
            "real" => Ok(ClockMode::Real),
            "manual" => Ok(ClockMode::Manual),
            other => Err(format!("{other:?} is neither real nor manual")),
        }
    }

    fn write(&self, mode: &ClockMode) -> Option<String> {
        Some(match mode {
            ClockMode::Real => "real".to_owned(),
            ClockMode::Manual => "manual".to_owned(),
        })
    }
}

/// A name, or `none`.
pub struct NameOrNone;

impl Form<Option<String>> for NameOrNone {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<Option<String>, String> {
        Ok(Some(last(texts)?.to_owned()).filter(|name| name != "none"))
    }

    fn write(&self, value: &Option<String>) -> Option<String> {
        Some(value.clone().unwrap_or_else(|| "none".to_owned()))
    }
}

/// The time at which writes are durable: `sync`, `interval=MS` or `none`.
pub struct When;

impl Form<Durability> for When {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<Durability, String> {
        let text = last(texts)?;
        match text.split_once('=') {
            None if text == "sync" => Ok(Durability::Sync),
            None if text == "none" => Ok(Durability::None),
            Some(("interval", millis)) => {
                let millis =
                    range::parse(range::FLUSH_INTERVAL, millis).map_err(|why| format!("MS: {why}"))?;
                Ok(Durability::Interval(Duration::from_millis(millis)))
            }
            _ => Err("neither sync, interval=MS nor none".to_owned()),
        }
    }

    fn write(&self, value: &Durability) -> Option<String> {
        Some(match value {
            Durability::Sync => "sync".to_owned(),
            Durability::None => "none".to_owned(),
            Durability::Interval(interval) => format!("interval={}", interval.as_millis()),
        })
    }

    fn range(&self) -> Option<String> {
        Form::range(&range::FLUSH_INTERVAL).map(|range| format!("MS: {range}"))
    }

    fn clamp(&self, value: &mut Durability) {
        if let Durability::Interval(interval) = value {
            *interval = (*interval).min(Duration::from_millis(range::FLUSH_INTERVAL.most));
        }
    }
}

/// A chance, with kube-apiserver's message for one that is out of range.
pub struct Chance;

impl Form<GoawayChance> for Chance {
    const VALUES: Values = Values::Text;

    fn read(&self, texts: &[OsString]) -> Result<GoawayChance, String> {
        let text = last(texts)?;
        let chance = text.parse().map_err(|_| format!("{text:?} is no number"))?;
        let out_of_range = || "--goaway-chance can not be less than 0 or greater than 0.02".to_owned();
        GoawayChance::new(chance).ok_or_else(out_of_range)
    }

    fn write(&self, value: &GoawayChance) -> Option<String> {
        // Any other is no default.
        (*value == GoawayChance::default()).then(|| "0".to_owned())
    }

    fn range(&self) -> Option<String> {
        Some(format!("0 to {}", GoawayChance::MAX))
    }
}
