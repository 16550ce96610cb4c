//! Arithmetic on floats and dates, independent of series, steps and histograms.

pub(crate) mod dates;
pub(crate) mod float;
pub(crate) mod integers;
pub(crate) mod operators;
pub(crate) mod quotient;
pub(crate) mod trig;
