//! The engine that matches values with a tree. It is built when the first value is matched, and its
//! memory is accounted for.
//!
//! Small trees use the automata of `regex-automata`, which process bytes; a class of a thousand
//! ranges needs a thousand states there. Trees that would need more than [`AUTOMATON_BYTES_MAX`]
//! are compiled to a program over characters, whose size can be computed in advance.
//!
//! Invariant: for any tree, building takes only memory that was reserved before, and at most about
//! ten milliseconds.

use super::compile;
use super::program::{self, RegexProgram};
use super::tree::RegexNode;
use super::walker::{self, LazyDfa};
use crate::limits::{RegexError, RegexLimits, RegexMemory, lock};
use regex_automata::meta;
use std::sync::{Arc, Mutex};

/// Maximum size of the states of an automaton in bytes: ten thousand characters of alternatives, or
/// ten letters of any script.
pub(super) const AUTOMATON_BYTES_MAX: usize = 1 << 20;

/// Maximum size of the cache of an automaton in bytes, in each of two directions.
pub(super) const REMEMBERED_BYTES_MAX: usize = 256 << 10;

/// Maximum length of the program of a tree for which an automaton is tried.
const AUTOMATON_LEN_MAX: u64 = 16 << 10;

/// Maximum height of a tree for which an automaton is tried. Its compiler recurses with several
/// stack frames per level, which must fit in the stack of a thread also without optimization.
const AUTOMATON_HEIGHT_MAX: usize = 250;

/// Maximum number of ranges in a tree for which an automaton is tried.
const AUTOMATON_RANGES_MAX: usize = 8 << 10;

/// The engine of a pattern, selected by the size of its tree.
#[derive(Debug)]
pub(super) enum RegexEngine {
    /// An automaton over bytes, for small trees.
    Automaton {
        automaton: Box<meta::Regex>,
        limits: Arc<dyn RegexLimits>,
        _memory: RegexMemory,
    },
    /// A program over characters, for large trees. The lock protects its cache.
    Walker(Box<Mutex<LazyDfa>>),
}

impl RegexEngine {
    /// Creates the engine of `tree`. Fails if the memory cannot be reserved.
    pub fn new(tree: &RegexNode, limits: &Arc<dyn RegexLimits>) -> Result<Self, RegexError> {
        let len = program::len(tree);
        // If there is not enough memory for an automaton, it may suffice for a program.
        if let Some(bytes) = automaton_bytes_max(tree, len)
            && let Ok(mut memory) = RegexMemory::reserve(limits, bytes)
            && let Ok(automaton) = compile::compile_without_captures(tree)
        {
            memory.shrink_to(automaton.memory_usage() + 2 * REMEMBERED_BYTES_MAX);
            return Ok(Self::Automaton {
                automaton: Box::new(automaton),
                limits: limits.clone(),
                _memory: memory,
            });
        }
        let memory = RegexMemory::reserve(limits, walker::memory_bytes(len))?;
        let program = RegexProgram::new(tree, false);
        let walker = LazyDfa::new(program, memory, limits.clone());
        Ok(Self::Walker(Box::new(Mutex::new(walker))))
    }

    /// Returns whether the whole `value` matches. An engine that failed matches nothing.
    pub fn is_match(&self, value: &[u8]) -> bool {
        match self {
            Self::Automaton { automaton, .. } => automaton.is_match(value),
            Self::Walker(walker) => lock(walker).is_match(value),
        }
    }

    /// Returns an error if the engine has failed because it was canceled or had not enough memory.
    pub fn check(&self) -> Result<(), RegexError> {
        match self {
            Self::Automaton { .. } => Ok(()),
            Self::Walker(walker) => lock(walker).failure().cloned().map_or(Ok(()), Err),
        }
    }
}

/// Returns the maximum memory for building an automaton of `tree` in bytes, or `None` if an
/// automaton is not tried.
pub(super) fn automaton_bytes_max(tree: &RegexNode, len: u64) -> Option<usize> {
    /// The minimum memory of an automaton, regardless of its pattern.
    const LEAST_BYTES: usize = 64 << 10;
    /// The maximum memory per instruction or range, in both directions.
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
