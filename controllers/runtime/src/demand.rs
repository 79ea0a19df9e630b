//! The demand for a cache that is watched only temporarily.

use std::collections::HashSet;

use coracle_object_meta::NamespacedName;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The objects that wait for changes of a cache. The cache is watched as long as there are any.
pub struct Demand {
    waiting: Mutex<HashSet<NamespacedName>>,
    is_demanded: watch::Sender<bool>,
}

impl Demand {
    pub(super) fn new() -> (Demand, watch::Receiver<bool>) {
        let (is_demanded, demanded) = watch::channel(false);
        (Demand { waiting: Mutex::default(), is_demanded }, demanded)
    }

    /// Records whether an object waits for a change.
    pub fn set(&self, object: &NamespacedName, waits: bool) {
        let mut waiting = self.waiting.lock();
        match waits {
            true if !waiting.contains(object) => _ = waiting.insert(object.clone()),
            true => return,
            false if !waiting.remove(object) => return,
            false => {}
        }
        let is_demanded = !waiting.is_empty();
        self.is_demanded.send_if_modified(|known| std::mem::replace(known, is_demanded) != is_demanded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_demand_as_long_as_anybody_waits() {
        let (demand, demanded) = Demand::new();
        let [a, b] = ["a", "b"].map(|name| NamespacedName::new("default", name));
        for (object, waits, want) in [
            (&a, false, false),
            (&a, true, true),
            (&b, true, true),
            (&a, true, true),
            (&a, false, true),
            (&a, false, true),
            (&b, false, false),
        ] {
            demand.set(object, waits);
            assert_eq!(*demanded.borrow(), want, "{object} {waits}");
        }
    }
}
