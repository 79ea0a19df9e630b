//! QueueSet: a number of seats, and a queue of requests for each flow that waits for one.
#![expect(clippy::disallowed_methods, reason = "flow control protects the server")]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The limits of a [`QueueSet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// The maximum number of executing requests.
    pub seats: usize,
    /// The maximum number of waiting requests of one flow.
    pub waiting_per_flow: usize,
    /// The maximum number of waiting requests of all flows.
    pub waiting: usize,
}

/// The reason why a request gets no seat: upstream's reasons of
/// `apiserver_flowcontrol_rejected_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The level has no queues.
    ConcurrencyLimit,
    /// The queue of the flow, or of the level, is full.
    QueueFull,
    /// The deadline passed while the request waited.
    TimeOut,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Rejection; 3] = [Rejection::ConcurrencyLimit, Rejection::QueueFull, Rejection::TimeOut];

    /// Returns the value of the label `reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Rejection::ConcurrencyLimit => "concurrency-limit",
            Rejection::QueueFull => "queue-full",
            Rejection::TimeOut => "time-out",
        }
    }
}

/// Seats that are assigned fairly: the next one is given to the waiting flow with the fewest, and
/// no flow gets more than half of them, so that long requests of one flow do not block the others.
#[derive(Default)]
pub struct QueueSet(Mutex<State>);

#[derive(Default)]
struct State {
    limits: QueueLimits,
    seats_in_use: usize,
    waiting: usize,
    /// Flows that have a seat or wait for one.
    flows: HashMap<Arc<str>, Flow>,
    /// The waiting flows: by their seats in use, then by arrival.
    queue: BTreeSet<(usize, u64, Arc<str>)>,
    /// Counts arrivals of waiting flows.
    arrivals: u64,
}

#[derive(Default)]
struct Flow {
    seats_in_use: usize,
    /// The arrival of the flow's first waiting request: its position in `queue`.
    arrival: u64,
    waiting: VecDeque<oneshot::Sender<Seat>>,
}

/// A seat, released when it is dropped.
pub struct Seat {
    queue_set: Arc<QueueSet>,
    flow: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.queue_set.release(&self.flow);
    }
}

impl QueueSet {
    /// Creates a queue set without a priority level.
    pub fn with(limits: QueueLimits) -> Arc<QueueSet> {
        let queue_set = Arc::new(QueueSet::default());
        queue_set.set_limits(limits);
        queue_set
    }

    /// Changes the limits. Requests keep their seats.
    pub fn set_limits(self: &Arc<QueueSet>, limits: QueueLimits) {
        let mut state = self.lock();
        if state.limits != limits {
            state.limits = limits;
            self.dispatch(state);
        }
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> QueueLimits {
        self.lock().limits
    }

    /// Acquires a seat for a request of a flow, waiting for one until the deadline at the latest.
    ///
    /// # Errors
    /// See [`Rejection`].
    pub async fn acquire(self: &Arc<QueueSet>, flow: &str, deadline: Instant) -> Result<Seat, Rejection> {
        let seats_in_use = match self.try_acquire(flow)? {
            Ok(seat) => return Ok(seat),
            Err(seats_in_use) => seats_in_use,
        };
        match tokio::time::timeout_at(deadline, seats_in_use).await {
            Ok(Ok(seat)) => Ok(seat),
            // The sender lives as long as the receiver waits.
            Ok(Err(_)) | Err(_) => Err(Rejection::TimeOut),
        }
    }

    /// Takes a seat if one is free; otherwise returns the position in the queue.
    fn try_acquire(
        self: &Arc<QueueSet>,
        flow: &str,
    ) -> Result<Result<Seat, oneshot::Receiver<Seat>>, Rejection> {
        let mut state = self.lock();
        let State { limits, waiting, .. } = *state;
        let (of_flow_seated, of_flow_waiting) =
            state.flows.get(flow).map_or((0, 0), |flow| (flow.seats_in_use, flow.waiting.len()));
        let free = state.seats_in_use < limits.seats && of_flow_seated < limits.max_seats_per_flow();
        // A waiting flow is overtaken only while it may not get the free seat itself.
        if free && of_flow_waiting == 0 {
            let flow: Arc<str> = flow.into();
            state.seats_in_use += 1;
            state.flows.entry(flow.clone()).or_default().seats_in_use += 1;
            return Ok(Ok(Seat { queue_set: self.clone(), flow }));
        }
        if limits.waiting == 0 {
            return Err(Rejection::ConcurrencyLimit);
        }
        if waiting >= limits.waiting || of_flow_waiting >= limits.waiting_per_flow {
            return Err(Rejection::QueueFull);
        }
        let (sender, receiver) = oneshot::channel();
        let flow: Arc<str> = flow.into();
        state.waiting += 1;
        state.arrivals += 1;
        let arrival = state.arrivals;
        let entry = state.flows.entry(flow.clone()).or_default();
        entry.waiting.push_back(sender);
        if entry.waiting.len() == 1 {
            entry.arrival = arrival;
            let place = (entry.seats_in_use, arrival, flow);
            state.queue.insert(place);
        }
        Ok(Err(receiver))
    }

    fn release(self: &Arc<QueueSet>, flow: &Arc<str>) {
        let mut state = self.lock();
        state.seats_in_use -= 1;
        state.change(flow, |flow| flow.seats_in_use -= 1);
        self.dispatch(state);
    }

    /// Assigns free seats to waiting requests.
    fn dispatch(self: &Arc<QueueSet>, mut state: MutexGuard<'_, State>) {
        // Seats of requests that were cancelled: dropped without the lock, since each releases
        // itself.
        let mut unwanted = Vec::new();
        while state.seats_in_use < state.limits.seats {
            let Some((seats_in_use, _, flow)) = state.queue.first().cloned() else { break };
            if seats_in_use >= state.limits.max_seats_per_flow() {
                break;
            }
            let mut next = None;
            state.waiting -= 1;
            state.change(&flow, |flow| {
                next = flow.waiting.pop_front().filter(|next| !next.is_closed());
                flow.seats_in_use += usize::from(next.is_some());
            });
            let Some(next) = next else { continue };
            state.seats_in_use += 1;
            if let Err(seat) = next.send(Seat { queue_set: self.clone(), flow }) {
                unwanted.push(seat);
            }
        }
        drop(state);
        drop(unwanted);
    }

    // The statements that change the state together do not panic, so a poisoned lock still guards a
    // consistent state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl QueueLimits {
    fn max_seats_per_flow(&self) -> usize {
        self.seats.div_ceil(2)
    }
}

impl State {
    /// Changes a flow, and its position in the queue.
    fn change(&mut self, key: &Arc<str>, change: impl FnOnce(&mut Flow)) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        if !flow.waiting.is_empty() {
            self.queue.remove(&(flow.seats_in_use, flow.arrival, key.clone()));
        }
        let waiting = flow.waiting.len();
        change(flow);
        if flow.waiting.len() < waiting {
            // The flow's next request queues behind those of all flows with as few seats.
            self.arrivals += 1;
            flow.arrival = self.arrivals;
        }
        if !flow.waiting.is_empty() {
            self.queue.insert((flow.seats_in_use, flow.arrival, key.clone()));
        } else if flow.seats_in_use == 0 {
            self.flows.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    const LIMITS: QueueLimits = QueueLimits { seats: 4, waiting_per_flow: 10, waiting: 25 };

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(15)
    }

    fn is_empty(queue_set: &QueueSet) -> bool {
        let state = queue_set.lock();
        state.flows.is_empty() && state.queue.is_empty() && state.seats_in_use == 0 && state.waiting == 0
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_seat_goes_to_the_flow_that_holds_the_fewest() {
        let queue_set = QueueSet::with(LIMITS);
        let mut seats = Vec::new();
        for flow in ["a", "a", "b", "c"] {
            seats.push(queue_set.acquire(flow, later()).await.expect("free"));
        }
        let mut waiting: Vec<_> = ["a", "a", "b", "b", "d"]
            .map(|flow| (flow, Box::pin(queue_set.acquire(flow, later()))))
            .into_iter()
            .collect();
        let mut order = String::new();
        let mut seats_in_use = Vec::new();
        for (_, request) in &mut waiting {
            assert!(request.as_mut().now_or_never().is_none());
        }
        // c ends, then b, then both of a, then all that got a seat meanwhile.
        for ends in [3, 2, 0, 0] {
            drop(seats.remove(ends));
            waiting.retain_mut(|(flow, request)| match request.as_mut().now_or_never() {
                Some(seat) => {
                    order.push_str(flow);
                    seats_in_use.push(seat.expect("a seat"));
                    false
                }
                None => true,
            });
        }
        assert_eq!(order, "dbab");
        drop(seats_in_use);
        for (_, request) in waiting {
            drop(request.await.expect("a seat"));
        }
        assert!(is_empty(&queue_set));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_alone_gets_half_of_the_seats_and_its_own_queue() {
        let queue_set = QueueSet::with(LIMITS);
        let mut seats = Vec::new();
        for _ in 0..2 {
            seats.push(queue_set.acquire("greedy", later()).await.expect("free"));
        }
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(queue_set.acquire("greedy", later()))).collect();
        assert!(waiting.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
        let full = queue_set.acquire("greedy", later()).await.err();
        assert_eq!(full, Some(Rejection::QueueFull));
        assert!(queue_set.acquire("other", later()).now_or_never().is_some(), "not held up");
        // Cancelled requests leave the queue.
        drop(waiting);
        drop(seats);
        assert!(queue_set.acquire("greedy", later()).now_or_never().is_some());
        assert!(is_empty(&queue_set));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_too_long_is_rejected() {
        let queue_set = QueueSet::with(QueueLimits { seats: 1, ..LIMITS });
        let seat = queue_set.acquire("a", later()).await.expect("free");
        assert_eq!(queue_set.acquire("b", later()).await.err(), Some(Rejection::TimeOut));
        drop(seat);
        assert!(is_empty(&queue_set), "who gave up is forgotten with the next seat");
        let none = QueueSet::with(QueueLimits { seats: 0, waiting_per_flow: 0, waiting: 0 });
        assert_eq!(none.acquire("a", later()).await.err(), Some(Rejection::ConcurrencyLimit));
    }

    #[tokio::test(start_paused = true)]
    async fn additional_seats_are_dispatched_immediately() {
        let queue_set = QueueSet::with(QueueLimits { seats: 1, ..LIMITS });
        let _seat = queue_set.acquire("a", later()).await.expect("free");
        let mut waiting = Box::pin(queue_set.acquire("b", later()));
        assert!(waiting.as_mut().now_or_never().is_none());
        queue_set.set_limits(LIMITS);
        assert!(waiting.now_or_never().is_some());
    }

    /// Checks any mix of acquiring, waiting, cancellation and completion.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_seat_is_lost_or_taken_twice() {
        let queue_set = QueueSet::with(QueueLimits { seats: 3, waiting_per_flow: 1000, waiting: 10_000 });
        let tasks = (0..64).map(|task: u64| {
            let queue_set = queue_set.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let patience = Duration::from_micros((task * 31 + round * 17) % 400);
                    let flow = format!("{}", task % 5);
                    if let Ok(_seat) = queue_set.acquire(&flow, Instant::now() + patience).await {
                        let seats_in_use = queue_set.lock().seats_in_use;
                        assert!((1..=3).contains(&seats_in_use), "{seats_in_use}");
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        drop(queue_set.acquire("last", later()).await.expect("all seats are free"));
        assert!(is_empty(&queue_set));
    }
}
