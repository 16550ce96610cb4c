//! The syntax tree of a template. The printed form of a node equals Go's, because error messages
//! contain it.
//!
//! Invariant: a position is a byte offset in the whole text, and no tree is higher than
//! [`HEIGHT_MAX`].

use super::lexer::is_space;
use super::number::NumberConstant;
use firn_model::quote::quote;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Maximum height of a tree, counting nested actions and parentheses together. Typical templates
/// have a height of about ten. The stack grows while a tree is parsed and executed.
pub(super) const HEIGHT_MAX: usize = 1000;

/// Minimum free stack before a recursion, and the size of a stack extension, in bytes.
pub(super) const STACK_LEFT_BYTES: usize = 128 << 10;
pub(super) const STACK_ADDED_BYTES: usize = 1 << 20;

/// The bodies that one text defines, by name, before their file is attached.
pub(super) type Bodies = BTreeMap<String, List>;

/// All definitions that are available to a template, by name. A console page merges those of its
/// libraries.
pub(super) type Definitions = BTreeMap<String, TemplateDefinition>;

/// A parsed template and all definitions that it may call, ready for execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedTemplate<'t> {
    pub name: &'t str,
    pub definitions: &'t Definitions,
    /// Definitions that cannot be included in a page, by name, with their error messages.
    pub refused: &'t BTreeMap<String, String>,
}

/// A body and the file to which its positions refer, both shared by reference counting.
#[derive(Clone, Debug)]
pub(super) struct TemplateDefinition {
    pub file: Rc<TemplateFile>,
    pub list: Rc<List>,
}

/// A text that defines templates, with the name that errors show.
#[derive(Debug)]
pub(super) struct TemplateFile {
    pub name: String,
    pub text: String,
}

impl TemplateFile {
    /// Returns `name:line:column` of a position, for error messages.
    pub fn location(&self, position: usize) -> String {
        let before = &self.text[..position];
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        format!("{}:{}:{column}", self.name, self.line(position))
    }

    /// Returns the line of a position, counting from one. Scans the text from its start.
    pub fn line(&self, position: usize) -> usize {
        self.text[..position].matches('\n').count() + 1
    }
}

/// Adds the bodies of one text. A body that is not blank replaces an earlier definition of the same
/// name.
pub(super) fn define_all(definitions: &mut Definitions, file: &Rc<TemplateFile>, bodies: Bodies) {
    for (name, list) in bodies {
        if is_empty(&list) && definitions.contains_key(&name) {
            continue;
        }
        let (file, list) = (Rc::clone(file), Rc::new(list));
        definitions.insert(name, TemplateDefinition { file, list });
    }
}

/// Returns whether a body contains only white space. Such a body does not replace another
/// definition.
pub(super) fn is_empty(list: &List) -> bool {
    let is_blank = |node: &TemplateNode| match node {
        TemplateNode::Text { text, .. } => text.trim_matches(is_space).is_empty(),
        _ => false,
    };
    list.iter().all(is_blank)
}

/// A sequence of nodes that are executed in order.
pub(super) type List = Vec<TemplateNode>;

/// An element of a body: literal text, an action, a control structure, a template call, or a jump
/// within a loop.
#[derive(Debug)]
pub(super) enum TemplateNode {
    Text {
        position: usize,
        text: String,
    },
    Action {
        position: usize,
        pipe: TemplatePipeline,
    },
    Branch(Box<TemplateBranch>),
    Template {
        position: usize,
        name: String,
        pipe: Option<TemplatePipeline>,
    },
    Break {
        position: usize,
    },
    Continue {
        position: usize,
    },
}

/// Kind of a control structure, with the keyword that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BranchKind {
    If,
    Range,
    With,
}

impl BranchKind {
    /// Returns the keyword of the control structure.
    pub fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::Range => "range",
            Self::With => "with",
        }
    }
}

/// An `if`, `range` or `with` with its pipeline, its body and an optional `else` body.
#[derive(Debug)]
pub(super) struct TemplateBranch {
    pub kind: BranchKind,
    pub position: usize,
    pub pipe: TemplatePipeline,
    pub list: List,
    pub else_list: Option<List>,
}

/// A pipeline of commands, such as `$x := a | b`. The result of each command is the last argument
/// of the next.
#[derive(Clone, Debug)]
pub(super) struct TemplatePipeline {
    pub position: usize,
    pub is_assign: bool,
    pub variables: Vec<String>,
    pub commands: Vec<TemplateCommand>,
}

/// A command: a function, method or value, followed by its arguments. The first operand decides its
/// meaning.
#[derive(Clone, Debug)]
pub(super) struct TemplateCommand {
    pub position: usize,
    pub words: Vec<TemplateOperand>,
}

/// An operand of a command with its position, to which error messages refer.
#[derive(Clone, Debug)]
pub(super) struct TemplateOperand {
    pub position: usize,
    pub term: TemplateTerm,
}

/// Value or expression of an operand: a literal, a field, a variable, a function or a nested
/// pipeline.
#[derive(Clone, Debug)]
pub(super) enum TemplateTerm {
    Bool(bool),
    Dot,
    Nil,
    Number(NumberConstant),
    /// The source text and the decoded value.
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
        of: Box<TemplateOperand>,
        fields: Vec<String>,
    },
    Pipe(Box<TemplatePipeline>),
}

/// The node to which an error refers. Its printed form is part of the message.
#[derive(Clone, Copy, Debug)]
pub(super) enum TemplateErrorNode<'t> {
    Node(&'t TemplateNode),
    Pipe(&'t TemplatePipeline),
    Command(&'t TemplateCommand),
    Operand(&'t TemplateOperand),
}

impl TemplateErrorNode<'_> {
    /// Returns the position of the node in its text, as a byte offset.
    pub fn position(&self) -> usize {
        match self {
            Self::Node(
                TemplateNode::Text { position, .. }
                | TemplateNode::Action { position, .. }
                | TemplateNode::Template { position, .. }
                | TemplateNode::Break { position }
                | TemplateNode::Continue { position },
            ) => *position,
            Self::Node(TemplateNode::Branch(branch)) => branch.position,
            Self::Pipe(pipe) => pipe.position,
            Self::Command(command) => command.position,
            Self::Operand(operand) => operand.position,
        }
    }
}

impl fmt::Display for TemplateErrorNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Operand(operand) => operand.fmt(f),
        }
    }
}

impl fmt::Display for TemplateNode {
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

impl fmt::Display for TemplateBranch {
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

impl fmt::Display for TemplatePipeline {
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

impl fmt::Display for TemplateCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            match &word.term {
                TemplateTerm::Pipe(pipe) => write!(f, "({pipe})")?,
                _ => word.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for TemplateOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            TemplateTerm::Bool(value) => write!(f, "{value}"),
            TemplateTerm::Dot => f.write_str("."),
            TemplateTerm::Nil => f.write_str("nil"),
            TemplateTerm::Number(number) => f.write_str(&number.text),
            TemplateTerm::String { quoted, .. } => f.write_str(quoted),
            TemplateTerm::Field(fields) => write_fields(f, fields),
            TemplateTerm::Variable { name, fields } => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            TemplateTerm::Identifier(name) => f.write_str(name),
            TemplateTerm::Chain { of, fields } => {
                match &of.term {
                    TemplateTerm::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => of.fmt(f)?,
                }
                write_fields(f, fields)
            }
            TemplateTerm::Pipe(pipe) => pipe.fmt(f),
        }
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}
