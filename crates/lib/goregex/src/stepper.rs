//! An automaton that is moved through values byte by byte.
//!
//! Sorted values have common prefixes. The caller retains the states of the previous value and
//! continues where the next value differs. It skips all values with a prefix after which no match
//! is possible.

use super::compile;
use super::tree::RegexNode;
use crate::limits::{RegexLimits, RegexMemory};
use regex_automata::dfa::dense;
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::nfa::thompson::{Compiler, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use std::sync::Arc;

/// The automaton of a pattern, in a form without shared mutable state.
#[derive(Debug)]
pub struct RegexStepper {
    dfa: dense::DFA<Vec<u32>>,
    start: RegexStepperState,
    _memory: RegexMemory,
}

/// The state of a [`RegexStepper`] after some bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegexStepperState(StateID);

impl RegexStepper {
    /// Creates the automaton of `tree`. Returns `None` if the automaton or its construction needs
    /// more than `bytes_max`, or if this memory cannot be reserved.
    pub(super) fn new(
        tree: &RegexNode,
        bytes_max: usize,
        limits: &Arc<dyn RegexLimits>,
    ) -> Option<Self> {
        // States over bytes, and the automaton twice: during its construction, and the result.
        let mut memory = RegexMemory::reserve(limits, 3 * bytes_max).ok()?;
        let nfa = Compiler::new()
            .configure(compile::size_limits(bytes_max).which_captures(WhichCaptures::None))
            .build_from_hir(&compile::anchor(tree))
            .ok()?;
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .match_kind(MatchKind::All)
            .accelerate(false)
            .dfa_size_limit(Some(bytes_max))
            .determinize_size_limit(Some(bytes_max));
        let dfa = dense::Builder::new()
            .configure(config)
            .build_from_nfa(&nfa)
            .ok()?;
        let start = start::Config::new().anchored(Anchored::Yes);
        let start = RegexStepperState(dfa.start_state(&start).ok()?);
        memory.shrink_to(dfa.memory_usage());
        Some(Self {
            dfa,
            start,
            _memory: memory,
        })
    }

    /// Returns the state before the first byte of a value.
    pub fn start(&self) -> RegexStepperState {
        self.start
    }

    /// Returns the state after one more byte, by a table look-up.
    #[inline]
    pub fn step(&self, state: RegexStepperState, byte: u8) -> RegexStepperState {
        RegexStepperState(self.dfa.next_state(state.0, byte))
    }

    /// Returns whether no value with this prefix matches, so that the caller can skip them.
    #[inline]
    pub fn is_dead(&self, state: RegexStepperState) -> bool {
        self.dfa.is_dead_state(state.0)
    }

    /// Returns whether a value that ends in this state matches.
    #[inline]
    pub fn is_accepting(&self, state: RegexStepperState) -> bool {
        self.dfa.is_match_state(self.dfa.next_eoi_state(state.0))
    }
}
