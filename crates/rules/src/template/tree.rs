//! The tree of a template. Printed, a node looks as Go prints it, because errors show it.
//!
//! Invariant: a position is a byte of the whole text; no tree is higher than [`HEIGHT_MAX`].

use super::lexer::is_space;
use super::number::Number;
use firn_model::quote::quote;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// How high a tree may be: actions within actions and parentheses within parentheses, counted
/// together. People write ten; the stack grows while a tree is read and walked.
pub(super) const HEIGHT_MAX: usize = 1000;

/// Bytes of stack that must be left before a level is entered, and what is added if they are not.
pub(super) const STACK_LEFT_BYTES: usize = 128 << 10;
pub(super) const STACK_ADDED_BYTES: usize = 1 << 20;

/// The bodies that one text defines, by name.
pub(super) type Bodies = BTreeMap<String, List>;

/// All definitions by name.
pub(super) type Definitions = BTreeMap<String, Definition>;

/// A body, and the text in which its positions lie.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub file: Rc<File>,
    pub list: Rc<List>,
}

/// A text that defines templates.
#[derive(Debug)]
pub(super) struct File {
    pub name: String,
    pub text: String,
}

impl File {
    /// `name:line:column` of a position, as errors show it.
    pub fn location(&self, position: usize) -> String {
        let before = &self.text[..position];
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        format!("{}:{}:{column}", self.name, self.line(position))
    }

    /// The line of a position, from one.
    pub fn line(&self, position: usize) -> usize {
        self.text[..position].matches('\n').count() + 1
    }
}

/// Takes over the bodies of one text; of those that are there, the ones that are not empty replace
/// what other texts defined.
pub(super) fn define_all(definitions: &mut Definitions, file: &Rc<File>, bodies: Bodies) {
    for (name, list) in bodies {
        if is_empty(&list) && definitions.contains_key(&name) {
            continue;
        }
        let (file, list) = (Rc::clone(file), Rc::new(list));
        definitions.insert(name, Definition { file, list });
    }
}

/// Whether a body is nothing but blanks.
pub(super) fn is_empty(list: &List) -> bool {
    let is_blank = |node: &Node| match node {
        Node::Text { text, .. } => text.trim_matches(is_space).is_empty(),
        _ => false,
    };
    list.iter().all(is_blank)
}

/// What follows one another.
pub(super) type List = Vec<Node>;

/// A part of a body.
#[derive(Debug)]
pub(super) enum Node {
    Text {
        position: usize,
        text: String,
    },
    Action {
        position: usize,
        pipe: Pipe,
    },
    Branch(Box<Branch>),
    Template {
        position: usize,
        name: String,
        pipe: Option<Pipe>,
    },
    Break {
        position: usize,
    },
    Continue {
        position: usize,
    },
}

/// Which control structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BranchKind {
    If,
    Range,
    With,
}

impl BranchKind {
    /// The word that starts it.
    pub fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

/// `if`, `range` or `with`.
#[derive(Debug)]
pub(super) struct Branch {
    pub kind: BranchKind,
    pub position: usize,
    pub pipe: Pipe,
    pub list: List,
    pub else_list: Option<List>,
}

/// `$x := a | b`.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    pub position: usize,
    pub is_assign: bool,
    pub variables: Vec<String>,
    pub commands: Vec<Command>,
}

/// A word and its arguments.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub position: usize,
    pub words: Vec<Operand>,
}

/// One word with its place.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub position: usize,
    pub term: Term,
}

/// What a word is.
#[derive(Clone, Debug)]
pub(super) enum Term {
    Bool(bool),
    Dot,
    Nil,
    Number(Number),
    /// As written, and what it means.
    String {
        quoted: String,
        text: Rc<[u8]>,
    },
    Field(Vec<String>),
    Variable {
        name: String,
        fields: Vec<String>,
    },
    Identifier(String),
    Chain {
        of: Box<Operand>,
        fields: Vec<String>,
    },
    Pipe(Box<Pipe>),
}

/// The node that an error is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'t> {
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Operand(&'t Operand),
}

impl Place<'_> {
    /// Where it stands.
    pub fn position(&self) -> usize {
        match self {
            Self::Node(
                Node::Text { position, .. }
                | Node::Action { position, .. }
                | Node::Template { position, .. }
                | Node::Break { position }
                | Node::Continue { position },
            ) => *position,
            Self::Node(Node::Branch(branch)) => branch.position,
            Self::Pipe(pipe) => pipe.position,
            Self::Command(command) => command.position,
            Self::Operand(operand) => operand.position,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Operand(operand) => operand.fmt(f),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text, .. } => f.write_str(text),
            Self::Action { pipe, .. } => write!(f, "{{{{{pipe}}}}}"),
            Self::Branch(branch) => branch.fmt(f),
            Self::Template { name, pipe, .. } => {
                write!(f, "{{{{template {}", quote(name.as_bytes()))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Self::Break { .. } => f.write_str("{{break}}"),
            Self::Continue { .. } => f.write_str("{{continue}}"),
        }
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{{} {}}}}}", self.kind.name(), self.pipe)?;
        self.list.iter().try_for_each(|node| node.fmt(f))?;
        if let Some(list) = &self.else_list {
            f.write_str("{{else}}")?;
            list.iter().try_for_each(|node| node.fmt(f))?;
        }
        f.write_str("{{end}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.is_assign { "=" } else { ":=" };
            write!(f, "{} {sign} ", self.variables.join(", "))?;
        }
        for (index, command) in self.commands.iter().enumerate() {
            if index > 0 {
                f.write_str(" | ")?;
            }
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            match &word.term {
                Term::Pipe(pipe) => write!(f, "({pipe})")?,
                _ => word.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Bool(value) => write!(f, "{value}"),
            Term::Dot => f.write_str("."),
            Term::Nil => f.write_str("nil"),
            Term::Number(number) => f.write_str(&number.text),
            Term::String { quoted, .. } => f.write_str(quoted),
            Term::Field(fields) => write_fields(f, fields),
            Term::Variable { name, fields } => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            Term::Identifier(name) => f.write_str(name),
            Term::Chain { of, fields } => {
                match &of.term {
                    Term::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => of.fmt(f)?,
                }
                write_fields(f, fields)
            }
            Term::Pipe(pipe) => pipe.fmt(f),
        }
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}
