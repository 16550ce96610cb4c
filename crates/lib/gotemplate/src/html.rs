//! Contextual escaping of console pages, like Go's `html/template`: each value is escaped for its
//! context in the document.
//!
//! ```text
//! trees -- plan --> trees in which each action ends with the escapers of its context
//!           |- context: state of the HTML, CSS or JavaScript parser at a position
//!           |- transition: next state after literal text
//!           |- text: removal of comments from literal text
//!           `- pipeline: insertion of escapers into an action
//! values -- escaper --> escaped text, when the page is rendered
//! ```
//!
//! Invariant: an action with an ambiguous context is an error of the whole page. A definition is
//! planned separately for each context in which it is called, under a derived name. The plan does
//! not depend on values.

mod attribute;
mod context;
mod entity;
mod escaper;
mod pipeline;
mod plan;
#[cfg(test)]
mod tests;
mod text;
mod transition;

pub(super) use escaper::HtmlEscaper;
pub(super) use plan::escape;
