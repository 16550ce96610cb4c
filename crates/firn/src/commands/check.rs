//! `firn check config FILE...`: says what is wrong with configs before a server has to.
//!
//! Texts and exit codes are promtool's: 0 if all files are valid, 1 if one is not.

use crate::console;
use crate::settings::config;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// How to call it.
pub const USAGE: &str = "Usage: firn check config FILE...";

/// Runs `firn check` with the arguments behind it.
pub fn run(args: &[OsString]) -> ExitCode {
    let [what, files @ ..] = args else {
        return usage();
    };
    if what != "config" || files.is_empty() {
        return usage();
    }
    let mut has_failed = false;
    for file in files {
        has_failed |= !check_config(Path::new(file));
    }
    ExitCode::from(u8::from(has_failed))
}

fn usage() -> ExitCode {
    console::err(USAGE);
    ExitCode::from(2)
}

fn check_config(file: &Path) -> bool {
    console::out(&format!("Checking {}\n", file.display()));
    let is_valid = match config::load(file, config::JobFeatures::default()) {
        Ok(config) => {
            for key in &config.ignored {
                let why = config::why_ignored(key).map_or(String::new(), |why| format!(": {why}"));
                console::out(&format!("  WARNING: {key} has no effect in Firn{why}\n"));
            }
            let file = file.display();
            console::out(&format!(
                " SUCCESS: {file} is valid prometheus config file syntax\n"
            ));
            true
        }
        Err(e) => {
            console::err(&format!("  FAILED: {e}"));
            false
        }
    };
    console::out("\n");
    is_valid
}
