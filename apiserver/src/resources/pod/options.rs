//! Options: which rules are relaxed, because an object that already breaks them must stay updatable.

use crate::field::Field;

/// What a pod's spec may get away with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The object is a Pod, not a template.
    pub is_pod: bool,
}

impl Options {
    /// For a new template.
    pub fn for_template() -> Options {
        Options::default()
    }

    /// For a template that was `old` before.
    pub fn for_template_update(old: &Field<'_>) -> Options {
        let _ = old;
        Options::default()
    }
}
