//! The binary under test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the `coracle` binary is: `CORACLE_BIN`, or else what cargo makes of this checkout, in the profile and target
/// directory of the test that asks. Asking cargo each time is what keeps a test from ever seeing a stale binary.
///
/// # Panics
/// If it cannot be built: no test can go on then.
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
    // The features of the dependencies are those of all members together, as in `cargo test --workspace`: so this finds its
    // parts compiled.
    command.args(["build", "--quiet", "--workspace", "--bin", "coracle"]);
    command.arg("--manifest-path").arg(workspace().join("Cargo.toml")).arg("--target-dir").arg(target());
    // What cargo tells a running test of its own crate would make build scripts run again, ring's for one, and then all that
    // stands on them be compiled anew, back and forth between cargo and this.
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

/// `target/debug` or `target/release`: where the running test comes from.
fn profile_directory() -> PathBuf {
    let test = env::current_exe().expect("the running program");
    let directory = test.ancestors().nth(1).expect("its directory");
    let directory =
        if directory.ends_with("deps") { directory.parent().expect("a profile") } else { directory };
    directory.to_owned()
}

/// Cargo's target directory: where the running test comes from.
pub fn target() -> PathBuf {
    profile_directory().parent().expect("a target directory").to_owned()
}

/// The root of the checkout.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace around this crate")
}
