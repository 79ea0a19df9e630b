//! The behavior of a pod, from its annotations.

use std::time::Duration;

use coracle_kinds::jobs::completion_index;
use coracle_volumes::overrides::{self, IndexRanges, PREFIX, amount, duration, exit_code, flag, indexes};
use k8s_openapi::api::core::v1::Pod;

use crate::simulated::IGNORE;

/// How the containers of a pod behave: by default they are ready at once, run for ever, and exit when they are terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodBehavior {
    /// How long a container runs before it is ready.
    pub ready_after: Duration,
    pub never_ready: bool,
    /// How long a container runs before it exits of itself.
    pub exit_after: Option<Duration>,
    /// The code it exits with then.
    pub exit_code: i32,
    /// How long a container takes to exit once it is terminated.
    pub terminate_after: Duration,
}

/// The exit code of an index that fails, unless there is another one.
const FAILURE: i32 = 1;

impl PodBehavior {
    /// A pod's behavior, and a warning about each annotation that had to be left out of it.
    pub fn of(pod: &Pod) -> (PodBehavior, Vec<String>) {
        let (mut behavior, mut failing) = (PodBehavior::default(), None::<IndexRanges>);
        let annotations = pod.metadata.annotations.as_ref();
        let warnings = overrides::read("annotation", annotations, |name, value| match name {
            "fail-indexes" => indexes(value).map(|ranges| failing = Some(ranges)),
            _ => behavior.set(name, value),
        });
        if let Some(failing) = failing {
            let fails = completion_index(pod).is_some_and(|index| failing.iter().any(|r| r.contains(&index)));
            behavior.exit_code = match (fails, behavior.exit_code) {
                (false, _) => 0,
                (true, 0) => FAILURE,
                (true, code) => code,
            };
        }
        (behavior, warnings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "ready-after" => self.ready_after = duration(value)?,
            "never-ready" => self.never_ready = flag(value)?,
            "exit-after" => self.exit_after = Some(duration(value)?),
            "exit-code" => self.exit_code = exit_code(value)?,
            "terminate-after" => self.terminate_after = duration(value)?,
            // The API server responds with it to requests for logs.
            "log" => {}
            // It serves them as `metrics.k8s.io`.
            "cpu" | "memory" => amount(value)?,
            _ if IGNORE.strip_prefix(PREFIX) == Some(name) => flag(value).map(drop)?,
            _ => return Err("there is no such annotation"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        let read = |annotations: &[(&str, &str)]| {
            let mut pod = Pod::default();
            let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pod.metadata.annotations = Some(annotations.collect());
            PodBehavior::of(&pod)
        };
        let (behavior, warnings) = read(&[
            ("other.dev/ready-after", "x"),
            ("sim.coracle.dev/exit-after", "1s"),
            ("sim.coracle.dev/exit-code", "3"),
            ("sim.coracle.dev/ignore", "false"),
        ]);
        let want =
            PodBehavior { exit_after: Some(Duration::from_secs(1)), exit_code: 3, ..PodBehavior::default() };
        assert_eq!((behavior, warnings), (want, vec![]));
        for (index, code, want) in [("1", None, 1), ("2", None, 0), ("4", Some("3"), 3), ("x", None, 0)] {
            let mut annotations = vec![
                ("batch.kubernetes.io/job-completion-index", index),
                ("sim.coracle.dev/fail-indexes", "1,3-5"),
                ("sim.coracle.dev/log", "hello"),
            ];
            annotations.extend(code.map(|code| ("sim.coracle.dev/exit-code", code)));
            let (behavior, warnings) = read(&annotations);
            assert_eq!((behavior.exit_code, warnings), (want, vec![]), "{index}");
        }
        let (behavior, warnings) = read(&[
            ("sim.coracle.dev/exit-code", "256"),
            ("sim.coracle.dev/never-ready", "yes"),
            ("sim.coracle.dev/redy-after", "1s"),
            ("sim.coracle.dev/cpu", "250m"),
            ("sim.coracle.dev/memory", "much"),
        ]);
        assert_eq!(behavior, PodBehavior::default());
        assert_eq!(
            warnings,
            [
                r#"Ignored annotation sim.coracle.dev/exit-code="256": not a number from 0 to 255"#,
                r#"Ignored annotation sim.coracle.dev/memory="much": not an amount such as 250m or 64Mi"#,
                r#"Ignored annotation sim.coracle.dev/never-ready="yes": neither true nor false"#,
                r#"Ignored annotation sim.coracle.dev/redy-after="1s": there is no such annotation"#,
            ]
        );
    }
}
