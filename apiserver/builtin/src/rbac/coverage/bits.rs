//! Sets of small numbers.

/// A set of small numbers.
#[derive(Clone)]
pub(super) struct Bits {
    pub(super) words: Vec<u64>,
}

impl Bits {
    pub(super) fn empty(len: usize) -> Bits {
        Bits { words: vec![0; len.div_ceil(64)] }
    }

    pub(super) fn full(len: usize) -> Bits {
        let mut bits = Bits { words: vec![u64::MAX; len.div_ceil(64)] };
        if let Some(last) = bits.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        bits
    }

    pub(super) fn insert(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(super) fn intersects(&self, other: &Bits) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub(super) fn difference(&self, other: &Bits) -> Bits {
        Bits { words: self.words.iter().zip(&other.words).map(|(a, b)| a & !b).collect() }
    }

    pub(super) fn intersection(&self, other: &Bits) -> Bits {
        Bits { words: self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.words).flat_map(|(index, word): (u32, &u64)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }
}
