//! Has the linker place together, at the beginning of the release binary, the functions that a server executes.
//!
//! The kernel maps the pages of a file in groups of sixteen, so functions that are strewn over the whole binary make nearly all of it
//! resident. See `link_order/record`.

use std::env;
use std::path::Path;

const ORDER: &str = "link_order/functions.ld";

fn main() {
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-changed=build.rs");
    // Other linkers have other options, so one that somebody has chosen is left alone.
    let chosen = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if chosen || !env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") {
        return;
    }
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let order = Path::new(env!("CARGO_MANIFEST_DIR")).join(ORDER);
        // Not by -Wl, which splits a path at its commas.
        println!("cargo::rustc-link-arg-bins=-T{}", order.display());
    }
}
