//! Locks by name, such as one for each namespace.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// A lock for every name. It uses memory only while it is held or waited for.
#[derive(Default)]
pub(super) struct NamedLocks {
    used: Mutex<HashMap<String, Lock>>,
}

/// Holds the lock of a name until it is dropped.
pub(super) struct NamedGuard<'a> {
    // In this order: dropping the user checks whether there is another one.
    _guard: OwnedMutexGuard<()>,
    _user: User<'a>,
}

/// A holder of a lock, or a waiter for it.
struct User<'a> {
    locks: &'a NamedLocks,
    name: String,
    lock: Lock,
}

impl NamedLocks {
    /// Waits for the lock of a name. Waiters get it in the order of their calls.
    pub async fn lock(&self, name: &str) -> NamedGuard<'_> {
        let lock = self.used().entry(name.to_owned()).or_default().clone();
        let user = User { locks: self, name: name.to_owned(), lock: lock.clone() };
        NamedGuard { _guard: lock.lock_owned().await, _user: user }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Lock>> {
        self.used.lock()
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut used = self.locks.used();
        // The references of the map and of this user; new ones are created only under the map's
        // lock.
        if Arc::strong_count(&self.lock) <= 2 {
            used.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_lock_excludes_those_of_its_name_only() {
        let locks = NamedLocks::default();
        let held = locks.lock("a").await;
        assert!(locks.lock("a").now_or_never().is_none());
        assert!(locks.lock("b").now_or_never().is_some());
        drop(held);
        assert!(locks.lock("a").now_or_never().is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_take_turns_and_leave_nothing_behind() {
        let locks = Arc::new(NamedLocks::default());
        let inside: Arc<[AtomicUsize; 3]> = Arc::default();
        let tasks = (0..300).map(|i| {
            let (locks, inside) = (locks.clone(), inside.clone());
            tokio::spawn(async move {
                let waiting = locks.lock(["a", "b", "c"][i % 3]);
                let Ok(_turn) = (match i % 7 {
                    // Some waiters give up before they get the lock.
                    0 => waiting.now_or_never().ok_or(()),
                    _ => Ok(waiting.await),
                }) else {
                    return;
                };
                assert_eq!(inside[i % 3].fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside[i % 3].fetch_sub(1, Ordering::SeqCst);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        assert!(locks.used().is_empty());
    }
}
