//! The chain: plugins in the order in which they were added.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::Arc;
use std::time::Instant;

use super::{AdmissionAttributes, AdmissionMetrics, AdmissionPlugin, AsyncAdmissionPlugin, QuotaReserver};
use crate::Result;
use crate::cluster::Cluster;
use crate::telemetry::latency::{Phase, measure};

/// One plugin of the chain.
enum Link {
    Sync(Box<dyn AdmissionPlugin>),
    Async(Box<dyn AsyncAdmissionPlugin>),
}

/// The plugins, in order, and the quotas that follow them.
#[derive(Default)]
pub struct AdmissionChain {
    links: Vec<Link>,
    metrics: Option<Arc<AdmissionMetrics>>,
    quotas: Option<Box<dyn QuotaReserver>>,
}

impl AdmissionChain {
    /// Appends a plugin.
    pub fn add(&mut self, plugin: impl AdmissionPlugin + 'static) {
        self.links.push(Link::Sync(Box::new(plugin)));
    }

    /// Appends a plugin that waits.
    pub fn add_async(&mut self, plugin: impl AsyncAdmissionPlugin + 'static) {
        self.links.push(Link::Async(Box::new(plugin)));
    }

    /// Times the passes in these metrics.
    pub fn measure_by(&mut self, metrics: Arc<AdmissionMetrics>) {
        self.metrics = Some(metrics);
    }

    /// Reserves in quotas what the plugins admit.
    pub fn reserve_quotas_by(&mut self, quotas: impl QuotaReserver + 'static) {
        self.quotas = Some(Box::new(quotas));
    }

    /// Returns the quotas in which admitted requests are reserved.
    pub fn quotas(&self) -> Option<&dyn QuotaReserver> {
        self.quotas.as_deref()
    }

    /// Returns `true` if an asynchronous plugin handles the request, so that the chain may take
    /// long.
    pub fn waits(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        let waits = |link: &Link| matches!(link, Link::Async(plugin) if plugin.handles(attributes, cluster));
        self.links.iter().any(waits)
    }

    /// Runs the first pass: plugins may change the object. It is repeated once if a webhook or
    /// policy changed it.
    ///
    /// # Errors
    /// That of the first plugin that rejects the request.
    pub async fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _timer = measure(Phase::Admission);
        let began = Instant::now();
        let admitted = match self.admit_once(attributes, cluster).await {
            Ok(()) if attributes.reinvocation.begin_reinvoke() => self.admit_once(attributes, cluster).await,
            admitted => admitted,
        };
        if let Some(metrics) = &self.metrics {
            metrics.step("admit", attributes.operation, began.elapsed(), admitted.is_err());
        }
        admitted
    }

    async fn admit_once(
        &self,
        attributes: &mut AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
    ) -> Result<()> {
        for link in &self.links {
            match link {
                Link::Sync(plugin) => plugin.admit(attributes, cluster)?,
                Link::Async(plugin) if plugin.handles(attributes, cluster) => {
                    plugin.admit(attributes, cluster).await?;
                }
                Link::Async(_) => {}
            }
        }
        Ok(())
    }

    /// Runs the second pass: plugins see the final object.
    ///
    /// # Errors
    /// That of the first plugin that rejects the request.
    pub async fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _timer = measure(Phase::Admission);
        let began = Instant::now();
        let validated = self.validate_once(attributes, cluster).await;
        if let Some(metrics) = &self.metrics {
            metrics.step("validate", attributes.operation, began.elapsed(), validated.is_err());
        }
        validated
    }

    async fn validate_once(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        for link in &self.links {
            match link {
                Link::Sync(plugin) => plugin.validate(attributes, cluster)?,
                Link::Async(plugin) if plugin.handles(attributes, cluster) => {
                    plugin.validate(attributes, cluster).await?;
                }
                Link::Async(_) => {}
            }
        }
        Ok(())
    }
}
