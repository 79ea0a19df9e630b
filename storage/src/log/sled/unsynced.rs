//! What was appended, but may not be on disk yet.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Revision, log::Entry};

/// So many bytes at most are kept; more are a reason to flush.
const MOST: usize = 16 << 20;

/// Transactions in order, until they are flushed. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Unsynced(Arc<Mutex<Transactions>>);

#[derive(Default)]
struct Transactions {
    /// Each with its revision. The bytes of their values are shared with the view.
    list: VecDeque<(Revision, Vec<Entry>)>,
    /// Since the list was empty.
    bytes: usize,
}

impl Unsynced {
    /// Adds transactions. Returns whether there are too many now.
    pub fn add(&self, transactions: &[Vec<Entry>], bytes: usize) -> bool {
        let mut kept = self.lock();
        for transaction in transactions {
            let Some(last) = transaction.last() else { continue };
            kept.list.push_back((last.id.revision, transaction.clone()));
        }
        kept.bytes += bytes;
        kept.bytes > MOST
    }

    /// The newest revision that may not be on disk.
    pub fn newest(&self) -> Option<Revision> {
        self.lock().list.back().map(|(revision, _)| *revision)
    }

    /// Forgets what is on disk now.
    pub fn drop_up_to(&self, flushed: Revision) {
        let mut kept = self.lock();
        while kept.list.front().is_some_and(|(revision, _)| *revision <= flushed) {
            kept.list.pop_front();
        }
        if kept.list.is_empty() {
            *kept = Transactions::default();
        }
    }

    pub fn transactions(&self) -> Vec<Vec<Entry>> {
        self.lock().list.iter().map(|(_, transaction)| transaction.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Transactions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
