//! The command line of `firn serve`: Prometheus's flags, by name and by short alias.
//!
//! One [table](mod@table) holds every flag; the parser, `--help`, `/api/v1/status/flags` and
//! `docs/settings.md` are made from it. Flags that mean nothing here are accepted, so that a
//! command line written for Prometheus starts Firn, and are named in a warning; unknown flags
//! are errors.

mod table;

use crate::settings::Settings;
use std::ffi::OsString;
use std::fmt::Write;

pub use table::FLAGS;

/// What a flag does with its value.
pub type Apply = fn(&mut Settings, &str) -> Result<(), String>;

/// What becomes of a flag.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It sets something.
    Sets(Apply),
    /// It is accepted and changes nothing.
    Ignored,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Prometheus's name, without dashes.
    pub name: &'static str,
    /// Our short name, if there is one.
    pub alias: Option<&'static str>,
    /// What the value is, for `--help`; `None` for a switch.
    pub value: Option<&'static str>,
    /// The value when the flag is not given; empty if there is none.
    pub default: &'static str,
    /// What becomes of it.
    pub effect: Effect,
    /// What it is for.
    pub help: &'static str,
}

/// A command line that was understood.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// What it sets, defaults included.
    pub settings: Settings,
    /// The value of every flag, in the order of the table.
    pub values: Vec<(&'static str, String)>,
    /// Flags that were given and mean nothing here.
    pub ignored: Vec<&'static str>,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// To run.
    Run(Box<CommandLine>),
    /// To be told about the flags.
    Help,
    /// The table as Markdown.
    Documentation,
}

/// Why a command line was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag {0}")]
    Unknown(String),
    /// A word that belongs to no flag.
    #[error("unexpected argument {0:?}")]
    Unexpected(String),
    /// The value is missing.
    #[error("flag --{0} needs a value")]
    NoValue(&'static str),
    /// The flag takes no value.
    #[error("flag --{0} takes no value")]
    SurplusValue(&'static str),
    /// The value is not understood.
    #[error("flag --{name}: {why}")]
    BadValue {
        /// The flag.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Reads the arguments behind `firn serve`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Request, FlagError> {
    let mut given: Vec<(&'static Flag, String)> = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    loop {
        let name = match parser
            .next()
            .map_err(|e| FlagError::Unexpected(e.to_string()))?
        {
            None => break,
            Some(lexopt::Arg::Short('h')) => return Ok(Request::Help),
            Some(lexopt::Arg::Long(name)) => name.to_owned(),
            Some(lexopt::Arg::Short(c)) => return Err(FlagError::Unknown(format!("-{c}"))),
            Some(lexopt::Arg::Value(word)) => {
                return Err(FlagError::Unexpected(word.to_string_lossy().into_owned()));
            }
        };
        match name.as_str() {
            "help" => return Ok(Request::Help),
            "write-documentation" => return Ok(Request::Documentation),
            _ => given.push(read_flag(&name, &mut parser)?),
        }
    }
    Ok(Request::Run(Box::new(settle(&given)?)))
}

fn read_flag(
    name: &str,
    parser: &mut lexopt::Parser,
) -> Result<(&'static Flag, String), FlagError> {
    if let Some(flag) = find(name) {
        if flag.value.is_some() {
            let value = parser.value().map_err(|_| FlagError::NoValue(flag.name))?;
            return Ok((flag, value.to_string_lossy().into_owned()));
        }
        return match parser.optional_value() {
            None => Ok((flag, "true".into())),
            Some(_) => Err(FlagError::SurplusValue(flag.name)),
        };
    }
    let switch = name.strip_prefix("no-").and_then(find);
    match switch.filter(|flag| flag.value.is_none()) {
        Some(flag) => Ok((flag, "false".into())),
        None => Err(FlagError::Unknown(format!("--{name}"))),
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    FLAGS
        .iter()
        .find(|f| f.name == name || f.alias == Some(name))
}

/// Applies defaults, then what was given. A flag given twice is applied twice: lists grow, the last
/// of single values wins.
fn settle(given: &[(&'static Flag, String)]) -> Result<CommandLine, FlagError> {
    let mut line = CommandLine {
        settings: Settings::default(),
        values: Vec::new(),
        ignored: Vec::new(),
    };
    for flag in FLAGS {
        let mut values: Vec<&str> = given
            .iter()
            .filter(|(f, _)| f.name == flag.name)
            .map(|(_, value)| value.as_str())
            .collect();
        if values.is_empty() {
            if !flag.default.is_empty() {
                values.push(flag.default);
            }
        } else if let Effect::Ignored = flag.effect {
            line.ignored.push(flag.name);
        }
        if let Effect::Sets(apply) = flag.effect {
            for value in &values {
                apply(&mut line.settings, value).map_err(|why| FlagError::BadValue {
                    name: flag.name,
                    why,
                })?;
            }
        }
        line.values.push((flag.name, values.join(",")));
    }
    Ok(line)
}

/// The flags for `firn serve --help`.
pub fn help() -> String {
    let mut out = String::from("Usage: firn serve [FLAG...]\n\nFlags:\n");
    for flag in FLAGS {
        if let Effect::Sets(_) = flag.effect {
            write!(out, "  {}\n      {}", spelled(flag, ", "), flag.help).expect("to a string");
            if !flag.default.is_empty() {
                write!(out, " [{}]", flag.default).expect("to a string");
            }
            out.push('\n');
        }
    }
    out += "\nPrometheus's other flags are accepted and change nothing: see docs/settings.md.\n";
    out
}

/// The flags as a Markdown table.
pub fn documentation() -> String {
    let mut out = String::from("| Flag | Default | What it does |\n|---|---|---|\n");
    let mut ignored = Vec::new();
    for flag in FLAGS {
        match flag.effect {
            Effect::Ignored => ignored.push(format!("`--{}`", flag.name)),
            Effect::Sets(_) => {
                let default = match flag.default {
                    "" => String::new(),
                    text => format!("`{text}`"),
                };
                writeln!(
                    out,
                    "| `{}` | {default} | {} |",
                    spelled(flag, "`, `"),
                    flag.help
                )
                .expect("to a string");
            }
        }
    }
    write!(
        out,
        "\nAccepted, without effect, and named in a warning: {}.\n",
        ignored.join(", ")
    )
    .expect("to a string");
    out
}

fn spelled(flag: &Flag, between: &str) -> String {
    let value = flag.value.map_or(String::new(), |v| format!(" {v}"));
    match flag.alias {
        None => format!("--{}{value}", flag.name),
        Some(alias) => format!("--{alias}{value}{between}--{}{value}", flag.name),
    }
}

#[cfg(test)]
mod tests;
