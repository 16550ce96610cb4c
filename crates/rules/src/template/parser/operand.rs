//! Parses pipelines, their commands, and the operands of commands.

use super::{Parsed, Parser};
use crate::template::lexer::{Keyword, Kind, Token};
use crate::template::number::{Number, unquote};
use crate::template::tree::{Command, Operand, Pipe, Term};
use firn_model::quote::quote;

impl Parser<'_> {
    /// Parses a pipeline up to and including the token `end`.
    pub(super) fn pipe(&mut self, context: &str, end: Kind) -> Parsed<Pipe> {
        let mut pipe = Pipe {
            position: self.peek_word().position,
            is_assign: false,
            variables: Vec::new(),
            commands: Vec::new(),
        };
        while self.declaration(&mut pipe, context)? {}
        loop {
            let token = self.next_word();
            match token.kind {
                kind if kind == end => {
                    self.check_pipe(&pipe, context)?;
                    return Ok(pipe);
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Keyword(Keyword::Nil)
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.back();
                    let command = self.command()?;
                    pipe.commands.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
    }

    /// Parses `$x :=`, `$x =` or `$x,` at the start of a pipeline. Returns whether another variable
    /// may follow.
    fn declaration(&mut self, pipe: &mut Pipe, context: &str) -> Parsed<bool> {
        let variable = self.peek_word();
        if variable.kind != Kind::Variable {
            return Ok(false);
        }
        self.next();
        // If the variable turns out to be an argument, the space after it must be put back.
        let after = self.peek();
        let sign = self.peek_word();
        match sign.kind {
            Kind::Assign | Kind::Declare => {
                pipe.is_assign = sign.kind == Kind::Assign;
                self.declare(pipe, variable);
            }
            Kind::Char if sign.text == "," => {
                self.declare(pipe, variable);
                if context != "range" || pipe.variables.len() >= 2 {
                    return self.fail(format!("too many declarations in {context}"));
                }
                let next = self.peek_word().kind;
                if !matches!(next, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                    return self.fail("range can only initialize variables");
                }
                return Ok(true);
            }
            _ if after.kind == Kind::Space => self.back_three(variable, after),
            _ => self.back_two(variable),
        }
        Ok(false)
    }

    fn declare(&mut self, pipe: &mut Pipe, variable: Token) {
        self.next_word();
        pipe.variables.push(variable.text.clone());
        self.now.variables.push(variable.text);
    }

    fn check_pipe(&self, pipe: &Pipe, context: &str) -> Parsed<()> {
        if pipe.commands.is_empty() {
            return self.fail(format!("missing value for {context}"));
        }
        for (index, command) in pipe.commands.iter().enumerate().skip(1) {
            let is_executable = !matches!(
                command.words.first().map(|word| &word.term),
                Some(Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::String { .. })
            );
            if !is_executable {
                let stage = index + 1;
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<Command> {
        let mut command = Command {
            position: self.peek_word().position,
            words: Vec::new(),
        };
        loop {
            self.peek_word();
            if let Some(word) = self.operand()? {
                command.words.push(word);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.back(),
                Kind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        match command.words.is_empty() {
            true => self.fail("empty command"),
            false => Ok(command),
        }
    }

    /// Parses a term with the fields that follow it. Returns `None` if there is no term.
    fn operand(&mut self) -> Parsed<Option<Operand>> {
        let Some(mut word) = self.term()? else {
            return Ok(None);
        };
        let first = self.peek();
        if first.kind != Kind::Field {
            return Ok(Some(word));
        }
        let mut more = Vec::new();
        while self.peek().kind == Kind::Field {
            more.push(self.next().text[1..].to_owned());
        }
        match &mut word.term {
            Term::Field(fields) | Term::Variable { fields, .. } => {
                fields.append(&mut more);
                word.position = first.position;
            }
            Term::Bool(_) | Term::String { .. } | Term::Number(_) | Term::Nil | Term::Dot => {
                let term = quote(word.to_string().as_bytes());
                return self.fail(format!("unexpected . after term {term}"));
            }
            Term::Identifier(_) | Term::Chain { .. } | Term::Pipe(_) => {
                word = Operand {
                    position: first.position,
                    term: Term::Chain {
                        of: Box::new(word),
                        fields: more,
                    },
                };
            }
        }
        Ok(Some(word))
    }

    fn term(&mut self) -> Parsed<Option<Operand>> {
        let token = self.next_word();
        let term = match token.kind {
            Kind::Identifier if self.is_function(&token.text) => Term::Identifier(token.text),
            Kind::Identifier => {
                let name = quote(token.text.as_bytes());
                return self.fail(format!("function {name} not defined"));
            }
            Kind::Dot => Term::Dot,
            Kind::Keyword(Keyword::Nil) => Term::Nil,
            Kind::Variable if self.now.variables.contains(&token.text) => Term::Variable {
                name: token.text,
                fields: Vec::new(),
            },
            Kind::Variable => {
                let name = quote(token.text.as_bytes());
                return self.fail(format!("undefined variable {name}"));
            }
            Kind::Field => Term::Field(vec![token.text[1..].to_owned()]),
            Kind::Bool => Term::Bool(token.text == "true"),
            Kind::CharConstant => self.number(Number::character(&token.text))?,
            Kind::Complex => self.number(Number::complex(&token.text))?,
            Kind::Number => self.number(Number::plain(&token.text))?,
            Kind::LeftParen => {
                let read =
                    |parser: &mut Self| parser.pipe("parenthesized pipeline", Kind::RightParen);
                Term::Pipe(Box::new(self.deeper(read)?))
            }
            Kind::String | Kind::RawString => match unquote(&token.text) {
                Some(text) => Term::String {
                    quoted: token.text,
                    text: text.into(),
                },
                None => return self.fail("invalid syntax"),
            },
            _ => {
                self.back();
                return Ok(None);
            }
        };
        Ok(Some(Operand {
            position: token.position,
            term,
        }))
    }

    fn number(&self, number: Result<Number, String>) -> Parsed<Term> {
        match number {
            Ok(number) => Ok(Term::Number(number)),
            Err(text) => self.fail(text),
        }
    }
}
