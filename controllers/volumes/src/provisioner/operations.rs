//! Slow and failing operations, for tests of code that depends on them.
//!
//! The parameters of a StorageClass configure how its volumes are provisioned and deleted. Those
//! for deletion are copied to annotations of the volumes, where they can be changed. A slow
//! operation blocks no other: its key is requeued for the end of that time.

use std::collections::HashMap;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::NamespacedName;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use coracle_behavior::overrides::{self, PREFIX, count, duration};

/// The duration of an operation, and the number of its failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationBehavior {
    /// The duration of each attempt.
    pub after: Duration,
    /// The number of attempts that fail before one succeeds.
    pub failures: u32,
}

/// The behavior of the operations on a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeBehavior {
    /// The behavior of provisioning.
    pub provision: OperationBehavior,
    /// The behavior of deletion.
    pub delete: OperationBehavior,
}

impl VolumeBehavior {
    /// Returns the behavior that a class requests, and a warning about each parameter that was
    /// ignored.
    pub fn of_class(class: &StorageClass) -> (VolumeBehavior, Vec<String>) {
        let mut behavior = VolumeBehavior::default();
        let set = |name: &str, value: &str| behavior.set(name, value);
        let warnings = overrides::read("parameter", class.parameters.as_ref(), set);
        (behavior, warnings)
    }

    /// Returns the behavior that a volume requests, and a warning about each annotation that was
    /// ignored.
    pub fn of_volume(volume: &PersistentVolume) -> (VolumeBehavior, Vec<String>) {
        let mut behavior = VolumeBehavior::default();
        let set = |name: &str, value: &str| behavior.set(name, value);
        let warnings = overrides::read("annotation", volume.metadata.annotations.as_ref(), set);
        (behavior, warnings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "provision-after" => self.provision.after = duration(value)?,
            "provision-failures" => self.provision.failures = count(value)?,
            "delete-after" => self.delete.after = duration(value)?,
            "delete-failures" => self.delete.failures = count(value)?,
            _ => return Err("there is no such thing to ask of a volume"),
        }
        Ok(())
    }
}

/// Iterates over the parameters that volumes inherit from their class: those for deletion.
pub fn inherited(class: &StorageClass) -> impl Iterator<Item = (&str, &str)> {
    let ours = |key: &str, value: &str| {
        let name = key.strip_prefix(PREFIX).filter(|name| name.starts_with("delete-"));
        name.is_some_and(|name| VolumeBehavior::default().set(name, value).is_ok())
    };
    let parameters = class.parameters.iter().flatten();
    parameters.map(|(key, value)| (key.as_str(), value.as_str())).filter(move |(key, value)| ours(key, value))
}

/// The attempts in progress, and the number of failed ones before.
pub struct Operations {
    clock: Clock,
    known: Mutex<HashMap<NamespacedName, Operation>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Operation {
    uid: String,
    began: Option<Timestamp>,
    failures: u32,
}

/// The state of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Whether the attempt begins now.
    pub is_new: bool,
    /// The next step.
    pub step: Step,
    /// The duration of the attempt so far, in seconds.
    pub seconds: f64,
}

/// The next step of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Not complete before this time has passed.
    Wait(Duration),
    /// Fails with this message.
    Fail(String),
    /// Can be executed now.
    Execute,
}

impl Operations {
    /// Creates an empty set of operations.
    pub fn new(clock: Clock) -> Operations {
        Operations { clock, known: Mutex::default() }
    }

    /// Begins or continues an attempt. After [`Step::Fail`] the next one begins.
    pub fn attempt(&self, name: &NamespacedName, uid: Option<&str>, behavior: OperationBehavior) -> Attempt {
        let mut known = self.known.lock();
        let operation = known.entry(name.clone()).or_default();
        let uid = uid.unwrap_or_default();
        if operation.uid != uid {
            *operation = Operation { uid: uid.to_owned(), ..Operation::default() };
        }
        operation.attempt(behavior, self.clock.now())
    }

    /// Ends an attempt that failed of itself.
    pub fn fail(&self, name: &NamespacedName) {
        if let Some(operation) = self.known.lock().get_mut(name) {
            operation.began = None;
        }
    }

    /// Removes the state of an operation that is complete or no longer needed.
    pub fn forget(&self, name: &NamespacedName) {
        self.known.lock().remove(name);
    }
}

impl Operation {
    fn attempt(&mut self, behavior: OperationBehavior, now: Timestamp) -> Attempt {
        let is_new = self.began.is_none();
        let began = *self.began.get_or_insert(now);
        let taken = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        let step = match behavior.after.checked_sub(taken).filter(|left| !left.is_zero()) {
            Some(left) => Step::Wait(left),
            None if self.failures < behavior.failures => {
                self.failures += 1;
                self.began = None;
                Step::Fail(format!("simulated failure {} of {}", self.failures, behavior.failures))
            }
            None => Step::Execute,
        };
        Attempt { is_new, step, seconds: taken.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn attempts() {
        let behavior = OperationBehavior { after: Duration::from_secs(2), failures: 1 };
        let mut operation = Operation::default();
        let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
        for (second, is_new, want) in [
            (10, true, wait(2)),
            (11, false, wait(1)),
            (12, false, Step::Fail("simulated failure 1 of 1".to_owned())),
            (13, true, wait(2)),
            (20, false, Step::Execute),
            (21, false, Step::Execute),
        ] {
            let attempt = operation.attempt(behavior, Timestamp::from_second(second).unwrap());
            assert_eq!((attempt.is_new, attempt.step), (is_new, want), "at {second}");
        }
        let at_once = Operation::default().attempt(OperationBehavior::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(at_once, Attempt { is_new: true, step: Step::Execute, seconds: 0.0 });
    }

    #[test]
    fn scripts() {
        let class = |parameters: &[(&str, &str)]| StorageClass {
            parameters: Some(
                parameters
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect::<BTreeMap<_, _>>(),
            ),
            ..StorageClass::default()
        };
        let slow = class(&[
            ("fast", "no"),
            ("sim.coracle.dev/provision-after", "2s"),
            ("sim.coracle.dev/provision-failures", "3"),
            ("sim.coracle.dev/delete-failures", "1"),
        ]);
        let want = VolumeBehavior {
            provision: OperationBehavior { after: Duration::from_secs(2), failures: 3 },
            delete: OperationBehavior { after: Duration::ZERO, failures: 1 },
        };
        assert_eq!(VolumeBehavior::of_class(&slow), (want, vec![]));
        assert_eq!(inherited(&slow).collect::<Vec<_>>(), [("sim.coracle.dev/delete-failures", "1")]);
        let wrong =
            class(&[("sim.coracle.dev/delete-after", "soon"), ("sim.coracle.dev/provision-failures", "-1")]);
        let (behavior, warnings) = VolumeBehavior::of_class(&wrong);
        assert_eq!(behavior, VolumeBehavior::default());
        assert_eq!(
            warnings,
            [
                r#"Ignored parameter sim.coracle.dev/delete-after="soon": not a duration such as 500ms, 2s or 1m30s"#,
                r#"Ignored parameter sim.coracle.dev/provision-failures="-1": not a number such as 0 or 3"#,
            ]
        );
        assert_eq!(inherited(&wrong).count(), 0);
    }
}
