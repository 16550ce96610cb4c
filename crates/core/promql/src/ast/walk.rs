//! Traversal of the syntax tree: types of nodes, children and visitors.

use super::{BinaryExpr, Expr, ExprKind, PositionRange, ValueType};
use crate::depth::ensure_stack;

impl Expr {
    /// Creates a node of the given kind at a position of the query text.
    pub fn new(kind: ExprKind, span: PositionRange) -> Self {
        Self { kind, span }
    }

    /// Returns the type of the expression. The type of an operator follows from its operands;
    /// O(height of the tree).
    pub fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number(_) => ValueType::Scalar,
            ExprKind::String(_) => ValueType::String,
            ExprKind::Vector(_) | ExprKind::Aggregate(_) => ValueType::Vector,
            ExprKind::Matrix(_) | ExprKind::Subquery(_) => ValueType::Matrix,
            ExprKind::Call(call) => call.function.returns,
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => inner.value_type(),
            // Check the right side first, because most chains of operators grow to the left.
            ExprKind::Binary(binary) => ensure_stack(|| {
                let mut sides = [&binary.right, &binary.left].into_iter();
                let are_scalars = sides.all(|side| side.value_type() == ValueType::Scalar);
                if are_scalars {
                    ValueType::Scalar
                } else {
                    ValueType::Vector
                }
            }),
        }
    }

    /// Returns an empty placeholder for a node that was moved out of the tree.
    fn placeholder() -> Self {
        Self::new(ExprKind::String(Vec::new()), PositionRange::default())
    }

    /// Returns the expression inside any number of parentheses, or the expression itself.
    pub fn without_parens(&self) -> &Expr {
        let mut expr = self;
        while let ExprKind::Paren(inner) = &expr.kind {
            expr = inner;
        }
        expr
    }

    /// Calls `visit` with each direct child in a fixed order: operands from left to right, and the
    /// parameter of an aggregation after its operand.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        ensure_stack(|| match &self.kind {
            ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::Vector(_)
            | ExprKind::Matrix(_) => {}
            ExprKind::Subquery(subquery) => visit(&subquery.expr),
            ExprKind::Call(call) => call.args.iter().for_each(visit),
            ExprKind::Aggregate(aggregate) => {
                visit(&aggregate.expr);
                aggregate.param.iter().for_each(visit);
            }
            ExprKind::Binary(binary) => {
                visit(&binary.left);
                visit(&binary.right);
            }
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => visit(inner),
        });
    }

    /// Calls `visit` with each direct child and permits changes. The order is that of
    /// [`Expr::for_each_child`].
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        ensure_stack(|| match &mut self.kind {
            ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::Vector(_)
            | ExprKind::Matrix(_) => {}
            ExprKind::Subquery(subquery) => visit(&mut subquery.expr),
            ExprKind::Call(call) => call.args.iter_mut().for_each(visit),
            ExprKind::Aggregate(aggregate) => {
                visit(&mut aggregate.expr);
                aggregate.param.iter_mut().for_each(visit);
            }
            ExprKind::Binary(binary) => {
                visit(&mut binary.left);
                visit(&mut binary.right);
            }
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => visit(inner),
        });
    }

    /// Calls `visit` with this node and all its descendants, parents before children.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.for_each_child(&mut |child| child.visit(visit));
    }
}

impl Clone for Expr {
    fn clone(&self) -> Self {
        Self::new(ensure_stack(|| self.kind.clone()), self.span)
    }
}

impl Drop for BinaryExpr {
    fn drop(&mut self) {
        let take = |side: &mut Expr| std::mem::replace(side, Expr::placeholder());
        let sides = (take(&mut self.left), take(&mut self.right));
        ensure_stack(|| drop(sides));
    }
}
