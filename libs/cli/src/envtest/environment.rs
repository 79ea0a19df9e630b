//! The environment variables of the programs: envtest's users set them where a suite has no place
//! for flags.

use std::time::Duration;

use coracle_control_plane::controllers;
use coracle_control_plane::range::{self, Range, RangedValue};
use coracle_seed::Seed;
use coracle_testing_api::ClockMode;

/// The number of simulated nodes.
const NODES: &str = "CORACLE_NODES";
/// The controllers, in the syntax of `coracle serve --controllers`.
const CONTROLLERS: &str = "CORACLE_CONTROLLERS";
/// The time by which responses and watch events are delayed.
const RESPONSE_LATENCY: &str = "CORACLE_RESPONSE_LATENCY";

/// The mode of the clock, `real` or `manual`.
const CLOCK: &str = "CORACLE_CLOCK";

/// The number that UIDs, names and addresses follow from.
const SEED: &str = "CORACLE_SEED";

/// The default latency. Without one a test's next request overtakes the controllers under test,
/// which suites written on a slower server do not expect.
const DEFAULT_LATENCY: Duration = Duration::from_millis(1);

/// Properties of a test's control plane for which kube-apiserver has no flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneVariables {
    /// The controllers that run; none by default, as in envtest.
    pub controllers: Vec<String>,
    /// The number of simulated nodes; none by default.
    pub nodes: usize,
    /// The time by which responses and watch events are delayed.
    pub response_latency: Duration,
    /// The clock; the machine's by default.
    pub clock: ClockMode,
    /// The number that UIDs, names and addresses follow from; none by default.
    pub seed: Option<Seed>,
}

impl ControlPlaneVariables {
    /// Reads the variables of this process. Invalid Unicode is replaced by U+FFFD, which every
    /// parser rejects.
    ///
    /// # Errors
    /// One line about the variable that is wrong.
    pub fn of_process() -> Result<ControlPlaneVariables, String> {
        ControlPlaneVariables::read(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Reads variables by their names. An empty one counts as absent.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<ControlPlaneVariables, String> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let selection = variable(CONTROLLERS).unwrap_or_default();
        let controllers: Vec<String> =
            selection.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        controllers::check_selection(&controllers).map_err(|error| format!("{CONTROLLERS}: {error}"))?;
        Ok(ControlPlaneVariables {
            controllers,
            nodes: within(range::NODES, NODES, variable(NODES))?.unwrap_or_default(),
            response_latency: within(range::RESPONSE_LATENCY, RESPONSE_LATENCY, variable(RESPONSE_LATENCY))?
                .unwrap_or(DEFAULT_LATENCY),
            clock: match variable(CLOCK).as_deref() {
                None | Some("real") => ClockMode::Real,
                Some("manual") => ClockMode::Manual,
                Some(other) => return Err(format!("{CLOCK}: {other:?} is neither real nor manual")),
            },
            seed: variable(SEED)
                .map(|text| text.parse().map_err(|why| format!("{SEED}: {text:?}: {why}")))
                .transpose()?,
        })
    }
}

fn within<T: RangedValue>(range: Range<T>, name: &str, value: Option<String>) -> Result<Option<T>, String> {
    let parse = |text: String| range::parse(range, &text).map_err(|why| format!("{name}: {text:?}: {why}"));
    value.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<ControlPlaneVariables, String> {
        let value =
            |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        ControlPlaneVariables::read(value)
    }

    #[test]
    fn an_empty_environment_is_envtests() {
        let none = ControlPlaneVariables {
            controllers: Vec::new(),
            nodes: 0,
            response_latency: DEFAULT_LATENCY,
            clock: ClockMode::Real,
            seed: None,
        };
        assert_eq!(read(&[]), Ok(none.clone()));
        assert_eq!(read(&[(CONTROLLERS, ""), (NODES, ""), (RESPONSE_LATENCY, "")]), Ok(none));
    }

    #[test]
    fn variables_select_controllers_nodes_and_latency() {
        let environment = read(&[
            (CONTROLLERS, "*,-job-controller"),
            (NODES, "3"),
            (RESPONSE_LATENCY, "1500us"),
            (CLOCK, "manual"),
            (SEED, "7"),
        ])
        .expect("they are valid");
        assert_eq!((environment.clock, environment.seed), (ClockMode::Manual, Some(Seed(7))));
        assert_eq!(environment.controllers, ["*", "-job-controller"]);
        assert_eq!(environment.nodes, 3);
        assert_eq!(environment.response_latency, Duration::from_micros(1500));
    }

    #[test]
    fn zero_is_no_latency() {
        for zero in ["0", "0s", "0ms"] {
            let environment = read(&[(RESPONSE_LATENCY, zero)]).expect(zero);
            assert_eq!(environment.response_latency, Duration::ZERO);
        }
    }

    #[test]
    fn wrong_values_are_one_line() {
        const LATENCY: &str = "it must be 0, or a duration from 100µs to 1s";
        for (name, value, why) in [
            (CONTROLLERS, "jobs", "is not in the list of known controllers"),
            (CLOCK, "fast", "is neither real nor manual"),
            (NODES, "-1", ": it must be 0, or a whole number from 1 to 5000"),
            (RESPONSE_LATENCY, "2", LATENCY),
            (RESPONSE_LATENCY, "-2ms", LATENCY),
            (RESPONSE_LATENCY, " 2ms", LATENCY),
            (RESPONSE_LATENCY, "2 ms", LATENCY),
            (RESPONSE_LATENCY, "99us", LATENCY),
            (RESPONSE_LATENCY, "1001ms", LATENCY),
        ] {
            let error = read(&[(name, value)]).expect_err(value);
            assert!(error.starts_with(&format!("{name}: {value:?}")) && error.ends_with(why), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
