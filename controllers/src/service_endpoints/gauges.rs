//! Gauges of the endpoints and slices of all Services together.

use std::collections::HashMap;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::metrics::Metrics;
use parking_lot::Mutex;
use prometheus::Gauge;

/// The endpoints and slices of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub endpoints: usize,
    /// The number of existing slices.
    pub slices: usize,
    /// Slices that would suffice.
    pub desired_slices: usize,
}

/// The names of the gauges of one controller.
pub struct Names {
    pub endpoints: &'static str,
    pub slices: &'static str,
    pub desired_slices: &'static str,
}

/// The sums of all Services.
pub struct Gauges {
    endpoints: Gauge,
    slices: Gauge,
    desired_slices: Gauge,
    services: Mutex<HashMap<NamespacedName, Counts>>,
}

impl Gauges {
    pub fn new(metrics: &Metrics, names: Names) -> Gauges {
        let none: &[&str] = &[];
        let gauge = |name, help| metrics.gauge(name, help, &[]).with_label_values(none);
        Gauges {
            endpoints: gauge(names.endpoints, "Number of endpoints desired"),
            slices: gauge(names.slices, "Number of EndpointSlices"),
            desired_slices: gauge(
                names.desired_slices,
                "Number of EndpointSlices that would exist with perfect endpoint allocation",
            ),
            services: Mutex::default(),
        }
    }

    /// Sets the counts of a Service; None: it was deleted.
    pub fn set(&self, service: &NamespacedName, counts: Option<Counts>) {
        let mut services = self.services.lock();
        let old = match counts {
            Some(counts) => services.insert(service.clone(), counts),
            None => services.remove(service),
        };
        let (old, new) = (old.unwrap_or_default(), counts.unwrap_or_default());
        let change = |gauge: &Gauge, of: fn(Counts) -> usize| gauge.add(of(new) as f64 - of(old) as f64);
        change(&self.endpoints, |counts| counts.endpoints);
        change(&self.slices, |counts| counts.slices);
        change(&self.desired_slices, |counts| counts.desired_slices);
    }
}
