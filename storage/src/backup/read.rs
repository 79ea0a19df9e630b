//! The reader of a backup. It checks every length, checksum and order before it uses them.

use std::io::{self, Read};

use bytes::Bytes;

use super::format::{END, HEADER, MAGIC, MAGIC_PREFIX, MAX_PAYLOAD, OBJECT};
use crate::{Key, Revision};

/// The reasons for which a file is not read as a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file does not begin with the signature of a backup.
    #[error("it is not a backup")]
    Foreign,
    /// The version of its format is not supported.
    #[error("it is a backup of version {0:?}, which this program does not know")]
    Version(String),
    /// The file ends early.
    #[error("it is cut short after {objects} objects")]
    CutShort {
        /// The objects that were read before.
        objects: u64,
    },
    /// The file is damaged.
    #[error("it is damaged after {objects} objects: {reason}")]
    Damaged {
        /// The objects that were read before.
        objects: u64,
        /// The defect in the file.
        reason: &'static str,
    },
    /// The file cannot be read.
    #[error("it cannot be read")]
    Failed(#[source] io::Error),
}

/// The header of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The revision at which the backup was taken.
    pub revision: Revision,
    /// The number of its objects.
    pub objects: u64,
}

/// An object in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupObject {
    /// The key of the object.
    pub key: Key,
    /// The revision at which it was created.
    pub created: Revision,
    /// The revision of this version.
    pub revision: Revision,
    /// The bytes of the version, without its revision.
    pub stored: Bytes,
}

/// Reads a backup object by object, with one object in memory at a time.
pub struct Reader<R> {
    source: R,
    summary: Summary,
    objects: u64,
    checksum: crc32fast::Hasher,
    is_ended: bool,
}

/// Reads a backup to its end and checks all of it.
///
/// # Errors
/// See [`BackupError`].
pub fn verify(source: impl Read) -> Result<Summary, BackupError> {
    let mut reader = Reader::new(source)?;
    while reader.next_object()?.is_some() {}
    Ok(reader.summary())
}

impl<R: Read> Reader<R> {
    /// Creates a reader, and reads the header of the backup.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn new(source: R) -> Result<Reader<R>, BackupError> {
        let summary = Summary { revision: Revision::ZERO, objects: 0 };
        let mut reader =
            Reader { source, summary, objects: 0, checksum: crc32fast::Hasher::new(), is_ended: false };
        reader.read_magic()?;
        let (kind, payload) = reader.frame()?;
        let (HEADER, Some((revision, rest))) = (kind, payload.split_first_chunk()) else {
            return Err(reader.damaged("it has no header"));
        };
        let Ok(objects) = rest.try_into() else { return Err(reader.damaged("its header is too long")) };
        reader.summary =
            Summary { revision: Revision::from_bytes(*revision), objects: u64::from_be_bytes(objects) };
        Ok(reader)
    }

    /// Returns the summary in the header. It is verified once [`next_object`](Self::next_object)
    /// has returned the last object.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the next object; None after the last one, once the end of the file has been
    /// verified.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn next_object(&mut self) -> Result<Option<BackupObject>, BackupError> {
        if self.is_ended {
            return Ok(None);
        }
        let before = self.checksum.clone();
        let (kind, payload) = self.frame()?;
        match kind {
            OBJECT => {
                let object = object(&payload).ok_or_else(|| self.damaged("an object cannot be decoded"))?;
                if object.created > object.revision || object.revision > self.summary.revision {
                    return Err(self.damaged("the revisions of an object are not in order"));
                }
                self.objects += 1;
                if self.objects > self.summary.objects {
                    return Err(self.damaged("it has more objects than its header says"));
                }
                Ok(Some(object))
            }
            END => {
                self.check_end(&payload, before.finalize())?;
                self.is_ended = true;
                Ok(None)
            }
            _ => Err(self.damaged("a frame of an unknown kind")),
        }
    }

    fn check_end(&mut self, payload: &[u8], checksum: u32) -> Result<(), BackupError> {
        let expected = [&self.objects.to_be_bytes()[..], &checksum.to_be_bytes()].concat();
        if payload != expected || self.objects != self.summary.objects {
            return Err(self.damaged("its number of objects or its checksum is not that of its end"));
        }
        match self.source.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows its end")),
            Err(error) => Err(BackupError::Failed(error)),
        }
    }

    fn read_magic(&mut self) -> Result<(), BackupError> {
        let mut magic = [0; MAGIC.len()];
        match self.source.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(BackupError::Foreign),
            read => read.map_err(BackupError::Failed)?,
        }
        self.checksum.update(&magic);
        match magic.strip_prefix(MAGIC_PREFIX) {
            Some(_) if magic == MAGIC => Ok(()),
            Some(version) => {
                Err(BackupError::Version(String::from_utf8_lossy(version).trim_end().to_owned()))
            }
            None => Err(BackupError::Foreign),
        }
    }

    /// Returns the next frame: its kind and its payload.
    fn frame(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let mut head = [0; 5];
        self.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(self.damaged("a frame is longer than any can be"));
        }
        // The buffer grows with the bytes that are read: a large length alone allocates nothing.
        let mut payload = Vec::new();
        let read = self.source.by_ref().take(length as u64).read_to_end(&mut payload);
        if read.map_err(BackupError::Failed)? < length {
            return Err(self.cut_short());
        }
        let mut checksum = [0; 4];
        self.read_exact(&mut checksum)?;
        let mut computed = crc32fast::Hasher::new();
        computed.update(&head);
        computed.update(&payload);
        if computed.clone().finalize() != u32::from_be_bytes(checksum) {
            return Err(self.damaged("the checksum of a frame is wrong"));
        }
        self.checksum.combine(&computed);
        self.checksum.update(&checksum);
        Ok((kind, payload))
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        match self.source.read_exact(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut_short()),
            read => read.map_err(BackupError::Failed),
        }
    }

    fn cut_short(&self) -> BackupError {
        BackupError::CutShort { objects: self.objects }
    }

    fn damaged(&self, reason: &'static str) -> BackupError {
        BackupError::Damaged { objects: self.objects, reason }
    }
}

/// Decodes the object in a payload; None if the payload is not an object.
fn object(payload: &[u8]) -> Option<BackupObject> {
    let (created, rest) = payload.split_first_chunk()?;
    let (revision, rest) = rest.split_first_chunk()?;
    let (bucket, rest) = text(rest)?;
    let (name, stored) = text(rest)?;
    Some(BackupObject {
        key: Key::new(bucket, name),
        created: Revision::from_bytes(*created),
        revision: Revision::from_bytes(*revision),
        stored: Bytes::copy_from_slice(stored),
    })
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}
