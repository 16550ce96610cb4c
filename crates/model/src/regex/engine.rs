//! What compares values with a tree that needs an automaton: built when the first value comes, and
//! counted.
//!
//! Small trees get the automata of `regex-automata`, which work on bytes; a class of a thousand
//! ranges is a thousand states there. What would take more than [`AUTOMATON_BYTES_MAX`] is a
//! program over characters instead, whose size is known before it is made.
//!
//! Invariant: whatever the tree, building takes no memory that was not reserved before and some
//! ten milliseconds at most beside what is reserved.

use super::compile;
use super::program::{self, Program};
use super::tree::Node;
use super::walker::{self, Walker};
use crate::budget::{Budget, Reservation};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::sync::lock;
use regex_automata::meta;
use std::sync::Mutex;

/// Bytes that the states of an automaton may take: ten thousand characters of alternatives, or ten
/// letters of any script.
pub(super) const AUTOMATON_BYTES_MAX: usize = 1 << 20;

/// Bytes that what an automaton remembers may take, in each of two directions.
pub(super) const REMEMBERED_BYTES_MAX: usize = 256 << 10;

/// The longest program of a tree of which an automaton is tried.
const AUTOMATON_LEN_MAX: u64 = 16 << 10;

/// The highest tree of which an automaton is tried: its compiler recurses several frames a level
/// and must fit in the stack of a thread, also without optimisation.
const AUTOMATON_HEIGHT_MAX: usize = 250;

/// Ranges of a tree of which an automaton is tried.
const AUTOMATON_RANGES_MAX: usize = 8 << 10;

/// What an engine may use, and what tells it to stop.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub budget: Budget,
    pub cancel: Cancel,
}

impl Bounds {
    /// No bounds: for patterns of the config.
    pub fn none() -> Self {
        Self {
            budget: Budget::new("pattern", usize::MAX),
            cancel: Cancel::new(),
        }
    }
}

/// The engine.
#[derive(Debug)]
pub(super) enum Engine {
    /// Over bytes.
    Automaton {
        automaton: Box<meta::Regex>,
        bounds: Bounds,
        _memory: Reservation,
    },
    /// Over characters.
    Walker(Box<Mutex<Walker>>),
}

impl Engine {
    /// The engine of `tree`; fails if it may not take what it needs.
    pub fn new(tree: &Node, bounds: &Bounds) -> Result<Self, Error> {
        let len = program::len(tree);
        // Where there is no room for an automaton there may be some for a program.
        if let Some(bytes) = automaton_bytes_max(tree, len)
            && let Ok(mut memory) = bounds.budget.reserve(bytes)
            && let Ok(automaton) = compile::without_captures(tree)
        {
            memory.shrink_to(automaton.memory_usage() + 2 * REMEMBERED_BYTES_MAX);
            return Ok(Self::Automaton {
                automaton: Box::new(automaton),
                bounds: bounds.clone(),
                _memory: memory,
            });
        }
        let memory = bounds.budget.reserve(walker::bytes(len))?;
        let program = Program::new(tree, false);
        let walker = Walker::new(program, memory, bounds.cancel.clone());
        Ok(Self::Walker(Box::new(Mutex::new(walker))))
    }

    /// Whether all of `value` matches; of an engine that failed, nothing does.
    pub fn is_match(&self, value: &[u8]) -> bool {
        match self {
            Self::Automaton { automaton, .. } => automaton.is_match(value),
            Self::Walker(walker) => lock(walker).is_match(value),
        }
    }

    /// Fails if the engine has: it was told to stop, or there was no more memory.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Automaton { .. } => Ok(()),
            Self::Walker(walker) => lock(walker).failure().cloned().map_or(Ok(()), Err),
        }
    }
}

/// What building an automaton of `tree` may take, if one is tried at all.
pub(super) fn automaton_bytes_max(tree: &Node, len: u64) -> Option<usize> {
    /// What an automaton takes whatever its pattern.
    const LEAST_BYTES: usize = 64 << 10;
    /// What an instruction or a range may come to, in both directions.
    const EACH_BYTES: usize = 512;
    let ranges = tree.ranges_count();
    if len > AUTOMATON_LEN_MAX
        || ranges > AUTOMATON_RANGES_MAX
        || tree.height() > AUTOMATON_HEIGHT_MAX
    {
        return None;
    }
    let each = (len as usize + ranges) * EACH_BYTES;
    let most = 2 * AUTOMATON_BYTES_MAX;
    Some(LEAST_BYTES + each.min(most) + 2 * REMEMBERED_BYTES_MAX)
}
