//! QueueSet: a number of seats, and a queue of requests for each flow that waits for one.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

/// What bounds a [`QueueSet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests that execute at once.
    pub seats: usize,
    /// Requests of one flow that wait.
    pub waiting_a_flow: usize,
    /// Requests of all flows that wait.
    pub waiting: usize,
}

/// Why a request gets no seat; upstream's reasons of `apiserver_flowcontrol_rejected_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Nobody may wait at this level.
    ConcurrencyLimit,
    /// Too many wait already.
    QueueFull,
    /// It waited until its deadline.
    TimeOut,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Rejection; 3] = [Rejection::ConcurrencyLimit, Rejection::QueueFull, Rejection::TimeOut];

    /// The value of the label `reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Rejection::ConcurrencyLimit => "concurrency-limit",
            Rejection::QueueFull => "queue-full",
            Rejection::TimeOut => "time-out",
        }
    }
}

/// Seats that are dealt out fairly: the next goes to the waiting flow that holds the fewest, and no flow holds more than half of
/// them, so that what takes long in one flow keeps no other out.
#[derive(Default)]
pub struct QueueSet(Mutex<State>);

#[derive(Default)]
struct State {
    limits: Limits,
    seated: usize,
    waiting: usize,
    /// Flows that hold a seat or wait for one.
    flows: HashMap<Arc<str>, Flow>,
    /// The flows that wait: by the seats they hold, then by who came first.
    queue: BTreeSet<(usize, u64, Arc<str>)>,
    /// Counts who began to wait.
    arrivals: u64,
}

#[derive(Default)]
struct Flow {
    seated: usize,
    /// When the first of those who wait came: its place in `queue`.
    arrival: u64,
    waiting: VecDeque<oneshot::Sender<Seat>>,
}

/// A seat, given back when it is dropped.
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
    /// A queue set of its own, not of a priority level.
    pub fn with(limits: Limits) -> Arc<QueueSet> {
        let queue_set = Arc::new(QueueSet::default());
        queue_set.set_limits(limits);
        queue_set
    }

    /// Changes the limits. Whoever has a seat keeps it.
    pub fn set_limits(self: &Arc<QueueSet>, limits: Limits) {
        let mut state = self.lock();
        if state.limits != limits {
            state.limits = limits;
            self.dispatch(state);
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// Takes a seat for a request of a flow, waiting for one until the deadline at the latest.
    ///
    /// # Errors
    /// See [`Rejection`].
    pub async fn acquire(self: &Arc<QueueSet>, flow: &str, deadline: Instant) -> Result<Seat, Rejection> {
        let seated = match self.try_acquire(flow)? {
            Ok(seat) => return Ok(seat),
            Err(seated) => seated,
        };
        match tokio::time::timeout_at(deadline, seated).await {
            Ok(Ok(seat)) => Ok(seat),
            // The sender lives as long as the receiver waits.
            Ok(Err(_)) | Err(_) => Err(Rejection::TimeOut),
        }
    }

    /// A seat at once, or the place in the queue.
    fn try_acquire(
        self: &Arc<QueueSet>,
        flow: &str,
    ) -> Result<Result<Seat, oneshot::Receiver<Seat>>, Rejection> {
        let mut state = self.lock();
        let State { limits, waiting, .. } = *state;
        let (of_flow_seated, of_flow_waiting) =
            state.flows.get(flow).map_or((0, 0), |flow| (flow.seated, flow.waiting.len()));
        let free = state.seated < limits.seats && of_flow_seated < limits.seats_a_flow();
        // Who waits is overtaken only by flows that could not be given the free seat anyway.
        if free && of_flow_waiting == 0 {
            let flow: Arc<str> = flow.into();
            state.seated += 1;
            state.flows.entry(flow.clone()).or_default().seated += 1;
            return Ok(Ok(Seat { queue_set: self.clone(), flow }));
        }
        if limits.waiting == 0 {
            return Err(Rejection::ConcurrencyLimit);
        }
        if waiting >= limits.waiting || of_flow_waiting >= limits.waiting_a_flow {
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
            let place = (entry.seated, arrival, flow);
            state.queue.insert(place);
        }
        Ok(Err(receiver))
    }

    fn release(self: &Arc<QueueSet>, flow: &Arc<str>) {
        let mut state = self.lock();
        state.seated -= 1;
        state.change(flow, |flow| flow.seated -= 1);
        self.dispatch(state);
    }

    /// Gives free seats to those who wait.
    fn dispatch(self: &Arc<QueueSet>, mut state: MutexGuard<'_, State>) {
        // Seats whose requests are gone: dropped without the lock, since each gives itself back.
        let mut unwanted = Vec::new();
        while state.seated < state.limits.seats {
            let Some((seated, _, flow)) = state.queue.first().cloned() else { break };
            if seated >= state.limits.seats_a_flow() {
                break;
            }
            let mut next = None;
            state.waiting -= 1;
            state.change(&flow, |flow| {
                next = flow.waiting.pop_front().filter(|next| !next.is_closed());
                flow.seated += usize::from(next.is_some());
            });
            let Some(next) = next else { continue };
            state.seated += 1;
            if let Err(seat) = next.send(Seat { queue_set: self.clone(), flow }) {
                unwanted.push(seat);
            }
        }
        drop(state);
        drop(unwanted);
    }

    // A panic elsewhere cannot happen between the statements that change the state together: they do not panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limits {
    fn seats_a_flow(&self) -> usize {
        self.seats.div_ceil(2)
    }
}

impl State {
    /// Changes a flow, and its place in the queue with it.
    fn change(&mut self, key: &Arc<str>, change: impl FnOnce(&mut Flow)) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        if !flow.waiting.is_empty() {
            self.queue.remove(&(flow.seated, flow.arrival, key.clone()));
        }
        let waiting = flow.waiting.len();
        change(flow);
        if flow.waiting.len() < waiting {
            // The next of this flow stands behind all others that wait and hold as few seats.
            self.arrivals += 1;
            flow.arrival = self.arrivals;
        }
        if !flow.waiting.is_empty() {
            self.queue.insert((flow.seated, flow.arrival, key.clone()));
        } else if flow.seated == 0 {
            self.flows.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    const LIMITS: Limits = Limits { seats: 4, waiting_a_flow: 10, waiting: 25 };

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(15)
    }

    fn is_empty(queue_set: &QueueSet) -> bool {
        let state = queue_set.lock();
        state.flows.is_empty() && state.queue.is_empty() && state.seated == 0 && state.waiting == 0
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
        let mut seated = Vec::new();
        for (_, request) in &mut waiting {
            assert!(request.as_mut().now_or_never().is_none());
        }
        // c ends, then b, then both of a, then all that were seated meanwhile.
        for ends in [3, 2, 0, 0] {
            drop(seats.remove(ends));
            waiting.retain_mut(|(flow, request)| match request.as_mut().now_or_never() {
                Some(seat) => {
                    order.push_str(flow);
                    seated.push(seat.expect("a seat"));
                    false
                }
                None => true,
            });
        }
        assert_eq!(order, "dbab");
        drop(seated);
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
        // Requests whose clients are gone give way.
        drop(waiting);
        drop(seats);
        assert!(queue_set.acquire("greedy", later()).now_or_never().is_some());
        assert!(is_empty(&queue_set));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_rejected() {
        let queue_set = QueueSet::with(Limits { seats: 1, ..LIMITS });
        let seat = queue_set.acquire("a", later()).await.expect("free");
        assert_eq!(queue_set.acquire("b", later()).await.err(), Some(Rejection::TimeOut));
        drop(seat);
        assert!(is_empty(&queue_set), "who gave up is forgotten with the next seat");
        let none = QueueSet::with(Limits { seats: 0, waiting_a_flow: 0, waiting: 0 });
        assert_eq!(none.acquire("a", later()).await.err(), Some(Rejection::ConcurrencyLimit));
    }

    #[tokio::test(start_paused = true)]
    async fn more_seats_are_dealt_at_once() {
        let queue_set = QueueSet::with(Limits { seats: 1, ..LIMITS });
        let _seat = queue_set.acquire("a", later()).await.expect("free");
        let mut waiting = Box::pin(queue_set.acquire("b", later()));
        assert!(waiting.as_mut().now_or_never().is_none());
        queue_set.set_limits(LIMITS);
        assert!(waiting.now_or_never().is_some());
    }

    /// However many ask, wait, give up and end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_seat_is_lost_or_given_twice() {
        let queue_set = QueueSet::with(Limits { seats: 3, waiting_a_flow: 1000, waiting: 10_000 });
        let tasks = (0..64).map(|task: u64| {
            let queue_set = queue_set.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let patience = Duration::from_micros((task * 31 + round * 17) % 400);
                    let flow = format!("{}", task % 5);
                    if let Ok(_seat) = queue_set.acquire(&flow, Instant::now() + patience).await {
                        let seated = queue_set.lock().seated;
                        assert!((1..=3).contains(&seated), "{seated}");
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
