//! Files that are not as they were written, or never were records.

use std::fs;
use std::path::Path;

use coracle_record::{Damage, Entry, Error, Limits, Record};
use tempfile::TempDir;

use crate::sample::{entries, read, unhurried, version, write};

/// The length of the first line and of the two numbers after it.
const BEFORE_HEADER: usize = "coracle record 1\n".len() + 8;
/// The length of a block's head.
const HEAD: usize = 68;

/// Returns a small record of three blocks, its entries, and the offsets of its blocks.
fn sample() -> (TempDir, Vec<u8>, Vec<Entry>, Vec<usize>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whole.coracle");
    write(&path, &unhurried(), &[entries(), vec![version(4, Some("{}"))]]);
    let bytes = fs::read(&path).unwrap();
    let entries = read(&path).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut offsets = vec![BEFORE_HEADER + number(BEFORE_HEADER - 8)];
    while let Some(&at) = offsets.last()
        && at < bytes.len()
    {
        offsets.push(at + HEAD + number(at + 12));
    }
    assert_eq!(offsets.pop(), Some(bytes.len()));
    assert_eq!(offsets.len(), 3);
    (directory, bytes, entries, offsets)
}

/// Opens bytes as a record, and reads the entries up to an error.
fn open(directory: &Path, bytes: &[u8], limits: Limits) -> Result<(Vec<Entry>, Option<Damage>), Error> {
    let path = directory.join("changed.coracle");
    fs::write(&path, bytes).unwrap();
    let record = Record::open(&path, limits)?;
    let entries = record.entries().collect::<Result<_, _>>()?;
    Ok((entries, record.damage()))
}

#[test]
fn a_file_that_ends_anywhere_has_the_entries_of_its_whole_blocks() {
    let (directory, bytes, entries, offsets) = sample();
    for length in 0..bytes.len() {
        let opened = open(directory.path(), &bytes[..length], Limits::default());
        let blocks = offsets.iter().filter(|&&at| at <= length).count();
        let (want, damage) = match (blocks, opened) {
            (0, Err(Error::NotARecord { .. })) => continue,
            (0, opened) => panic!("{length} bytes have no whole header: {opened:?}"),
            (_, Err(error)) => panic!("{length} bytes: {error}"),
            (_, Ok(opened)) => opened,
        };
        let whole = [0, 12, 13][blocks - 1];
        assert_eq!(want, entries[..whole], "{length} bytes");
        let at = offsets[blocks - 1];
        let truncated = Damage::Truncated { at: at as u64, lost: (length - at) as u64 };
        let expected = if length == at { Damage::Unfinished } else { truncated };
        assert_eq!(damage, Some(expected), "{length} bytes");
        let text = damage.unwrap().to_string();
        assert!(if length == at { text.contains("no end") } else { text.contains("cut short") }, "{text}");
    }
}

#[test]
fn a_flipped_bit_is_always_noticed() {
    let (directory, bytes, _, _) = sample();
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        let opened = open(directory.path(), &changed, Limits::default());
        assert!(opened.is_err(), "bit {bit} of byte {at} was not noticed: {opened:?}");
    }
}

#[test]
fn entries_before_a_damaged_block_are_read() {
    let (directory, mut bytes, entries, offsets) = sample();
    bytes[offsets[1] + HEAD] ^= 1;
    let path = directory.path().join("changed.coracle");
    fs::write(&path, &bytes).unwrap();
    let record = Record::open(&path, Limits::default()).unwrap();
    let mut read = record.entries();
    for entry in &entries[..12] {
        assert_eq!(read.next().unwrap().unwrap(), *entry);
    }
    let error = read.next().unwrap().unwrap_err();
    assert!(matches!(&error, Error::Damaged { at, .. } if *at == offsets[1] as u64), "{error}");
    assert!(read.next().is_none(), "an error ends the iteration");
    let (kept, damage) = open(directory.path(), &bytes[..offsets[1]], Limits::default()).unwrap();
    assert_eq!((&kept[..], damage), (&entries[..12], Some(Damage::Unfinished)), "the advice of the error");
    let from_there: Vec<_> = record.entries_from_revision(5).collect();
    assert!(from_there.is_empty(), "blocks that are not needed are not read");
}

#[test]
fn bytes_after_the_end_are_damage() {
    let (directory, bytes, _, offsets) = sample();
    let with_another_block = [&bytes[..], &bytes[offsets[0]..offsets[1]]].concat();
    for changed in [[&bytes[..], b"\n"].concat(), with_another_block] {
        let error = open(directory.path(), &changed, Limits::default()).unwrap_err();
        assert!(error.to_string().contains("bytes after the end"), "{error}");
    }
}

#[test]
fn other_files_are_named_as_what_they_are() {
    let (directory, bytes, _, _) = sample();
    let with_version = |version: &str| [b"coracle record ", version.as_bytes(), b"\n", &bytes[17..]].concat();
    for (case, bytes, want) in [
        ("an empty file", Vec::new(), "is not a record of Coracle: it is too short"),
        (
            "text",
            b"apiVersion: v1\nkind: List\n".to_vec(),
            "is not a record of Coracle: it begins with other",
        ),
        ("a backup", b"coracle backup 1\n............".to_vec(), "is not a record of Coracle"),
        ("no version", with_version(""), "no known version"),
        ("an older version", with_version("0"), "no known version"),
        ("a version of many digits", with_version("1234567890123456789012"), "has no version"),
        ("no digits", with_version("one"), "has no version"),
        (
            "a newer version",
            with_version("3"),
            "changed.coracle was written by a newer version of Coracle (format 3; this one reads 1)",
        ),
    ] {
        let error = open(directory.path(), &bytes, Limits::default()).unwrap_err().to_string();
        assert!(error.contains(want), "{case}: {error}");
        assert!(error.contains("changed.coracle"), "{case} has no path: {error}");
    }
    let error = Record::open(directory.path(), Limits::default()).unwrap_err();
    assert!(matches!(error, Error::NotARecord { reason: "it is not a file", .. }), "{error}");
    let error = Record::open(&directory.path().join("missing"), Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
}

/// Returns the bytes of the sample with a field of the first head replaced, and the checksum
/// corrected.
fn with_field(bytes: &[u8], head: usize, field: usize, value: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[head + field..head + field + value.len()].copy_from_slice(value);
    let checksum = crc32fast::hash(&changed[head..head + HEAD - 4]);
    changed[head + HEAD - 4..head + HEAD].copy_from_slice(&checksum.to_be_bytes());
    changed
}

#[test]
fn heads_with_false_claims_are_refused_although_their_checksums_are_right() {
    let (directory, bytes, _, offsets) = sample();
    let head = offsets[0];
    assert_eq!(with_field(&bytes, head, 0, b"BLCK"), bytes, "the checksum is computed as it was");
    let number = |number: u32| number.to_be_bytes().to_vec();
    let raw = u32::from_be_bytes(bytes[head + 16..head + 20].try_into().unwrap());
    for (case, field, value, want) in [
        ("another marker", 0, b"XXXX".to_vec(), "no block begins"),
        ("another flag", 4, number(2), "an unknown flag"),
        ("the flag of the last block", 4, number(1), "bytes after the end"),
        ("one entry more", 8, number(13), "does not describe its block"),
        ("one entry less", 8, number(9), "does not describe its block"),
        ("more entries than bytes", 8, number(u32::MAX), "impossible number of entries"),
        ("64 MiB and a byte", 16, number((64 << 20) + 1), "larger than blocks are"),
        ("4 GiB", 16, number(u32::MAX), "larger than blocks are"),
        ("64 MiB, which it has not", 16, number(64 << 20), "cannot be decompressed"),
        ("a raw byte less than it has", 16, number(raw - 1), "cannot be decompressed"),
        ("a raw byte more than it has", 16, number(raw + 1), "cannot be decompressed"),
        ("less than its data", 16, number(100), "larger than its content"),
        ("other revisions", 20, 9_u64.to_be_bytes().to_vec(), "does not describe its block"),
        ("other times", 36, 9_u64.to_be_bytes().to_vec(), "does not describe its block"),
        ("an impossible time", 36, u64::MAX.wrapping_div(2).to_be_bytes().to_vec(), "impossible time"),
        ("the checksum of other data", 60, number(0), "wrong checksum of the data"),
    ] {
        let changed = with_field(&bytes, head, field, &value);
        let error = open(directory.path(), &changed, Limits::default()).unwrap_err().to_string();
        assert!(error.contains(want), "{case}: {error}");
    }
    // A length beyond the end of the file is what a killed process leaves.
    let longer = with_field(&with_field(&bytes, head, 16, &number(64 << 20)), head, 12, &number(64 << 20));
    let (_, damage) = open(directory.path(), &longer, Limits::default()).unwrap();
    assert!(matches!(damage, Some(Damage::Truncated { .. })), "{damage:?}");
}

#[test]
fn data_that_is_no_entry_is_damage_although_its_checksums_are_right() {
    let (directory, bytes, _, offsets) = sample();
    for (case, raw, want) in [
        ("no JSON", &b"\x02xx\x00"[..], "cannot be decoded"),
        ("another kind of entry", b"\x0a{\"new\":{}}\x00", "cannot be decoded"),
        ("a length beyond the block", b"\xff\xff\x03{}\x00", "cut short"),
        ("a payload beyond the block", b"\x15{\"end\":{\"dropped\":1}}\xff\x03", "cut short"),
        ("a payload without a place", b"\x15{\"end\":{\"dropped\":1}}\x02x", "no place"),
    ] {
        let data = zstd::bulk::compress(raw, 1).unwrap();
        let mut changed = bytes[..offsets[0] + HEAD].to_vec();
        changed.extend(&data);
        for (field, number) in
            [(4, 0), (8, 1), (12, data.len()), (16, raw.len()), (60, crc32fast::hash(&data) as usize)]
        {
            let number = u32::try_from(number).unwrap().to_be_bytes();
            changed = with_field(&changed, offsets[0], field, &number);
        }
        let error = open(directory.path(), &changed, Limits::default()).unwrap_err().to_string();
        assert!(error.contains(want), "{case}: {error}");
    }
}

#[test]
fn limits_of_the_reader_are_inclusive() {
    let (directory, bytes, _, _) = sample();
    let path = directory.path().join("whole.coracle");
    let raw_bytes = Record::open(&path, Limits::default()).unwrap().raw_bytes();
    let limits = Limits { raw_bytes, blocks: 3 };
    assert!(open(directory.path(), &bytes, limits).is_ok());
    for (limits, want) in [
        (Limits { raw_bytes: raw_bytes - 1, ..limits }, "decompressed bytes"),
        (Limits { blocks: 2, ..limits }, "more than 2 blocks"),
    ] {
        let error = open(directory.path(), &bytes, limits).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn the_header_is_bounded() {
    let (directory, bytes, _, _) = sample();
    for length in [(4_u32 << 20) + 1, u32::MAX] {
        let mut changed = bytes.clone();
        changed[BEFORE_HEADER - 8..BEFORE_HEADER - 4].copy_from_slice(&length.to_be_bytes());
        let error = open(directory.path(), &changed, Limits::default()).unwrap_err().to_string();
        assert!(error.contains("header is larger"), "{error}");
    }
}
