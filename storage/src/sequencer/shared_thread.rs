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
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    is_awake: Arc<AtomicBool>,
}

enum Notice {
    Added(u64, Member),
    Ready(u64),
}

/// A sequencer on the thread.
struct Member {
    sequencer: Box<dyn Turns>,
    /// Set from a notice, or the end of a turn with more to do, until the next turn. So a store
    /// with many writes has one turn among those of the others.
    is_awake: Arc<AtomicBool>,
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
        self.add_member(Box::new(sequencer))
    }

    fn add_member(&self, sequencer: Box<dyn Turns>) -> Wake {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let is_awake: Arc<AtomicBool> = Arc::default();
        let member = Member { sequencer, is_awake: is_awake.clone() };
        // The thread ends only after the last sender.
        drop(self.notices.send(Notice::Added(id, member)));
        Wake { thread: self.clone(), sequencer: id, is_awake }
    }
}

impl Wake {
    /// Makes the sequencer read its mailbox.
    pub fn wake(&self) {
        if self.is_awake.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(self.thread.notices.send(Notice::Ready(self.sequencer)));
    }

    /// Returns the thread, for other sequencers.
    pub fn thread(&self) -> &SharedThread {
        &self.thread
    }
}

fn run(notices: &mpsc::Receiver<Notice>) {
    let mut members: HashMap<u64, Member> = HashMap::new();
    // Those with something to do, in the order of their turns.
    let mut ready: VecDeque<u64> = VecDeque::new();
    let mut looked_after = Instant::now();
    loop {
        // Each member has one notice at most.
        let mut wait = if ready.is_empty() { UPKEEP } else { Duration::ZERO };
        loop {
            match notices.recv_timeout(wait) {
                Ok(Notice::Added(id, member)) => _ = members.insert(id, member),
                Ok(Notice::Ready(id)) => ready.push_back(id),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            wait = Duration::ZERO;
        }
        if let Some(id) = ready.pop_front()
            && take_turn(&mut members, id, false)
        {
            ready.push_back(id);
        }
        if looked_after.elapsed() >= UPKEEP {
            let all: Vec<u64> = members.keys().copied().collect();
            for id in all {
                if take_turn(&mut members, id, true) {
                    ready.push_back(id);
                }
            }
            looked_after = Instant::now();
        }
    }
}

/// Gives a member a turn. Returns whether it is to have another one, beside that for a notice.
fn take_turn(members: &mut HashMap<u64, Member>, id: u64, is_upkeep_due: bool) -> bool {
    let Some(Member { sequencer, is_awake }) = members.remove(&id) else { return false };
    // Before it reads its mailbox: for what comes from now on there is another notice.
    is_awake.store(false, Ordering::SeqCst);
    let Some((sequencer, has_more)) = sequencer.turn(is_upkeep_due) else { return false };
    let is_next = has_more && !is_awake.swap(true, Ordering::SeqCst);
    members.insert(id, Member { sequencer, is_awake });
    is_next
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

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A sequencer that writes its name down in each turn, for some turns.
    struct Scripted {
        name: &'static str,
        turns: usize,
        taken: Arc<Mutex<Vec<&'static str>>>,
        /// Called in the first turn.
        begin: Option<Box<dyn FnOnce() + Send>>,
        /// Dropped with it.
        _end: mpsc::Sender<()>,
    }

    impl Turns for Scripted {
        fn turn(mut self: Box<Self>, _: bool) -> Option<(Box<dyn Turns>, bool)> {
            self.begin.take().into_iter().for_each(|begin| begin());
            self.taken.lock().push(self.name);
            self.turns -= 1;
            (self.turns > 0).then_some((self, true))
        }
    }

    #[test]
    fn turns_are_taken_one_after_the_other() {
        let thread = SharedThread::start().unwrap();
        let taken: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (end, ended) = mpsc::channel();
        let written = taken.clone();
        let script = move |name, turns, begin| -> Box<dyn Turns> {
            Box::new(Scripted { name, turns, taken: written.clone(), begin, _end: end.clone() })
        };
        let quick = Arc::new(thread.add_member(script("quick", 1, None)));
        // The busy one is woken again and again before the other one is.
        let (begun, may_begin) = mpsc::channel::<Arc<Wake>>();
        let begin = move || {
            let own = may_begin.recv().unwrap();
            (0..1000).for_each(|_| own.wake());
            quick.wake();
            (0..1000).for_each(|_| own.wake());
        };
        let busy = Arc::new(thread.add_member(script("busy", 100, Some(Box::new(begin)))));
        busy.wake();
        begun.send(busy.clone()).unwrap();
        drop(script);
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Err(RecvTimeoutError::Disconnected));
        let taken = taken.lock();
        let place = taken.iter().position(|name| *name == "quick").unwrap();
        assert!(place <= 2, "after {place} turns of the busy one");
        assert_eq!(taken.len(), 101);
    }
}
