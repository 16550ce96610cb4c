//! Recording and alerting rules: rule files, schedule, evaluation and the states of alerts.
//!
//! Nothing here does IO, reads a clock or knows HTTP: time and events come in, actions go out.

pub mod alert;
pub mod file;
pub mod instant;
pub mod notification;
pub mod template;
