//! The beginning of a file: its magic, the version of the format, and the description of the run.

use std::io::{self, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The version of the format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// The beginning of all versions of the format.
const MAGIC: &[u8] = b"coracle record ";
/// The greatest length of the JSON. Linux has command lines of 2 MiB.
pub(crate) const MAX_HEADER: usize = 4 << 20;
/// The greatest number of digits in the version of the format.
const MAX_DIGITS: usize = 9;

/// The run of a control plane that is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The version of the program, such as `0.1.0`.
    pub version: String,
    /// The start of the recording, by the clock of the control plane.
    pub started: Timestamp,
    /// The command line: the program and its arguments.
    pub command: Vec<String>,
    /// The mode of the clock at the start.
    pub clock: ClockMode,
    /// The seed of names, UIDs and addresses, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The mode of a control plane's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClockMode {
    /// The time of the machine.
    Real,
    /// The time that a test sets.
    Manual,
}

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The recorded run.
    #[serde(flatten)]
    pub run: Run,
    /// True if the values of Secrets and tokens were removed.
    pub redacted: bool,
}

impl Header {
    /// Encodes the header, magic included.
    pub(crate) fn encode(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let json = serde_json::to_vec(self).map_err(|error| Error::Create {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX_HEADER);
        let Some(length) = length else {
            return Err(Error::HeaderTooLarge {
                path: path.to_owned(),
                length: json.len(),
                limit: MAX_HEADER,
            });
        };
        let mut bytes = [MAGIC, FORMAT.to_string().as_bytes(), b"\n"].concat();
        bytes.extend(length.to_be_bytes());
        bytes.extend(crc32fast::hash(&json).to_be_bytes());
        bytes.extend(json);
        Ok(bytes)
    }

    /// Reads a header from the beginning of a file. Returns its length, too.
    pub(crate) fn read(source: &mut impl Read, path: &Path) -> Result<(Header, u64), Error> {
        let mut reader = HeaderReader { source, path, length: 0 };
        reader.check_format()?;
        let header = reader.json()?;
        Ok((header, reader.length))
    }
}

struct HeaderReader<'a, R> {
    source: &'a mut R,
    path: &'a Path,
    /// The bytes read.
    length: u64,
}

impl<R: Read> HeaderReader<'_, R> {
    /// Reads the magic and the version of the format.
    fn check_format(&mut self) -> Result<(), Error> {
        let magic = self.bytes(MAGIC.len())?.ok_or_else(|| self.foreign("it is too short"))?;
        if magic != MAGIC {
            return Err(self.foreign("it begins with other bytes"));
        }
        let mut digits = String::new();
        loop {
            let byte = self.bytes(1)?.ok_or_else(|| self.foreign("it ends within its first line"))?;
            match byte[0] {
                b'\n' => break,
                digit @ b'0'..=b'9' if digits.len() < MAX_DIGITS => digits.push(char::from(digit)),
                _ => return Err(self.foreign("its first line has no version")),
            }
        }
        match digits.parse() {
            Ok(FORMAT) => Ok(()),
            Ok(found) if found > FORMAT => {
                Err(Error::Newer { path: self.path.to_owned(), found, known: FORMAT })
            }
            Ok(_) | Err(_) => Err(self.foreign("its first line has no known version")),
        }
    }

    fn json(&mut self) -> Result<Header, Error> {
        let length = self.number()?;
        let checksum = self.number()?;
        let length = usize::try_from(length).ok().filter(|&length| length <= MAX_HEADER);
        let length = length.ok_or_else(|| self.foreign("its header is larger than headers are"))?;
        let json = self.bytes(length)?.ok_or_else(|| self.foreign("it ends within its header"))?;
        if crc32fast::hash(&json) != checksum {
            return Err(self.foreign("the checksum of its header is wrong"));
        }
        serde_json::from_slice(&json).map_err(|_| self.foreign("its header is not a record's"))
    }

    fn number(&mut self) -> Result<u32, Error> {
        let bytes = self.bytes(4)?.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| self.foreign("it ends within its header"))
    }

    /// Reads some bytes; `None` if there are fewer. The buffer grows with what is there, not with
    /// what is claimed.
    fn bytes(&mut self, length: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(length as u64).read_to_end(&mut bytes);
        read.map_err(|source| Error::Read { path: self.path.to_owned(), source })?;
        self.length += bytes.len() as u64;
        Ok(Some(bytes).filter(|bytes| bytes.len() == length))
    }

    fn foreign(&self, reason: &'static str) -> Error {
        Error::NotARecord { path: self.path.to_owned(), reason }
    }
}
