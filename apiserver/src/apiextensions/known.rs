//! Definitions by the stored objects that they were read from. A fork shares them with its parent, so that it reads no schema anew.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::definition::Definition;
use crate::registry::Stored;

/// The number of definitions above which those that are no longer stored are looked for.
const FIRST_SWEEP: usize = 64;

/// Definitions by the objects that they were read from. Clones share them.
#[derive(Clone, Default)]
pub struct KnownDefinitions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By the address of the object. As long as there is a weak reference, nothing else has it.
    by_address: HashMap<usize, (Weak<Stored>, Arc<Definition>)>,
    /// The number of definitions above which those that are no longer stored are looked for.
    sweep: usize,
}

impl KnownDefinitions {
    /// The definition that was read from this very object.
    pub(super) fn get(&self, object: &Arc<Stored>) -> Option<Arc<Definition>> {
        let known = self.0.lock();
        known.by_address.get(&address(object)).map(|(_, definition)| definition.clone())
    }

    /// Remembers a definition as long as its object is stored somewhere.
    pub(super) fn put(&self, object: &Arc<Stored>, definition: Definition) {
        let mut known = self.0.lock();
        known.by_address.insert(address(object), (Arc::downgrade(object), Arc::new(definition)));
        if known.by_address.len() > known.sweep.max(FIRST_SWEEP) {
            known.by_address.retain(|_, (object, _)| object.strong_count() > 0);
            known.sweep = known.by_address.len() * 2;
        }
    }
}

fn address(object: &Arc<Stored>) -> usize {
    Arc::as_ptr(object).addr()
}
