//! What a pod's annotations say about how it behaves.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::super::IGNORE;

const PREFIX: &str = "sim.coracle.dev/";

/// How the containers of a pod behave: by default they are ready at once, run for ever, and end when they are told to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// How long a container runs before it is ready.
    pub ready_after: Duration,
    pub never_ready: bool,
    /// How long a container runs before it exits of itself.
    pub exit_after: Option<Duration>,
    /// The code it exits with then.
    pub exit_code: i32,
    /// How long a container takes to exit once it is told to.
    pub terminate_after: Duration,
}

impl Script {
    /// A pod's script, and a complaint about each annotation that had to be left out of it.
    pub fn of(pod: &Pod) -> (Script, Vec<String>) {
        let mut script = Script::default();
        let mut complaints = Vec::new();
        for (key, value) in pod.metadata.annotations.iter().flatten() {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            if let Err(expected) = script.set(name, value) {
                complaints.push(format!("Ignored annotation {key}={value:?}: {expected}"));
            }
        }
        (script, complaints)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "ready-after" => self.ready_after = duration(value)?,
            "never-ready" => self.never_ready = flag(value)?,
            "exit-after" => self.exit_after = Some(duration(value)?),
            "exit-code" => self.exit_code = code(value)?,
            "terminate-after" => self.terminate_after = duration(value)?,
            _ if IGNORE.strip_prefix(PREFIX) == Some(name) => flag(value).map(drop)?,
            _ => return Err("there is no such annotation"),
        }
        Ok(())
    }
}

fn flag(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "neither true nor false")
}

fn code(text: &str) -> Result<i32, &'static str> {
    text.parse::<u8>().map(i32::from).map_err(|_| "not a number from 0 to 255")
}

/// A duration as Go writes it, such as `1m30s`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "not a duration such as 500ms, 2s or 1m30s";
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(EXPECTED)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(EXPECTED),
        };
        let number: f64 = number.parse().map_err(|_| EXPECTED)?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| EXPECTED)?;
        sum = sum.checked_add(part).ok_or(EXPECTED)?;
        rest = tail;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let millis = |text| duration(text).ok().map(|d| d.as_millis());
        for (text, want) in [
            ("2s", Some(2000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("0s", Some(0)),
            ("", None),
            ("2", None),
            ("-2s", None),
            ("soon", None),
            ("2 s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(millis(text), want, "{text}");
        }
    }

    #[test]
    fn scripts() {
        let read = |annotations: &[(&str, &str)]| {
            let mut pod = Pod::default();
            let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pod.metadata.annotations = Some(annotations.collect());
            Script::of(&pod)
        };
        let (script, complaints) = read(&[
            ("other.dev/ready-after", "x"),
            ("sim.coracle.dev/exit-after", "1s"),
            ("sim.coracle.dev/exit-code", "3"),
            ("sim.coracle.dev/ignore", "false"),
        ]);
        let want = Script { exit_after: Some(Duration::from_secs(1)), exit_code: 3, ..Script::default() };
        assert_eq!((script, complaints), (want, vec![]));
        let (script, complaints) = read(&[
            ("sim.coracle.dev/exit-code", "256"),
            ("sim.coracle.dev/never-ready", "yes"),
            ("sim.coracle.dev/redy-after", "1s"),
        ]);
        assert_eq!(script, Script::default());
        assert_eq!(
            complaints,
            [
                r#"Ignored annotation sim.coracle.dev/exit-code="256": not a number from 0 to 255"#,
                r#"Ignored annotation sim.coracle.dev/never-ready="yes": neither true nor false"#,
                r#"Ignored annotation sim.coracle.dev/redy-after="1s": there is no such annotation"#,
            ]
        );
    }
}
