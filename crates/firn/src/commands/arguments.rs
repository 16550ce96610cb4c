//! What the command lines of several subcommands share: arguments, how their values are read, and
//! the exit code of a line that is not understood.

use crate::console;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use firn_promql::Features;
use std::path::PathBuf;

/// The exit code of a command line that is not understood.
pub(super) const NOT_UNDERSTOOD: u8 = 2;

/// The id of [`files`].
const FILES: &str = "files";

/// The argument of commands that read files: one at least.
pub(super) fn files(help: &'static str) -> Arg {
    Arg::new(FILES)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .num_args(1..)
        .required(true)
        .help(help)
}

/// The values of [`files`].
pub(super) fn paths_of(matches: &ArgMatches) -> Vec<PathBuf> {
    let paths = matches.get_many::<PathBuf>(FILES);
    paths.into_iter().flatten().cloned().collect()
}

/// A switch.
pub(super) fn switch(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::SetTrue).help(help)
}

/// What stands between the commas of an argument; nothing if it is empty.
pub(super) fn listed(matches: &ArgMatches, id: &str) -> Vec<String> {
    let text = matches.get_one::<String>(id).map_or("", String::as_str);
    let names = text.split(',').filter(|_| !text.is_empty());
    names.map(str::to_owned).collect()
}

/// The values of an argument that may be repeated.
pub(super) fn texts(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.get_many::<String>(id);
    values.into_iter().flatten().cloned().collect()
}

/// The id of [`feature_names`].
const FEATURES: &str = "enable-feature";

/// The switches of the language, before and behind all tools as with promtool.
pub(super) fn feature_names() -> Arg {
    Arg::new(FEATURES)
        .long(FEATURES)
        .value_name("NAMES")
        .action(ArgAction::Append)
        .global(true)
        .help("PromQL features to enable, separated by commas")
}

/// The switches of the language that are asked for.
pub(super) fn features(matches: &ArgMatches) -> Features {
    let mut features = Features {
        duration_expressions: true,
        ..Features::default()
    };
    for name in texts(matches, FEATURES).iter().flat_map(|n| n.split(',')) {
        // Others are named in a warning.
        let _ = switch_on(&mut features, name);
    }
    features
}

/// Names the features that are asked for and not known.
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

/// Switches a feature on; whether it is known.
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
