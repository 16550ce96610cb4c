//! A crew of threads that help whoever calls [`Crew::for_each`].
//!
//! A call offers seats; a helper that is free takes one and does tasks of the call beside its
//! caller. Invariants: each task is done once; nobody touches the caller's closure once `for_each`
//! has returned or unwound; a caller waits for helpers that took a seat, and for no other. The last
//! is why this is no scope of a thread pool: such a scope ends when all helpers that it asked for
//! have come, and to wake one takes as long as a part of a query.
//!
//! How many helpers a call should have, and what its tasks do, is left to the callers.

use crate::sync::{lock, wait};
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, Thread};

/// The helpers. They end when this is dropped.
pub(super) struct Crew {
    board: Arc<Board>,
    helpers: usize,
}

/// What tasks are.
type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// Where calls and helpers meet.
#[derive(Default)]
struct Board {
    seats: Mutex<Seats>,
    /// Notified for each seat that is offered.
    offered: Condvar,
    /// As many as are free, for those who look without the lock.
    free: AtomicUsize,
}

#[derive(Default)]
struct Seats {
    /// The oldest first. A call is here once for each helper that it still wants.
    free: VecDeque<Arc<Call>>,
    is_over: bool,
}

/// Tasks to do.
struct Call {
    /// Valid as long as the caller is in `for_each`, which is as long as a helper has a seat.
    task: *const Task<'static>,
    tasks: usize,
    /// The task that is begun next.
    next: AtomicUsize,
    /// Seats of it that are free.
    free: AtomicUsize,
    /// Helpers who have a seat.
    seated: AtomicUsize,
    caller: Thread,
    /// What a helper's task panicked with.
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the pointer is to a closure that is `Sync`; all else is `Send` and `Sync` by itself.
#[allow(unsafe_code)]
unsafe impl Send for Call {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Call {}

impl Crew {
    /// Starts `helpers` threads with stacks of `stack_bytes`.
    pub(super) fn new(helpers: usize, stack_bytes: usize) -> io::Result<Self> {
        let crew = Self {
            board: Arc::default(),
            helpers,
        };
        for number in 0..helpers {
            let board = crew.board.clone();
            thread::Builder::new()
                .name(format!("firn-compute-{number}"))
                .stack_size(stack_bytes)
                .spawn(move || board.help())?;
        }
        Ok(crew)
    }

    /// Calls `task(0..tasks)`, begun in order, on the thread that asks and on `helpers` others at
    /// most; returns when all are done. If a task panics, so does this, once nobody is at a task.
    pub(super) fn for_each(&self, tasks: usize, helpers: usize, task: &Task<'_>) {
        let helpers = helpers.min(self.helpers).min(tasks.saturating_sub(1));
        if helpers == 0 {
            return (0..tasks).for_each(task);
        }
        // SAFETY: this only forgets how long the closure lives, which `Open` keeps in mind.
        #[allow(unsafe_code)]
        let task = unsafe { std::mem::transmute::<&Task<'_>, &Task<'static>>(task) };
        let call = Arc::new(Call {
            task,
            tasks,
            next: AtomicUsize::new(0),
            free: AtomicUsize::new(helpers),
            seated: AtomicUsize::new(0),
            caller: thread::current(),
            panicked: Mutex::default(),
        });
        let open = Open {
            board: &self.board,
            call: &call,
        };
        self.board.offer(&call);
        call.work(|| false);
        drop(open);
        let panicked = lock(&call.panicked).take();
        if let Some(payload) = panicked {
            panic::resume_unwind(payload);
        }
    }
}

impl Drop for Crew {
    /// None has a seat: callers borrow the crew.
    fn drop(&mut self) {
        lock(&self.board.seats).is_over = true;
        self.board.offered.notify_all();
    }
}

impl Board {
    fn offer(&self, call: &Arc<Call>) {
        let count = call.free.load(Ordering::Relaxed);
        let mut seats = lock(&self.seats);
        seats.free.extend((0..count).map(|_| call.clone()));
        self.free.store(seats.free.len(), Ordering::Relaxed);
        drop(seats);
        (0..count).for_each(|_| self.offered.notify_one());
    }

    /// Takes back the seats of a call that are free.
    fn withdraw(&self, call: &Arc<Call>) {
        let mut seats = lock(&self.seats);
        seats.free.retain(|other| !Arc::ptr_eq(other, call));
        self.free.store(seats.free.len(), Ordering::Relaxed);
    }

    /// What a helper does all its life. Behind each task it goes to whom else wants a helper; seats
    /// of the same call are for others, who may be about to wake up.
    fn help(&self) {
        while let Some(call) = self.seat() {
            let free = |seats: &AtomicUsize| seats.load(Ordering::Relaxed);
            let work = || call.work(|| free(&self.free) > free(&call.free));
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) {
                *lock(&call.panicked) = Some(payload);
            }
            // What the tasks wrote is there for whoever sees the seat free.
            if call.seated.fetch_sub(1, Ordering::Release) == 1 {
                call.caller.unpark();
            }
        }
    }

    /// Waits for a seat and takes it; `None` if there will be none.
    fn seat(&self) -> Option<Arc<Call>> {
        let mut seats = lock(&self.seats);
        while !seats.is_over {
            if let Some(call) = seats.free.pop_front() {
                self.free.store(seats.free.len(), Ordering::Relaxed);
                call.free.fetch_sub(1, Ordering::Relaxed);
                // Under the lock, so that whoever withdraws the others sees it.
                call.seated.fetch_add(1, Ordering::Relaxed);
                return Some(call);
            }
            seats = wait(&self.offered, seats);
        }
        None
    }
}

impl Call {
    /// Does tasks until none is left or, behind one, `is_wanted_elsewhere`.
    fn work(&self, is_wanted_elsewhere: impl Fn() -> bool) {
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= self.tasks {
                return;
            }
            // SAFETY: who works here is the caller itself or has a seat.
            #[allow(unsafe_code)]
            let task = unsafe { &*self.task };
            task(at);
            if is_wanted_elsewhere() {
                return;
            }
        }
    }
}

/// A call that helpers may take seats of. Dropped, be it by a panic of the caller's task, it waits
/// until nobody has one or can take one; tasks that were not begun then never are.
struct Open<'a> {
    board: &'a Board,
    call: &'a Arc<Call>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.call.next.store(self.call.tasks, Ordering::Relaxed);
        self.board.withdraw(self.call);
        while self.call.seated.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    const STACK_BYTES: usize = 1 << 20;

    fn crew(helpers: usize) -> Crew {
        Crew::new(helpers, STACK_BYTES).unwrap()
    }

    #[test]
    fn for_each_beside_other_callers_does_each_task_once() {
        let crew = crew(3);
        thread::scope(|scope| {
            for caller in 0..6 {
                let crew = &crew;
                scope.spawn(move || {
                    for round in 0..300 {
                        let tasks = (caller * 7 + round) % 40;
                        let done: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        crew.for_each(tasks, round % 5, &|at| {
                            done[at].fetch_add(1, Ordering::Relaxed);
                        });
                        let done: Vec<_> = done.into_iter().map(AtomicUsize::into_inner).collect();
                        assert_eq!(done, vec![1; tasks]);
                    }
                });
            }
        });
        assert!(lock(&crew.board.seats).free.is_empty());
    }

    #[test]
    fn for_each_with_two_tasks_that_meet_is_done_by_two_threads() {
        let crew = crew(1);
        let both = Barrier::new(2);
        for _ in 0..200 {
            crew.for_each(2, 1, &|_| {
                both.wait();
            });
        }
    }

    #[test]
    fn helper_leaves_the_other_seats_of_its_call_to_others() {
        let crew = crew(3);
        for _ in 0..200 {
            // All four are at a task at once only if none of them took two seats.
            let (first, all) = (Barrier::new(2), Barrier::new(4));
            crew.for_each(6, 3, &|at| {
                match at {
                    0 | 1 => first.wait(),
                    _ => all.wait(),
                };
            });
        }
    }

    #[test]
    fn for_each_whose_helper_is_busy_ends_without_it() {
        let crew = crew(1);
        let (began, is_done) = (Barrier::new(2), Barrier::new(2));
        let is_helping = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let caller = thread::current().id();
                // The helper is held up in a task until the other call is over. It may come too
                // late for a call, which then asks again.
                while !is_helping.load(Ordering::Acquire) {
                    crew.for_each(2, 1, &|_| {
                        let is_helper = thread::current().id() != caller;
                        if is_helper && !is_helping.swap(true, Ordering::AcqRel) {
                            began.wait();
                            is_done.wait();
                        }
                        let is_alone = || !is_helping.load(Ordering::Acquire);
                        (0..1_000)
                            .take_while(|_| is_alone())
                            .for_each(|_| thread::yield_now());
                    });
                }
            });
            began.wait();
            let me = thread::current().id();
            crew.for_each(9, 1, &|_| assert_eq!(thread::current().id(), me));
            is_done.wait();
        });
    }

    #[test]
    fn task_that_panics_panics_its_caller_when_no_other_is_at_work() {
        let crew = crew(2);
        for panicking in 0..8 {
            let at_work = AtomicUsize::new(0);
            let task = |at: usize| {
                at_work.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                at_work.fetch_sub(1, Ordering::SeqCst);
                assert_ne!(at, panicking, "the task that fails");
            };
            let call = || crew.for_each(8, 2, &task);
            assert!(panic::catch_unwind(AssertUnwindSafe(call)).is_err());
            assert_eq!(at_work.into_inner(), 0);
        }
        let done = AtomicUsize::new(0);
        crew.for_each(3, 2, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 3);
    }
}
