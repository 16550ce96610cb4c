//! Pages: each value is escaped for the place where it stands, as Go's `html/template` does it.
//!
//! ```text
//! trees -- plan --> trees of which each action ends in the escapers of its place
//!           |- context: where in a page a byte stands
//!           |- transition: where the text behind leads, by state
//!           |- text: what of a text is written
//!           `- pipeline: which commands an action gets
//! values -- escaper --> texts, when the page is made
//! ```
//!
//! Invariant: an action whose place is not known for certain is refused, and so is the page. A
//! definition is planned for each kind of place that it is called from, under a name of its own.
//! What a definition is planned for does not depend on values.

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

pub(super) use escaper::Escaper;
pub(super) use plan::escape;
