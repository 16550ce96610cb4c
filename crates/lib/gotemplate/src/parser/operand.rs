//! Parses pipelines, their commands, and the operands of commands.

use super::{Parsed, TemplateParser};
use crate::lexer::{TemplateKeyword, TemplateToken, TemplateTokenKind};
use crate::number::{NumberConstant, unquote};
use crate::tree::{TemplateCommand, TemplateOperand, TemplatePipeline, TemplateTerm};
use firn_model::quote::quote;

impl TemplateParser<'_> {
    /// Parses a pipeline up to and including the token `end`.
    pub(super) fn parse_pipe(
        &mut self,
        context: &str,
        end: TemplateTokenKind,
    ) -> Parsed<TemplatePipeline> {
        let mut pipe = TemplatePipeline {
            position: self.peek_word().position,
            is_assign: false,
            variables: Vec::new(),
            commands: Vec::new(),
        };
        while self.parse_declaration(&mut pipe, context)? {}
        loop {
            let token = self.next_word();
            match token.kind {
                kind if kind == end => {
                    self.check_pipe(&pipe, context)?;
                    return Ok(pipe);
                }
                TemplateTokenKind::Bool
                | TemplateTokenKind::CharConstant
                | TemplateTokenKind::Complex
                | TemplateTokenKind::Dot
                | TemplateTokenKind::Field
                | TemplateTokenKind::Identifier
                | TemplateTokenKind::Number
                | TemplateTokenKind::Keyword(TemplateKeyword::Nil)
                | TemplateTokenKind::RawString
                | TemplateTokenKind::String
                | TemplateTokenKind::Variable
                | TemplateTokenKind::LeftParen => {
                    self.back();
                    let command = self.parse_command()?;
                    pipe.commands.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
    }

    /// Parses `$x :=`, `$x =` or `$x,` at the start of a pipeline. Returns whether another variable
    /// may follow.
    fn parse_declaration(&mut self, pipe: &mut TemplatePipeline, context: &str) -> Parsed<bool> {
        let variable = self.peek_word();
        if variable.kind != TemplateTokenKind::Variable {
            return Ok(false);
        }
        self.next();
        // If the variable turns out to be an argument, the space after it must be put back.
        let after = self.peek();
        let sign = self.peek_word();
        match sign.kind {
            TemplateTokenKind::Assign | TemplateTokenKind::Declare => {
                pipe.is_assign = sign.kind == TemplateTokenKind::Assign;
                self.declare(pipe, variable);
            }
            TemplateTokenKind::Char if sign.text == "," => {
                self.declare(pipe, variable);
                if context != "range" || pipe.variables.len() >= 2 {
                    return self.fail(format!("too many declarations in {context}"));
                }
                let next = self.peek_word().kind;
                if !matches!(
                    next,
                    TemplateTokenKind::Variable
                        | TemplateTokenKind::RightDelim
                        | TemplateTokenKind::RightParen
                ) {
                    return self.fail("range can only initialize variables");
                }
                return Ok(true);
            }
            _ if after.kind == TemplateTokenKind::Space => self.back_three(variable, after),
            _ => self.back_two(variable),
        }
        Ok(false)
    }

    fn declare(&mut self, pipe: &mut TemplatePipeline, variable: TemplateToken) {
        self.next_word();
        pipe.variables.push(variable.text.clone());
        self.now.variables.push(variable.text);
    }

    fn check_pipe(&self, pipe: &TemplatePipeline, context: &str) -> Parsed<()> {
        if pipe.commands.is_empty() {
            return self.fail(format!("missing value for {context}"));
        }
        for (index, command) in pipe.commands.iter().enumerate().skip(1) {
            let is_executable = !matches!(
                command.words.first().map(|word| &word.term),
                Some(
                    TemplateTerm::Bool(_)
                        | TemplateTerm::Dot
                        | TemplateTerm::Nil
                        | TemplateTerm::Number(_)
                        | TemplateTerm::String { .. }
                )
            );
            if !is_executable {
                let stage = index + 1;
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(())
    }

    fn parse_command(&mut self) -> Parsed<TemplateCommand> {
        let mut command = TemplateCommand {
            position: self.peek_word().position,
            words: Vec::new(),
        };
        loop {
            self.peek_word();
            if let Some(word) = self.parse_operand()? {
                command.words.push(word);
            }
            let token = self.next();
            match token.kind {
                TemplateTokenKind::Space => continue,
                TemplateTokenKind::RightDelim | TemplateTokenKind::RightParen => self.back(),
                TemplateTokenKind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if command.words.is_empty() {
            self.fail("empty command")
        } else {
            Ok(command)
        }
    }

    /// Parses a term with the fields that follow it. Returns `None` if there is no term.
    fn parse_operand(&mut self) -> Parsed<Option<TemplateOperand>> {
        let Some(mut word) = self.parse_term()? else {
            return Ok(None);
        };
        let first = self.peek();
        if first.kind != TemplateTokenKind::Field {
            return Ok(Some(word));
        }
        let mut more = Vec::new();
        while self.peek().kind == TemplateTokenKind::Field {
            more.push(self.next().text[1..].to_owned());
        }
        match &mut word.term {
            TemplateTerm::Field(fields) | TemplateTerm::Variable { fields, .. } => {
                fields.append(&mut more);
                word.position = first.position;
            }
            TemplateTerm::Bool(_)
            | TemplateTerm::String { .. }
            | TemplateTerm::Number(_)
            | TemplateTerm::Nil
            | TemplateTerm::Dot => {
                let term = quote(word.to_string().as_bytes());
                return self.fail(format!("unexpected . after term {term}"));
            }
            TemplateTerm::Identifier(_) | TemplateTerm::Chain { .. } | TemplateTerm::Pipe(_) => {
                word = TemplateOperand {
                    position: first.position,
                    term: TemplateTerm::Chain {
                        of: Box::new(word),
                        fields: more,
                    },
                };
            }
        }
        Ok(Some(word))
    }

    fn parse_term(&mut self) -> Parsed<Option<TemplateOperand>> {
        let token = self.next_word();
        let term = match token.kind {
            TemplateTokenKind::Identifier if self.is_function(&token.text) => {
                TemplateTerm::Identifier(token.text)
            }
            TemplateTokenKind::Identifier => {
                let name = quote(token.text.as_bytes());
                return self.fail(format!("function {name} not defined"));
            }
            TemplateTokenKind::Dot => TemplateTerm::Dot,
            TemplateTokenKind::Keyword(TemplateKeyword::Nil) => TemplateTerm::Nil,
            TemplateTokenKind::Variable if self.now.variables.contains(&token.text) => {
                TemplateTerm::Variable {
                    name: token.text,
                    fields: Vec::new(),
                }
            }
            TemplateTokenKind::Variable => {
                let name = quote(token.text.as_bytes());
                return self.fail(format!("undefined variable {name}"));
            }
            TemplateTokenKind::Field => TemplateTerm::Field(vec![token.text[1..].to_owned()]),
            TemplateTokenKind::Bool => TemplateTerm::Bool(token.text == "true"),
            TemplateTokenKind::CharConstant => {
                self.parse_number(NumberConstant::parse_character(&token.text))?
            }
            TemplateTokenKind::Complex => {
                self.parse_number(NumberConstant::parse_complex(&token.text))?
            }
            TemplateTokenKind::Number => {
                self.parse_number(NumberConstant::parse_plain(&token.text))?
            }
            TemplateTokenKind::LeftParen => {
                let read = |parser: &mut Self| {
                    parser.parse_pipe("parenthesized pipeline", TemplateTokenKind::RightParen)
                };
                TemplateTerm::Pipe(Box::new(self.parse_nested(read)?))
            }
            TemplateTokenKind::String | TemplateTokenKind::RawString => {
                match unquote(&token.text) {
                    Some(text) => TemplateTerm::String {
                        quoted: token.text,
                        text: text.into(),
                    },
                    None => return self.fail("invalid syntax"),
                }
            }
            _ => {
                self.back();
                return Ok(None);
            }
        };
        Ok(Some(TemplateOperand {
            position: token.position,
            term,
        }))
    }

    fn parse_number(&self, number: Result<NumberConstant, String>) -> Parsed<TemplateTerm> {
        match number {
            Ok(number) => Ok(TemplateTerm::Number(number)),
            Err(text) => self.fail(text),
        }
    }
}
