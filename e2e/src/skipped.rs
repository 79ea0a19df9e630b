//! Tests that cannot run on this machine.

use std::io::{self, Write};

/// Says why a test is skipped. It is printed for tests that pass, too, whose standard error the
/// test harness captures from `eprintln`.
pub fn report(reason: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {reason}");
}
