//! Appends the escapers of a context to the commands of an action. If the author already called a
//! predefined escaper, it is not applied twice.

use super::escaper::HtmlEscaper;
use crate::tree::{TemplateCommand, TemplateOperand, TemplatePipeline, TemplateTerm};

/// Escapers that template authors may call. Automatic escaping makes them redundant.
pub(super) const PREDEFINED: [&str; 2] = ["html", "urlquery"];

/// Returns `pipe` with `escapers` appended, without those that the author already called.
pub(super) fn with_escapers(pipe: &TemplatePipeline, escapers: &[HtmlEscaper]) -> TemplatePipeline {
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

/// Rewrites `{{html a b}}` to `{{print a b | html}}`, so that escapers can be inserted before
/// `html`.
fn gather_arguments(pipe: &mut TemplatePipeline, own: &'static str) {
    if let [only] = &mut pipe.commands[..]
        && only.words.len() > 1
    {
        only.words[0].term = TemplateTerm::Identifier(HtmlEscaper::Arguments.name().to_owned());
        add(pipe, own);
    }
}

/// Returns the name of the function that a command calls; `None` for other commands.
pub(super) fn function(command: &TemplateCommand) -> Option<&str> {
    match &command.words.first()?.term {
        TemplateTerm::Identifier(name) => Some(name),
        _ => None,
    }
}

/// Returns the predefined escaper that corresponds to an internal one, or the name itself.
fn equivalent(name: &str) -> &str {
    match HtmlEscaper::from_name(name) {
        Some(HtmlEscaper::Attr | HtmlEscaper::Html | HtmlEscaper::RcData) => "html",
        Some(HtmlEscaper::Url | HtmlEscaper::UrlNormalizer) => "urlquery",
        _ => name,
    }
}

/// Appends a command, unless the output of the last one needs no further escaping by it.
fn add(pipe: &mut TemplatePipeline, name: &str) {
    let last = pipe.commands.last().and_then(function);
    if let (Some(last), Some(next)) = (
        last.and_then(HtmlEscaper::from_name),
        HtmlEscaper::from_name(name),
    ) && last.covers(next)
    {
        return;
    }
    let position = pipe.position;
    let term = TemplateTerm::Identifier(name.to_owned());
    pipe.commands.push(TemplateCommand {
        position,
        words: vec![TemplateOperand { position, term }],
    });
}
