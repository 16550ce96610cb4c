//! What the command lines of several subcommands share: arguments, how their values are read, and
//! the exit code of a line that is not understood.

use clap::{Arg, ArgAction, ArgMatches, value_parser};
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
