//! The audit log: lines of events, written to a file or to standard output by a thread of its own.
//!
//! The queue of lines is bounded: if a disk is full or does not respond, events are lost and
//! counted, but no request is stalled.
#![expect(clippy::disallowed_methods, reason = "a request waits for the log for a bounded time")]

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use coracle_clock::Clock;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::metrics::AuditMetrics;
use super::rotation::{RotatingFile, Rotation};

/// The maximum number of events that wait to be written: kube-apiserver's
/// `--audit-log-batch-buffer-size`.
const MAX_EVENTS: usize = 10_000;
/// The maximum number of bytes of events that wait to be written.
const MAX_BYTES: usize = 64 << 20;
/// The longest time a response waits for its event to be written. After a timeout no response waits
/// until writing continues.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Failures to write are logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// `--audit-log-mode`: whether requests wait for their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// `batch`: they do not.
    Batch,
    /// `blocking`: the response waits until its events are written, for a second at most. The
    /// default.
    #[default]
    Blocking,
    /// `blocking-strict`: also, a request is refused if the event of its receipt cannot be written.
    BlockingStrict,
}

impl Mode {
    /// Parses the name of a mode.
    ///
    /// # Errors
    /// kube-apiserver's message for an unknown name.
    pub fn parse(name: &str) -> Result<Mode, String> {
        match name {
            "batch" => Ok(Mode::Batch),
            "blocking" => Ok(Mode::Blocking),
            "blocking-strict" => Ok(Mode::BlockingStrict),
            _ => Err(format!(
                "invalid audit log mode {name}, allowed modes are \"batch,blocking,blocking-strict\""
            )),
        }
    }
}

/// `--audit-log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `json`: events as `audit.k8s.io/v1` has them. The default.
    #[default]
    Json,
    /// `legacy`: a line of text for each.
    Legacy,
}

impl Format {
    /// Parses the name of a format.
    ///
    /// # Errors
    /// kube-apiserver's message for an unknown name.
    pub fn parse(name: &str) -> Result<Format, String> {
        match name {
            "json" => Ok(Format::Json),
            "legacy" => Ok(Format::Legacy),
            _ => Err(format!("invalid audit log format {name}, allowed formats are \"legacy,json\"")),
        }
    }
}

/// The destination and rotation of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// Whether requests wait for their events.
    pub mode: Mode,
    /// The format of events.
    pub format: Format,
    /// The rotation of the file.
    pub rotation: Rotation,
}

/// The audit log. When it is dropped, queued lines are still written, as long as the process lives.
pub struct AuditLog {
    sender: SyncSender<Entry>,
    shared: Arc<Shared>,
    /// Whether requests wait for their events.
    pub mode: Mode,
    /// The format of events.
    pub format: Format,
}

struct Shared {
    metrics: AuditMetrics,
    waiting_bytes: AtomicUsize,
    /// Whether a response has timed out waiting, and nothing was written since.
    is_stalled: AtomicBool,
}

enum Entry {
    Line { bytes: Vec<u8>, written: oneshot::Sender<bool> },
    Flush(oneshot::Sender<bool>),
}

/// The destination of the thread's output.
enum Sink {
    File(RotatingFile),
    Stdout,
    #[cfg(test)]
    Test(TestSink),
}

#[cfg(test)]
type TestSink = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

impl Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.write(line),
            Sink::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line)?;
                out.flush()
            }
            #[cfg(test)]
            Sink::Test(write) => write(line),
        }
    }
}

/// The pending result of writing a line: whether it was written.
pub struct Written(Option<oneshot::Receiver<bool>>);

impl AuditLog {
    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(options: &LogOptions, metrics: AuditMetrics, clock: Clock) -> io::Result<AuditLog> {
        let sink = match options.path.as_os_str() == "-" {
            true => Sink::Stdout,
            false => Sink::File(RotatingFile::create(options.path.clone(), options.rotation, clock)?),
        };
        AuditLog::start(sink, options.mode, options.format, metrics)
    }

    fn start(sink: Sink, mode: Mode, format: Format, metrics: AuditMetrics) -> io::Result<AuditLog> {
        let (sender, receiver) = sync_channel(MAX_EVENTS);
        let (waiting_bytes, is_stalled) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { metrics, waiting_bytes, is_stalled });
        let writer = Writer { sink, shared: shared.clone(), last_logged: None };
        thread::Builder::new().name("audit-log".to_owned()).spawn(move || writer.run(&receiver))?;
        Ok(AuditLog { sender, shared, mode, format })
    }

    /// Appends a line, without its line feed. Never waits: a line that exceeds the queue is lost
    /// and counted.
    pub fn append(&self, mut line: Vec<u8>) -> Written {
        line.push(b'\n');
        let size = line.len();
        let waiting = self.shared.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let (written, outcome) = oneshot::channel();
        if waiting.saturating_add(size) > MAX_BYTES && waiting > 0
            || self.sender.try_send(Entry::Line { bytes: line, written }).is_err()
        {
            self.shared.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            self.shared.metrics.error("buffered");
            return Written(None);
        }
        Written(Some(outcome))
    }

    /// Waits until a line is written, at most a second. Returns false if it is lost, or not written
    /// in time.
    pub async fn wait(&self, written: Written) -> bool {
        let Some(outcome) = written.0 else { return false };
        if self.shared.is_stalled.load(Ordering::Relaxed) {
            return false;
        }
        match timeout(MAX_WAIT, outcome).await {
            Ok(outcome) => outcome.unwrap_or(false),
            Err(_) => {
                self.shared.is_stalled.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Waits until all lines appended so far are written, at most a second.
    pub async fn flush(&self) {
        let (flushed, outcome) = oneshot::channel();
        if self.sender.try_send(Entry::Flush(flushed)).is_ok() {
            _ = timeout(MAX_WAIT, outcome).await;
        }
    }
}

/// The state of the log's thread.
struct Writer {
    sink: Sink,
    shared: Arc<Shared>,
    last_logged: Option<Instant>,
}

impl Writer {
    /// Writes until the log is dropped.
    fn run(mut self, entries: &Receiver<Entry>) {
        while let Ok(entry) = entries.recv() {
            let (bytes, done) = match entry {
                Entry::Line { bytes, written } => (bytes, written),
                Entry::Flush(flushed) => (Vec::new(), flushed),
            };
            let outcome = if bytes.is_empty() { Ok(()) } else { self.sink.write(&bytes) };
            self.shared.waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.shared.is_stalled.store(false, Ordering::Relaxed);
            let is_written = outcome.is_ok();
            if let Err(error) = outcome {
                self.failed(&error);
            }
            // The receiver was dropped if no response waits.
            _ = done.send(is_written);
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.shared.metrics.error("log");
        if self.last_logged.is_none_or(|last| last.elapsed() >= LOG_EVERY) {
            tracing::error!(%error, "audit events cannot be written, and are lost");
            self.last_logged = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;
    use prometheus::{Registry, TextEncoder};

    use super::*;

    fn log(write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static) -> (AuditLog, Registry) {
        let registry = Registry::new();
        let metrics = AuditMetrics::new(&registry);
        let log = AuditLog::start(Sink::Test(Box::new(write)), Mode::Blocking, Format::Json, metrics);
        (log.expect("a thread"), registry)
    }

    fn errors(registry: &Registry, plugin: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let line = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} ");
        text.lines().find_map(|l| l.strip_prefix(&line)).map_or(0, |count| count.parse().expect("a number"))
    }

    #[tokio::test]
    async fn lines_are_written_in_order_and_failures_are_counted() {
        let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
        let seen = lines.clone();
        let (log, registry) = log(move |line| {
            if line == b"bad\n" {
                return Err(io::Error::other("no space left on device"));
            }
            seen.lock().extend_from_slice(line);
            Ok(())
        });
        for (line, want) in [("one", true), ("bad", false), ("two", true)] {
            assert_eq!(log.wait(log.append(line.into())).await, want, "{line}");
        }
        drop(log.append(b"three".to_vec()));
        log.flush().await;
        assert_eq!(*lines.lock(), b"one\ntwo\nthree\n");
        assert_eq!((errors(&registry, "log"), errors(&registry, "buffered")), (1, 0));
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_stalls_nobody_for_long() {
        let (release, released) = mpsc::channel::<()>();
        let (log, registry) = log(move |_| {
            // Blocks until the test continues it.
            _ = released.recv();
            Ok(())
        });
        let started = Instant::now();
        assert!(!log.wait(log.append(b"first".to_vec())).await, "not written in time");
        for _ in 0..MAX_EVENTS + 10 {
            assert!(!log.wait(log.append(b"other".to_vec())).await);
        }
        assert!(started.elapsed() < 5 * MAX_WAIT, "only the first one waited");
        assert!(errors(&registry, "buffered") >= 8, "what finds no place is counted");
        drop(release);
        let drained = async {
            while !log.wait(log.append(b"last".to_vec())).await {
                tokio::task::yield_now().await;
            }
        };
        timeout(10 * MAX_WAIT, drained).await.expect("writing goes on");
        let huge = vec![b'x'; MAX_BYTES + 1];
        assert!(log.wait(log.append(huge)).await, "an event alone may be larger than the buffer");
    }
}
