//! The command `firn man`: prints one man page, or writes all of them to a folder.

use super::arguments::texts;
use crate::console;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Returns the command line of `firn man`: arguments, flags and help texts.
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

/// Prints one page of `tree`, or writes all pages to a folder, and returns the exit code.
pub fn run(tree: Command, matches: &ArgMatches) -> ExitCode {
    let written = match matches.get_one::<PathBuf>("dir") {
        Some(dir) => write_all(tree, dir),
        None => print(tree, &texts(matches, "command")),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            console::err(&format!("firn man: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes the pages of all commands to `dir`, which is created if it does not exist.
fn write_all(tree: Command, dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|e| format!("create folder {}: {e}", dir.display()))?;
    let mut tree = tree.disable_help_subcommand(true);
    // Sets the complete name of each command.
    tree.build();
    write(&tree, dir)
}

/// Writes the pages of `command` and, recursively, of its visible subcommands.
fn write(command: &Command, dir: &Path) -> Result<(), String> {
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in shown {
        write(below, dir)?;
    }
    let page = Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let written = fs::File::create(&path).and_then(|mut file| page.render(&mut file));
    written.map_err(|e| format!("write {}: {e}", path.display()))
}

/// Prints the page of the command at `path`, the names of its subcommands.
fn print(mut tree: Command, path: &[String]) -> Result<(), String> {
    // Sets the complete name of each command, as in `firn-query-range`.
    tree.build();
    let mut command = &tree;
    for name in path {
        let found = command.find_subcommand(name);
        command = found.ok_or_else(|| format!("no command {:?}", path.join(" ")))?;
    }
    let mut page = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut page);
    rendered.map_err(|e| e.to_string())?;
    console::out(&String::from_utf8_lossy(&page));
    Ok(())
}
