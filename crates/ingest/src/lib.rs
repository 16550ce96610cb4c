//! The write pipeline: decoding, limits, validation; scraping.
