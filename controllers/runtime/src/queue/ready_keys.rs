//! The keys that can be worked on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use coracle_clock::{Clock, TakeTurn, TurnOrder, Work};

use super::Key;

/// The keys that can be worked on, the next one first.
pub enum ReadyKeys<K> {
    /// As they came, as soon as possible.
    Arrival(VecDeque<K>),
    /// In turns with the keys of all other queues.
    Turns(KeysInTurns<K>),
}

/// Keys that wait for turns.
pub struct KeysInTurns<K> {
    clock: Clock,
    queue: Weak<dyn TakeTurn>,
    name: Arc<str>,
    id: usize,
    /// Each after whether it is paced, and the turn since which it has been waiting.
    keys: BTreeSet<(bool, u64, K)>,
    /// The place that is taken for the first key.
    place: Option<TurnOrder>,
    /// The work of the turn that the first key has.
    turn: Option<Work>,
}

impl<K: Key> ReadyKeys<K> {
    /// Creates an empty collection.
    pub fn new(clock: &Clock, queue: Weak<dyn TakeTurn>, name: &str) -> ReadyKeys<K> {
        static QUEUES: AtomicUsize = AtomicUsize::new(0);
        if clock.turns().is_none() {
            return ReadyKeys::Arrival(VecDeque::new());
        }
        let id = QUEUES.fetch_add(1, Ordering::Relaxed);
        let (clock, name, keys) = (clock.clone(), name.into(), BTreeSet::new());
        ReadyKeys::Turns(KeysInTurns { clock, queue, name, id, keys, place: None, turn: None })
    }

    /// Returns `true` if the keys wait for turns.
    pub fn is_in_turns(&self) -> bool {
        matches!(self, ReadyKeys::Turns(_))
    }

    pub fn len(&self) -> usize {
        match self {
            ReadyKeys::Arrival(keys) => keys.len(),
            ReadyKeys::Turns(waiting) => waiting.keys.len(),
        }
    }

    /// Returns `true` if there is a key that can be taken.
    pub fn is_ready(&self) -> bool {
        match self {
            ReadyKeys::Arrival(keys) => !keys.is_empty(),
            ReadyKeys::Turns(waiting) => waiting.turn.is_some() && !waiting.keys.is_empty(),
        }
    }

    /// Adds a key, which is not among them.
    ///
    /// - `is_paced`: whether it comes after all keys that are not
    pub fn push(&mut self, key: K, is_paced: bool) {
        match self {
            ReadyKeys::Arrival(keys) => keys.push_back(key),
            ReadyKeys::Turns(waiting) => waiting.push(key, is_paced),
        }
    }

    /// Notes that the first key has its turn.
    ///
    /// - `place`: the place that was given up for it
    pub fn take_turn(&mut self, place: &TurnOrder, work: Work) {
        if let ReadyKeys::Turns(waiting) = self {
            // It may have taken another one meanwhile.
            waiting.place.take_if(|taken| taken == place);
            // The key may have been taken in the turn before.
            waiting.turn = Some(work).filter(|_| !waiting.keys.is_empty());
        }
    }

    /// Takes the first key, if it can be taken, and the work of its turn.
    pub fn pop(&mut self) -> Option<(K, Option<Work>)> {
        match self {
            ReadyKeys::Arrival(keys) => keys.pop_front().map(|key| (key, None)),
            ReadyKeys::Turns(waiting) => waiting.pop().map(|(key, turn)| (key, Some(turn))),
        }
    }
}

impl<K: Key> KeysInTurns<K> {
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

    /// Takes a place among the turns for the first key, and leaves the former place if the first
    /// key has changed.
    fn take_place(&mut self) {
        let Some(turns) = self.clock.turns() else { return };
        let (id, name) = (self.id, &self.name);
        let first = self.keys.first();
        let wanted = first.map(|(is_paced, round, _)| TurnOrder {
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
