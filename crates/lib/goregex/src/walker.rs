//! Runs a program on values and caches its steps.
//!
//! ```text
//! state = the instructions that the program may have reached, and the character before them
//! (state, next character) -> state     computed when it occurs for the first time
//! ```
//!
//! This is a deterministic automaton of which only the parts exist that values have used.
//! Invariant: the cache takes at most [`REMEMBERED_BYTES_MAX`] plus one state. When it is full, it
//! is cleared, so that a character takes at most time proportional to the length of the program.
//! All other memory that grows is reserved before.

use super::program::{NeighborCharKind, RegexInstruction, RegexProgram, first_char};
use crate::limits::{RegexError, RegexLimits, RegexMemory};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Maximum size of the cached states and steps in bytes.
const REMEMBERED_BYTES_MAX: usize = 256 << 10;

/// Memory of a step in bytes, in a table with capacity for twice as many.
const STEP_BYTES: usize = 32;

/// Memory of a state in bytes, in addition to its instructions, in a list and a table with capacity
/// for twice as many.
const STATE_BYTES: usize = 160;

/// Number of instructions between two checks of the cancel flag.
const CANCEL_EACH: usize = 1 << 16;

/// The index of the state from which no value matches.
const DEAD: u32 = 0;

/// The state before the first character of a value.
const START: u32 = 1;

type Places = Arc<[u32]>;

/// A state: the instructions that a prefix of a value may have reached.
#[derive(Debug)]
struct LazyDfaState {
    places: Places,
    before: NeighborCharKind,
    /// Whether a value that ends here matches, if it has been computed.
    accepts: Option<bool>,
}

/// A program, and the cache of its states and steps.
#[derive(Debug)]
pub(super) struct LazyDfa {
    program: RegexProgram,
    has_looks: bool,
    states: Vec<LazyDfaState>,
    numbers: FxHashMap<(Places, NeighborCharKind), u32>,
    steps: FxHashMap<(u32, char), u32>,
    remembered_bytes: usize,
    /// Size of the largest state so far, in bytes.
    state_bytes_max: usize,
    work: LazyDfaScratch,
    failure: Option<RegexError>,
}

/// The working memory for computing a step, reused for all steps.
#[derive(Debug)]
struct LazyDfaScratch {
    /// One bit per instruction: true if it was visited.
    seen: Vec<u64>,
    visited: Vec<u32>,
    open: Vec<u32>,
    next: Vec<u32>,
    /// Number of instructions visited since the last check of the cancel flag.
    unchecked: usize,
    memory: RegexMemory,
    limits: Arc<dyn RegexLimits>,
}

/// Returns the initial memory of a walker in bytes, for a program of `len` instructions.
pub(super) fn memory_bytes(len: u64) -> usize {
    let insts = usize::try_from(len).unwrap_or(usize::MAX);
    let each = insts.saturating_mul(size_of::<RegexInstruction>());
    each.saturating_add(insts / 8 + REMEMBERED_BYTES_MAX)
}

impl LazyDfa {
    /// Creates a walker for `program`. `memory` must contain [`memory_bytes`] and grows as
    /// necessary.
    pub fn new(program: RegexProgram, memory: RegexMemory, limits: Arc<dyn RegexLimits>) -> Self {
        let has_looks = program
            .insts
            .iter()
            .any(|i| matches!(i, RegexInstruction::Look(_)));
        let mut walker = Self {
            has_looks,
            states: Vec::new(),
            numbers: FxHashMap::default(),
            steps: FxHashMap::default(),
            remembered_bytes: 0,
            state_bytes_max: 0,
            work: LazyDfaScratch {
                seen: vec![0; program.insts.len().div_ceil(64)],
                visited: Vec::new(),
                open: Vec::new(),
                next: Vec::new(),
                unchecked: 0,
                memory,
                limits,
            },
            failure: None,
            program,
        };
        walker.clear_cache();
        walker
    }

    /// Returns the reason why the walker failed, if it did. All results since then are invalid.
    pub fn failure(&self) -> Option<&RegexError> {
        self.failure.as_ref()
    }

    /// Returns whether the whole `value` matches. False if the walker has failed.
    pub fn is_match(&mut self, value: &[u8]) -> bool {
        if self.failure.is_some() {
            return false;
        }
        self.walk(value).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            false
        })
    }

    fn walk(&mut self, value: &[u8]) -> Result<bool, RegexError> {
        let mut state = START;
        let mut rest = value;
        while let Some((c, length)) = first_char(rest) {
            rest = &rest[length..];
            state = match self.steps.get(&(state, c)) {
                Some(next) => *next,
                None => self.step(state, c)?,
            };
            if state == DEAD {
                return Ok(false);
            }
        }
        self.is_accepting(state)
    }

    /// Computes the state that `c` leads to from `state`, and adds it to the cache.
    fn step(&mut self, state: u32, c: char) -> Result<u32, RegexError> {
        let LazyDfaState { places, before, .. } = &self.states[state as usize];
        let (places, before) = (places.clone(), *before);
        let behind = NeighborCharKind::from_char(c);
        self.work
            .visit(&self.program, places, before, behind, Some(c))?;
        let next = &mut self.work.next;
        next.sort_unstable();
        next.dedup();
        let before = if self.has_looks {
            NeighborCharKind::from_char(c)
        } else {
            NeighborCharKind::Other
        };
        let places: Places = next.as_slice().into();
        if self.remembered_bytes > REMEMBERED_BYTES_MAX {
            self.clear_cache();
            return self.state_number(places, before);
        }
        let next = self.state_number(places, before)?;
        self.steps.insert((state, c), next);
        self.remembered_bytes += STEP_BYTES;
        Ok(next)
    }

    fn state_number(
        &mut self,
        places: Places,
        before: NeighborCharKind,
    ) -> Result<u32, RegexError> {
        if places.is_empty() {
            return Ok(DEAD);
        }
        let key = (places, before);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let bytes = STATE_BYTES + size_of_val(&*key.0);
        self.work
            .memory
            .grow(bytes.saturating_sub(self.state_bytes_max))?;
        self.state_bytes_max = self.state_bytes_max.max(bytes);
        self.remembered_bytes += bytes;
        Ok(self.add(key))
    }

    fn add(&mut self, key: (Places, NeighborCharKind)) -> u32 {
        let number = self.states.len() as u32;
        self.states.push(LazyDfaState {
            places: key.0.clone(),
            before: key.1,
            accepts: None,
        });
        self.numbers.insert(key, number);
        number
    }

    /// Clears the cache, except the dead state and the start state.
    fn clear_cache(&mut self) {
        self.states.clear();
        self.numbers.clear();
        self.steps.clear();
        self.remembered_bytes = 0;
        self.add((Arc::new([]), NeighborCharKind::Other));
        self.add((Arc::new([0]), NeighborCharKind::Edge));
    }

    fn is_accepting(&mut self, state: u32) -> Result<bool, RegexError> {
        let LazyDfaState {
            places,
            before,
            accepts,
        } = &mut self.states[state as usize];
        if let Some(known) = accepts {
            return Ok(*known);
        }
        let (places, before) = (places.clone(), *before);
        let behind = NeighborCharKind::Edge;
        let found = self
            .work
            .visit(&self.program, places, before, behind, None)?;
        *accepts = Some(found);
        Ok(found)
    }
}

impl LazyDfaScratch {
    /// Visits all instructions that can be reached from `places` without a character, and writes
    /// the instructions after `c` to `next`. Returns whether the end of the program was reached.
    fn visit(
        &mut self,
        program: &RegexProgram,
        places: Places,
        before: NeighborCharKind,
        behind: NeighborCharKind,
        c: Option<char>,
    ) -> Result<bool, RegexError> {
        self.next.clear();
        let mut is_match = false;
        for place in places.iter() {
            self.open(*place)?;
            while let Some(place) = self.open.pop() {
                let inst = program.insts[place as usize];
                match inst {
                    RegexInstruction::Match => is_match = true,
                    RegexInstruction::Jump(to) => self.open(to)?,
                    RegexInstruction::Save(_) => self.open(place + 1)?,
                    RegexInstruction::Try(other) | RegexInstruction::Prefer(other) => {
                        self.open(other)?;
                        self.open(place + 1)?;
                    }
                    RegexInstruction::Look(look)
                        if NeighborCharKind::is_satisfied(look, before, behind) =>
                    {
                        self.open(place + 1)?;
                    }
                    RegexInstruction::Look(_) => {}
                    _ if c.is_some_and(|c| program.can_match(inst, c)) => {
                        push(&mut self.next, place + 1, &mut self.memory)?;
                    }
                    _ => {}
                }
            }
        }
        for place in self.visited.drain(..) {
            self.seen[place as usize / 64] = 0;
        }
        Ok(is_match)
    }

    /// Adds `place` to the instructions to visit, unless it was visited before.
    fn open(&mut self, place: u32) -> Result<(), RegexError> {
        let (word, bit) = (place as usize / 64, 1 << (place % 64));
        if self.seen[word] & bit != 0 {
            return Ok(());
        }
        self.unchecked += 1;
        if self.unchecked > CANCEL_EACH {
            self.unchecked = 0;
            self.limits.check()?;
        }
        self.seen[word] |= bit;
        push(&mut self.visited, place, &mut self.memory)?;
        push(&mut self.open, place, &mut self.memory)
    }
}

/// Appends to a list. Its capacity is reserved before it grows.
fn push(list: &mut Vec<u32>, place: u32, memory: &mut RegexMemory) -> Result<(), RegexError> {
    if list.len() == list.capacity() {
        let more = list.capacity().max(64);
        memory.grow(more * size_of::<u32>())?;
        list.reserve_exact(more);
    }
    list.push(place);
    Ok(())
}
