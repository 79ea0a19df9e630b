//! The log of `coracle run`: it stays out of the output of the command, and is printed if that
//! fails.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// The bytes that are kept: the last ones.
const MAX_BYTES: usize = 64 << 10;

/// A log that is kept in memory.
#[derive(Clone, Debug, Default)]
pub struct KeptLog(Arc<Mutex<VecDeque<u8>>>);

impl KeptLog {
    /// Writes what was logged to standard error, with a line before it.
    pub fn print(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        if !kept.is_empty() {
            let text = String::from_utf8_lossy(&Vec::from(kept)).into_owned();
            // A closed standard error is no failure.
            let _ = write!(io::stderr(), "coracle: the control plane of this run logged\n{text}");
        }
    }
}

impl Write for KeptLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock();
        kept.extend(bytes);
        if kept.len() > MAX_BYTES {
            // Whole lines.
            let surplus = kept.len() - MAX_BYTES;
            let line = kept.iter().skip(surplus).position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            kept.drain(..surplus + line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for KeptLog {
    type Writer = KeptLog;

    fn make_writer(&self) -> KeptLog {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let log = KeptLog::default();
        for i in 0..10_000 {
            assert_eq!(log.clone().write(format!("line {i:06}\n").as_bytes()).ok(), Some(12));
        }
        let kept = Vec::from(log.0.lock().clone());
        assert!(kept.len() <= MAX_BYTES && kept.len() > MAX_BYTES - 12, "{}", kept.len());
        assert!(kept.starts_with(b"line ") && kept.ends_with(b"line 009999\n"));
    }
}
