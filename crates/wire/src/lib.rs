//! Bytes to the data model: remote write, exposition text. No IO, no clock.
