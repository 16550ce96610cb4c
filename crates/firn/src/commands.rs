//! The subcommands other than `serve`: each reads its arguments, does its work, and returns an exit
//! code.

pub mod check;
pub mod query;
pub mod script;
pub mod tsdb;
