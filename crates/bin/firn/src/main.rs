//! The `firn` binary: wiring of the other crates, and subcommands, without logic of its own.
//!
//! Invariant: only this crate and its settings read flags, files and the environment, and only this
//! crate installs signal handlers.
//! It passes them to the other crates as values.

mod commands;
mod console;
mod documentation;
mod file_time;
mod process;
mod serve;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

/// jemalloc uses the least memory for a heap of many small objects with equal lifetimes, and
/// supports heap profiles. Its options are in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Each TLS client uses this provider. With two of them in the program, rustls would reject an
    // implicit choice.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok(), "a provider was installed before");
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    commands::run(&args)
}
