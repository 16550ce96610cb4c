//! The commands `firn check healthy` and `firn check ready`, which query the state of a server.
//! Texts and exit codes are those of promtool.

use crate::commands::client::{CommandClient, http_config, http_config_of};
use crate::console;
use clap::{Arg, ArgMatches, Command};
use std::process::ExitCode;
use std::time::Duration;

/// Timeout of the request to the server, as in promtool.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the command lines of `firn check healthy` and `firn check ready`.
pub(super) fn commands() -> [Command; 2] {
    let url = Arg::new("url")
        .long("url")
        .value_name("URL")
        .default_value("http://localhost:9090")
        .help("URL of the server");
    [
        ("healthy", "Check whether a server is healthy"),
        ("ready", "Check whether a server is ready"),
    ]
    .map(|(name, about)| {
        let command = Command::new(name).about(about);
        command.arg(url.clone()).arg(http_config())
    })
}

/// Runs the command `name`, `healthy` or `ready`, and returns its exit code.
pub(super) fn run(name: &str, matches: &ArgMatches) -> ExitCode {
    match check_endpoint(name, matches) {
        Ok(body) => {
            console::err(&format!("  SUCCESS:  {body}"));
            ExitCode::SUCCESS
        }
        Err(e) => {
            console::err(&e);
            ExitCode::FAILURE
        }
    }
}

fn check_endpoint(name: &str, matches: &ArgMatches) -> Result<String, String> {
    let url = matches.get_one::<String>("url").map_or("", String::as_str);
    let file = http_config_of(matches).map(std::path::PathBuf::as_path);
    let client = CommandClient::new(url, file, &[]).map_err(|e| e.to_string())?;
    let answer = client
        .within(TIMEOUT)
        .get(&format!("/-/{name}"), &Vec::new());
    let answer = answer.map_err(|e| e.to_string())?;
    let status = answer.status.as_u16();
    match status {
        200 => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
        _ => Err(format!("check failed: URL={url}, status={status}")),
    }
}
