//! What the command lines of several subcommands share: arguments, how their values are read, and
//! the exit code of a line that is not understood.

use clap::{Arg, ArgMatches, value_parser};
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

/// The values of [`files`], which the subcommand below `matches` has.
pub(super) fn paths(matches: &ArgMatches) -> Vec<PathBuf> {
    let matches = matches.subcommand().into_iter();
    let paths = matches.filter_map(|(_, matches)| matches.get_many::<PathBuf>(FILES));
    paths.flatten().cloned().collect()
}

/// The values of an argument that may be repeated.
pub(super) fn texts(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.get_many::<String>(id);
    values.into_iter().flatten().cloned().collect()
}
