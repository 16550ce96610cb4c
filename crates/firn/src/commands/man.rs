//! `firn man`: the man pages, one on standard output or all of them in a folder.

use super::arguments::texts;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_mangen::{Man, generate_to};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `firn man` understands.
pub fn command() -> Command {
    Command::new("man")
        .about("Print a man page, or write the man pages of all commands to a folder")
        .after_help("firn man serve | man -l -")
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Folder for the man pages of all commands"),
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..)
                .conflicts_with("dir")
                .help("Command whose man page is printed [default: firn itself]"),
        )
}

/// Prints or writes pages of `tree`.
pub fn run(tree: Command, matches: &ArgMatches) -> ExitCode {
    let written = match matches.get_one::<PathBuf>("dir") {
        Some(dir) => generate_to(tree, dir),
        None => print(tree, &texts(matches, "command")),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            console::err(&format!("firn man: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the page of the command at `path`.
fn print(mut tree: Command, path: &[String]) -> io::Result<()> {
    // Gives each command its whole name, as in `firn-query-range`.
    tree.build();
    let mut command = &tree;
    for name in path {
        command = command.find_subcommand(name).ok_or_else(|| {
            let why = format!("no command {:?}", path.join(" "));
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    console::out(&String::from_utf8_lossy(&page));
    Ok(())
}
