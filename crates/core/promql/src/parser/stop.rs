//! The reason why a grammar rule stopped, and the positions in its errors.

use crate::ast::PositionRange;
use crate::lexer::PromqlToken;
use crate::syntax_error::QuerySyntaxError;

/// The reason why a grammar rule stopped. Rules pass it on with `?`.
#[derive(Debug)]
pub(super) enum ParseStop {
    /// An error with a message and a position, which is final.
    Failed(QuerySyntaxError),
    /// An unexpected token. An enclosing rule may add the expected token to the message.
    Unexpected(PromqlToken),
    /// The memory limit was reached. The message contains the limit.
    Limited(String),
}

impl From<QuerySyntaxError> for ParseStop {
    fn from(error: QuerySyntaxError) -> Self {
        ParseStop::Failed(error)
    }
}

pub(super) type Parsed<T> = Result<T, ParseStop>;

pub(super) fn fail<T>(at: usize, message: impl Into<String>) -> Parsed<T> {
    Err(QuerySyntaxError::new(at, message).into())
}

pub(super) fn span(start: usize, end: usize) -> PositionRange {
    PositionRange {
        start: start as u32,
        end: end as u32,
    }
}
