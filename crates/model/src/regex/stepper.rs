//! An automaton that is led through values byte by byte.
//!
//! Sorted values share their beginnings. Whoever keeps the states of the value before begins where
//! the next one differs, and passes over all that begin as one did that can match no more.

use super::compile;
use super::tree::Node;
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
}

/// Where a [`Stepper`] stands behind some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(StateID);

impl Stepper {
    /// The automaton of `tree`, unless it or building it takes more than `bytes_max`.
    pub(super) fn new(tree: &Node, bytes_max: usize) -> Option<Self> {
        let nfa = Compiler::new()
            .configure(compile::limits().which_captures(WhichCaptures::None))
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
        Some(Self { dfa, start })
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
