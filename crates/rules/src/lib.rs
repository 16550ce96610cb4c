//! Recording and alerting rules: rule files, schedule, evaluation and the states of alerts.
//!
//! ```text
//! file        what is written, checked
//! rule, group what is written, ready to run; dependencies between rules
//! alert(s)    the alerts of a rule and their transitions
//! schedule    which instant comes next
//! order       which group makes up for what it missed first
//! machine     a group as it runs: events in, actions out
//! journal     what outlives the process, over the disk of an Env
//! template    texts of labels and annotations
//! notification what is sent of an alert, and the queue before a receiver
//! ```
//!
//! Nothing here reads a clock, starts a thread or knows HTTP: time and events come in, actions go
//! out. The binary asks, stores, waits and sends.

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
pub mod rule;
pub mod schedule;
pub mod template;
pub mod view;
