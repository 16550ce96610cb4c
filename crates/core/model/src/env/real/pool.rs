//! The compute threads: a thread pool that supports the callers of [`ComputePool::for_each`].
//!
//! A caller starts the first task itself, and idle threads of the pool participate. Tasks are
//! started in order. A call returns after all its helpers have run, even if they find no remaining
//! task.
//!
//! Invariants: each task runs once, and no thread runs a task of a call that has returned or
//! panicked.

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread pool. Its threads end when it is dropped.
pub(super) struct ComputePool {
    threads: ThreadPool,
    /// Number of helpers that were requested and have not started yet.
    awaited: AtomicUsize,
}

impl ComputePool {
    /// Starts `threads` threads, but at least one, with stacks of `stack_bytes`.
    pub(super) fn new(threads: usize, stack_bytes: usize) -> io::Result<Self> {
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|number| format!("firn-compute-{number}"))
            .stack_size(stack_bytes)
            .build()
            .map_err(io::Error::other)?;
        Ok(Self {
            threads,
            awaited: AtomicUsize::new(0),
        })
    }

    /// Calls `task(0..tasks)` in order, on the calling thread and up to `helpers` other threads.
    /// Returns when all tasks have finished. If a task panics, this function panics after all
    /// threads have left their tasks.
    pub(super) fn for_each(&self, tasks: usize, helpers: usize, task: &(dyn Fn(usize) + Sync)) {
        let helpers = helpers.min(tasks.saturating_sub(1));
        if helpers == 0 {
            return (0..tasks).for_each(task);
        }
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < tasks);
        let help = || {
            self.awaited.fetch_sub(1, Ordering::Relaxed);
            while let Some(at) = take() {
                task(at);
                // Another call waits for a helper.
                if self.awaited.load(Ordering::Relaxed) > 0 {
                    return;
                }
            }
        };
        self.threads.in_place_scope(|scope| {
            self.awaited.fetch_add(helpers, Ordering::Relaxed);
            (0..helpers).for_each(|_| scope.spawn(|_| help()));
            while let Some(at) = take() {
                task(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::Barrier;
    use std::thread;

    fn pool(threads: usize) -> ComputePool {
        ComputePool::new(threads, 1 << 20).unwrap()
    }

    #[test]
    fn for_each_beside_other_callers_does_each_task_once() {
        let pool = pool(3);
        thread::scope(|scope| {
            for caller in 0..6 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..300 {
                        let tasks = (caller * 7 + round) % 40;
                        let done: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        pool.for_each(tasks, round % 4, &|at| {
                            done[at].fetch_add(1, Ordering::Relaxed);
                        });
                        let done: Vec<_> = done.into_iter().map(AtomicUsize::into_inner).collect();
                        assert_eq!(done, vec![1; tasks]);
                    }
                });
            }
        });
        assert_eq!(pool.awaited.into_inner(), 0);
    }

    #[test]
    fn for_each_with_two_tasks_that_meet_is_done_by_two_threads() {
        let pool = pool(1);
        let both = Barrier::new(2);
        for _ in 0..200 {
            pool.for_each(2, 1, &|_| {
                both.wait();
            });
        }
    }

    #[test]
    fn task_that_panics_panics_its_caller_when_no_other_is_at_work() {
        let pool = pool(2);
        for panicking in 0..8 {
            let at_work = AtomicUsize::new(0);
            let task = |at: usize| {
                at_work.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                at_work.fetch_sub(1, Ordering::SeqCst);
                assert_ne!(at, panicking, "the task that fails");
            };
            let call = || pool.for_each(8, 2, &task);
            assert!(panic::catch_unwind(AssertUnwindSafe(call)).is_err());
            assert_eq!(at_work.into_inner(), 0);
        }
        let done = AtomicUsize::new(0);
        pool.for_each(3, 2, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 3);
    }
}
