//! The commands `firn promql format` and `firn promql label-matchers set|delete`: format
//! expressions and edit their matchers. Output and exit codes are those of promtool.

use super::arguments::{NOT_UNDERSTOOD, features};
use crate::console;
use clap::{Arg, ArgMatches, Command};
use firn_model::budget::Budget;
use firn_model::matcher::{MatchOp, Matcher};
use firn_promql::ast::{Expr, ExprKind, VectorSelector};
use firn_promql::parser::parse;
use firn_promql::printer::pretty;
use std::process::ExitCode;

/// Returns the command line of `firn promql` with its subcommands: arguments, flags and help texts.
pub fn command() -> Command {
    let query = || word("query", "QUERY", "A PromQL expression");
    let name = |help: &'static str| word("name", "NAME", help);
    let kind = Arg::new("type")
        .long("type")
        .short('t')
        .value_name("OPERATOR")
        .value_parser(["=", "!=", "=~", "!~"])
        .default_value("=")
        .allow_hyphen_values(true)
        .help("Comparison operator of the matcher");
    let set = Command::new("set")
        .about("Set a matcher in every selector; replaces existing matchers of the label")
        .arg(kind)
        .args([
            query(),
            name("Label to match"),
            word("value", "VALUE", "Value to match"),
        ]);
    let delete = Command::new("delete")
        .about("Delete all matchers of a label from every selector")
        .args([query(), name("Label whose matchers are deleted")]);
    let matchers = Command::new("label-matchers")
        .about("Edit the matchers of an expression")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([set, delete]);
    let format = Command::new("format")
        .about("Format an expression over several lines")
        .arg(query());
    Command::new("promql")
        .about("Format PromQL expressions and edit their matchers")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([format, matchers])
}

fn word(id: &'static str, value: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(id).value_name(value).required(true).help(help);
    arg.allow_hyphen_values(true)
}

/// Runs `firn promql` with the parsed arguments `matches` and returns its exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let edited = match matches.subcommand() {
        Some(("format", matches)) => edit(matches, |_| {}),
        Some(("label-matchers", matches)) => match matches.subcommand() {
            Some(("set", matches)) => set(matches),
            Some((_, matches)) => delete(matches),
            None => return ExitCode::from(NOT_UNDERSTOOD),
        },
        _ => return ExitCode::from(NOT_UNDERSTOOD),
    };
    match edited {
        Ok(text) => {
            console::out(&format!("{text}\n"));
            ExitCode::SUCCESS
        }
        Err(e) => {
            console::err(&e);
            ExitCode::FAILURE
        }
    }
}

fn text<'m>(matches: &'m ArgMatches, id: &str) -> &'m str {
    matches.get_one::<String>(id).map_or("", String::as_str)
}

/// Parses the expression of the command line, applies `change`, and formats the result.
fn edit(matches: &ArgMatches, change: impl FnOnce(&mut Expr)) -> Result<String, String> {
    let parsed = parse(text(matches, "query"), features(matches));
    let mut expr = parsed.map_err(|e| e.to_string())?;
    change(&mut expr);
    let mut memory = Budget::new("expression", usize::MAX).create_reservation();
    pretty(&expr, &mut memory).map_err(|e| e.message)
}

fn each_selector(expr: &mut Expr, visit: &mut dyn FnMut(&mut VectorSelector)) {
    match &mut expr.kind {
        ExprKind::Vector(selector) => visit(selector),
        ExprKind::Matrix(matrix) => visit(&mut matrix.vector),
        _ => expr.for_each_child_mut(&mut |child| each_selector(child, visit)),
    }
}

fn set(matches: &ArgMatches) -> Result<String, String> {
    let op = match text(matches, "type") {
        "!=" => MatchOp::NotEqual,
        "=~" => MatchOp::Regex,
        "!~" => MatchOp::NotRegex,
        _ => MatchOp::Equal,
    };
    let (name, value) = (text(matches, "name"), text(matches, "value"));
    let matcher = Matcher::new(name, op, value.as_bytes()).map_err(|e| e.message)?;
    edit(matches, |expr| {
        each_selector(expr, &mut |selector| {
            let mut is_there = false;
            for own in &mut selector.matchers {
                if own.name() == name {
                    *own = matcher.clone();
                    is_there = true;
                }
            }
            if !is_there {
                selector.matchers.push(matcher.clone());
            }
        });
    })
}

fn delete(matches: &ArgMatches) -> Result<String, String> {
    let name = text(matches, "name");
    edit(matches, |expr| {
        each_selector(expr, &mut |selector| {
            selector.matchers.retain(|matcher| matcher.name() != name);
        });
    })
}
