//! A thread for the sequencers of many stores, each of which has little to do: those of forks.
//!
//! Their logs are in memory, so that none keeps the others waiting.

use std::{
    collections::HashMap,
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
    /// Handles what waits. Returns the sequencer, unless its store is closed.
    fn turn(self: Box<Self>, is_upkeep_due: bool) -> Option<Box<dyn Turns>>;
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

    /// Has the thread run a sequencer.
    pub fn add<I: Index>(&self, sequencer: Sequencer<I>) -> Wake {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // The thread ends only after the last sender.
        drop(self.notices.send(Notice::Added(id, Box::new(sequencer))));
        Wake { thread: self.clone(), sequencer: id }
    }
}

impl Wake {
    /// Has the sequencer look into its mailbox.
    pub fn wake(&self) {
        drop(self.thread.notices.send(Notice::Ready(self.sequencer)));
    }

    /// The thread, for other sequencers.
    pub fn thread(&self) -> &SharedThread {
        &self.thread
    }
}

fn run(notices: &mpsc::Receiver<Notice>) {
    let mut sequencers: HashMap<u64, Box<dyn Turns>> = HashMap::new();
    let mut looked_after = Instant::now();
    loop {
        match notices.recv_timeout(UPKEEP) {
            Ok(Notice::Added(id, sequencer)) => drop(sequencers.insert(id, sequencer)),
            Ok(Notice::Ready(id)) => {
                if let Some(sequencer) = sequencers.remove(&id).and_then(|sequencer| sequencer.turn(false)) {
                    sequencers.insert(id, sequencer);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked_after.elapsed() >= UPKEEP {
            let turn = |(id, sequencer): (u64, Box<dyn Turns>)| Some((id, sequencer.turn(true)?));
            sequencers = sequencers.into_iter().filter_map(turn).collect();
            looked_after = Instant::now();
        }
    }
}

impl<I: Index> Turns for Sequencer<I> {
    fn turn(mut self: Box<Self>, is_upkeep_due: bool) -> Option<Box<dyn Turns>> {
        let turn = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let message = match self.held.take().map_or_else(|| self.mailbox.try_recv(), Ok) {
                    Ok(message) => message,
                    Err(TryRecvError::Empty) if is_upkeep_due => return self.handle(None),
                    Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                    Err(TryRecvError::Disconnected) => Message::Close(None),
                };
                let handled = self.handle(Some(message));
                if handled.is_break() {
                    return handled;
                }
            }
        }));
        match turn {
            Ok(ControlFlow::Continue(())) => return Some(self),
            Ok(ControlFlow::Break(reply)) => self.end(Ok(reply)),
            Err(panic) => self.end(Err(panic)),
        }
        None
    }
}
