//! The `coracle` command.

use std::process::ExitCode;

/// Returns freed memory to the system, which glibc's allocator does not. It is configured in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    coracle_cli::main(coracle::KINDS)
}
