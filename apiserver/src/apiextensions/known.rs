//! Definitions by the stored objects that they were read from. A fork shares them with its parent,
//! so that it reads no schema anew.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::definition::Definition;
use crate::registry::Stored;

/// Definitions by the objects that they were read from. Clones share them.
#[derive(Clone, Default)]
pub struct KnownDefinitions(Arc<Mutex<ByAddress>>);

/// Definitions by the addresses of their objects. As long as there is a weak reference, nothing
/// else has the address.
type ByAddress = HashMap<usize, (Weak<Stored>, Arc<Definition>)>;

impl KnownDefinitions {
    /// Returns the definition that was read from this object.
    pub(super) fn get(&self, object: &Arc<Stored>) -> Option<Arc<Definition>> {
        self.0.lock().get(&address(object)).map(|(_, definition)| definition.clone())
    }

    /// Remembers a definition as long as its object is stored somewhere.
    pub(super) fn put(&self, object: &Arc<Stored>, definition: Definition) {
        let mut known = self.0.lock();
        // Definitions are few, and seldom written.
        known.retain(|_, (object, _)| object.strong_count() > 0);
        known.insert(address(object), (Arc::downgrade(object), Arc::new(definition)));
    }
}

fn address(object: &Arc<Stored>) -> usize {
    Arc::as_ptr(object).addr()
}
