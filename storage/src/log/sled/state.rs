//! The state in which a store was left: one line in one file, overwritten in place.
//!
//! ```text
//! coracle store 4 open   SYNCED BOOT CRC   everything up to the revision SYNCED is on disk
//! coracle store 4 sealed SYNCED SUM  CRC   and nothing else; SUM is a checksum of the log's files
//! ```
//!
//! BOOT identifies the boot of the machine during which everything that was acknowledged was also
//! written to files; 0 if there is none. As long as that boot lasts, the files have everything even
//! if the process crashed.
//!
//! The number is the version of the log's format; a program that does not support it refuses the
//! store. Stores of the formats 1 to 3 are opened, and have format 4 from then on: the earlier ones
//! have no journal.
//!
//! SYNCED has 20 decimal digits, the checksums 8 hexadecimal ones; CRC is the checksum of the line
//! before it. The line is written after each flush of the log, but synced once a second at most, so
//! that it costs the writers no second flush. It never claims more than is on disk. It is exact
//! after a crash of the process; after a crash of the machine it may be up to a second old.

use std::{
    fs::File,
    io,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::Revision;

/// The meaning of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Never used, or not far enough for anything to be acknowledged.
    New,
    /// The store was not closed: its process crashed, or still runs.
    Open {
        synced: Revision,
        /// The boot during which everything acknowledged was in files.
        boot: Option<NonZeroU32>,
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
    boot: Option<NonZeroU32>,
    /// The time at which the file itself was last synced.
    at: Option<Instant>,
}

/// The shortest interval between syncs of the file while the store is in use.
const INTERVAL: Duration = Duration::from_secs(1);

/// The first format, with a line that has no revision.
const OPEN_1: &str = "coracle store 1 open            \n";
const SEALED_1: &str = "coracle store 1 sealed ";

const FORMAT: &str = "coracle store 4 ";

/// The second format, with rows for only one entry a revision, and the third, without a journal.
const EARLIER_FORMATS: [&str; 2] = ["coracle store 2 ", "coracle store 3 "];

/// The fault of a file that has no state, and the next step.
pub const FOREIGN: &str = "its file `store` was written by another program or a newer version, or was cut off; \
    nothing is changed: use another data directory, and restore a backup into it";

const LENGTH: usize = FORMAT.len() + 7 + 21 + 9 + 9;

impl State {
    /// Parses a line; None if it is invalid.
    pub fn parse(line: &[u8]) -> Option<State> {
        let line = std::str::from_utf8(line).ok()?;
        let hexadecimal = |text: &str| u32::from_str_radix(text, 16).ok();
        if line.is_empty() {
            return Some(State::New);
        }
        if line == OPEN_1 {
            return Some(State::Open { synced: Revision::ZERO, boot: None });
        }
        if let Some(sum) = line.strip_prefix(SEALED_1) {
            let sum = hexadecimal(sum.strip_suffix(" \n")?)?;
            return Some(State::Sealed { synced: Revision::ZERO, sum });
        }
        let (checked, crc) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        if line.len() != LENGTH || hexadecimal(crc)? != crc32fast::hash(checked.as_bytes()) {
            return None;
        }
        let earlier = || EARLIER_FORMATS.iter().find_map(|format| checked.strip_prefix(format));
        let rest = checked.strip_prefix(FORMAT).or_else(earlier)?;
        let mut words = rest.split_ascii_whitespace();
        let (word, synced, sum) = (words.next()?, words.next()?, words.next()?);
        let (synced, sum) = (Revision(synced.parse().ok()?), hexadecimal(sum)?);
        match word {
            "open" => Some(State::Open { synced, boot: NonZeroU32::new(sum) }),
            "sealed" => Some(State::Sealed { synced, sum }),
            _ => None,
        }
    }

    /// Returns the line that records this state.
    pub fn line(self) -> String {
        let (word, synced, sum) = match self {
            State::New => return String::new(),
            State::Open { synced, boot } => ("open", synced.0, boot.map_or(0, NonZeroU32::get)),
            State::Sealed { synced, sum } => ("sealed", synced.0, sum),
        };
        let line = format!("{FORMAT}{word:6} {synced:020} {sum:08x}");
        format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes()))
    }

    /// Returns the revision up to which everything was on disk.
    pub fn synced(self) -> Revision {
        match self {
            State::New => Revision::ZERO,
            State::Open { synced, .. } | State::Sealed { synced, .. } => synced,
        }
    }

    /// Returns whether the files have everything that was acknowledged: the store was closed, or
    /// the machine has not restarted since.
    pub fn is_complete(self) -> bool {
        match self {
            State::New | State::Sealed { .. } => true,
            State::Open { boot: was, .. } => was.is_some() && was == boot(),
        }
    }
}

/// Returns a number that identifies the current boot of the machine; None if the operating system
/// does not identify it.
pub(super) fn boot() -> Option<NonZeroU32> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    NonZeroU32::new(crc32fast::hash(&id))
}

impl StateFile {
    /// Returns the state file `file`, in which the state `was` is recorded.
    pub fn new(file: File, was: State) -> StateFile {
        let boot = if let State::Open { boot, .. } = was { boot } else { None };
        StateFile { file, state: Mutex::new(Written { synced: was.synced(), boot, at: None }) }
    }

    /// Records that the store is in use.
    pub fn unseal(&self) -> io::Result<()> {
        let state = self.state.lock();
        self.write(state.open())?;
        self.file.sync_data()
    }

    /// Records the boot during which everything that is acknowledged from now on is in files.
    /// Everything acknowledged before must be on disk. The record is not synced, since it is of no
    /// use once the machine has stopped.
    pub fn set_boot(&self, boot: Option<NonZeroU32>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.boot = boot;
        self.write(state.open())
    }

    /// Records that everything up to a revision is on disk, which must be true.
    pub fn advance(&self, to: Revision) -> io::Result<()> {
        let mut state = self.state.lock();
        if to <= state.synced {
            return Ok(());
        }
        state.synced = to;
        self.write(state.open())?;
        if state.at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.file.sync_data()?;
            state.at = Some(Instant::now());
        }
        Ok(())
    }

    /// Records that the store is closed.
    pub fn seal(&self, synced: Revision, sum: u32) -> io::Result<()> {
        let mut state = self.state.lock();
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
}

impl Written {
    /// Returns the state to record while the store is in use.
    fn open(&self) -> State {
        State::Open { synced: self.synced, boot: self.boot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        for state in [
            State::Open { synced: Revision::ZERO, boot: None },
            State::Open { synced: Revision(u64::MAX), boot: NonZeroU32::new(u32::MAX) },
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
            (&*second, State::Open { synced: Revision(1234), boot: None }),
            (OPEN_1, State::Open { synced: Revision::ZERO, boot: None }),
            ("coracle store 1 sealed 0000beef \n", State::Sealed { synced: Revision::ZERO, sum: 0xbeef }),
        ] {
            assert!(line.len() <= LENGTH, "the next line overwrites it whole");
            assert_eq!(State::parse(line.as_bytes()), Some(want));
        }
    }

    #[test]
    fn a_changed_or_shortened_line_is_refused() {
        let line = State::Open { synced: Revision(1234), boot: None }.line().into_bytes();
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
