//! Parses the text of a template into trees, one for each definition.
//!
//! Invariant: everything that Go rejects is rejected with Go's message and line. The line of an
//! error is that of the first slot of the look-ahead buffer. Each definition has its own buffer, as
//! in Go's parser (`text/template/parse/parse.go`), so that users see the same lines.

mod operand;

use super::functions::TemplateFunction;
use super::lexer::{TemplateKeyword, TemplateLexer, TemplateToken, TemplateTokenKind};
use super::number::unquote;
use super::tree::{
    Bodies, BranchKind, HEIGHT_MAX, List, STACK_ADDED_BYTES, STACK_LEFT_BYTES, TemplateBranch,
    TemplateNode, TemplatePipeline, is_empty,
};
use firn_model::quote::quote;

/// Result of a parser function. The error is Go's message, including the name of the template and
/// the line.
pub(super) type Parsed<T> = Result<T, String>;

/// An element of a body, or the `end` or `else` action that ends the body.
enum BodyElement {
    Node(TemplateNode),
    End,
    Else,
}

/// Parser state that Go keeps separately for each definition: look-ahead, variables, and nesting of
/// loops.
struct DefinitionState {
    tokens: [TemplateToken; 3],
    peeked: usize,
    variables: Vec<String>,
    action_line: usize,
    range_depth: usize,
}

impl DefinitionState {
    fn new() -> Self {
        Self {
            tokens: [
                TemplateToken::none(),
                TemplateToken::none(),
                TemplateToken::none(),
            ],
            peeked: 0,
            variables: vec!["$".to_owned()],
            action_line: 0,
            range_depth: 0,
        }
    }
}

/// Parser of one text. It collects the bodies of all definitions and limits the height of their
/// trees.
pub(super) struct TemplateParser<'t> {
    name: &'t str,
    kind: TemplateKind,
    lexer: TemplateLexer<'t>,
    bodies: Bodies,
    now: DefinitionState,
    height: usize,
}

/// Purpose of a template, which decides the functions that are available: `tmpl` exists only in
/// console pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateKind {
    Alert,
    Console,
}

/// Parses `text` and returns its definitions by name. Text outside of definitions becomes the one
/// called `name`.
pub(super) fn parse(kind: TemplateKind, name: &str, text: &str) -> Parsed<Bodies> {
    let mut parser = TemplateParser {
        name,
        kind,
        lexer: TemplateLexer::new(text),
        bodies: Bodies::new(),
        now: DefinitionState::new(),
        height: 0,
    };
    let root = parser.parse_root()?;
    parser.define(name, root)?;
    Ok(parser.bodies)
}

impl TemplateParser<'_> {
    fn fail<T>(&self, text: impl std::fmt::Display) -> Parsed<T> {
        let line = self.now.tokens[0].line;
        Err(format!("template: {}:{line}: {text}", self.name))
    }

    fn unexpected<T>(&self, token: &TemplateToken, context: &str) -> Parsed<T> {
        if token.kind != TemplateTokenKind::Error {
            return self.fail(format!("unexpected {token} in {context}"));
        }
        let start = self.now.action_line;
        let mut text = token.text.clone();
        if start != 0 && start != token.line {
            if !text.ends_with(" action") {
                text += " in action";
            }
            text += &format!(" started at {}:{start}", self.name);
        }
        self.fail(text)
    }

    fn next(&mut self) -> TemplateToken {
        let now = &mut self.now;
        match now.peeked {
            0 => now.tokens[0] = self.lexer.next_token(),
            _ => now.peeked -= 1,
        }
        now.tokens[now.peeked].clone()
    }

    fn peek(&mut self) -> TemplateToken {
        if self.now.peeked == 0 {
            self.now.tokens[0] = self.lexer.next_token();
            self.now.peeked = 1;
        }
        self.now.tokens[self.now.peeked - 1].clone()
    }

    fn back(&mut self) {
        self.now.peeked += 1;
    }

    /// Puts back `first`, which precedes the token that is already in the look-ahead buffer.
    fn back_two(&mut self, first: TemplateToken) {
        self.now.tokens[1] = first;
        self.now.peeked = 2;
    }

    /// Puts back `first` and `second`, which precede the token that is already in the buffer.
    fn back_three(&mut self, first: TemplateToken, second: TemplateToken) {
        self.now.tokens[1] = second;
        self.now.tokens[2] = first;
        self.now.peeked = 3;
    }

    fn next_word(&mut self) -> TemplateToken {
        loop {
            let token = self.next();
            if token.kind != TemplateTokenKind::Space {
                return token;
            }
        }
    }

    fn peek_word(&mut self) -> TemplateToken {
        let token = self.next_word();
        self.back();
        token
    }

    fn expect(&mut self, kind: TemplateTokenKind, context: &str) -> Parsed<TemplateToken> {
        let token = self.next_word();
        if token.kind == kind {
            Ok(token)
        } else {
            self.unexpected(&token, context)
        }
    }

    /// Parses a nested element: checks the depth and extends the stack if necessary.
    fn parse_nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.height == HEIGHT_MAX {
            return self.fail("max expression depth exceeded");
        }
        self.height += 1;
        let result = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || read(self));
        self.height -= 1;
        result
    }

    /// Returns whether the word is the name of a function that is available in this kind of
    /// template.
    fn is_function(&self, word: &str) -> bool {
        match TemplateFunction::from_name(word) {
            Some(TemplateFunction::Escape(_)) | None => false,
            Some(TemplateFunction::Tmpl) => self.kind == TemplateKind::Console,
            Some(_) => true,
        }
    }

    fn define(&mut self, name: &str, list: List) -> Parsed<()> {
        if self.bodies.get(name).is_none_or(is_empty) {
            self.bodies.insert(name.to_owned(), list);
        } else if !is_empty(&list) {
            let name = quote(name.as_bytes());
            return self.fail(format!("template: multiple definition of template {name}"));
        }
        Ok(())
    }

    fn parse_root(&mut self) -> Parsed<List> {
        let mut list = List::new();
        loop {
            let token = self.peek();
            if token.kind == TemplateTokenKind::End {
                return Ok(list);
            }
            if token.kind == TemplateTokenKind::LeftDelim {
                let delim = self.next();
                if self.next_word().kind == TemplateTokenKind::Keyword(TemplateKeyword::Define) {
                    let outer = std::mem::replace(&mut self.now, DefinitionState::new());
                    self.parse_definition()?;
                    self.now = outer;
                    continue;
                }
                self.back_two(delim);
            }
            match self.parse_element()? {
                BodyElement::Node(node) => list.push(node),
                BodyElement::End => return self.fail("unexpected {{end}}"),
                BodyElement::Else => return self.fail("unexpected {{else}}"),
            }
        }
    }

    /// Parses a definition after its keyword `define`.
    fn parse_definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let token = self.next_word();
        let name = self.parse_template_name(&token, CONTEXT)?;
        self.expect(TemplateTokenKind::RightDelim, CONTEXT)?;
        let list = self.parse_body(CONTEXT)?;
        self.define(&name, list)
    }

    fn parse_template_name(&mut self, token: &TemplateToken, context: &str) -> Parsed<String> {
        if !matches!(
            token.kind,
            TemplateTokenKind::String | TemplateTokenKind::RawString
        ) {
            return self.unexpected(token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok(String::from_utf8_lossy(&name).into_owned()),
            None => self.fail("invalid syntax"),
        }
    }

    /// Parses a body that must be closed by `end`. An `else` in its place is an error in `context`.
    fn parse_body(&mut self, context: &str) -> Parsed<List> {
        match self.parse_list()? {
            (list, BodyElement::End) => Ok(list),
            _ => self.fail(format!("unexpected {{{{else}}}} in {context}")),
        }
    }

    /// Parses the elements before the next `end` or `else`, and returns them with the action that
    /// ended the list.
    fn parse_list(&mut self) -> Parsed<(List, BodyElement)> {
        let mut list = List::new();
        while self.peek_word().kind != TemplateTokenKind::End {
            match self.parse_element()? {
                BodyElement::Node(node) => list.push(node),
                end => return Ok((list, end)),
            }
        }
        self.fail("unexpected EOF")
    }

    fn parse_element(&mut self) -> Parsed<BodyElement> {
        let token = self.next_word();
        match token.kind {
            TemplateTokenKind::Text => Ok(BodyElement::Node(TemplateNode::Text {
                position: token.position,
                text: token.text,
            })),
            TemplateTokenKind::LeftDelim => {
                self.now.action_line = token.line;
                let part = self.parse_nested(Self::parse_action)?;
                self.now.action_line = 0;
                Ok(part)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    /// Parses an action after its left delimiter: a control structure or a pipeline.
    fn parse_action(&mut self) -> Parsed<BodyElement> {
        let token = self.next_word();
        if let TemplateTokenKind::Keyword(word) = token.kind {
            match word {
                TemplateKeyword::Block => return self.parse_block().map(BodyElement::Node),
                TemplateKeyword::Break => {
                    self.parse_loop_exit("{{break}}")?;
                    let position = token.position;
                    return Ok(BodyElement::Node(TemplateNode::Break { position }));
                }
                TemplateKeyword::Continue => {
                    self.parse_loop_exit("{{continue}}")?;
                    let position = token.position;
                    return Ok(BodyElement::Node(TemplateNode::Continue { position }));
                }
                TemplateKeyword::Else => return self.parse_else(),
                TemplateKeyword::End => {
                    self.expect(TemplateTokenKind::RightDelim, "end")?;
                    return Ok(BodyElement::End);
                }
                TemplateKeyword::If => {
                    return self.parse_branch(BranchKind::If).map(BodyElement::Node);
                }
                TemplateKeyword::Range => {
                    return self.parse_branch(BranchKind::Range).map(BodyElement::Node);
                }
                TemplateKeyword::With => {
                    return self.parse_branch(BranchKind::With).map(BodyElement::Node);
                }
                TemplateKeyword::Template => return self.parse_template().map(BodyElement::Node),
                TemplateKeyword::Define | TemplateKeyword::Nil => {}
            }
        }
        self.back();
        let position = self.peek().position;
        let pipe = self.parse_pipe("command", TemplateTokenKind::RightDelim)?;
        Ok(BodyElement::Node(TemplateNode::Action { position, pipe }))
    }

    fn parse_loop_exit(&mut self, context: &str) -> Parsed<()> {
        self.expect(TemplateTokenKind::RightDelim, context)?;
        match self.now.range_depth {
            0 => self.fail(format!("{context} outside {{{{range}}}}")),
            _ => Ok(()),
        }
    }

    fn parse_else(&mut self) -> Parsed<BodyElement> {
        let next = self.peek_word().kind;
        let continues =
            [TemplateKeyword::If, TemplateKeyword::With].map(TemplateTokenKind::Keyword);
        if !continues.contains(&next) {
            self.expect(TemplateTokenKind::RightDelim, "else")?;
        }
        Ok(BodyElement::Else)
    }

    fn parse_branch(&mut self, kind: BranchKind) -> Parsed<TemplateNode> {
        let variables = self.now.variables.len();
        let pipe = self.parse_pipe(kind.name(), TemplateTokenKind::RightDelim)?;
        let is_range = kind == BranchKind::Range;
        self.now.range_depth += usize::from(is_range);
        let (list, end) = self.parse_list()?;
        self.now.range_depth -= usize::from(is_range);
        let else_list = match end {
            BodyElement::Else => Some(self.parse_else_list(kind)?),
            _ => None,
        };
        self.now.variables.truncate(variables);
        Ok(TemplateNode::Branch(Box::new(TemplateBranch {
            kind,
            position: pipe.position,
            pipe,
            list,
            else_list,
        })))
    }

    fn parse_else_list(&mut self, kind: BranchKind) -> Parsed<List> {
        let next = self.peek().kind;
        let continues = match kind {
            BranchKind::If => next == TemplateTokenKind::Keyword(TemplateKeyword::If),
            BranchKind::With => next == TemplateTokenKind::Keyword(TemplateKeyword::With),
            BranchKind::Range => false,
        };
        if continues {
            self.next();
            let node = self.parse_nested(|parser| parser.parse_branch(kind))?;
            return Ok(vec![node]);
        }
        match self.parse_list()? {
            (list, BodyElement::End) => Ok(list),
            _ => self.fail("expected end; found {{else}}"),
        }
    }

    fn parse_block(&mut self) -> Parsed<TemplateNode> {
        const CONTEXT: &str = "block clause";
        let token = self.next_word();
        let name = self.parse_template_name(&token, CONTEXT)?;
        let pipe = self.parse_pipe(CONTEXT, TemplateTokenKind::RightDelim)?;
        let outer = std::mem::replace(&mut self.now, DefinitionState::new());
        let list = self.parse_body(CONTEXT)?;
        self.define(&name, list)?;
        self.now = outer;
        Ok(TemplateNode::Template {
            position: token.position,
            name,
            pipe: Some(pipe),
        })
    }

    fn parse_template(&mut self) -> Parsed<TemplateNode> {
        const CONTEXT: &str = "template clause";
        let token = self.next_word();
        let name = self.parse_template_name(&token, CONTEXT)?;
        let mut pipe: Option<TemplatePipeline> = None;
        if self.next_word().kind != TemplateTokenKind::RightDelim {
            self.back();
            pipe = Some(self.parse_pipe(CONTEXT, TemplateTokenKind::RightDelim)?);
        }
        Ok(TemplateNode::Template {
            position: token.position,
            name,
            pipe,
        })
    }
}
