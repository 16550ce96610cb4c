//! The search: all states of a scenario, breadth first, each once.
//!
//! A state is known by a hash of 64 bits. Identifiers of writers are hashed by the order of their
//! appearance, and processes in the order of their own hashes, so that states that differ only in
//! names are one.

use super::judge::describe;
use super::moves::{Moves, Scenario};
use super::world::World;
use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    pub states: usize,
    pub depth: usize,
    /// States in which two processes lead.
    pub two_leaders: usize,
    /// The first broken invariant, and the moves to it.
    pub violation: Option<(String, String)>,
}

/// Searches a scenario, up to a number of states.
pub fn search(scenario: &Scenario, states_max: usize) -> Found {
    let options = scenario.options();
    let first = first(scenario);
    let mut known: HashSet<u64, BuildHasherDefault<NoHash>> = HashSet::default();
    known.insert(hash(&first));
    // The parent of each state in the order of their discovery, and the number of the move.
    let mut parents: Vec<(u32, u16)> = vec![(0, 0)];
    let mut open = VecDeque::from([(first, 0u32, 0usize)]);
    let mut found = Found {
        states: 1,
        depth: 0,
        two_leaders: 0,
        violation: None,
    };
    let mut moves = Moves::new(scenario, &options, false);
    while let Some((world, at, depth)) = open.pop_front() {
        found.depth = depth;
        let leaders = world.processes.iter().filter(|p| p.leads()).count();
        found.two_leaders += usize::from(leaders > 1);
        moves.all(&world);
        for (number, next) in moves.worlds.drain(..).enumerate() {
            if !known.insert(hash(&next)) {
                continue;
            }
            parents.push((at, number as u16));
            let at = parents.len() as u32 - 1;
            if let Some(text) = &next.violation {
                found.states = known.len();
                found.depth = depth + 1;
                found.violation = Some((text.clone(), trace(scenario, &parents, at)));
                return found;
            }
            open.push_back((next, at, depth + 1));
        }
        assert!(
            known.len() < states_max,
            "limit of {states_max} states: {found:?}"
        );
    }
    found.states = known.len();
    found
}

/// Returns the state from which a scenario is searched.
fn first(scenario: &Scenario) -> World {
    let options = scenario.options();
    let mut first = World::new(&options, scenario.processes, scenario.keys);
    first.is_brief = scenario.is_brief;
    first.is_replay_slow = scenario.is_replay_slow;
    for name in scenario.begin {
        let mut moves = Moves::new(scenario, &options, true);
        moves.all(&first);
        let mut names = moves.names.iter().flatten();
        let number = names.position(|found| found == name);
        let number = number.unwrap_or_else(|| panic!("{name:?} is none of {:?}", moves.names));
        first = moves.worlds.swap_remove(number);
    }
    first
}

/// Repeats the moves to a state, and names them.
fn trace(scenario: &Scenario, parents: &[(u32, u16)], mut at: u32) -> String {
    let mut numbers = Vec::new();
    while at != 0 {
        let (parent, number) = parents[at as usize];
        numbers.push(number);
        at = parent;
    }
    let options = scenario.options();
    let mut world = first(scenario);
    let mut text = String::new();
    for number in numbers.iter().rev() {
        let mut moves = Moves::new(scenario, &options, true);
        moves.all(&world);
        world = moves.worlds.swap_remove(usize::from(*number));
        let name = moves.names.map(|names| names[usize::from(*number)].clone());
        let objects = describe(&world.objects);
        let _ = writeln!(text, "{:<60}|{objects}", name.unwrap_or_default());
    }
    text
}

fn hash(world: &World) -> u64 {
    let mut hasher = WorldHasher::default();
    world.objects.hash(&mut hasher);
    // Earlier checkpoints are not read any more, except through planted flaws.
    world.newest().hash(&mut hasher);
    world.saving.hash(&mut hasher);
    world.deleting.hash(&mut hasher);
    world.late.hash(&mut hasher);
    (world.epochs, world.promises, world.spent).hash(&mut hasher);
    world.violation.is_some().hash(&mut hasher);
    let rank = |i: usize| {
        let process = &world.processes[i];
        let id = hasher.known(process.core.writer.0);
        (
            id,
            std::mem::discriminant(&process.core.state),
            process.created,
        )
    };
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(world.processes.len());
    for i in 0..world.processes.len() {
        let mut ranked = hasher.clone();
        rank(i).hash(&mut ranked);
        order.push((ranked.finish(), i));
    }
    order.sort_unstable();
    if order.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        for (rank, i) in &mut order {
            let mut whole = hasher.clone();
            world.processes[*i].hash(&mut whole);
            *rank = whole.finish();
        }
        order.sort_unstable();
    }
    for (_, i) in order {
        world.processes[i].hash(&mut hasher);
    }
    hasher.finish()
}

/// A hasher that replaces identifiers of writers (the only numbers of 128 bits) by the order in
/// which they occur.
#[derive(Clone, Default)]
struct WorldHasher {
    state: u64,
    ids: [u128; 12],
    count: usize,
}

impl WorldHasher {
    /// The order of a writer, if it has occurred.
    fn known(&self, id: u128) -> Option<usize> {
        self.ids[..self.count].iter().position(|known| *known == id)
    }

    fn add(&mut self, word: u64) {
        const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let mixed = u128::from(self.state ^ word).wrapping_mul(ODD);
        self.state = ((mixed >> 64) as u64 ^ mixed as u64).rotate_left(29) ^ word.wrapping_mul(31);
    }
}

impl Hasher for WorldHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.add(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.add(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.add(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }

    fn write_u128(&mut self, n: u128) {
        let at = self.known(n).unwrap_or_else(|| {
            self.ids[self.count] = n;
            self.count += 1;
            self.count - 1
        });
        self.add(1 << 40 | at as u64);
    }

    fn finish(&self) -> u64 {
        let mixed = u128::from(self.state ^ 0x5bd1_e995).wrapping_mul(0xd6e8_feb8_6659_fd93_u128);
        (mixed >> 64) as u64 ^ mixed as u64
    }
}

/// Uses a number that is a hash already.
#[derive(Default)]
struct NoHash(u64);

impl Hasher for NoHash {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
