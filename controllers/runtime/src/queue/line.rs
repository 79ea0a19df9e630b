//! The line of the keys that can be worked on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use coracle_clock::{Clock, Place, TakeTurn, Work};

use super::Key;

/// The keys that can be worked on, the next one first.
pub enum Line<K> {
    /// As they came, as soon as possible.
    Arrival(VecDeque<K>),
    /// In turns with the keys of all other queues.
    Turns(InTurns<K>),
}

/// Keys that wait for turns.
pub struct InTurns<K> {
    clock: Clock,
    queue: Weak<dyn TakeTurn>,
    name: Arc<str>,
    id: usize,
    /// Each after whether it is paced, and the turn since which it has been waiting.
    keys: BTreeSet<(bool, u64, K)>,
    /// The place that is taken for the first key.
    place: Option<Place>,
    /// The work of the turn that the first key has.
    turn: Option<Work>,
}

impl<K: Key> Line<K> {
    /// An empty line.
    pub fn new(clock: &Clock, queue: Weak<dyn TakeTurn>, name: &str) -> Line<K> {
        static QUEUES: AtomicUsize = AtomicUsize::new(0);
        if clock.turns().is_none() {
            return Line::Arrival(VecDeque::new());
        }
        let id = QUEUES.fetch_add(1, Ordering::Relaxed);
        let (clock, name, keys) = (clock.clone(), name.into(), BTreeSet::new());
        Line::Turns(InTurns { clock, queue, name, id, keys, place: None, turn: None })
    }

    /// Whether the keys wait for turns.
    pub fn is_in_turns(&self) -> bool {
        matches!(self, Line::Turns(_))
    }

    pub fn len(&self) -> usize {
        match self {
            Line::Arrival(keys) => keys.len(),
            Line::Turns(line) => line.keys.len(),
        }
    }

    /// Whether there is a key that can be taken.
    pub fn is_ready(&self) -> bool {
        match self {
            Line::Arrival(keys) => !keys.is_empty(),
            Line::Turns(line) => line.turn.is_some() && !line.keys.is_empty(),
        }
    }

    /// Adds a key, which is not in the line.
    ///
    /// - `is_paced`: whether it comes after all keys that are not
    pub fn push(&mut self, key: K, is_paced: bool) {
        match self {
            Line::Arrival(keys) => keys.push_back(key),
            Line::Turns(line) => line.push(key, is_paced),
        }
    }

    /// Notes that the first key has its turn.
    ///
    /// - `place`: the place that was given up for it
    pub fn take_turn(&mut self, place: &Place, work: Work) {
        if let Line::Turns(line) = self {
            // It may have taken another one meanwhile.
            line.place.take_if(|taken| taken == place);
            // Who had it may have been taken on the turn before.
            line.turn = Some(work).filter(|_| !line.keys.is_empty());
        }
    }

    /// Takes the first key, if it can be taken, and the work of its turn.
    pub fn pop(&mut self) -> Option<(K, Option<Work>)> {
        match self {
            Line::Arrival(keys) => keys.pop_front().map(|key| (key, None)),
            Line::Turns(line) => line.pop().map(|(key, turn)| (key, Some(turn))),
        }
    }
}

impl<K: Key> InTurns<K> {
    fn push(&mut self, key: K, is_paced: bool) {
        let round = self.clock.turns().map_or(0, |turns| turns.round());
        self.keys.insert((is_paced, round, key));
        self.take_place();
    }

    fn pop(&mut self) -> Option<(K, Work)> {
        let turn = self.turn.take()?;
        let popped = self.keys.pop_first();
        self.take_place();
        popped.map(|(.., key)| (key, turn))
    }

    /// Has a place for the first key, which may not be the one that had it.
    fn take_place(&mut self) {
        let Some(turns) = self.clock.turns() else { return };
        let (id, name) = (self.id, &self.name);
        let first = self.keys.first();
        let wanted = first.map(|(is_paced, round, _)| Place {
            is_paced: *is_paced,
            round: *round,
            name: name.clone(),
            id,
        });
        if wanted == self.place {
            return;
        }
        // The new one first: as long as there is a key, there is a place.
        wanted.iter().for_each(|place| turns.take_place(place.clone(), self.queue.clone()));
        self.place.iter().for_each(|place| turns.leave(place));
        self.place = wanted;
    }
}
