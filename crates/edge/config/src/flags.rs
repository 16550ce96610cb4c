//! The command line of `firn serve`: Prometheus's flags, by name and by short alias.
//!
//! One [table](mod@table) holds every flag; the parser, `--help`, completions, man pages,
//! `/api/v1/status/flags` and `docs/settings.md` are made from it. Flags that mean nothing here are
//! accepted, so that a command line written for Prometheus starts Firn, and are named in a warning;
//! unknown flags are errors.

mod argument_files;
mod table;

use crate::{Settings, features};
use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;

pub use table::FLAGS;

/// The hidden switch that prints `docs/settings.md`.
const DOCUMENTATION: &str = "write-documentation";
/// The switch that prints the version.
const VERSION: &str = "version";
/// The switch that makes an agent.
const AGENT: &str = "agent";
/// The flag that enables features.
const ENABLE_FEATURE: &str = "enable-feature";

const SETTINGS_PAGE: &str = "settings";
const API_PAGE: &str = "api";

/// Function that stores the value of a flag in the settings. Returns an error for an invalid value.
pub type Apply = fn(&mut Settings, &str) -> Result<(), String>;

/// The effect of a flag on the settings.
#[derive(Clone, Copy, Debug)]
pub enum FlagEffect {
    /// It changes the settings.
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
    /// Name of the value in `--help`; `None` for a switch.
    pub value: Option<&'static str>,
    /// The value when the flag is not given; empty if there is none.
    pub default: &'static str,
    /// Effect of the flag on the settings.
    pub effect: FlagEffect,
    /// Description of the flag, without generated lists.
    pub help: &'static str,
}

impl Flag {
    /// Returns the description of the flag in `--help` and in the documentation.
    pub fn full_help(&self) -> String {
        match self.name {
            ENABLE_FEATURE => format!("{} {}.", self.help, features::documented_names()),
            _ => self.help.to_owned(),
        }
    }
}

/// A command line without errors, as [`parse`] returns it.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The settings, with defaults for flags that are not given.
    pub settings: Settings,
    /// The value of every flag, in the order of the table.
    pub values: Vec<(&'static str, String)>,
    /// Flags that were given and have no effect in Firn.
    pub ignored: Vec<&'static str>,
}

/// The action that a command line requests.
#[derive(Clone, Debug)]
pub enum Request {
    /// To run.
    Run(Box<CommandLine>),
    /// To print the help, which is this text.
    Help(String),
    /// A page of the documentation as Markdown.
    Documentation(GeneratedPage),
    /// To print the version.
    Version,
}

/// A page that is made from the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedPage {
    /// `docs/settings.md`
    Settings,
    /// `docs/api.md`
    Api,
}

/// Why a command line was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag {flag}")]
    Unknown {
        /// The flag as it was given.
        flag: String,
        /// The flag that was probably meant.
        similar: Option<String>,
    },
    /// A word that belongs to no flag.
    #[error("unexpected argument {0:?}")]
    Unexpected(String),
    /// The value is missing.
    #[error("flag --{0} needs a value")]
    NoValue(&'static str),
    /// The flag takes no value.
    #[error("flag --{0} takes no value")]
    SurplusValue(&'static str),
    /// A file of arguments cannot be read.
    #[error("{0}")]
    ArgumentFile(String),
    /// Flags of a server, for an agent.
    #[error("The following flag(s) can not be used in agent mode: {0}")]
    ServerOnly(String),
    /// Flags of an agent, for a server.
    #[error("The following flag(s) can only be used in agent mode: {0}")]
    AgentOnly(String),
    /// The value is not understood.
    #[error("flag --{name}: {why}")]
    BadValue {
        /// The flag.
        name: &'static str,
        /// The reason why the value is invalid.
        why: String,
    },
}

impl FlagError {
    /// What to try instead, if that can be guessed.
    pub fn suggest_alternative(&self) -> Option<String> {
        match self {
            Self::Unknown { similar, .. } => {
                let similar = similar.as_ref()?;
                Some(format!("a similar flag exists: {similar}"))
            }
            Self::Unexpected(word) if is_config(word) => Some(format!(
                "a config is the value of a flag: firn serve --config {word}"
            )),
            Self::Unexpected(word) if !word.starts_with('-') => {
                Some("firn serve takes flags only: see firn serve --help".to_owned())
            }
            _ => None,
        }
    }
}

/// Whether a word looks like the name of a config file.
fn is_config(word: &str) -> bool {
    [".yml", ".yaml"].iter().any(|end| word.ends_with(end))
}

/// The command line that was probably meant by flags of `firn serve` without the command.
pub fn suggest_serve_command(args: &[OsString]) -> Option<String> {
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let first = words.first()?.strip_prefix("--")?;
    let name = first.split('=').next().unwrap_or(first);
    let is_ours = |name: &str| find(name).is_some();
    let is_flag = is_ours(name) || name.strip_prefix("no-").is_some_and(is_ours);
    is_flag.then(|| format!("firn serve {}", words.join(" ")))
}

/// `firn serve` and its flags, a row of the table each: for parsing, help, completions and man
/// pages.
pub fn command() -> Command {
    let command = Command::new("serve")
        .bin_name("firn serve")
        .about("Start the server: ingest, scrape, evaluate rules and answer queries")
        .after_help(
            "Each switch has a negative form, for example --no-web.enable-lifecycle. All other \
             flags of Prometheus are accepted and have no effect: see docs/settings.md.",
        )
        .next_line_help(true)
        .args_override_self(true)
        .arg(
            Arg::new(DOCUMENTATION)
                .long(DOCUMENTATION)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(SETTINGS_PAGE)
                .value_parser([SETTINGS_PAGE, API_PAGE])
                .hide(true),
        )
        .arg(
            Arg::new(VERSION)
                .long(VERSION)
                .action(ArgAction::SetTrue)
                .help("Print the version and end."),
        );
    FLAGS
        .iter()
        .fold(command, |command, flag| match flag.value {
            Some(value) => command.arg(with_value(flag, value)),
            None => command.arg(switch(flag)).arg(negative(flag)),
        })
}

fn named(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.name)
        .help(flag.full_help())
        .hide(matches!(flag.effect, FlagEffect::Ignored));
    match flag.alias {
        Some(alias) => arg.long(alias).visible_alias(flag.name),
        None => arg.long(flag.name),
    }
}

fn with_value(flag: &'static Flag, value: &'static str) -> Arg {
    let arg = named(flag)
        .value_name(value)
        .value_parser(ValueParser::os_string())
        .action(ArgAction::Append)
        // As in Prometheus, what follows a flag is its value, whatever it looks like.
        .allow_hyphen_values(true);
    match flag.default {
        "" => arg,
        default => arg.default_value(default),
    }
}

fn switch(flag: &'static Flag) -> Arg {
    named(flag).action(ArgAction::SetTrue)
}

/// `--no-` before the name of a switch.
fn negative(flag: &'static Flag) -> Arg {
    let name = format!("no-{}", flag.name);
    Arg::new(name.clone())
        .long(name)
        .action(ArgAction::SetTrue)
        .hide(true)
}

/// Reads the arguments behind `firn serve`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Request, FlagError> {
    let args = argument_files::expand(args)?;
    let words = std::iter::once("serve".into()).chain(args);
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => {
            return Ok(Request::Help(e.render().to_string()));
        }
        Err(e) => return Err(convert_parser_error(&e)),
    };
    if matches.get_flag(VERSION) {
        return Ok(Request::Version);
    }
    match matches.get_one::<String>(DOCUMENTATION).map(String::as_str) {
        None => {}
        Some(API_PAGE) => return Ok(Request::Documentation(GeneratedPage::Api)),
        Some(_) => return Ok(Request::Documentation(GeneratedPage::Settings)),
    }
    Ok(Request::Run(Box::new(apply_flags(&matches)?)))
}

/// The parser's error in our words.
fn convert_parser_error(error: &clap::Error) -> FlagError {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    // As in `--data <DIR>`.
    let arg = text(ContextKind::InvalidArg).unwrap_or_default();
    let name = arg.trim_start_matches('-').split([' ', '=']).next();
    let flag = name.and_then(find);
    match (error.kind(), flag) {
        (ErrorKind::UnknownArgument, _) if arg.starts_with('-') => FlagError::Unknown {
            flag: arg,
            similar: text(ContextKind::SuggestedArg),
        },
        (ErrorKind::InvalidValue, Some(flag)) => FlagError::NoValue(flag.name),
        (ErrorKind::TooManyValues, Some(flag)) => FlagError::SurplusValue(flag.name),
        _ => FlagError::Unexpected(arg),
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    FLAGS
        .iter()
        .find(|f| f.name == name || f.alias == Some(name))
}

/// The values that were given to a flag, in their order.
fn collect_values(matches: &ArgMatches, flag: &'static Flag) -> Vec<String> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if flag.value.is_some() {
        let values = matches.get_many::<OsString>(flag.name);
        let values = values.filter(|_| is_given(flag.name)).into_iter().flatten();
        return values.map(|v| v.to_string_lossy().into_owned()).collect();
    }
    let place = |id: &str| matches.index_of(id).filter(|_| is_given(id));
    let (on, off) = (place(flag.name), place(&format!("no-{}", flag.name)));
    // Of a switch and its negative form the last counts.
    match on.max(off) {
        None => Vec::new(),
        last => vec![(last == on).to_string()],
    }
}

/// Applies the defaults, then the given flags. A flag given twice is applied twice: lists grow, and
/// the last single value wins.
fn apply_flags(matches: &ArgMatches) -> Result<CommandLine, FlagError> {
    let mut line = CommandLine {
        settings: Settings::default(),
        values: Vec::new(),
        ignored: Vec::new(),
    };
    check_modes(matches)?;
    for flag in FLAGS {
        let mut values = collect_values(matches, flag);
        if values.is_empty() {
            if !flag.default.is_empty() {
                values.push(flag.default.to_owned());
            }
        } else if let FlagEffect::Ignored = flag.effect {
            line.ignored.push(flag.name);
        }
        if let FlagEffect::Sets(apply) = flag.effect {
            for value in &values {
                apply(&mut line.settings, value).map_err(|why| FlagError::BadValue {
                    name: flag.name,
                    why,
                })?;
            }
        }
        line.values.push((flag.name, values.join(",")));
    }
    if line.settings.is_agent {
        line.settings.data_dir.clone_from(&line.settings.agent_dir);
    }
    Ok(line)
}

/// Refuses flags that say nothing of what runs: a server, or an agent.
fn check_modes(matches: &ArgMatches) -> Result<(), FlagError> {
    let is_given = |flag: &&'static Flag| !collect_values(matches, flag).is_empty();
    let switch = FLAGS.iter().find(|flag| flag.name == AGENT);
    let values = switch
        .map(|flag| collect_values(matches, flag))
        .unwrap_or_default();
    let is_agent = values.last().is_some_and(|value| value == "true");
    let wrong = FLAGS.iter().filter(is_given).filter(|flag| {
        if is_agent {
            is_of_servers(flag.name)
        } else {
            flag.name.starts_with("storage.agent.")
        }
    });
    let wrong: Vec<String> = wrong.map(|flag| format!("\"--{}\"", flag.name)).collect();
    let named = format!("[{}]", wrong.join(" "));
    match (wrong.is_empty(), is_agent) {
        (true, _) => Ok(()),
        (false, true) => Err(FlagError::ServerOnly(named)),
        (false, false) => Err(FlagError::AgentOnly(named)),
    }
}

/// Whether a flag is about what an agent does not do: store, evaluate, notify.
fn is_of_servers(name: &str) -> bool {
    let parts = [
        "storage.tsdb.",
        "storage.remote.read-",
        "rules.",
        "alertmanager.",
        "query.",
        "web.search.",
    ];
    parts.iter().any(|part| name.starts_with(part))
}

/// The flags as a Markdown list.
pub fn documentation() -> String {
    let mut out = String::new();
    let mut ignored = String::new();
    for flag in FLAGS {
        match flag.effect {
            FlagEffect::Ignored => ignored += &format!("- `--{}`\n", flag.name),
            FlagEffect::Sets(_) => {
                let default = match flag.default {
                    "" => String::new(),
                    text => format!(" (default: `{text}`)"),
                };
                let name = spelled(flag, "`, `");
                out += &format!("- `{name}`{default}: {}\n", flag.full_help());
            }
        }
    }
    format!(
        "{out}\nFirn accepts the following flags of Prometheus without effect, and logs a warning \
         if one is set:\n\n{ignored}"
    )
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
