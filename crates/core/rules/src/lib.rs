//! Recording and alerting rules: rule files, scheduling, evaluation and alert states.
//!
//! ```text
//! file         rule files: YAML read and validated
//! rule, group  parsed rules, ready to run; dependencies between rules
//! alert(s)     alerts of a rule and their transitions
//! schedule     next evaluation instant of a group
//! order        order in which groups catch up on missed evaluations
//! machine      a running group: events in, actions out
//! journal      state that survives restarts, on the disk of an Env
//! notification alerts for Alertmanagers, and the queue of each
//! preview      evaluation of one rule over the past, without effects
//! ```
//!
//! Templates of labels and annotations are expanded by [`firn_gotemplate`].
//!
//! The crate reads no clock, starts no threads and does no HTTP: time and events are inputs,
//! actions are outputs. The binary runs queries, stores samples, waits and sends notifications.

pub mod alert;
pub mod alerts;
pub mod dependencies;
pub mod editing;
pub mod file;
pub mod group;
pub mod instant;
pub mod journal;
pub mod machine;
pub mod notification;
pub mod order;
pub mod preview;
pub mod rule;
pub mod schedule;
pub mod view;
