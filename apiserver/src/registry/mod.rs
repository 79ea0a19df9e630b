//! The generic verbs over the store.
