//! Preparation: the cheap steps that can fail. They come first, so that an error in the
//! configuration creates no files.

use std::sync::Arc;

use coracle_apimachinery::features::FeatureGates;
use coracle_apiserver::access::token_file::TokenFile;
use coracle_apiserver::audit::Auditor;
use coracle_apiserver::serve::listener::Listener;
use coracle_apiserver::telemetry::metrics::Metrics;
use coracle_apiserver::telemetry::tracer::{Tracer, TracingConfiguration};
use coracle_clock::{Clock, ManualClock};
use coracle_testing_api::ClockMode;
use jiff::Timestamp;

use super::clock_file;
use super::origin::Origin;
use crate::controllers;
use crate::error::Error;
use crate::options::Options;
use crate::recording::Recording;

/// The parts of a server that are there before its store. Dropping them closes the port; nothing
/// was recorded yet.
pub struct Preparation {
    pub features: Arc<FeatureGates>,
    pub token_file: Option<TokenFile>,
    /// The time that the API server and the controllers live by.
    pub clock: Clock,
    /// None: the clock is the machine's.
    pub manual_clock: Option<ManualClock>,
    pub metrics: Metrics,
    pub auditor: Option<Arc<Auditor>>,
    /// Connections wait until the server accepts them.
    pub listener: Listener,
    pub tracer: Arc<Tracer>,
    /// Returns `true` if a controller is selected, by its name.
    pub is_selected: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The recording of an original control plane, if there is one.
    pub recording: Option<Recording>,
}

impl Preparation {
    /// Reads the configuration files, opens the audit log and binds the port.
    ///
    /// - `recorded`: the time of a record that is shown, at which the clock stands still
    ///
    /// # Errors
    /// The configuration is wrong, or the port is taken.
    pub async fn new(
        options: &Options,
        origin: Option<&Origin>,
        recorded: Option<Timestamp>,
    ) -> Result<Preparation, Error> {
        let overrides = options.feature_gates.iter().map(|(name, value)| (name, *value));
        let features = Arc::new(FeatureGates::new(overrides)?);
        controllers::check_selection(&options.controllers)?;
        let tracing = options.tracing_config_file.as_deref().map(TracingConfiguration::read).transpose()?;
        let token_file = match origin {
            None => options.token_auth_file.as_deref().map(TokenFile::read).transpose()?,
            Some(origin) => origin.token_file.clone(),
        };
        if options.seed.is_some() && options.etcd.is_some() {
            return Err(Error::Seed);
        }
        let (clock, manual_clock) = match options.clock {
            _ if recorded.is_some() => (Clock::manual(recorded).0, None),
            ClockMode::Real => match origin {
                // A fork goes on from a time that is not the machine's.
                Some(origin) if !origin.clock.is_system() => {
                    let (clock, manual) = Clock::manual(Some(origin.clock.now()));
                    manual.resume();
                    (clock, Some(manual))
                }
                _ => (Clock::system(), None),
            },
            ClockMode::Manual if options.etcd.is_some() => return Err(Error::ManualClock),
            ClockMode::Manual => {
                let resumed = match origin {
                    None => options.data_dir.as_deref().map(clock_file::read).transpose()?.flatten(),
                    Some(origin) => Some(origin.clock.now()),
                };
                let (clock, manual) = Clock::manual(resumed);
                (clock, Some(manual))
            }
        };
        let metrics = Metrics::new();
        let auditor = Auditor::new(&options.audit, metrics.registry(), clock.clone())?;
        let listener = Listener::bind(options.listen)
            .await
            .map_err(|cause| Error::Listen { address: options.listen, cause })?
            .with_goaway_chance(options.goaway_chance)
            .with_response_latency(options.response_latency);
        let tracer = Arc::new(match tracing {
            Some(configuration) => Tracer::new(
                &configuration,
                listener.address().to_string(),
                metrics.registry(),
                clock.clone(),
            )?,
            None => Tracer::default(),
        });
        // The last step, since it creates a file.
        let recording = match origin {
            None => Recording::create(options, &clock, manual_clock.is_some())?,
            Some(_) => None,
        };
        let selection = options.controllers.clone();
        let is_selected = Arc::new(move |name: &str| controllers::is_selected(&selection, name));
        Ok(Preparation {
            features,
            token_file,
            clock,
            manual_clock,
            metrics,
            auditor,
            listener,
            tracer,
            is_selected,
            recording,
        })
    }
}
