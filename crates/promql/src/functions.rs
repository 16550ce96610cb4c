//! The function table: one row a function, read by the parser, the type checker, the evaluator and
//! the documentation.

use crate::ast::ValueType;

/// Identifies a function to the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FunctionId {
    Abs,
}

/// A row of the table.
#[derive(Debug)]
pub struct Function {
    /// The name in PromQL.
    pub name: &'static str,
    /// Who it is for the evaluator.
    pub id: FunctionId,
    /// Types of the arguments; with `variadic` the last may be left out or repeated.
    pub args: &'static [ValueType],
    /// As upstream: 0 fixed, n up to n more optional ones, -1 any number.
    pub variadic: i32,
    /// The type of the result.
    pub returns: ValueType,
    /// Needs `promql-experimental-functions`.
    pub experimental: bool,
}
