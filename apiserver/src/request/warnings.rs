//! Warnings: what a request's answer tells besides, be it a success or a refusal.
//!
//! Source: KEP-1693 (Warning mechanism for use in API machinery).

use std::sync::{Mutex, PoisonError};

/// The texts for the `Warning` headers of one answer, each once, in the order in which they came up.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    pub fn extend(&self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.add(text));
    }

    pub fn into_texts(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
