//! Arguments that several subcommands share, the parsing of their values, and the exit code of an
//! invalid command line.

use crate::console;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use firn_config::features::{Feature, JobFeatures};
use firn_promql::Features;
use std::path::PathBuf;

/// Exit code of a command line that cannot be parsed.
pub(super) const NOT_UNDERSTOOD: u8 = 2;

/// Id of the argument that [`files`] creates.
const FILES: &str = "files";

/// Returns the argument of commands that read at least one file.
pub(super) fn files(help: &'static str) -> Arg {
    Arg::new(FILES)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .num_args(1..)
        .required(true)
        .help(help)
}

/// Returns the paths in the argument that [`files`] creates.
pub(super) fn paths_of(matches: &ArgMatches) -> Vec<PathBuf> {
    let paths = matches.get_many::<PathBuf>(FILES);
    paths.into_iter().flatten().cloned().collect()
}

/// Returns a flag without a value, which is false by default.
pub(super) fn switch(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::SetTrue).help(help)
}

/// Returns the comma-separated values of an argument; empty if the argument is empty.
pub(super) fn listed(matches: &ArgMatches, id: &str) -> Vec<String> {
    let text = matches.get_one::<String>(id).map_or("", String::as_str);
    let names = text.split(',').filter(|_| !text.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns the values of an argument that may be repeated.
pub(super) fn texts(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.get_many::<String>(id);
    values.into_iter().flatten().cloned().collect()
}

/// Id of the flag that [`feature_names`] creates.
const FEATURES: &str = "enable-feature";

/// Returns the flag for PromQL features, which is accepted before and after all subcommands, as in
/// promtool.
pub(super) fn feature_names() -> Arg {
    Arg::new(FEATURES)
        .long(FEATURES)
        .value_name("NAMES")
        .action(ArgAction::Append)
        .global(true)
        .help("PromQL features to enable, separated by commas")
}

/// Returns the PromQL features that the command line enables. Duration expressions are always
/// enabled.
pub(super) fn features(matches: &ArgMatches) -> Features {
    let mut names = names_of_features(matches);
    names.retain(|name| is_known(name));
    JobFeatures::from_names(&names).language
}

/// Prints a warning for each unknown feature on the command line.
pub(super) fn warn_of_unknown_features(matches: &ArgMatches) {
    for name in names_of_features(matches) {
        if !name.is_empty() && !is_known(&name) {
            console::out(&format!(
                "  WARNING: Unknown feature passed to --enable-feature: {name}"
            ));
        }
    }
}

fn names_of_features(matches: &ArgMatches) -> Vec<String> {
    let names = texts(matches, FEATURES);
    let names = names.iter().flat_map(|names| names.split(','));
    names.map(str::to_owned).collect()
}

/// Returns whether promtool has a feature of this name.
fn is_known(name: &str) -> bool {
    Feature::row_of(name).is_some_and(|row| row.is_for_commands)
}
