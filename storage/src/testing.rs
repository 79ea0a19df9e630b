//! An owner of stores, for tests: its values are text with an `@` after which the revision goes.

use crate::{Index, Indexed, Key, Unreadable};

#[derive(Debug)]
pub struct Marked;

impl Index for Marked {
    /// The text before the mark.
    type Meta = String;
    type Frame = String;

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<String>, Unreadable> {
        let text = std::str::from_utf8(stored).map_err(|e| Unreadable(e.to_string()))?;
        let (before, _) = text.split_once('@').ok_or_else(|| Unreadable("no mark".into()))?;
        Ok(Indexed { meta: before.into(), stamp: before.len() + 1 })
    }
}
