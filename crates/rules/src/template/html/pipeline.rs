//! The commands of an action with the escapers of its place behind them. An escaper that is there
//! already, by the name that people know it by, is not called twice.

use super::escaper::Escaper;
use crate::template::tree::{Command, Operand, Pipe, Term};

/// Escapers by which people write what is escaped by itself.
pub(super) const PREDEFINED: [&str; 2] = ["html", "urlquery"];

/// `pipe` with `escapers` behind it.
pub(super) fn with_escapers(pipe: &Pipe, escapers: &[Escaper]) -> Pipe {
    let mut pipe = pipe.clone();
    if escapers.is_empty() {
        return pipe;
    }
    let mut names: Vec<&str> = escapers.iter().map(|escaper| escaper.name()).collect();
    let own = pipe.commands.last().and_then(function);
    if let Some(own) = PREDEFINED.into_iter().find(|name| own == Some(name)) {
        gather_arguments(&mut pipe, own);
        let mut is_there = false;
        for name in &mut names {
            if equivalent(name) == own {
                (*name, is_there) = (own, true);
            }
        }
        if is_there {
            pipe.commands.pop();
        }
    }
    let known: Vec<&str> = pipe.commands.iter().filter_map(function).collect();
    let known: Vec<String> = known
        .into_iter()
        .map(|n| equivalent(n).to_owned())
        .collect();
    for name in names {
        if !known.iter().any(|known| known == equivalent(name)) {
            add(&mut pipe, name);
        }
    }
    pipe
}

/// `{{html a b}}` becomes `{{print a b | html}}`, so that escapers can stand between.
fn gather_arguments(pipe: &mut Pipe, own: &'static str) {
    if let [only] = &mut pipe.commands[..]
        && only.words.len() > 1
    {
        only.words[0].term = Term::Identifier(Escaper::Arguments.name().to_owned());
        add(pipe, own);
    }
}

/// The function that a command calls.
pub(super) fn function(command: &Command) -> Option<&str> {
    match &command.words.first()?.term {
        Term::Identifier(name) => Some(name),
        _ => None,
    }
}

/// The name under which people have the same.
fn equivalent(name: &str) -> &str {
    match Escaper::of(name) {
        Some(Escaper::Attr | Escaper::Html | Escaper::RcData) => "html",
        Some(Escaper::Url | Escaper::UrlNormalizer) => "urlquery",
        _ => name,
    }
}

/// Adds a command, unless the last one leaves nothing for it to do.
fn add(pipe: &mut Pipe, name: &str) {
    let last = pipe.commands.last().and_then(function);
    if let (Some(last), Some(next)) = (last.and_then(Escaper::of), Escaper::of(name))
        && last.covers(next)
    {
        return;
    }
    let position = pipe.position;
    let term = Term::Identifier(name.to_owned());
    pipe.commands.push(Command {
        position,
        words: vec![Operand { position, term }],
    });
}
