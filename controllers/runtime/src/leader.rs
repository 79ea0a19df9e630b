//! Leader election: of several processes one runs the controllers, the one that a Lease names as
//! its holder.
//!
//! Clocks of machines differ, so the times in a Lease are not trusted: a candidate must have
//! observed it unchanged for as long as it lasts ([`Candidate::acquire_or_renew`]). Its holder
//! renews it in time, or stops before anybody else may start.
//!
//! Source: client-go's leaderelection, with kube-controller-manager's times.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use super::timers::{LEADER_ELECTION, LEADER_ELECTION_DEADLINE, LEADER_ELECTION_RELEASE};
use coracle_clock::Clock;
use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, Client};

use super::context::Context;
use super::events::Recorder;
use super::requests::ignore_conflict;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-controller-manager";
/// For how long a lease that is not renewed is its holder's.
const LEASE_SECONDS: i32 = 15;
/// For how long its holder tries to renew it.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The lease was lost, so that another process may run the controllers by now.
#[derive(Debug, thiserror::Error)]
#[error("leaderelection lost")]
pub struct LeaseLost;

/// Runs work only while `identity`, which is unique among the processes, holds the lease. Returns
/// when the lease is lost, or when `stop` completes; only in the second case it releases the lease.
///
/// - `lead`: is first polled when the lease is acquired, and has no end
///
/// # Errors
/// The lease was lost, or the work panicked.
pub async fn run_elected<'a, S>(
    context: &Context<S>,
    identity: String,
    lead: BoxFuture<'a, ()>,
    stop: BoxFuture<'a, ()>,
) -> Result<(), LeaseLost> {
    /// A lease that cannot be released expires by itself, so that there is no need to wait for
    /// long.
    const RELEASE: Duration = Duration::from_secs(1);
    let mut elector = LeaderElector::new(context, identity);
    let leading = async {
        elector.acquire().await;
        tokio::select! {
            () = elector.renew_until_lost() => {}
            () = lead => {}
        }
    };
    // A process that does not know whether it holds the lease must not lead.
    let leading = AssertUnwindSafe(leading).catch_unwind();
    tokio::select! {
        ended = leading => {
            if ended.is_err() {
                tracing::error!("the leader election panicked");
            }
            return Err(LeaseLost);
        }
        () = stop => {}
    }
    // Also if it was not acquired yet: the request may still be under way.
    tokio::select! {
        released = elector.release() => if let Err(error) = released {
            tracing::info!(%error, "the lease is not released");
        },
        _ = context.clock.sleep(LEADER_ELECTION_RELEASE.after(RELEASE)) => {}
    }
    Ok(())
}

/// Takes part in the election.
pub struct LeaderElector {
    leases: Api<Lease>,
    clock: Clock,
    recorder: Recorder,
    candidate: Candidate,
}

impl LeaderElector {
    /// Creates an elector. `identity` is unique among the candidates.
    pub fn new<S>(context: &Context<S>, identity: String) -> LeaderElector {
        let client: Client = context.unrecorded.clone();
        LeaderElector {
            leases: Api::namespaced(client, NAMESPACE),
            clock: context.clock.clone(),
            recorder: context.recorder(NAME),
            candidate: Candidate { identity, observed: None },
        }
    }

    /// Waits until the lease is ours.
    pub async fn acquire(&mut self) {
        while !self.is_renewed().await {
            drop(self.clock.sleep(LEADER_ELECTION.after(RETRY_PERIOD)).await);
        }
        self.record_event("became leader");
    }

    /// Renews the lease until that fails for too long.
    pub async fn renew_until_lost(&mut self) {
        loop {
            drop(self.clock.sleep(LEADER_ELECTION.after(RETRY_PERIOD)).await);
            let deadline = self.clock.sleep(LEADER_ELECTION_DEADLINE.after(RENEW_DEADLINE));
            let clock = self.clock.clone();
            let renewing = async {
                while !self.is_renewed().await {
                    drop(clock.sleep(LEADER_ELECTION.after(RETRY_PERIOD)).await);
                }
            };
            tokio::select! {
                () = renewing => {}
                // A response may never come, so that the deadline also ends a request.
                _ = deadline => break,
            }
        }
        self.record_event("stopped leading");
    }

    /// Releases the lease, if this process holds it.
    ///
    /// # Errors
    /// It was not released; it will expire.
    pub async fn release(self) -> kube::Result<()> {
        // A renewal may still be on its way.
        while let Some(mut lease) = self.leases.get_opt(NAME).await? {
            let now = self.clock.now();
            let Some(spec) = self.candidate.release(lease.spec.as_ref(), now) else { break };
            lease.spec = Some(spec);
            if ignore_conflict(self.leases.replace(NAME, &PostParams::default(), &lease).await)?.is_some() {
                self.record_event("stopped leading");
                break;
            }
        }
        Ok(())
    }

    /// Takes or renews the lease, unless it is another's.
    async fn is_renewed(&mut self) -> bool {
        self.renew().await.unwrap_or_else(|error| {
            tracing::info!(%error, "the lease is not renewed");
            false
        })
    }

    async fn renew(&mut self) -> kube::Result<bool> {
        let current = self.leases.get_opt(NAME).await?;
        let observed = current.as_ref().and_then(|lease| lease.spec.as_ref());
        let Some(spec) = self.candidate.acquire_or_renew(observed, self.clock.now()) else {
            return Ok(false);
        };
        let mut lease = current.clone().unwrap_or_default();
        lease.metadata.name = Some(NAME.to_owned());
        lease.spec = Some(spec);
        let written = match current {
            Some(_) => self.leases.replace(NAME, &PostParams::default(), &lease).await,
            None => self.leases.create(&PostParams::default(), &lease).await,
        };
        // Somebody else was faster.
        Ok(ignore_conflict(written)?.is_some())
    }

    fn record_event(&self, what: &str) {
        let mut lease = Lease::default();
        lease.metadata.namespace = Some(NAMESPACE.to_owned());
        lease.metadata.name = Some(NAME.to_owned());
        let message = format!("{} {what}", self.candidate.identity);
        self.recorder.normal(&lease, "LeaderElection", message);
    }
}

/// Decides from the leases it is shown.
struct Candidate {
    identity: String,
    /// The last lease that differed from the one before, and when it was first seen.
    observed: Option<(LeaseSpec, Timestamp)>,
}

impl Candidate {
    /// Returns the lease to write; None while another candidate holds it.
    fn acquire_or_renew(&mut self, lease: Option<&LeaseSpec>, now: Timestamp) -> Option<LeaseSpec> {
        let since = self.observe(lease, now);
        let bid = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let Some(lease) = lease else { return Some(bid) };
        let holder = lease.holder_identity.as_deref().unwrap_or_default();
        let transitions = lease.lease_transitions.unwrap_or_default();
        if holder == self.identity {
            let acquire_time = lease.acquire_time.clone();
            return Some(LeaseSpec { acquire_time, lease_transitions: Some(transitions), ..bid });
        }
        let lasts = SignedDuration::from_secs(lease.lease_duration_seconds.unwrap_or_default().into());
        if !holder.is_empty() && now.duration_since(since) < lasts {
            return None;
        }
        Some(LeaseSpec { lease_transitions: Some(transitions.saturating_add(1)), ..bid })
    }

    /// Returns the lease to write so that others can acquire it; None if this process does not hold
    /// it.
    fn release(&self, lease: Option<&LeaseSpec>, now: Timestamp) -> Option<LeaseSpec> {
        let lease = lease.filter(|lease| lease.holder_identity.as_ref() == Some(&self.identity))?;
        Some(LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: lease.lease_transitions,
            ..LeaseSpec::default()
        })
    }

    /// Returns the time since which the lease has been unchanged.
    fn observe(&mut self, lease: Option<&LeaseSpec>, now: Timestamp) -> Timestamp {
        match (&self.observed, lease) {
            (Some((observed, since)), Some(lease)) if observed == lease => *since,
            _ => {
                self.observed = lease.map(|lease| (lease.clone(), now));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Does {
        /// Asks for the lease; whether it is its own then.
        Bids(bool),
        Releases,
    }
    use Does::{Bids, Releases};

    #[test]
    fn one_leads_at_a_time() {
        for (case, scenario, transitions) in [
            ("the first one takes it", &[(0, "a", Bids(true))][..], 0),
            ("it is renewed", &[(0, "a", Bids(true)), (2, "a", Bids(true)), (30, "a", Bids(true))], 0),
            (
                "another waits until it was not renewed for its time",
                &[(0, "a", Bids(true)), (1, "b", Bids(false)), (15, "b", Bids(false)), (16, "b", Bids(true))],
                1,
            ),
            (
                "each renewal begins that time anew",
                &[
                    (0, "a", Bids(true)),
                    (1, "b", Bids(false)),
                    (10, "a", Bids(true)),
                    (16, "b", Bids(false)),
                    (30, "b", Bids(false)),
                    (31, "b", Bids(true)),
                    (32, "a", Bids(false)),
                ],
                1,
            ),
            (
                "an old lease is believed for its time by who sees it first",
                &[(0, "a", Bids(true)), (1000, "b", Bids(false)), (1015, "b", Bids(true))],
                1,
            ),
            (
                "what is given back is taken at once",
                &[(0, "a", Bids(true)), (1, "b", Bids(false)), (2, "a", Releases), (2, "b", Bids(true))],
                1,
            ),
            (
                "nobody gives back what is another's",
                &[(0, "a", Bids(true)), (1, "b", Releases), (2, "b", Bids(false))],
                0,
            ),
        ] {
            let mut candidates =
                ["a", "b"].map(|name| Candidate { identity: name.to_owned(), observed: None });
            let mut lease: Option<LeaseSpec> = None;
            for (second, who, does) in scenario {
                let now = Timestamp::from_second(*second).unwrap();
                let candidate = candidates.iter_mut().find(|c| c.identity == *who).unwrap();
                let written = match does {
                    Bids(_) => candidate.acquire_or_renew(lease.as_ref(), now),
                    Releases => candidate.release(lease.as_ref(), now),
                };
                if let Bids(want) = does {
                    assert_eq!(written.is_some(), *want, "{case}: {who} at {second}");
                }
                lease = written.or(lease);
            }
            assert_eq!(lease.unwrap().lease_transitions, Some(transitions), "{case}");
        }
    }

    #[test]
    fn a_renewal_keeps_the_time_of_the_election() {
        let mut candidate = Candidate { identity: "a".to_owned(), observed: None };
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = candidate.acquire_or_renew(None, at(1)).unwrap();
        let second = candidate.acquire_or_renew(Some(&first), at(3)).unwrap();
        assert_eq!(second.acquire_time, Some(MicroTime(at(1))));
        assert_eq!(second.renew_time, Some(MicroTime(at(3))));
    }
}
