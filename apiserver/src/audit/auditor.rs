//! The auditor of a server: its policy, its log, and the events of a request from stage to stage.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_clock::Clock;
use http::HeaderMap;
use prometheus::Registry;
use tokio::sync::Semaphore;

use super::context::{AuditContext, AuditedRequest};
use super::event::Event;
use super::log::{AuditLog, Format, LogOptions, Mode, Written};
use super::metrics::AuditMetrics;
use super::policy::{Level, Policy, PolicyError, Stage};
use crate::access::UserInfo;
use crate::access::authorize::RequestAttributes;

/// The audit options of a server; no auditing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// The policy (`--audit-policy-file`). Without one, nothing is audited.
    pub policy_file: Option<PathBuf>,
    /// The log (`--audit-log-path` and others). Without one, nothing is audited.
    pub log: Option<LogOptions>,
}

/// The reasons for which a server cannot audit: one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy cannot be used.
    #[error("loading audit policy file: {0}")]
    Policy(#[from] PolicyError),
    /// The log cannot be written.
    #[error("{path}: {source}", path = .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The maximum total size, in bytes, of chunked responses that are buffered for their audit events,
/// regardless of how slowly clients read.
const MAX_BUFFERED_RESPONSES: usize = 64 << 20;

/// Audits requests.
pub struct Auditor {
    /// A permit for each byte of responses that may be buffered.
    held: Arc<Semaphore>,
    policy: Policy,
    log: AuditLog,
    metrics: AuditMetrics,
    clock: Clock,
}

impl Auditor {
    /// Creates the auditor of a server; None if it has no policy or no log. The metrics exist in
    /// any case.
    ///
    /// # Errors
    /// See [`AuditError`]. An invalid policy is rejected even if there is no log.
    pub fn new(
        options: &AuditOptions,
        registry: &Registry,
        clock: Clock,
    ) -> Result<Option<Arc<Auditor>>, AuditError> {
        let metrics = AuditMetrics::new(registry);
        let policy = options.policy_file.as_deref().map(Policy::read).transpose()?;
        let Some(log) = &options.log else { return Ok(None) };
        let opened = AuditLog::open(log, metrics.clone(), clock.clone());
        let opened = opened.map_err(|source| AuditError::Log { path: log.path.clone(), source })?;
        let Some(policy) = policy else {
            tracing::warn!("no audit policy file provided, no events will be recorded for log backend");
            return Ok(None);
        };
        let held = Arc::new(Semaphore::new(MAX_BUFFERED_RESPONSES));
        Ok(Some(Arc::new(Auditor { held, policy, log: opened, metrics, clock })))
    }

    /// Begins the audit of a request, if the policy audits it.
    ///
    /// - `user`: the authenticated user; None if authentication failed.
    /// - `event`: creates the event, without its level and user.
    pub fn begin(
        &self,
        audit: &AuditContext,
        user: Option<&UserInfo>,
        attributes: &RequestAttributes<'_>,
        event: impl FnOnce(jiff::Timestamp) -> Event,
    ) {
        let config = self.policy.evaluate(user, attributes);
        self.metrics.level(config.map_or(Level::None, |config| config.level));
        match config {
            Some(config) => {
                let event = Event { user: user.cloned().unwrap_or_default(), ..event(self.clock.now()) };
                audit.begin(config.clone(), event);
            }
            None => audit.skip(),
        }
    }

    /// Writes the event of a stage. None if the policy omits it.
    pub fn log_stage(&self, request: &AuditedRequest, stage: Stage) -> Option<Written> {
        if request.config.omit_stages.contains(&stage) {
            return None;
        }
        self.metrics.event();
        let line = {
            let event = request.event();
            // The receipt is when the request was received.
            let at = if stage == Stage::RequestReceived { event.received_at } else { self.clock.now() };
            match self.log.format {
                Format::Json => event.to_json(stage, at),
                Format::Legacy => event.to_legacy(stage),
            }
        };
        Some(self.log.append(line))
    }

    /// Returns the semaphore that limits the bytes of responses held until they are recorded. A
    /// permit is one byte.
    pub fn held(&self) -> &Arc<Semaphore> {
        &self.held
    }

    /// Returns `true` if a request is refused when its receipt cannot be recorded.
    pub fn is_strict(&self) -> bool {
        self.log.mode == Mode::BlockingStrict
    }

    /// Waits until the receipt of a request is recorded, and returns whether it was. If not, the
    /// request counts as refused.
    pub async fn accepts(&self, received: Option<Written>) -> bool {
        let Some(received) = received else { return true };
        let is_written = self.log.wait(received).await;
        if !is_written {
            self.metrics.rejected();
        }
        is_written
    }

    /// Waits until events are written, if responses do.
    pub async fn wait(&self, written: Option<Written>) {
        if let Some(written) = written
            && self.log.mode != Mode::Batch
        {
            self.log.wait(written).await;
        }
    }

    /// Waits until all that was recorded so far is written, for a moment.
    pub async fn flush(&self) {
        self.log.flush().await;
    }
}

/// Returns the addresses of a client: those reported by proxies, then the remote address of the
/// connection.
///
/// Source: `k8s.io/apimachinery/pkg/util/net`, `SourceIPs`.
pub fn source_ips(headers: &HeaderMap, remote: Option<IpAddr>) -> Vec<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let mut ips: Vec<IpAddr> = text("x-forwarded-for").split(',').filter_map(parse).collect();
    ips.extend(parse(text("x-real-ip")).filter(|ip| !ips.contains(ip)));
    let remote = remote.map(|ip| ip.to_canonical());
    ips.extend(remote.filter(|ip| ips.last() != Some(ip)));
    ips.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_the_chain_of_proxies_and_the_other_end() {
        let remote: IpAddr = "10.0.0.9".parse().expect("an address");
        for (forwarded, real, remote, want) in [
            ("", "", Some(remote), &["10.0.0.9"][..]),
            ("", "", None, &[]),
            ("1.1.1.1, x,2.2.2.2", "", Some(remote), &["1.1.1.1", "2.2.2.2", "10.0.0.9"]),
            ("1.1.1.1", "1.1.1.1", Some(remote), &["1.1.1.1", "10.0.0.9"]),
            ("1.1.1.1", "::ffff:3.3.3.3", None, &["1.1.1.1", "3.3.3.3"]),
            ("10.0.0.9", "", Some(remote), &["10.0.0.9"]),
        ] {
            let headers = [("x-forwarded-for", forwarded), ("x-real-ip", real)];
            let headers = headers.map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).expect("text"))
            });
            let got = source_ips(&HeaderMap::from_iter(headers), remote);
            assert_eq!(got, want, "{forwarded} {real}");
        }
    }
}
