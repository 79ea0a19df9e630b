//! The writer of a backup: copies the stored bytes in chunks, on demand.

use std::{sync::Arc, vec};

use bytes::Bytes;

use super::format::{END, HEADER, MAGIC, OBJECT};
use crate::{Index, Object, Revision, Snapshot};

/// The smallest size of a chunk, in bytes, except for the last one.
const CHUNK: usize = 64 << 10;

/// The backup file of a snapshot, chunk by chunk. Each object that is not written yet costs one
/// pointer.
pub struct Chunks<I: Index> {
    revision: Revision,
    objects: vec::IntoIter<Arc<Object<I>>>,
    count: u64,
    checksum: crc32fast::Hasher,
    is_started: bool,
    is_ended: bool,
}

impl<I: Index> Chunks<I> {
    /// Creates the file of a snapshot.
    pub fn new(snapshot: &Snapshot<I>) -> Chunks<I> {
        let buckets: Vec<_> = snapshot.buckets().map(|(name, _)| name.clone()).collect();
        let mut objects: Vec<_> = Vec::new();
        for bucket in buckets {
            objects.extend(snapshot.bucket(&bucket).iter().cloned());
        }
        // The order of creation survives in a log that assigns a new revision to every object.
        objects.sort_by_key(|object| (object.created, object.revision));
        Chunks {
            revision: snapshot.revision(),
            count: objects.len() as u64,
            objects: objects.into_iter(),
            checksum: crc32fast::Hasher::new(),
            is_started: false,
            is_ended: false,
        }
    }
}

impl<I: Index> Iterator for Chunks<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + (CHUNK >> 2));
        if !self.is_started {
            self.is_started = true;
            chunk.extend(MAGIC);
            frame(&mut chunk, HEADER, &[&self.revision.to_bytes(), &self.count.to_be_bytes()]);
        }
        while chunk.len() < CHUNK {
            let Some(object) = self.objects.next() else {
                self.checksum.update(&chunk);
                let checksum = self.checksum.clone().finalize();
                frame(&mut chunk, END, &[&self.count.to_be_bytes(), &checksum.to_be_bytes()]);
                self.is_ended = true;
                return Some(chunk.into());
            };
            let (head, tail) = object.stored();
            let [bucket, name] = [object.key.bucket(), object.key.name()];
            let revisions = [object.created.to_bytes(), object.revision.to_bytes()];
            let lengths = [bucket, name].map(|part| length(part.len()));
            let parts: [&[u8]; 8] = [
                &revisions[0],
                &revisions[1],
                &lengths[0],
                bucket.as_bytes(),
                &lengths[1],
                name.as_bytes(),
                head,
                tail,
            ];
            frame(&mut chunk, OBJECT, &parts);
        }
        self.checksum.update(&chunk);
        Some(chunk.into())
    }
}

/// Appends a frame with a payload in several parts.
fn frame(to: &mut Vec<u8>, kind: u8, payload: &[&[u8]]) {
    let begin = to.len();
    to.push(kind);
    to.extend(length(payload.iter().map(|part| part.len()).sum()));
    for part in payload {
        to.extend(*part);
    }
    let checksum = crc32fast::hash(to.get(begin..).unwrap_or_default());
    to.extend(checksum.to_be_bytes());
}

/// Encodes a length for the format. The store has no value or key of 4 GiB, and a reader would
/// reject such a frame.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}
