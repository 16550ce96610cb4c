//! Arguments that several subcommands share, the parsing of their values, and the exit code of an
//! invalid command line.

use crate::console;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
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
    let mut features = Features {
        duration_expressions: true,
        ..Features::default()
    };
    for name in texts(matches, FEATURES).iter().flat_map(|n| n.split(',')) {
        // A separate warning contains unknown features.
        let _ = switch_on(&mut features, name);
    }
    features
}

/// Prints a warning for each unknown feature on the command line.
pub(super) fn warn_of_unknown_features(matches: &ArgMatches) {
    let mut features = Features::default();
    for name in texts(matches, FEATURES).iter().flat_map(|n| n.split(',')) {
        if !switch_on(&mut features, name) {
            console::out(&format!(
                "  WARNING: Unknown feature passed to --enable-feature: {name}"
            ));
        }
    }
}

/// Enables a PromQL feature. Returns false if there is no feature of that name.
fn switch_on(features: &mut Features, name: &str) -> bool {
    match name {
        "promql-experimental-functions" => features.experimental_functions = true,
        "promql-delayed-name-removal" => features.delayed_name_removal = true,
        "promql-extended-range-selectors" => features.extended_range_selectors = true,
        "promql-binop-fill-modifiers" => features.binop_fill_modifiers = true,
        "promql-duration-expr" | "" => {}
        _ => return false,
    }
    true
}
