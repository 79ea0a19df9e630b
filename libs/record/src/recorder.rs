//! The recorder: a thread that writes a record.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::queue::{Queue, Wake};
use crate::record::Limits;
use crate::redact::redact;
use crate::writer::{FileLimits, RESERVED, Writer};
use crate::{Entry, Error, Header, Run, StopReason};

/// The options of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The greatest length of the file in bytes (default: 4 GiB). Recording stops there.
    pub max_bytes: u64,
    /// The longest time between an entry and its place in the file (default: 200 ms).
    pub interval: Duration,
    /// The level of zstd (default: 1). Pods of 2 KB become a nineteenth of their size, for 5 % of a
    /// core at 20,000 versions a second; level 6 takes 17 % and saves a fiftieth more.
    pub level: i32,
    /// True to remove the values of Secrets and tokens (default). See [`redact`](crate::redact).
    pub redact_secrets: bool,
    /// The bytes that may wait to be written (default: 16 MiB). As many again are being written.
    pub queue_bytes: usize,
    /// The longest wait of [`Recorder::append`] for space in the queue (default: 250 ms).
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_bytes: 4 << 30,
            interval: Duration::from_millis(200),
            level: 1,
            redact_secrets: true,
            queue_bytes: 16 << 20,
            patience: Duration::from_millis(250),
        }
    }
}

/// The state of a record that is or was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The entries in the file.
    pub entries: u64,
    /// Their size before compression, in bytes.
    pub raw_bytes: u64,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// The entries that are not in the file and never will be.
    pub dropped: u64,
    /// The reason, if recording stopped before its end.
    pub stopped: Option<StopReason>,
}

/// A recorder of entries. It may be shared by threads.
///
/// Dropping it finishes the record.
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    queue: Queue,
    /// As of the last block.
    statistics: Mutex<Statistics>,
}

impl Recorder {
    /// Creates the file of a record and starts the thread that writes it.
    ///
    /// # Errors
    /// Something is at `path`, the file cannot be created, or an option is out of its range. No
    /// file is left behind.
    pub fn create(path: &Path, run: Run, options: &Options) -> Result<Recorder, Error> {
        let failed = |source: io::Error| Error::Create { path: path.to_owned(), source };
        let header = Header { run, redacted: options.redact_secrets };
        let bytes = header.encode(path)?;
        let length = bytes.len() as u64;
        let least = length + RESERVED;
        if options.max_bytes < least {
            return Err(Error::LimitTooSmall { path: path.to_owned(), limit: options.max_bytes, least });
        }
        // Neither a file nor a symbolic link may be there: O_CREAT | O_EXCL | O_NOFOLLOW.
        let created = coracle_private_fs::file_options().create_new(true).open(path);
        let mut file = match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: path.to_owned() });
            }
            created => created.map_err(failed)?,
        };
        let limits = Limits::default();
        let limits =
            FileLimits { bytes: options.max_bytes, raw_bytes: limits.raw_bytes, blocks: limits.blocks };
        let started = header.run.started;
        let recorder = file
            .write_all(&bytes)
            .and_then(|()| Writer::new(file, path, length, started, options.level, limits))
            .and_then(|writer| Recorder::start(writer, options));
        if recorder.is_err() {
            // This call created it, and it has no entries.
            let _ = fs::remove_file(path);
        }
        recorder.map_err(failed)
    }

    fn start(writer: Writer, options: &Options) -> io::Result<Recorder> {
        let file_bytes = writer.totals().file_bytes;
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_bytes, options.patience),
            statistics: Mutex::new(Statistics { file_bytes, ..Statistics::default() }),
        });
        let thread = Thread {
            shared: shared.clone(),
            writer,
            interval: options.interval,
            redact_secrets: options.redact_secrets,
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(|| thread.run())?;
        Ok(Recorder { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Appends an entry to the record. Returns as soon as the entry is in a queue.
    ///
    /// If the queue is full it waits for [`Options::patience`] at most. Then, and until there is
    /// space again, entries are counted in an [`Entry::Gap`] instead, without a wait.
    pub fn append(&self, entry: Entry) {
        self.shared.queue.push(entry);
    }

    /// Waits until all entries that were appended before are in the file, or recording has stopped.
    pub fn flush(&self) {
        self.shared.queue.flush();
    }

    /// Writes the remaining entries and [`Entry::End`], and ends the thread. A second call does
    /// nothing. Entries that are appended later are ignored.
    pub fn finish(&self) -> Statistics {
        self.shared.queue.finish();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the record panicked; the record ends early");
        }
        self.statistics()
    }

    /// Returns the state of the file as of its last block.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.shared.statistics.lock().clone();
        statistics.dropped += self.shared.queue.dropped();
        statistics
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The thread's own state.
struct Thread {
    shared: Arc<Shared>,
    writer: Writer,
    interval: Duration,
    redact_secrets: bool,
}

impl Thread {
    fn run(mut self) {
        let mut batch = Vec::new();
        let mut deadline = None;
        loop {
            let Wake { is_finishing, flush } = self.shared.queue.take(&mut batch, deadline);
            for entry in batch.drain(..) {
                self.append(entry);
            }
            // Entries of one large burst do not keep the memory of its list.
            batch.shrink_to(1 << 10);
            if is_finishing {
                self.writer.finish(self.shared.queue.dropped());
                return self.report();
            }
            let now = now();
            if flush > 0 || deadline.is_some_and(|deadline| deadline <= now) {
                self.writer.flush();
                deadline = None;
            }
            if !self.writer.has_open_block() {
                deadline = None;
            } else if deadline.is_none() {
                deadline = Some(now + self.interval);
            }
            self.report();
            if self.writer.stopped().is_some() {
                self.shared.queue.close();
            }
            if flush > 0 {
                self.shared.queue.report_flush(flush);
            }
        }
    }

    fn append(&mut self, mut entry: Entry) {
        if self.redact_secrets {
            redact(&mut entry);
        }
        self.writer.append(&entry);
    }

    fn report(&self) {
        let totals = self.writer.totals();
        *self.shared.statistics.lock() = Statistics {
            entries: totals.entries,
            raw_bytes: totals.raw_bytes,
            file_bytes: totals.file_bytes,
            dropped: totals.lost,
            stopped: self.writer.stopped().cloned(),
        };
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // After a panic, too.
        self.shared.queue.report_end();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the interval bounds the loss of a killed process, by the machine's time"
)]
fn now() -> Instant {
    Instant::now()
}
