//! A thread for the sequencers of many stores, each of which has little to do: those of forks.
//!
//! Their logs are in memory, so that none keeps the others waiting.

use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use super::{Message, Sequencer};
use crate::Index;

/// The groups of messages, or steps of upkeep, after which others have their turn.
const TURN: usize = 64;

/// The interval at which every store looks after its history.
const UPKEEP: Duration = Duration::from_secs(5);

/// A thread for sequencers. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub(crate) struct SharedThread {
    notices: mpsc::Sender<Notice>,
    next: Arc<AtomicU64>,
}

/// A notice that there is something in the mailbox of a sequencer.
pub(crate) struct Wake {
    thread: SharedThread,
    sequencer: u64,
}

enum Notice {
    Added(u64, Box<dyn Turns>),
    Ready(u64),
}

/// A sequencer that works a little at a time.
trait Turns: Send {
    /// Handles a part of what waits. Returns the sequencer and whether there is more, unless its
    /// store is closed.
    fn turn(self: Box<Self>, is_upkeep_due: bool) -> Option<(Box<dyn Turns>, bool)>;
}

impl SharedThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system has none.
    pub fn start() -> io::Result<SharedThread> {
        let (notices, receiver) = mpsc::channel();
        std::thread::Builder::new().name("coracle-forks".into()).spawn(move || run(&receiver))?;
        Ok(SharedThread { notices, next: Arc::default() })
    }

    /// Adds a sequencer to those that the thread runs.
    pub fn add<I: Index>(&self, sequencer: Sequencer<I>) -> Wake {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // The thread ends only after the last sender.
        drop(self.notices.send(Notice::Added(id, Box::new(sequencer))));
        Wake { thread: self.clone(), sequencer: id }
    }
}

impl Wake {
    /// Makes the sequencer read its mailbox.
    pub fn wake(&self) {
        drop(self.thread.notices.send(Notice::Ready(self.sequencer)));
    }

    /// Returns the thread, for other sequencers.
    pub fn thread(&self) -> &SharedThread {
        &self.thread
    }
}

fn run(notices: &mpsc::Receiver<Notice>) {
    let mut sequencers: HashMap<u64, Box<dyn Turns>> = HashMap::new();
    // Sequencers with more work, which continue after the others had their turn.
    let mut again: VecDeque<u64> = VecDeque::new();
    let mut looked_after = Instant::now();
    loop {
        let wait = if again.is_empty() { UPKEEP } else { Duration::ZERO };
        let ready = match notices.recv_timeout(wait) {
            Ok(Notice::Added(id, sequencer)) => {
                sequencers.insert(id, sequencer);
                None
            }
            Ok(Notice::Ready(id)) => Some(id),
            Err(RecvTimeoutError::Timeout) => again.pop_front(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_upkeep_due = looked_after.elapsed() >= UPKEEP;
        let due: Vec<u64> = if is_upkeep_due { sequencers.keys().copied().collect() } else { Vec::new() };
        for (id, is_upkeep) in
            ready.map(|id| (id, false)).into_iter().chain(due.into_iter().map(|id| (id, true)))
        {
            let turned = sequencers.remove(&id).and_then(|sequencer| sequencer.turn(is_upkeep));
            if let Some((sequencer, has_more)) = turned {
                sequencers.insert(id, sequencer);
                if has_more && !again.contains(&id) {
                    again.push_back(id);
                }
            }
        }
        if is_upkeep_due {
            looked_after = Instant::now();
        }
    }
}

impl<I: Index> Turns for Sequencer<I> {
    fn turn(mut self: Box<Self>, is_upkeep_due: bool) -> Option<(Box<dyn Turns>, bool)> {
        let turn = catch_unwind(AssertUnwindSafe(|| {
            self.inherit();
            for _ in 0..TURN {
                let message = match self.held.take().map_or_else(|| self.mailbox.try_recv(), Ok) {
                    Ok(message) => Some(message),
                    Err(TryRecvError::Empty) if is_upkeep_due && self.has_upkeep() => None,
                    Err(TryRecvError::Empty) => return ControlFlow::Continue(false),
                    Err(TryRecvError::Disconnected) => Some(Message::Close(None)),
                };
                if let ControlFlow::Break(reply) = self.handle(message) {
                    return ControlFlow::Break(reply);
                }
            }
            ControlFlow::Continue(true)
        }));
        match turn {
            Ok(ControlFlow::Continue(has_more)) => return Some((self, has_more)),
            Ok(ControlFlow::Break(reply)) => self.end(Ok(reply)),
            Err(panic) => self.end(Err(panic)),
        }
        None
    }
}

impl<I: Index> Sequencer<I> {
    /// Returns `true` if history must be compacted, or may have become old enough for it.
    fn has_upkeep(&mut self) -> bool {
        self.timeline.mark(Instant::now());
        self.is_compaction_due() || self.timeline.wait() == Some(Duration::ZERO)
    }
}
