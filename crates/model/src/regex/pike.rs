//! A program run over a value for what its groups match: all its ways at once, the preferred one
//! first, as R. Pike did it.
//!
//! Invariant: everything is allocated when the engine is made, by the length of the program; a
//! value costs at most its length times that.

use super::program::{Inst, Program, Side, first_char};
use crate::budget::Reservation;
use crate::cancel::Cancel;

/// A bound of a group that was not met.
const UNSET: u32 = u32::MAX;

/// The program and its working lists.
#[derive(Debug)]
pub(super) struct Pike {
    program: Program,
    now: Threads,
    next: Threads,
    open: Vec<Open>,
    bounds: Vec<u32>,
    cancel: Cancel,
    _memory: Reservation,
}

/// What is still to be followed.
#[derive(Debug)]
enum Open {
    /// This place.
    Place(u32),
    /// What a bound was before the places above were followed.
    Bound(u32, u32),
}

/// Places that wait for a character, the preferred one first, each with its bounds.
#[derive(Debug)]
struct Threads {
    places: Vec<u32>,
    bounds: Vec<u32>,
    /// A bit for each place: whether it was followed.
    seen: Vec<u64>,
}

/// Bytes that the engine of a program of `len` instructions with `groups` groups takes.
pub(super) fn bytes(len: u64, groups: usize) -> usize {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let bounds = bounds_count(groups).saturating_mul(size_of::<u32>());
    let list = bounds.saturating_add(size_of::<u32>() + 1);
    let each = list.saturating_mul(2) + size_of::<Inst>() + 2 * size_of::<Open>();
    len.saturating_mul(each)
}

fn bounds_count(groups: usize) -> usize {
    2 * (groups + 1)
}

impl Pike {
    /// Runs `program`, which has groups up to `groups`; `memory` holds [`bytes`].
    pub fn new(program: Program, groups: usize, memory: Reservation, cancel: Cancel) -> Self {
        let len = program.insts.len();
        let threads = || Threads {
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
            cancel,
            _memory: memory,
        }
    }

    /// Where each group starts and ends in `value`, the whole being group 0, if all of it matches.
    pub fn captures(&mut self, value: &[u8]) -> Option<Vec<Option<(usize, usize)>>> {
        self.bounds.fill(UNSET);
        self.next.clear();
        let mut at = 0;
        self.follow(0, (Side::Edge, side_of(value)), 0);
        std::mem::swap(&mut self.now, &mut self.next);
        while let Some((c, length)) = first_char(&value[at..]) {
            // The caller looks at the flag too.
            if self.now.places.is_empty() || self.cancel.reason().is_some() {
                return None;
            }
            at += length;
            let sides = (Side::of(c), side_of(&value[at..]));
            self.next.clear();
            for number in 0..self.now.places.len() {
                let place = self.now.places[number];
                if self.program.takes(self.program.insts[place as usize], c) {
                    let width = self.bounds.len();
                    let own = &self.now.bounds[number * width..][..width];
                    self.bounds.copy_from_slice(own);
                    self.follow(place + 1, sides, at as u32);
                }
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
        self.found(value.len())
    }

    /// The bounds of the preferred way that got to the end.
    fn found(&self, end: usize) -> Option<Vec<Option<(usize, usize)>>> {
        let is_match = |place: &u32| matches!(self.program.insts[*place as usize], Inst::Match);
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

    /// Adds to the next threads what can be reached from `place` without a character.
    fn follow(&mut self, place: u32, (before, behind): (Side, Side), at: u32) {
        self.open.push(Open::Place(place));
        while let Some(open) = self.open.pop() {
            let place = match open {
                Open::Place(place) => place,
                Open::Bound(bound, was) => {
                    self.bounds[bound as usize] = was;
                    continue;
                }
            };
            if !self.next.visit(place) {
                continue;
            }
            match self.program.insts[place as usize] {
                Inst::Jump(to) => self.open.push(Open::Place(to)),
                Inst::Try(other) => {
                    self.open.push(Open::Place(other));
                    self.open.push(Open::Place(place + 1));
                }
                Inst::Prefer(other) => {
                    self.open.push(Open::Place(place + 1));
                    self.open.push(Open::Place(other));
                }
                Inst::Save(bound) => {
                    let was = std::mem::replace(&mut self.bounds[bound as usize], at);
                    self.open.push(Open::Bound(bound, was));
                    self.open.push(Open::Place(place + 1));
                }
                Inst::Look(look) => {
                    if Side::holds(look, before, behind) {
                        self.open.push(Open::Place(place + 1));
                    }
                }
                Inst::Char(_) | Inst::Any | Inst::Class(_) | Inst::Match => {
                    self.next.places.push(place);
                    self.next.bounds.extend_from_slice(&self.bounds);
                }
            }
        }
    }
}

impl Threads {
    fn clear(&mut self) {
        self.places.clear();
        self.bounds.clear();
        self.seen.fill(0);
    }

    /// Notes that `place` is followed; returns whether it was not before.
    fn visit(&mut self, place: u32) -> bool {
        let (word, bit) = (place as usize / 64, 1 << (place % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

fn side_of(rest: &[u8]) -> Side {
    first_char(rest).map_or(Side::Edge, |(c, _)| Side::of(c))
}
