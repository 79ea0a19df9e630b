//! The `coracle` command.

use std::process::ExitCode;

/// The allocator of the program. It returns freed memory to the system, which glibc's allocator
/// does not. Its configuration is in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    coracle_cli::main(coracle::KINDS)
}
