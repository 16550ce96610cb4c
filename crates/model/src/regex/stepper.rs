//! An automaton that is led through values byte by byte.
//!
//! Sorted values share their beginnings. A stepper keeps the states of the value before and begins
//! where the next one differs; it passes over all values that begin as one that can match no more.

use super::compile;
use super::engine::Bounds;
use super::tree::Node;
use crate::budget::Reservation;
use regex_automata::dfa::dense;
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::nfa::thompson::{Compiler, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

/// The automaton of a pattern.
#[derive(Debug)]
pub struct Stepper {
    dfa: dense::DFA<Vec<u32>>,
    start: State,
    _memory: Reservation,
}

/// Where a [`Stepper`] stands behind some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(StateID);

impl Stepper {
    /// The automaton of `tree`, unless it or building it takes more than `bytes_max` or there is no
    /// room for that.
    pub(super) fn new(tree: &Node, bytes_max: usize, bounds: &Bounds) -> Option<Self> {
        // States over bytes, and the automaton twice: while it is made, and as it is.
        let mut memory = bounds.budget.reserve(3 * bytes_max).ok()?;
        let nfa = Compiler::new()
            .configure(compile::limits(bytes_max).which_captures(WhichCaptures::None))
            .build_from_hir(&compile::anchored(tree))
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
        let start = State(dfa.start_state(&start).ok()?);
        memory.shrink_to(dfa.memory_usage());
        Some(Self {
            dfa,
            start,
            _memory: memory,
        })
    }

    /// The state in front of a value.
    pub fn start(&self) -> State {
        self.start
    }

    /// The state behind one byte more.
    #[inline]
    pub fn step(&self, state: State, byte: u8) -> State {
        State(self.dfa.next_state(state.0, byte))
    }

    /// Whether no value that begins so matches.
    #[inline]
    pub fn is_dead(&self, state: State) -> bool {
        self.dfa.is_dead_state(state.0)
    }

    /// Whether a value that ends here matches.
    #[inline]
    pub fn accepts(&self, state: State) -> bool {
        self.dfa.is_match_state(self.dfa.next_eoi_state(state.0))
    }
}
