//! How a store was left: one line in one file, overwritten in place.
//!
//! ```text
//! coracle store 3 open   SYNCED 00000000 CRC   everything up to the revision SYNCED is on disk
//! coracle store 3 sealed SYNCED SUM      CRC   and nothing else; SUM is a checksum of the log's files
//! ```
//! The number is that of the log's format, so that a program which does not know a format refuses the store. Stores of
//! the formats 1 and 2 are opened, and are of format 3 from then on.
//!
//! SYNCED has 20 decimal digits, the checksums 8 hexadecimal ones; CRC is that of the line before it. The line is written
//! after each flush of the log, but synced once a second at most: so it costs the writers no second flush. It never
//! claims more than is on disk. It is exact after a crash of the process; after a crash of the machine it may be what was
//! right a second ago.

use std::{
    fs::File,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::Revision;

/// What the line means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Never used, or never so far that anything was acknowledged.
    New,
    /// Not closed: the process that had it crashed.
    Open {
        synced: Revision,
    },
    Sealed {
        synced: Revision,
        sum: u32,
    },
}

/// The file with the line.
pub(super) struct StateFile {
    file: File,
    state: Mutex<Written>,
}

struct Written {
    synced: Revision,
    /// When the file itself was synced last.
    at: Option<Instant>,
}

/// How often the file is synced while the store is in use.
const INTERVAL: Duration = Duration::from_secs(1);

/// The first format, with a line that has no revision.
const OPEN_1: &str = "coracle store 1 open            \n";
const SEALED_1: &str = "coracle store 1 sealed ";

const FORMAT: &str = "coracle store 3 ";

/// The second format, with rows for only one entry a revision.
const FORMAT_2: &str = "coracle store 2 ";
const LENGTH: usize = FORMAT.len() + 7 + 21 + 9 + 9;

impl State {
    /// None if the line is not one of ours.
    pub fn parse(line: &[u8]) -> Option<State> {
        let line = std::str::from_utf8(line).ok()?;
        let hexadecimal = |text: &str| u32::from_str_radix(text, 16).ok();
        if line.is_empty() {
            return Some(State::New);
        }
        if line == OPEN_1 {
            return Some(State::Open { synced: Revision::ZERO });
        }
        if let Some(sum) = line.strip_prefix(SEALED_1) {
            let sum = hexadecimal(sum.strip_suffix(" \n")?)?;
            return Some(State::Sealed { synced: Revision::ZERO, sum });
        }
        let (checked, crc) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        if line.len() != LENGTH || hexadecimal(crc)? != crc32fast::hash(checked.as_bytes()) {
            return None;
        }
        let rest = checked.strip_prefix(FORMAT).or_else(|| checked.strip_prefix(FORMAT_2))?;
        let mut words = rest.split_ascii_whitespace();
        let (word, synced, sum) = (words.next()?, words.next()?, words.next()?);
        let (synced, sum) = (Revision(synced.parse().ok()?), hexadecimal(sum)?);
        match word {
            "open" => Some(State::Open { synced }),
            "sealed" => Some(State::Sealed { synced, sum }),
            _ => None,
        }
    }

    /// The line that means this.
    pub fn line(self) -> String {
        let (word, synced, sum) = match self {
            State::New => return String::new(),
            State::Open { synced } => ("open", synced.0, 0),
            State::Sealed { synced, sum } => ("sealed", synced.0, sum),
        };
        let line = format!("{FORMAT}{word:6} {synced:020} {sum:08x}");
        format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes()))
    }

    /// Up to here everything was on disk.
    pub fn synced(self) -> Revision {
        match self {
            State::New => Revision::ZERO,
            State::Open { synced } | State::Sealed { synced, .. } => synced,
        }
    }
}

impl StateFile {
    /// `synced` is what the line has.
    pub fn new(file: File, synced: Revision) -> StateFile {
        StateFile { file, state: Mutex::new(Written { synced, at: None }) }
    }

    /// Records that the store is in use.
    pub fn unseal(&self) -> io::Result<()> {
        let state = self.lock();
        self.write(State::Open { synced: state.synced })?;
        self.file.sync_data()
    }

    /// Records that everything up to a revision is on disk, which must be true.
    pub fn advance(&self, to: Revision) -> io::Result<()> {
        let mut state = self.lock();
        if to <= state.synced {
            return Ok(());
        }
        self.write(State::Open { synced: to })?;
        state.synced = to;
        if state.at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.file.sync_data()?;
            state.at = Some(Instant::now());
        }
        Ok(())
    }

    /// Records that the store is closed.
    pub fn seal(&self, synced: Revision, sum: u32) -> io::Result<()> {
        let mut state = self.lock();
        self.write(State::Sealed { synced, sum })?;
        self.file.sync_data()?;
        state.synced = synced;
        Ok(())
    }

    #[cfg(unix)]
    fn write(&self, state: State) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, state.line().as_bytes(), 0)
    }

    #[cfg(not(unix))]
    fn write(&self, state: State) -> io::Result<()> {
        use io::{Seek, Write};
        let mut file = &self.file;
        file.seek(io::SeekFrom::Start(0))?;
        file.write_all(state.line().as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        for state in [
            State::Open { synced: Revision::ZERO },
            State::Open { synced: Revision(u64::MAX) },
            State::Sealed { synced: Revision(12), sum: 0 },
            State::Sealed { synced: Revision(12), sum: u32::MAX },
        ] {
            assert_eq!(state.line().len(), LENGTH, "each overwrites the other whole");
            assert_eq!(State::parse(state.line().as_bytes()), Some(state));
        }
        assert_eq!(State::parse(b""), Some(State::New));
    }

    #[test]
    fn lines_of_earlier_formats_are_understood() {
        let second = "coracle store 2 open   00000000000000001234 00000000";
        let second = format!("{second} {:08x}\n", crc32fast::hash(second.as_bytes()));
        for (line, want) in [
            (&*second, State::Open { synced: Revision(1234) }),
            (OPEN_1, State::Open { synced: Revision::ZERO }),
            ("coracle store 1 sealed 0000beef \n", State::Sealed { synced: Revision::ZERO, sum: 0xbeef }),
        ] {
            assert!(line.len() <= LENGTH, "the next line overwrites it whole");
            assert_eq!(State::parse(line.as_bytes()), Some(want));
        }
    }

    #[test]
    fn a_changed_or_shortened_line_is_refused() {
        let line = State::Open { synced: Revision(1234) }.line().into_bytes();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut damaged = line.clone();
                damaged[at] ^= 1 << bit;
                let read = State::parse(&damaged);
                // Upper and lower case are the same number in a checksum.
                assert!(read.is_none_or(|state| state.synced() == Revision(1234)), "bit {bit} of byte {at}");
            }
            if at > 0 {
                assert_eq!(State::parse(&line[..at]), None, "cut at {at}");
            }
        }
    }
}
