//! PEM blocks.
//!
//! Source: `Decode` of Go's `encoding/pem`, step by step: what it skips, and what it accepts,
//! decides which block of a document is the first.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memmem;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";
/// As Go, it accepts any bits after the last byte.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A PEM block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The type between `BEGIN` and the dashes.
    pub label: &'a [u8],
    /// Whether there are headers before the contents.
    pub has_headers: bool,
    /// The decoded bytes.
    pub contents: Vec<u8>,
}

/// Returns the first block, regardless of its label, and the data after it.
///
/// Bytes outside of blocks and malformed blocks are skipped.
pub fn decode(data: &[u8]) -> Option<(Block<'_>, &[u8])> {
    let mut from = 0;
    loop {
        let end = from + memmem::find(data.get(from..)?, END)?;
        let trailer = end + END.len();
        match block(data, from, end) {
            Attempt::Found(block, rest) => return Some((block, data.get(rest..)?)),
            Attempt::Skip => from = trailer,
            Attempt::End => return None,
        }
    }
}

/// Iterates over the blocks of a document.
pub fn blocks(data: &[u8]) -> impl Iterator<Item = Block<'_>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (block, more) = decode(rest)?;
        rest = more;
        Some(block)
    })
}

/// Writes a block without headers, in lines of 64 characters, as Go's `Encode` does.
pub fn encode(label: &str, contents: &[u8]) -> String {
    let encoded = BASE64.encode(contents);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.extend([line, "\n"]);
        rest = more;
    }
    text + &format!("-----END {label}-----\n")
}

/// The outcome of reading the block before an END line.
enum Attempt<'a> {
    /// A block, and the offset behind it.
    Found(Block<'a>, usize),
    /// There is no valid block: the search goes on behind the END line.
    Skip,
    /// No later block is looked for.
    End,
}

/// Reads the block that ends with the END line at `end`.
fn block(data: &[u8], from: usize, end: usize) -> Attempt<'_> {
    let trailer = end + END.len();
    let Some(begin) = memmem::rfind(&data[from..end], BEGIN).map(|offset| from + offset) else {
        return Attempt::Skip;
    };
    if begin > from && data[begin - 1] != b'\n' {
        return Attempt::Skip;
    }
    let (first, mut cursor) = line(data, begin + BEGIN.len());
    let Some(label) = first.strip_suffix(DASHES) else { return Attempt::Skip };
    let mut has_headers = false;
    loop {
        if cursor == data.len() {
            return Attempt::End;
        }
        let (text, next) = line(data, cursor);
        if !text.contains(&b':') {
            break;
        }
        has_headers = true;
        cursor = next;
    }
    if cursor > trailer {
        return Attempt::End;
    }
    if has_headers && end < cursor {
        return Attempt::Skip;
    }
    let has_end = data[trailer..].strip_prefix(label).is_some_and(|rest| rest.starts_with(DASHES));
    if !has_end || !line(data, trailer + label.len() + DASHES.len()).0.is_empty() {
        return Attempt::Skip;
    }
    let encoded: Vec<u8> = data.get(cursor..end).unwrap_or_default().to_vec();
    let encoded: Vec<u8> = encoded.into_iter().filter(|byte| !b" \t\r\n".contains(byte)).collect();
    let Ok(contents) = BASE64.decode(encoded) else { return Attempt::Skip };
    let (_, rest) = line(data, end + END.len() - 1);
    Attempt::Found(Block { label, has_headers, contents }, rest)
}

/// Returns the line at an offset without its end and trailing white space, and the offset of the
/// next line.
fn line(data: &[u8], start: usize) -> (&[u8], usize) {
    let rest = &data[start..];
    let (mut text, next) = match memchr::memchr(b'\n', rest) {
        Some(end) => (rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), start + end + 1),
        None => (rest, data.len()),
    };
    while let [before @ .., b' ' | b'\t'] = text {
        text = before;
    }
    (text, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the output of Go 1.26.
    #[test]
    fn the_first_block_is_that_of_go() {
        let all = |text: &str| {
            let shown = blocks(text.as_bytes()).map(|block| {
                let label = String::from_utf8_lossy(block.label).into_owned();
                let headers = if block.has_headers { "+" } else { "" };
                format!("{label}{headers}={}", String::from_utf8_lossy(&block.contents))
            });
            shown.collect::<Vec<_>>().join(" ")
        };
        for (case, text, want) in CASES {
            assert_eq!(all(text), *want, "{case}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(encode("A", b"a"), "-----BEGIN A-----\nYQ==\n-----END A-----\n");
        for length in [0, 1, 47, 48, 49, 96, 1000] {
            let contents = vec![7; length];
            let text = encode("CERTIFICATE", &contents);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let want = Block { label: b"CERTIFICATE", has_headers: false, contents };
            assert_eq!(blocks(text.as_bytes()).collect::<Vec<_>>(), [want], "{length}");
        }
    }

    const CASES: &[(&str, &str, &str)] = &[
        ("nothing", "", ""),
        ("one", "-----BEGIN A-----\nYQ==\n-----END A-----\n", "A=a"),
        ("no newline at the end", "-----BEGIN A-----\nYQ==\n-----END A-----", "A=a"),
        (
            "two",
            "-----BEGIN A-----\nYQ==\n-----END A-----\n-----BEGIN B-----\nYg==\n-----END B-----\n",
            "A=a B=b",
        ),
        ("garbage before", "x\n-----BEGIN A-----\nYQ==\n-----END A-----\n", "A=a"),
        ("garbage on the line", "x-----BEGIN A-----\nYQ==\n-----END A-----\n", ""),
        (
            "other labels",
            "-----BEGIN A-----\nYQ==\n-----END B-----\n-----BEGIN C-----\nYw==\n-----END C-----\n",
            "C=c",
        ),
        ("a BEGIN without END", "-----BEGIN A-----\nYQ==\n-----BEGIN B-----\nYg==\n-----END B-----\n", "B=b"),
        (
            "no base64",
            "-----BEGIN A-----\n%\n-----END A-----\n-----BEGIN B-----\nYg==\n-----END B-----\n",
            "B=b",
        ),
        ("no padding", "-----BEGIN A-----\nYQ\n-----END A-----\n", ""),
        ("bits after the last byte", "-----BEGIN A-----\nYR==\n-----END A-----\n", "A=a"),
        ("white space", "-----BEGIN A----- \t\r\n Y\tQ =\r\n=\n-----END A----- \n", "A=a"),
        ("headers", "-----BEGIN A-----\nb: c\n\nYQ==\n-----END A-----\n", "A+=a"),
        ("headers only", "-----BEGIN A-----\nb: c\n-----END A-----\n", ""),
        ("empty", "-----BEGIN A-----\n-----END A-----\n", "A="),
        ("text behind the END", "-----BEGIN A-----\nYQ==\n-----END A-----x\n", ""),
        ("an END before", "\n-----END A-----\n-----BEGIN B-----\nYg==\n-----END B-----\n", "B=b"),
        ("no label", "-----BEGIN -----\nYQ==\n-----END -----\n", "=a"),
        ("behind an END", "x\n-----END -----BEGIN B-----\nYg==\n-----END B-----\n", "B=b"),
    ];
}
