//! Prints expressions on several lines for `format_query`: nodes that exceed the line width are
//! split and indented by two spaces per level.
//!
//! A chain of operators is a tree of the same height, so the indentation of a long chain is many
//! times larger than its text. Memory is therefore reserved before it is written.

use super::{format_aggregate_head, format_binary_head, format_subquery_suffix};
use crate::ast::{Expr, ExprKind};
use crate::depth::ensure_stack;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use std::fmt::{self, Write};

/// Maximum length of a node's one-line form in bytes. Longer nodes are split.
const LINE_BYTES_MAX: usize = 100;

/// Number of nested operators, signs and parentheses above which a node exceeds the line in any
/// case, because each takes at least one byte.
const LINE_LEVELS_MAX: usize = LINE_BYTES_MAX;

const INDENT: &str = "  ";

/// Prints an expression on as many lines as necessary. Adds the memory of the text to `memory`, and
/// fails with [`firn_model::error::ErrorKind::Limited`] if the budget is exceeded.
pub fn pretty(expr: &Expr, memory: &mut Reservation) -> Result<String, Error> {
    let out = String::new();
    let mut printer = PrettyPrinter { out, memory };
    printer.write(expr, 0)?;
    Ok(printer.out)
}

struct PrettyPrinter<'m> {
    out: String,
    memory: &'m mut Reservation,
}

impl PrettyPrinter<'_> {
    fn push(&mut self, text: &str) -> Result<(), Error> {
        // The capacity of the string may be twice its length.
        self.memory.grow(2 * text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn indent(&mut self, level: usize) -> Result<(), Error> {
        (0..level).try_for_each(|_| self.push(INDENT))
    }

    fn write(&mut self, expr: &Expr, level: usize) -> Result<(), Error> {
        ensure_stack(|| self.write_here(expr, level))
    }

    fn write_here(&mut self, expr: &Expr, level: usize) -> Result<(), Error> {
        if let ExprKind::Unary(op, inner) = &expr.kind {
            self.indent(level)?;
            self.push(op.as_str())?;
            let start = self.out.len();
            self.write(inner, level)?;
            let indent = self.out.len() - start - self.out[start..].trim_start().len();
            self.out.drain(start..start + indent);
            self.out.truncate(self.out.trim_end().len());
            return Ok(());
        }
        match (format_short_line(expr), &expr.kind) {
            // Like Prometheus, which omits the indentation here.
            (Some(line), ExprKind::Subquery(_)) => self.push(&line),
            (Some(line), _) => {
                self.indent(level)?;
                self.push(&line)
            }
            (None, _) => self.split(expr, level),
        }
    }

    /// Writes an expression that does not fit on one line.
    fn split(&mut self, expr: &Expr, level: usize) -> Result<(), Error> {
        match &expr.kind {
            ExprKind::Subquery(subquery) => {
                self.write(&subquery.expr, level)?;
                self.push(&format_subquery_suffix(subquery))
            }
            ExprKind::Call(call) => {
                self.open(call.function.name, level)?;
                for (at, arg) in call.args.iter().enumerate() {
                    self.push(if at == 0 { "" } else { ",\n" })?;
                    self.write(arg, level + 1)?;
                }
                self.close(level)
            }
            ExprKind::Aggregate(aggregate) => {
                self.open(&format_aggregate_head(aggregate), level)?;
                if let Some(param) = &aggregate.param {
                    self.write(param, level + 1)?;
                    self.push(",\n")?;
                }
                self.write(&aggregate.expr, level + 1)?;
                self.close(level)
            }
            ExprKind::Binary(binary) => {
                self.write(&binary.left, level + 1)?;
                self.push("\n")?;
                self.indent(level)?;
                self.push(&format_binary_head(binary))?;
                self.push("\n")?;
                self.write(&binary.right, level + 1)
            }
            ExprKind::Paren(inner) => {
                self.open("", level)?;
                self.write(inner, level + 1)?;
                self.close(level)
            }
            _ => {
                self.indent(level)?;
                self.push(&expr.to_string())
            }
        }
    }

    fn open(&mut self, head: &str, level: usize) -> Result<(), Error> {
        self.indent(level)?;
        self.push(head)?;
        self.push("(\n")
    }

    fn close(&mut self, level: usize) -> Result<(), Error> {
        self.push("\n")?;
        self.indent(level)?;
        self.push(")")
    }
}

/// Returns the one-line form, or `None` if it exceeds the line width.
fn format_short_line(expr: &Expr) -> Option<String> {
    let mut inner = Some(expr);
    for _ in 0..=LINE_LEVELS_MAX {
        inner = inner.and_then(|expr| match &expr.kind {
            ExprKind::Binary(binary) => Some(&binary.left),
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => Some(inner),
            _ => None,
        });
    }
    if inner.is_some() {
        return None;
    }
    let mut line = ShortLineWriter(String::new());
    write!(line, "{expr}").ok()?;
    Some(line.0)
}

/// A string that refuses to exceed the line width, so that printing stops early.
struct ShortLineWriter(String);

impl Write for ShortLineWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LINE_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
