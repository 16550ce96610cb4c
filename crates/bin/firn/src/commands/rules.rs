//! `firn check rules` and `firn test rules`: promtool's formats, output and exit codes.

pub(super) mod check;
mod diff;
mod expect;
mod junit;
mod run;
mod suite;
pub(super) mod test;

use super::arguments::{features, switch};
use crate::console;
use clap::{Arg, ArgMatches, value_parser};
use firn_http_client::named_files;
use firn_model::names::NameScheme;
use firn_rules::file::{RuleFile, RuleFileOptions, parse};
use std::path::{Path, PathBuf};

/// The exit code of a file with mistakes, or of a test that fails.
const FAILED: u8 = 1;

/// The id of the argument with the files.
const FILES: &str = "files";

/// Files, if `is_required` one at least.
fn files(is_required: bool, help: &'static str) -> Arg {
    Arg::new(FILES)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .num_args(0..)
        .required(is_required)
        .help(help)
}

/// The argument that both commands have.
fn shared_argument() -> Arg {
    switch("ignore-unknown-fields", "Ignore unknown keys in rule files")
}

/// The files named on the command line. A file that is not there ends the command, as promtool has
/// it.
fn existing_files(matches: &ArgMatches) -> Result<Vec<PathBuf>, u8> {
    let files = matches.get_many::<PathBuf>(FILES);
    let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
    match files.iter().find(|file| !file.exists()) {
        None => Ok(files),
        Some(missing) => {
            let missing = missing.display();
            console::err(&format!(
                "firn: error: path '{missing}' does not exist, try --help"
            ));
            Err(FAILED)
        }
    }
}

/// How rule files are read.
fn read_options(matches: &ArgMatches) -> RuleFileOptions {
    RuleFileOptions {
        ignores_unknown: matches.get_flag("ignore-unknown-fields"),
        is_of_ruler: false,
        has_tenants: false,
        names: NameScheme::Utf8,
        features: features(matches),
    }
}

/// Reads a rule file; the errors name it.
fn read_rules(file: &Path, options: RuleFileOptions) -> Result<RuleFile, Vec<String>> {
    let name = file.display();
    let text = named_files::read_any_text(file);
    let text = text.map_err(|e| vec![format!("{name}: open {name}: {e}")])?;
    let wrong = |errors: Vec<_>| errors.iter().map(|e| format!("{name}: {e}")).collect();
    parse(&text, options).map_err(wrong)
}
