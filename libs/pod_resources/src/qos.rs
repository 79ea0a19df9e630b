//! Quality of service: how a pod fares when its node runs short.
//!
//! Source: the Kubernetes documentation, "Pod Quality of Service Classes"; KEP-2837 for pods that
//! ask as a whole.

use std::fmt;

use crate::list::{ResourceList, add_resource_list};

/// The quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Everything has limits of cpu and memory, and requests as much.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Neither cpu nor memory is requested or limited.
    BestEffort,
}

impl QosClass {
    /// Returns the name in a pod's status.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the class of a pod. Only cpu and memory count, and only above zero.
///
/// - `requirements`: requests and limits of each container, init containers included; only those of
///   the pod if it has pod-level resources
pub fn qos_class(requirements: impl IntoIterator<Item = (ResourceList, ResourceList)>) -> QosClass {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    let mut all_limited = true;
    for (mut requested, mut limited) in requirements {
        retain_compute(&mut requested);
        retain_compute(&mut limited);
        all_limited &= limited.len() == 2;
        add_resource_list(&mut requests, &requested);
        add_resource_list(&mut limits, &limited);
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if all_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn retain_compute(list: &mut ResourceList) {
    list.retain(|name, quantity| (name == "cpu" || name == "memory") && quantity.is_positive());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_limits_determine_the_qos_class() {
        let list = |entries: &[(&str, &str)]| -> ResourceList {
            entries
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.parse().expect("a quantity")))
                .collect()
        };
        let none = list(&[]);
        let zero = list(&[("cpu", "0")]);
        let all = list(&[("cpu", "1"), ("memory", "1Gi")]);
        let less = list(&[("cpu", "500m"), ("memory", "1Gi")]);
        let cpu = list(&[("cpu", "1")]);
        let storage = list(&[("ephemeral-storage", "1Gi")]);
        for (case, requirements, want) in [
            ("nothing", vec![(&none, &none)], QosClass::BestEffort),
            ("zero is nothing", vec![(&zero, &none)], QosClass::BestEffort),
            ("storage does not count", vec![(&storage, &storage)], QosClass::BestEffort),
            ("all and equal", vec![(&all, &all)], QosClass::Guaranteed),
            ("less requested", vec![(&less, &all)], QosClass::Burstable),
            ("no limits", vec![(&all, &none)], QosClass::Burstable),
            ("cpu only", vec![(&cpu, &cpu)], QosClass::Burstable),
            ("one container without", vec![(&all, &all), (&none, &none)], QosClass::Burstable),
        ] {
            let requirements = requirements.into_iter().map(|(a, b)| (a.clone(), b.clone()));
            assert_eq!(qos_class(requirements), want, "{case}");
        }
    }
}
