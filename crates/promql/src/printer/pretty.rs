//! The form over several lines of `format_query`: what is longer than a line's width is split, two
//! spaces of indent a level.

use super::{AggregateHead, BinaryHead, SubquerySuffix};
use crate::ast::{Expr, ExprKind};

/// Bytes of a node's one-line form above which it is split.
const LINE_BYTES_MAX: usize = 100;

const INDENT: &str = "  ";

/// The expression over as many lines as it takes to keep them short.
pub fn pretty(expr: &Expr) -> String {
    write_pretty(expr, 0)
}

fn write_pretty(expr: &Expr, level: usize) -> String {
    let indent = INDENT.repeat(level);
    if let ExprKind::Unary(op, inner) = &expr.kind {
        let inner = write_pretty(inner, level);
        return format!("{indent}{}{}", op.as_str(), inner.trim());
    }
    let line = expr.to_string();
    let is_long = line.len() > LINE_BYTES_MAX;
    match &expr.kind {
        // As upstream, which forgets the indent here.
        ExprKind::Subquery(_) if !is_long => line,
        _ if !is_long => format!("{indent}{line}"),
        ExprKind::Subquery(subquery) => {
            let inner = write_pretty(&subquery.expr, level);
            format!("{inner}{}", SubquerySuffix(subquery))
        }
        ExprKind::Call(call) => {
            let args: Vec<String> = call
                .args
                .iter()
                .map(|arg| write_pretty(arg, level + 1))
                .collect();
            format!(
                "{indent}{}(\n{}\n{indent})",
                call.function.name,
                args.join(",\n")
            )
        }
        ExprKind::Aggregate(aggregate) => {
            let mut out = format!("{indent}{}(\n", AggregateHead(aggregate));
            if let Some(param) = &aggregate.param {
                out.push_str(&write_pretty(param, level + 1));
                out.push_str(",\n");
            }
            out.push_str(&write_pretty(&aggregate.expr, level + 1));
            format!("{out}\n{indent})")
        }
        ExprKind::Binary(binary) => format!(
            "{}\n{indent}{}\n{}",
            write_pretty(&binary.left, level + 1),
            BinaryHead(binary),
            write_pretty(&binary.right, level + 1)
        ),
        ExprKind::Paren(inner) => {
            format!("{indent}(\n{}\n{indent})", write_pretty(inner, level + 1))
        }
        _ => format!("{indent}{line}"),
    }
}
