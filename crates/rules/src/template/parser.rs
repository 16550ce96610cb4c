//! Parses the text of a template into trees, one for each definition.
//!
//! Invariant: everything that Go rejects is rejected with Go's message and line. The line of an
//! error is that of the first slot of the look-ahead buffer. Each definition has its own buffer, as
//! in Go's parser (`text/template/parse/parse.go`), so that users see the same lines.

mod operand;

use super::functions::Function;
use super::lexer::{Keyword, Kind, Lexer, Token};
use super::number::unquote;
use super::tree::{
    Bodies, Branch, BranchKind, HEIGHT_MAX, List, Node, Pipe, STACK_ADDED_BYTES, STACK_LEFT_BYTES,
    is_empty,
};
use firn_model::quote::quote;

/// Result of a parser function. The error is Go's message, including the name of the template and
/// the line.
pub(super) type Parsed<T> = Result<T, String>;

/// An element of a body, or the `end` or `else` action that ends the body.
enum Part {
    Node(Node),
    End,
    Else,
}

/// Parser state that Go keeps separately for each definition: look-ahead, variables, and nesting of
/// loops.
struct Definition {
    tokens: [Token; 3],
    peeked: usize,
    variables: Vec<String>,
    action_line: usize,
    range_depth: usize,
}

impl Definition {
    fn new() -> Self {
        Self {
            tokens: [Token::none(), Token::none(), Token::none()],
            peeked: 0,
            variables: vec!["$".to_owned()],
            action_line: 0,
            range_depth: 0,
        }
    }
}

/// Parser of one text. It collects the bodies of all definitions and limits the height of their
/// trees.
pub(super) struct Parser<'t> {
    name: &'t str,
    kind: TemplateKind,
    lexer: Lexer<'t>,
    bodies: Bodies,
    now: Definition,
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
    let mut parser = Parser {
        name,
        kind,
        lexer: Lexer::new(text),
        bodies: Bodies::new(),
        now: Definition::new(),
        height: 0,
    };
    let root = parser.root()?;
    parser.define(name, root)?;
    Ok(parser.bodies)
}

impl Parser<'_> {
    fn fail<T>(&self, text: impl std::fmt::Display) -> Parsed<T> {
        let line = self.now.tokens[0].line;
        Err(format!("template: {}:{line}: {text}", self.name))
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> Parsed<T> {
        if token.kind != Kind::Error {
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

    fn next(&mut self) -> Token {
        let now = &mut self.now;
        match now.peeked {
            0 => now.tokens[0] = self.lexer.next_token(),
            _ => now.peeked -= 1,
        }
        now.tokens[now.peeked].clone()
    }

    fn peek(&mut self) -> Token {
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
    fn back_two(&mut self, first: Token) {
        self.now.tokens[1] = first;
        self.now.peeked = 2;
    }

    /// Puts back `first` and `second`, which precede the token that is already in the buffer.
    fn back_three(&mut self, first: Token, second: Token) {
        self.now.tokens[1] = second;
        self.now.tokens[2] = first;
        self.now.peeked = 3;
    }

    fn next_word(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_word(&mut self) -> Token {
        let token = self.next_word();
        self.back();
        token
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Parsed<Token> {
        let token = self.next_word();
        match token.kind == kind {
            true => Ok(token),
            false => self.unexpected(&token, context),
        }
    }

    /// Parses a nested element: checks the depth and extends the stack if necessary.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
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
        match Function::of(word) {
            Some(Function::Escape(_)) | None => false,
            Some(Function::Tmpl) => self.kind == TemplateKind::Console,
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

    fn root(&mut self) -> Parsed<List> {
        let mut list = List::new();
        loop {
            let token = self.peek();
            if token.kind == Kind::End {
                return Ok(list);
            }
            if token.kind == Kind::LeftDelim {
                let delim = self.next();
                if self.next_word().kind == Kind::Keyword(Keyword::Define) {
                    let outer = std::mem::replace(&mut self.now, Definition::new());
                    self.definition()?;
                    self.now = outer;
                    continue;
                }
                self.back_two(delim);
            }
            match self.part()? {
                Part::Node(node) => list.push(node),
                Part::End => return self.fail("unexpected {{end}}"),
                Part::Else => return self.fail("unexpected {{else}}"),
            }
        }
    }

    /// Parses a definition after its keyword `define`.
    fn definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        let list = self.body(CONTEXT)?;
        self.define(&name, list)
    }

    fn template_name(&mut self, token: &Token, context: &str) -> Parsed<String> {
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return self.unexpected(token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok(String::from_utf8_lossy(&name).into_owned()),
            None => self.fail("invalid syntax"),
        }
    }

    /// Parses a body that must be closed by `end`. An `else` in its place is an error in `context`.
    fn body(&mut self, context: &str) -> Parsed<List> {
        match self.list()? {
            (list, Part::End) => Ok(list),
            _ => self.fail(format!("unexpected {{{{else}}}} in {context}")),
        }
    }

    /// Parses the elements before the next `end` or `else`, and returns them with the action that
    /// ended the list.
    fn list(&mut self) -> Parsed<(List, Part)> {
        let mut list = List::new();
        while self.peek_word().kind != Kind::End {
            match self.part()? {
                Part::Node(node) => list.push(node),
                end => return Ok((list, end)),
            }
        }
        self.fail("unexpected EOF")
    }

    fn part(&mut self) -> Parsed<Part> {
        let token = self.next_word();
        match token.kind {
            Kind::Text => Ok(Part::Node(Node::Text {
                position: token.position,
                text: token.text,
            })),
            Kind::LeftDelim => {
                self.now.action_line = token.line;
                let part = self.deeper(Self::action)?;
                self.now.action_line = 0;
                Ok(part)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    /// Parses an action after its left delimiter: a control structure or a pipeline.
    fn action(&mut self) -> Parsed<Part> {
        let token = self.next_word();
        if let Kind::Keyword(word) = token.kind {
            match word {
                Keyword::Block => return self.block().map(Part::Node),
                Keyword::Break => {
                    self.leave_loop("{{break}}")?;
                    let position = token.position;
                    return Ok(Part::Node(Node::Break { position }));
                }
                Keyword::Continue => {
                    self.leave_loop("{{continue}}")?;
                    let position = token.position;
                    return Ok(Part::Node(Node::Continue { position }));
                }
                Keyword::Else => return self.else_action(),
                Keyword::End => {
                    self.expect(Kind::RightDelim, "end")?;
                    return Ok(Part::End);
                }
                Keyword::If => return self.branch(BranchKind::If).map(Part::Node),
                Keyword::Range => return self.branch(BranchKind::Range).map(Part::Node),
                Keyword::With => return self.branch(BranchKind::With).map(Part::Node),
                Keyword::Template => return self.template().map(Part::Node),
                Keyword::Define | Keyword::Nil => {}
            }
        }
        self.back();
        let position = self.peek().position;
        let pipe = self.pipe("command", Kind::RightDelim)?;
        Ok(Part::Node(Node::Action { position, pipe }))
    }

    fn leave_loop(&mut self, context: &str) -> Parsed<()> {
        self.expect(Kind::RightDelim, context)?;
        match self.now.range_depth {
            0 => self.fail(format!("{context} outside {{{{range}}}}")),
            _ => Ok(()),
        }
    }

    fn else_action(&mut self) -> Parsed<Part> {
        let next = self.peek_word().kind;
        let continues = [Keyword::If, Keyword::With].map(Kind::Keyword);
        if !continues.contains(&next) {
            self.expect(Kind::RightDelim, "else")?;
        }
        Ok(Part::Else)
    }

    fn branch(&mut self, kind: BranchKind) -> Parsed<Node> {
        let variables = self.now.variables.len();
        let pipe = self.pipe(kind.name(), Kind::RightDelim)?;
        let is_range = kind == BranchKind::Range;
        self.now.range_depth += usize::from(is_range);
        let (list, end) = self.list()?;
        self.now.range_depth -= usize::from(is_range);
        let else_list = match end {
            Part::Else => Some(self.else_list(kind)?),
            _ => None,
        };
        self.now.variables.truncate(variables);
        Ok(Node::Branch(Box::new(Branch {
            kind,
            position: pipe.position,
            pipe,
            list,
            else_list,
        })))
    }

    fn else_list(&mut self, kind: BranchKind) -> Parsed<List> {
        let next = self.peek().kind;
        let continues = match kind {
            BranchKind::If => next == Kind::Keyword(Keyword::If),
            BranchKind::With => next == Kind::Keyword(Keyword::With),
            BranchKind::Range => false,
        };
        if continues {
            self.next();
            let node = self.deeper(|parser| parser.branch(kind))?;
            return Ok(vec![node]);
        }
        match self.list()? {
            (list, Part::End) => Ok(list),
            _ => self.fail("expected end; found {{else}}"),
        }
    }

    fn block(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipe(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::replace(&mut self.now, Definition::new());
        let list = self.body(CONTEXT)?;
        self.define(&name, list)?;
        self.now = outer;
        Ok(Node::Template {
            position: token.position,
            name,
            pipe: Some(pipe),
        })
    }

    fn template(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        let mut pipe: Option<Pipe> = None;
        if self.next_word().kind != Kind::RightDelim {
            self.back();
            pipe = Some(self.pipe(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Node::Template {
            position: token.position,
            name,
            pipe,
        })
    }
}
