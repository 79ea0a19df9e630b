//! Latency: the durations of a request's phases.
//!
//! A request has [`LatencyTrackers`]. Layers that have the request measure with
//! [`LatencyTrackers::measure`]; inner code without access to the request uses [`measure`], which
//! finds the trackers of the request that the task executes. A phase that is aborted by the
//! deadline is measured too, since it is then of interest.
//!
//! Source: `LatencyTrackers` of `k8s.io/apiserver/pkg/endpoints/request`.
#![expect(clippy::disallowed_methods, reason = "the duration of a request is measured")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

tokio::task_local! {
    /// The trackers of the request that is executed.
    static TRACKERS: Arc<LatencyTrackers>;
}

/// A part of the work for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client sends the body.
    Body,
    /// The request waits for a seat, or a large one for its permit.
    Queue,
    /// Admission, webhooks included.
    Admission,
    /// Admission webhooks: of each pass, until the last one of it has responded.
    Webhooks,
    /// The store decides about a write, or catches up with other servers.
    Store,
}

/// The total duration of each phase of a request.
#[derive(Debug, Default)]
pub struct LatencyTrackers {
    /// Microseconds, by phase.
    micros: [AtomicU64; 5],
}

impl LatencyTrackers {
    /// Measures a phase until the timer is dropped.
    pub fn measure(self: &Arc<LatencyTrackers>, phase: Phase) -> Timer {
        Timer { trackers: self.clone(), phase, began: Instant::now() }
    }

    /// Runs the work of a request, such that [`measure`] records in these trackers.
    pub fn scope<F: Future>(
        self: &Arc<LatencyTrackers>,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        TRACKERS.scope(self.clone(), work)
    }

    /// Returns the duration of a phase.
    pub fn get(&self, phase: Phase) -> Duration {
        Duration::from_micros(self.micros[phase as usize].load(Ordering::Relaxed))
    }
}

/// Measures a phase until it is dropped.
pub struct Timer {
    trackers: Arc<LatencyTrackers>,
    phase: Phase,
    began: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.trackers.micros[self.phase as usize].fetch_add(micros, Ordering::Relaxed);
    }
}

/// Measures a phase of the request that the current task executes, until the timer is dropped. None
/// outside of requests.
pub fn measure(phase: Phase) -> Option<Timer> {
    TRACKERS.try_with(|trackers| trackers.measure(phase)).ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn phases_of_a_request_add_up_even_if_they_are_broken_off() {
        const WAIT: Duration = Duration::from_millis(2);
        let trackers = Arc::new(LatencyTrackers::default());
        for _ in 0..2 {
            trackers
                .scope(async {
                    let _timer = measure(Phase::Store);
                    std::thread::sleep(WAIT);
                })
                .await;
        }
        let broken_off = trackers.scope(async {
            let _timer = measure(Phase::Admission);
            std::thread::sleep(WAIT);
            std::future::pending::<()>().await;
        });
        assert!(broken_off.now_or_never().is_none());
        assert!(trackers.get(Phase::Store) >= WAIT * 2 && trackers.get(Phase::Admission) >= WAIT);
        assert_eq!(trackers.get(Phase::Body), Duration::ZERO);
        assert!(measure(Phase::Store).is_none(), "outside of any request");
    }
}
