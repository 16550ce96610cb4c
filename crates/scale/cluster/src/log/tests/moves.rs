//! The moves of the model: everything that may happen next in a state.

use super::judge::judge;
use super::world::{COMMIT_TICKET, LEASE, NOW, Object, READ_TICKETS, World};
use crate::commit::BlockChange;
use crate::ids::{ClusterId, LogTicket, PartitionId};
use crate::log::{
    CommitRequest, CreateOutcome, HeadOutcome, LogCoreOptions, LogEvent, LogFlaw, LogReply,
    LogRequest, LogState, RecordAppend,
};
use crate::segment::{Segment, SegmentFrameKind};
use firn_model::log::LogPosition;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The size of a model: how many processes, keys and events there are.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub processes: usize,
    pub keys: usize,
    pub window: u32,
    pub records: u8,
    pub commits: u8,
    pub crashes: u8,
    pub hand_offs: u8,
    /// Takeovers, or the maximum for any number of them.
    pub takeovers: u8,
    /// Creates that may be late at the same time.
    pub late: usize,
    /// Creates that fail without being stored (409, 5xx).
    pub losses: u8,
    pub is_leased: bool,
    /// False if no strong reads arrive.
    pub has_reads: bool,
    /// True if replies whose time matters little are immediate: the list of a takeover after its
    /// first read of the checkpoint, HEADs of leaders with leases, and ticks after their time.
    pub is_brief: bool,
    /// True if the segments of a replay arrive one by one, in any order.
    pub is_replay_slow: bool,
    /// False if COMMITs after the first one do not cover anything.
    pub covers_all: bool,
    /// Moves before the search, by their names.
    pub begin: &'static [&'static str],
    pub flaw: Option<LogFlaw>,
}

impl Scenario {
    pub fn options(&self) -> Arc<LogCoreOptions> {
        Arc::new(LogCoreOptions {
            cluster: ClusterId(0),
            partition: PartitionId(0),
            window: self.window,
            lease: if self.is_leased {
                LEASE
            } else {
                Duration::ZERO
            },
            flush_interval: Duration::ZERO,
            segment_bytes: 1,
            queue_bytes: 1 << 10,
            flaw: self.flaw,
        })
    }
}

/// Collects the states that follow a state, and on demand the names of the moves.
pub struct Moves<'a> {
    scenario: &'a Scenario,
    options: &'a Arc<LogCoreOptions>,
    pub worlds: Vec<World>,
    pub names: Option<Vec<String>>,
}

impl<'a> Moves<'a> {
    pub fn new(scenario: &'a Scenario, options: &'a Arc<LogCoreOptions>, is_named: bool) -> Self {
        Self {
            scenario,
            options,
            worlds: Vec::new(),
            names: is_named.then(Vec::new),
        }
    }

    /// Adds the state after one move, unless it needs more keys than the scenario has.
    fn push(&mut self, name: impl FnOnce() -> String, mut world: World) {
        let keys = self.scenario.keys as u64;
        let is_beyond = |request: &LogRequest| match request {
            LogRequest::Create(segment) => segment.header.sequence.0 > keys,
            LogRequest::Head(sequence) => sequence.0 > keys,
            _ => false,
        };
        let mut requests = world.processes.iter().flat_map(|p| &p.requests);
        if requests.any(is_beyond) {
            return;
        }
        for i in 0..world.processes.len() {
            if world.is_done(i) {
                world.restart(i, self.options);
            }
        }
        judge(&mut world, self.scenario.window.into());
        self.worlds.push(world);
        if let Some(names) = &mut self.names {
            names.push(name());
        }
    }

    /// Adds all states that follow `world`.
    pub fn all(&mut self, world: &World) {
        for i in 0..world.processes.len() {
            self.process(world, i);
        }
        self.network(world);
        self.time(world);
    }

    fn process(&mut self, world: &World, i: usize) {
        let process = &world.processes[i];
        for at in 0..process.requests.len() {
            self.request(world, i, at);
        }
        match process.core.state() {
            LogState::Following => self.take_over(world, i),
            LogState::Leading { is_ready } => self.lead(world, i, is_ready),
            LogState::HandingOff => self.tick(world, i),
            _ => {}
        }
        if process.leads() {
            self.read(world, i);
        }
        if process.core.state() != LogState::Following
            && world.spent.crashes < self.scenario.crashes
        {
            self.crash(world, i);
        }
    }

    fn take_over(&mut self, world: &World, i: usize) {
        let is_limited = self.scenario.takeovers != u8::MAX;
        if world.spent.takeovers == self.scenario.takeovers {
            return;
        }
        let writer = world.unused_writer();
        let mut next = world.clone();
        next.spent.takeovers += u8::from(is_limited);
        next.event(i, LogEvent::TakeOver { writer });
        self.push(|| format!("{i} takes over"), next);
    }

    fn request(&mut self, world: &World, i: usize, at: usize) {
        let mut taken = world.clone();
        let request = Rc::make_mut(&mut taken.processes[i]).requests.remove(at);
        match &request {
            LogRequest::Create(segment) => self.create(&taken, i, segment),
            LogRequest::Head(sequence) => {
                let outcome = match taken.object(*sequence) {
                    Some(_) => HeadOutcome::Present,
                    None => HeadOutcome::Absent,
                };
                if self.scenario.is_brief && self.scenario.is_leased {
                    let sequence = *sequence;
                    taken.reply(i, LogReply::Headed { sequence, outcome });
                } else {
                    let process = Rc::make_mut(&mut taken.processes[i]);
                    process.headed = Some((*sequence, outcome));
                }
                self.push(|| format!("HEAD {sequence} of {i}: {outcome:?}"), taken);
            }
            _ => {
                taken.answer(i, &request);
                self.push(|| format!("{request:?} of {i}"), taken);
            }
        }
    }

    /// A create arrives, with or without a reply, or is late.
    fn create(&mut self, taken: &World, i: usize, segment: &Segment) {
        let object = Rc::new(Object::new(segment));
        let sequence = segment.header.sequence;
        let mut stored = taken.clone();
        let is_stored = stored.create(&object);
        let name = |what: &str| format!("create {sequence} of {i}: {what}");
        let mut next = stored.clone();
        if is_stored {
            next.created(i, sequence, CreateOutcome::Stored);
            self.push(|| name("stored"), next);
            stored.created(i, sequence, CreateOutcome::Ambiguous);
            self.push(|| name("stored, timeout"), stored);
        } else {
            next.created(i, sequence, CreateOutcome::Exists);
            self.push(|| name("exists"), next);
        }
        if taken.late.len() < self.scenario.late {
            let mut next = taken.clone();
            next.late.push(object);
            next.created(i, sequence, CreateOutcome::Ambiguous);
            self.push(|| name("late, timeout"), next);
        }
        if taken.spent.losses < self.scenario.losses {
            let mut next = taken.clone();
            next.spent.losses += 1;
            next.created(i, sequence, CreateOutcome::Ambiguous);
            self.push(|| name("lost"), next);
        }
    }

    fn lead(&mut self, world: &World, i: usize, is_ready: bool) {
        if !is_ready {
            self.tick(world, i);
        }
        let process = &world.processes[i];
        let room = process.core.room();
        let has_room = room.is_some_and(|key| key.0 <= self.scenario.keys as u64);
        if has_room && world.spent.records < self.scenario.records {
            self.append(world, i);
        }
        if has_room && world.spent.commits < self.scenario.commits {
            self.commit(world, i);
        }
        if world.spent.hand_offs < self.scenario.hand_offs {
            let mut next = world.clone();
            next.spent.hand_offs += 1;
            next.event(i, LogEvent::HandOff);
            self.push(|| format!("{i} hands off"), next);
        }
    }

    /// A tick, if it changes anything.
    fn tick(&mut self, world: &World, i: usize) {
        if world.processes[i].core.awaits_tick(NOW) {
            let mut next = world.clone();
            next.event(i, LogEvent::Tick);
            self.push(|| format!("tick of {i}"), next);
        }
    }

    fn append(&mut self, world: &World, i: usize) {
        let mut next = world.clone();
        let record = next.spent.records;
        next.spent.records += 1;
        next.epochs[usize::from(record)] = world.processes[i]
            .core
            .epoch()
            .map_or(0, |epoch| epoch.0 as u8);
        let append = RecordAppend {
            ticket: LogTicket(record.into()),
            kind: SegmentFrameKind::Record,
            payload: vec![0; usize::from(record) + 1],
            begins_unit: false,
        };
        next.event(i, LogEvent::Append(append));
        self.push(|| format!("{i} appends record {record}"), next);
    }

    fn commit(&mut self, world: &World, i: usize) {
        let mut next = world.clone();
        let covers = self.scenario.covers_all || next.spent.commits == 0;
        next.spent.commits += 1;
        let commit = CommitRequest {
            ticket: COMMIT_TICKET,
            change: BlockChange::default(),
            covered: LogPosition(if covers { u64::MAX } else { 0 }),
            begins_unit: true,
        };
        next.event(i, LogEvent::Commit(commit));
        self.push(|| format!("{i} commits"), next);
    }

    /// A strong read that is granted at once, or one that waits, and the reply to a HEAD.
    fn read(&mut self, world: &World, i: usize) {
        let process = &world.processes[i];
        let view = process.view();
        if process.core.is_leased(NOW) {
            if world.promises.seen | view != world.promises.seen {
                let mut next = world.clone();
                next.promises.seen |= view;
                self.push(|| format!("read at {i} shows {view:b}"), next);
            }
        } else if self.scenario.has_reads
            && matches!(process.core.state(), LogState::Leading { .. })
        {
            self.wait_for_read(world, i);
        }
        if let Some((sequence, outcome)) = process.headed {
            let mut next = world.clone();
            Rc::make_mut(&mut next.processes[i]).headed = None;
            next.reply(i, LogReply::Headed { sequence, outcome });
            self.push(|| format!("reply to HEAD {sequence} of {i}"), next);
        }
    }

    /// A read arrives. A second one arrives only if more was promised since the first.
    fn wait_for_read(&mut self, world: &World, i: usize) {
        let promised = world.promises.acked | world.promises.seen;
        // Leases are judged in all states.
        let needed = if self.scenario.is_leased { 0 } else { promised };
        let waiting = &world.processes[i].reads;
        let is_new = waiting.last().is_none_or(|read| read.1 != needed);
        let free = READ_TICKETS
            .iter()
            .find(|t| waiting.iter().all(|read| read.0 != **t));
        if let Some(ticket) = free.copied().filter(|_| is_new) {
            let mut next = world.clone();
            Rc::make_mut(&mut next.processes[i])
                .reads
                .push((ticket, needed));
            next.event(i, LogEvent::Read { ticket });
            self.push(|| format!("read at {i}"), next);
        }
    }

    /// A process ends. One of its creates may still arrive.
    fn crash(&mut self, world: &World, i: usize) {
        let mut crashed = world.clone();
        crashed.spent.crashes += 1;
        crashed.restart(i, self.options);
        if world.late.len() < self.scenario.late {
            for request in &world.processes[i].requests {
                if let LogRequest::Create(segment) = request {
                    let mut next = crashed.clone();
                    next.late.push(Rc::new(Object::new(segment)));
                    let sequence = segment.header.sequence;
                    self.push(|| format!("{i} crashes, create {sequence} is late"), next);
                }
            }
        }
        self.push(|| format!("{i} crashes"), crashed);
    }

    /// Late creates, deletions and checkpoints arrive.
    fn network(&mut self, world: &World) {
        for at in 0..world.late.len() {
            let mut next = world.clone();
            let object = next.late.remove(at);
            let is_stored = next.create(&object);
            let header = object.segment.header;
            let name = || format!("late create {}: {is_stored}", header.sequence);
            self.push(name, next);
        }
        for key in 1..world.objects.len() {
            if world.deleting & 1 << key != 0 {
                let mut next = world.clone();
                next.deleting &= !(1 << key);
                next.objects[key] = None;
                self.push(|| format!("delete {key}"), next);
            }
        }
        for at in 0..world.saving.len() {
            let mut next = world.clone();
            let (writer, saved) = next.saving.remove(at);
            next.saved.push(saved);
            let position = saved.head.position;
            let mut processes = world.processes.iter();
            if let Some(i) = processes.position(|p| p.core.writer == writer) {
                next.event(i, LogEvent::CheckpointStored { position });
            }
            let from = saved.head.replay_from.sequence;
            self.push(|| format!("checkpoint, replays from {from}"), next);
        }
    }

    /// All leases and waits that have begun end.
    fn time(&mut self, world: &World) {
        if !world.processes.iter().any(|process| process.is_fresh) {
            return;
        }
        let mut next = world.clone();
        for i in 0..next.processes.len() {
            if next.processes[i].is_fresh {
                let process = Rc::make_mut(&mut next.processes[i]);
                process.core.age(NOW);
                process.is_fresh = false;
            }
            if self.scenario.is_brief && next.processes[i].core.awaits_tick(NOW) {
                next.event(i, LogEvent::Tick);
            }
        }
        self.push(|| "time passes".to_owned(), next);
    }
}
