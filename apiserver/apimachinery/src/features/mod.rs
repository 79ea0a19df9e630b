//! Feature gates: Kubernetes' names, stages and defaults in 1.36, and the operator's overrides.
//!
//! `gates.txt` holds one gate a line: its name, its default, its stage, and `locked` where it
//! cannot be changed. It includes gates that Kubernetes has removed, where the test plan of their
//! KEP turns them off. `CSIMigrationHostPath` is Coracle's own.
//!
//! No other module has a list of gates. Strategies and admission plugins get a [`FeatureGates`],
//! the controllers a function that evaluates one.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

const GATES: &str = include_str!("gates.txt");

/// The gates that set all gates of a stage.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// The reasons for which a gate cannot be set, with kube-apiserver's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The name of the gate is unknown.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// The gate is locked to its default.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {locked}")]
    Locked {
        /// The gate.
        name: String,
        /// The requested value.
        value: bool,
        /// The value that it is locked to.
        locked: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    /// Generally available, or deprecated: no gate sets all gates of these stages.
    Settled,
}

struct Gate {
    name: &'static str,
    default: bool,
    stage: Stage,
    is_locked: bool,
}

fn gates() -> impl Iterator<Item = Gate> {
    GATES.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, default, stage) = (words.next()?, words.next()?, words.next()?);
        let stage = match stage {
            "Alpha" => Stage::Alpha,
            "Beta" => Stage::Beta,
            _ => Stage::Settled,
        };
        Some(Gate { name, default: default == "true", stage, is_locked: words.next().is_some() })
    })
}

/// Checks whether a gate may be set to a value.
///
/// # Errors
/// It is unknown or locked.
pub fn check(name: &str, value: bool) -> Result<(), GateError> {
    if name == ALL_ALPHA || name == ALL_BETA {
        return Ok(());
    }
    match gates().find(|gate| gate.name == name) {
        None => Err(GateError::Unknown(name.to_owned())),
        Some(gate) if gate.is_locked && gate.default != value => {
            Err(GateError::Locked { name: name.to_owned(), value, locked: gate.default })
        }
        Some(_) => Ok(()),
    }
}

static DEFAULTS: LazyLock<HashMap<&'static str, bool>> =
    LazyLock::new(|| gates().map(|gate| (gate.name, gate.default)).collect());

/// The enabled features: Kubernetes' defaults with overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// The gates with another value than their default.
    changed: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Kubernetes' defaults.
    pub const DEFAULT: FeatureGates = FeatureGates { changed: BTreeMap::new() };

    /// Returns the default gates with overrides. `AllAlpha` and `AllBeta` set the gates of their
    /// stage that are neither named themselves nor locked. If a gate is named twice, the last value
    /// counts.
    ///
    /// # Errors
    /// A gate is unknown or locked.
    pub fn new<N: AsRef<str>>(said: impl IntoIterator<Item = (N, bool)>) -> Result<FeatureGates, GateError> {
        let said: Vec<(N, bool)> = said.into_iter().collect();
        said.iter().try_for_each(|(name, value)| check(name.as_ref(), *value))?;
        let last =
            |name: &str| said.iter().rev().find(|(said, _)| said.as_ref() == name).map(|(_, value)| *value);
        let (all_alpha, all_beta) = (last(ALL_ALPHA), last(ALL_BETA));
        let value = |gate: &Gate| {
            let of_stage = match gate.stage {
                _ if gate.is_locked => None,
                Stage::Alpha => all_alpha,
                Stage::Beta => all_beta,
                Stage::Settled => None,
            };
            last(gate.name).or(of_stage).unwrap_or(gate.default)
        };
        let changed = gates().map(|gate| (gate.name, gate.default, value(&gate)));
        let changed = changed.filter(|(_, default, value)| default != value);
        Ok(FeatureGates { changed: changed.map(|(name, _, value)| (name, value)).collect() })
    }

    /// Returns whether a feature is enabled; an unknown one is not.
    pub fn is_enabled(&self, gate: &str) -> bool {
        self.changed.get(gate).or_else(|| DEFAULTS.get(gate)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_set_as_kube_apiserver_sets_them() {
        const ALPHA: &str = "HPAScaleToZero";
        const BETA: &str = "MaxUnavailableStatefulSet";
        const BETA_ON: &str = "PodTopologyLabelsAdmission";
        const RETIRED: &str = "StatefulSetStartOrdinal";
        type Values<'a> = &'a [(&'a str, bool)];
        let cases: [(Values, Values); 8] = [
            (&[], &[(ALPHA, false), (BETA, false), (BETA_ON, true), (RETIRED, true), ("NoSuchGate", false)]),
            (&[(BETA, true)], &[(BETA, true), (ALPHA, false)]),
            (&[(BETA, true), (BETA, false)], &[(BETA, false)]),
            (&[("AllAlpha", true)], &[(ALPHA, true), (BETA, false)]),
            (&[(ALPHA, false), ("AllAlpha", true)], &[(ALPHA, false), ("ContainerStopSignals", true)]),
            (&[("AllBeta", true), (BETA, false)], &[(BETA, false), ("PodCertificateRequest", true)]),
            (&[("AllBeta", false)], &[(BETA_ON, false), (RETIRED, true), (ALPHA, false)]),
            (&[("APIServerTracing", true), ("AllBeta", false)], &[("APIServerTracing", true)]),
        ];
        for (said, want) in cases {
            let gates = FeatureGates::new(said.iter().copied()).unwrap();
            for (gate, value) in want {
                assert_eq!(gates.is_enabled(gate), *value, "{said:?}: {gate}");
            }
        }
        assert_eq!(FeatureGates::new::<&str>([]).unwrap(), FeatureGates::default());
    }

    #[test]
    fn unknown_and_locked_gates_are_refused() {
        for (gate, value, want) in [
            ("NoSuchGate", true, Some("unrecognized feature gate: NoSuchGate")),
            (
                "APIServerTracing",
                false,
                Some("cannot set feature gate APIServerTracing to false, feature is locked to true"),
            ),
            (
                "GitRepoVolumeDriver",
                true,
                Some("cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false"),
            ),
            ("APIServerTracing", true, None),
            ("AllAlpha", false, None),
        ] {
            let refused = FeatureGates::new([(gate, value)]).err().map(|error| error.to_string());
            assert_eq!(refused.as_deref(), want, "{gate}={value}");
        }
    }

    #[test]
    fn every_line_is_a_gate() {
        assert_eq!(gates().count(), GATES.lines().count());
        assert!(gates().zip(gates().skip(1)).all(|(a, b)| a.name < b.name), "sorted, each once");
        for line in GATES.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(matches!(words[1], "true" | "false"), "{line}");
            assert!(matches!(words[2], "Alpha" | "Beta" | "GA" | "Deprecated"), "{line}");
            assert!(words.get(3).is_none_or(|word| *word == "locked") && words.len() <= 4, "{line}");
        }
    }
}
