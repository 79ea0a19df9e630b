//! The binary under test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the `coracle` binary: `CORACLE_BIN`, or else the binary that cargo builds
/// from this checkout, in the profile and target directory of the calling test. cargo is run each
/// time, so that a test never uses a stale binary.
///
/// # Panics
/// The binary cannot be built.
pub fn coracle() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match env::var_os("CORACLE_BIN") {
        // Tests start it in directories of their own.
        Some(path) => std::path::absolute(path).expect("CORACLE_BIN"),
        None => build(),
    })
}

fn build() -> PathBuf {
    let profile_directory = profile_directory();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Features are unified over all members, as in `cargo test --workspace`, so that the
    // dependencies are compiled already.
    command.args(["build", "--quiet", "--workspace", "--bin", "coracle"]);
    command.arg("--manifest-path").arg(workspace().join("Cargo.toml")).arg("--target-dir").arg(target());
    // With the variables that cargo sets for a running test, build scripts such as ring's would run
    // again, and everything that depends on them would be recompiled back and forth.
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|own| name.as_encoded_bytes().starts_with(own.as_bytes()))
        {
            command.env_remove(name);
        }
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let status = command.status().expect("cargo");
    assert!(status.success(), "cargo could not build the coracle binary");
    profile_directory.join("coracle")
}

/// Returns the profile directory of the running test: `target/debug` or `target/release`.
fn profile_directory() -> PathBuf {
    let test = env::current_exe().expect("the running program");
    let directory = test.ancestors().nth(1).expect("its directory");
    let directory =
        if directory.ends_with("deps") { directory.parent().expect("a profile") } else { directory };
    directory.to_owned()
}

/// Returns cargo's target directory, from the path of the running test.
pub fn target() -> PathBuf {
    profile_directory().parent().expect("a target directory").to_owned()
}

/// Returns the root of the checkout.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace around this crate")
}
