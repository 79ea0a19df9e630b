//! Warnings: texts that a response carries in `Warning` headers, whether the request succeeds or
//! fails.
//!
//! Source: KEP-1693 (Warning mechanism for use in API machinery); the limits are kube-apiserver's.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The maximum number of characters of all texts together. Beyond it each text is truncated, and
/// once the truncated texts reach it too, further ones are dropped.
const MAX_TOTAL_CHARACTERS: usize = 4096;
/// The maximum number of characters of a truncated text.
const MAX_TRUNCATED_CHARACTERS: usize = 256;

/// The texts for the `Warning` headers of one response, each once, in the order in which they were
/// added.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Texts>);

#[derive(Debug, Default)]
struct Texts {
    seen: HashSet<String>,
    kept: Vec<String>,
    /// The number of characters in `kept`.
    characters: usize,
    is_truncating: bool,
}

impl Warnings {
    /// Adds a text, unless it is empty, is there already, or has control characters, which no
    /// header can carry.
    pub fn add(&self, text: impl Into<String>) {
        self.0.lock().add(text.into());
    }

    /// Adds several texts, in order.
    pub fn extend(&self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.add(text));
    }

    /// Takes the texts that were added so far, in their order.
    pub fn take_texts(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().kept)
    }

    /// Returns the texts, in the order in which they were added.
    pub fn into_texts(self) -> Vec<String> {
        self.0.into_inner().kept
    }
}

impl Texts {
    fn add(&mut self, text: String) {
        let is_full = self.is_truncating && self.characters >= MAX_TOTAL_CHARACTERS;
        let is_unfit = text.is_empty() || text.contains(char::is_control);
        if is_unfit || is_full || !self.seen.insert(text.clone()) {
            return;
        }
        self.kept.push(text);
        let total: usize = self.characters + self.kept.last().map_or(0, |text| text.chars().count());
        if !self.is_truncating && total <= MAX_TOTAL_CHARACTERS {
            self.characters = total;
            return;
        }
        let truncated_before = if self.is_truncating { self.kept.len() - 1 } else { 0 };
        self.is_truncating = true;
        self.kept[truncated_before..].iter_mut().for_each(truncate);
        self.characters = self.kept.iter().map(|text| text.chars().count()).sum();
    }
}

fn truncate(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_TRUNCATED_CHARACTERS) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_texts_are_dropped_and_too_many_are_truncated() {
        let long = |i: usize, length: usize| format!("{i:04}{}", "ż".repeat(length - 4));
        let all = |count, length| (0..count).map(|i| long(i, length)).collect::<Vec<_>>();
        for (case, texts, want) in [
            ("each once", vec!["a".into(), "b\n".into(), "b".into(), String::new(), "a".into()], vec![1, 1]),
            ("as much as fits", all(4, 1024), vec![1024; 4]),
            ("a character more", [all(4, 1024), vec!["x".into()]].concat(), vec![256, 256, 256, 256, 1]),
            ("one alone", all(1, 5000), vec![256]),
            ("far more", all(100_000, 500), vec![256; 16]),
        ] {
            let warnings = Warnings::default();
            warnings.extend(texts);
            let got: Vec<usize> = warnings.into_texts().iter().map(|text| text.chars().count()).collect();
            assert_eq!(got, want, "{case}");
        }
    }
}
