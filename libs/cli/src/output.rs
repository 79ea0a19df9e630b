//! Standard output, which its reader may close at any time: `coracle log | head`.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Writes a text to standard output. A reader that has closed it needs no more of it; any other error
/// is reported, and changes the exit code of the process ([`failed`]).
pub fn write(text: &str) {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) => {
            // There is nowhere else to report that standard error is closed, too.
            let _ = writeln!(io::stderr(), "coracle: standard output: {error}");
        }
        _ => {}
    }
}

/// Returns `true` if something could not be written.
pub fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Writes a line to standard output, as `println!` does ([`write`]).
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::write(&format!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use say;
