//! The `firn` binary: settings, wiring and subcommands. No logic.
//!
//! Invariant: this crate alone reads flags, files and the environment and installs signal handlers;
//! what it reads it hands to the others as values.

mod commands;
mod console;
mod file_time;
mod process;
mod serve;
mod settings;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

/// jemalloc: the least memory for a heap of many small objects that live and die together, and
/// heap profiles. Its options stand in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Each TLS client takes this provider; with two of them in the program rustls would refuse to
    // choose.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok(), "a provider was installed before");
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    commands::run(&args)
}
