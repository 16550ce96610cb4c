//! Runs a program on a value to find the matches of groups. It follows all alternatives at the same
//! time, in order of preference, like the virtual machine of R. Pike.
//!
//! Invariant: all memory is allocated when the engine is created, proportional to the length of the
//! program. Matching a value takes at most the product of both lengths.

use super::program::{NeighborCharKind, RegexInstruction, RegexProgram, first_char};
use crate::limits::{RegexLimits, RegexMemory};
use std::sync::Arc;

/// The position of a group bound that was not reached.
const UNSET: u32 = u32::MAX;

/// A program with its working memory, which is reused for all values.
#[derive(Debug)]
pub(super) struct PikeMatcher {
    program: RegexProgram,
    now: PikeThreads,
    next: PikeThreads,
    open: Vec<PikeStackEntry>,
    bounds: Vec<u32>,
    limits: Arc<dyn RegexLimits>,
    _memory: RegexMemory,
}

/// An entry on the stack of instructions to follow.
#[derive(Debug)]
enum PikeStackEntry {
    /// An instruction to follow, by its index.
    Place(u32),
    /// A group bound and the value to restore after the instructions above were followed.
    Bound(u32, u32),
}

/// The instructions that wait for a character in order of preference, each with the group bounds of
/// its path.
#[derive(Debug)]
struct PikeThreads {
    places: Vec<u32>,
    bounds: Vec<u32>,
    /// One bit per instruction: true if it was followed.
    seen: Vec<u64>,
}

/// Returns the memory of the engine in bytes, for a program of `len` instructions with `groups`
/// groups.
pub(super) fn memory_bytes(len: u64, groups: usize) -> usize {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let bounds = bounds_count(groups).saturating_mul(size_of::<u32>());
    let list = bounds.saturating_add(size_of::<u32>() + 1);
    let each =
        list.saturating_mul(2) + size_of::<RegexInstruction>() + 2 * size_of::<PikeStackEntry>();
    len.saturating_mul(each)
}

fn bounds_count(groups: usize) -> usize {
    2 * (groups + 1)
}

impl PikeMatcher {
    /// Creates an engine for `program`, whose groups are numbered up to `groups`. `memory` must
    /// contain [`memory_bytes`].
    pub fn new(
        program: RegexProgram,
        groups: usize,
        memory: RegexMemory,
        limits: Arc<dyn RegexLimits>,
    ) -> Self {
        let len = program.insts.len();
        let threads = || PikeThreads {
            places: Vec::with_capacity(len),
            bounds: Vec::with_capacity(len * bounds_count(groups)),
            seen: vec![0; len.div_ceil(64)],
        };
        Self {
            now: threads(),
            next: threads(),
            open: Vec::with_capacity(2 * len),
            bounds: vec![UNSET; bounds_count(groups)],
            program,
            limits,
            _memory: memory,
        }
    }

    /// Returns the start and end of each group in `value`, or `None` if the whole value does not
    /// match. Group 0 is the whole value.
    pub fn captures(&mut self, value: &[u8]) -> Option<Vec<Option<(usize, usize)>>> {
        self.bounds.fill(UNSET);
        self.next.clear();
        let mut at = 0;
        self.add_reachable(0, NeighborCharKind::Edge, side_of(value), 0);
        std::mem::swap(&mut self.now, &mut self.next);
        while let Some((c, length)) = first_char(&value[at..]) {
            // The caller checks the flag, too.
            if self.now.places.is_empty() || self.limits.check().is_err() {
                return None;
            }
            at += length;
            let before = NeighborCharKind::from_char(c);
            let behind = side_of(&value[at..]);
            self.next.clear();
            for number in 0..self.now.places.len() {
                let place = self.now.places[number];
                if self
                    .program
                    .can_match(self.program.insts[place as usize], c)
                {
                    let width = self.bounds.len();
                    let own = &self.now.bounds[number * width..][..width];
                    self.bounds.copy_from_slice(own);
                    self.add_reachable(place + 1, before, behind, at as u32);
                }
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
        self.group_bounds(value.len())
    }

    /// Returns the group bounds of the preferred path that reached the end.
    fn group_bounds(&self, end: usize) -> Option<Vec<Option<(usize, usize)>>> {
        let is_match =
            |place: &u32| matches!(self.program.insts[*place as usize], RegexInstruction::Match);
        let number = self.now.places.iter().position(is_match)?;
        let width = self.bounds.len();
        let bounds = &self.now.bounds[number * width..][..width];
        let mut groups: Vec<_> = bounds
            .chunks_exact(2)
            .map(|pair| (pair[1] != UNSET).then_some((pair[0] as usize, pair[1] as usize)))
            .collect();
        groups[0] = Some((0, end));
        Some(groups)
    }

    /// Adds all instructions that can be reached from `place` without a character to the next
    /// threads.
    fn add_reachable(
        &mut self,
        place: u32,
        before: NeighborCharKind,
        behind: NeighborCharKind,
        at: u32,
    ) {
        self.open.push(PikeStackEntry::Place(place));
        while let Some(open) = self.open.pop() {
            let place = match open {
                PikeStackEntry::Place(place) => place,
                PikeStackEntry::Bound(bound, was) => {
                    self.bounds[bound as usize] = was;
                    continue;
                }
            };
            if !self.next.visit(place) {
                continue;
            }
            match self.program.insts[place as usize] {
                RegexInstruction::Jump(to) => self.open.push(PikeStackEntry::Place(to)),
                RegexInstruction::Try(other) => {
                    self.open.push(PikeStackEntry::Place(other));
                    self.open.push(PikeStackEntry::Place(place + 1));
                }
                RegexInstruction::Prefer(other) => {
                    self.open.push(PikeStackEntry::Place(place + 1));
                    self.open.push(PikeStackEntry::Place(other));
                }
                RegexInstruction::Save(bound) => {
                    let was = std::mem::replace(&mut self.bounds[bound as usize], at);
                    self.open.push(PikeStackEntry::Bound(bound, was));
                    self.open.push(PikeStackEntry::Place(place + 1));
                }
                RegexInstruction::Look(look) => {
                    if NeighborCharKind::is_satisfied(look, before, behind) {
                        self.open.push(PikeStackEntry::Place(place + 1));
                    }
                }
                RegexInstruction::Char(_)
                | RegexInstruction::Any
                | RegexInstruction::Class(_)
                | RegexInstruction::Match => {
                    self.next.places.push(place);
                    self.next.bounds.extend_from_slice(&self.bounds);
                }
            }
        }
    }
}

impl PikeThreads {
    fn clear(&mut self) {
        self.places.clear();
        self.bounds.clear();
        self.seen.fill(0);
    }

    /// Marks `place` as followed. Returns whether it was not marked before.
    fn visit(&mut self, place: u32) -> bool {
        let (word, bit) = (place as usize / 64, 1 << (place % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

fn side_of(rest: &[u8]) -> NeighborCharKind {
    first_char(rest).map_or(NeighborCharKind::Edge, |(c, _)| {
        NeighborCharKind::from_char(c)
    })
}
