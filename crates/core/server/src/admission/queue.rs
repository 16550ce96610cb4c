//! The places of running queries, and a waiting queue that is fair between clients.
//!
//! ```text
//! enter: a place is free ------------------------------------> Place (number below the limit)
//!        all in use --> the client's line --its turn---------> Place
//!                         | future dropped: leaves the line
//!                         ` queue full and this line longest: refused
//! place returned: next client's turn, round-robin
//! ```
//!
//! A client is a tenant. Without tenants it is the source address of the connection, for IPv6 its
//! first 64 bits, which are assigned to one client. All clients behind one proxy share one line,
//! and all rules share another.
//!
//! Invariants: a place has at most one holder; no query waits while a place is free; a client with
//! one query waits for at most one query of each other client, however many those have queued. The
//! caller enforces the deadline by dropping the future.

use firn_model::tenant::TenantId;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Client with a line of its own in the queue. Lines take turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueClient {
    Tenant(TenantId),
    /// All rule evaluations of the server together.
    Rules,
    /// Source address; `None` for requests without a socket.
    Address(Option<IpAddr>),
}

impl QueueClient {
    /// Returns the client for an address. IPv6 addresses are reduced to their /64 network.
    pub(crate) fn from_address(address: Option<IpAddr>) -> Self {
        const NETWORK: u128 = !0 << 64;
        QueueClient::Address(address.map(|address| match address.to_canonical() {
            IpAddr::V6(long) => IpAddr::V6((long.to_bits() & NETWORK).into()),
            short => short,
        }))
    }
}

/// Error: the queue is full, and the client has the longest line in it. Contains the numbers for
/// the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query queue is full: {waiting} queries wait, limit {waiting_max}")]
pub(crate) struct QueueFull {
    waiting: usize,
    waiting_max: usize,
}

/// The places and the waiting queue, protected by one lock. Cheap to clone; clones share the same
/// state.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue(Arc<Mutex<FairQueueState>>);

#[derive(Debug)]
struct FairQueueState {
    free: Vec<usize>,
    waiting_max: usize,
    waiting: usize,
    /// Clients with waiting queries, in the order of their turns.
    turns: VecDeque<QueueClient>,
    lines: HashMap<QueueClient, VecDeque<QueueWaiter>>,
    next_id: u64,
}

#[derive(Debug)]
struct QueueWaiter {
    id: u64,
    /// Receives the place; dropped if the waiter is refused.
    place: oneshot::Sender<usize>,
}

/// A place for a running query. Dropping it passes the place to the next waiting query.
#[derive(Debug)]
pub(crate) struct QueryPermit {
    queue: FairQueue,
    number: usize,
}

impl QueryPermit {
    /// Returns the number of the place, which is below the number of places and unique among
    /// running queries.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        self.queue.state().pass_place(self.number);
    }
}

impl FairQueue {
    /// Creates a queue with `places` free places and room for `waiting_max` waiting queries.
    pub(crate) fn new(places: usize, waiting_max: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueueState {
            // The lowest numbers are used first.
            free: (0..places).rev().collect(),
            waiting_max,
            waiting: 0,
            turns: VecDeque::new(),
            lines: HashMap::new(),
            next_id: 0,
        })))
    }

    /// Waits for a place in the line of `client`. Dropping the future leaves the line. Returns an
    /// error if the queue is full.
    pub(crate) async fn enter(&self, client: QueueClient) -> Result<QueryPermit, QueueFull> {
        let place = |number| QueryPermit {
            queue: self.clone(),
            number,
        };
        let mut waiting = match self.state().take_or_wait(client.clone()) {
            Ok(number) => return Ok(place(number)),
            Err((id, receiver)) => QueuedQuery {
                queue: self,
                client,
                id,
                receiver,
            },
        };
        let number = (&mut waiting.receiver).await;
        number.map(place).map_err(|_| self.state().full())
    }

    fn state(&self) -> MutexGuard<'_, FairQueueState> {
        // No code under this lock panics between dependent changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FairQueueState {
    /// Returns a free place, or adds a waiter to the end of the client's line.
    fn take_or_wait(
        &mut self,
        client: QueueClient,
    ) -> Result<usize, (u64, oneshot::Receiver<usize>)> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let (place, receiver) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let line = self.lines.entry(client.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(client);
        }
        line.push_back(QueueWaiter { id, place });
        self.waiting += 1;
        if self.waiting > self.waiting_max {
            self.refuse_one();
        }
        Err((id, receiver))
    }

    /// Refuses the last waiter of the longest line, so that clients with few waiting queries do not
    /// suffer from those with many.
    fn refuse_one(&mut self) {
        let longest = self.lines.iter().max_by_key(|(_, line)| line.len());
        let last = longest.and_then(|(client, line)| Some((client.clone(), line.back()?.id)));
        if let Some((client, id)) = last {
            self.remove_waiter(&client, id);
        }
    }

    /// Passes a place to the next client's first waiter, or marks it as free.
    fn pass_place(&mut self, number: usize) {
        while let Some(client) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&client) else {
                continue;
            };
            let waiter = line.pop_front();
            if line.is_empty() {
                drop(self.lines.remove(&client))
            } else {
                self.turns.push_back(client)
            }
            let Some(waiter) = waiter else { continue };
            self.waiting -= 1;
            // Fails if the waiter is being dropped; then the next one gets the place.
            if waiter.place.send(number).is_ok() {
                return;
            }
        }
        self.free.push(number);
    }

    /// Removes a waiter from its line; does nothing if it is in none.
    fn remove_waiter(&mut self, client: &QueueClient, id: u64) {
        let Some(line) = self.lines.get_mut(client) else {
            return;
        };
        let Some(at) = line.iter().position(|waiter| waiter.id == id) else {
            return;
        };
        line.remove(at);
        self.waiting -= 1;
        if line.is_empty() {
            self.lines.remove(client);
            self.turns.retain(|other| other != client);
        }
    }

    fn full(&self) -> QueueFull {
        QueueFull {
            waiting: self.waiting,
            waiting_max: self.waiting_max,
        }
    }
}

/// A query in a line. Leaves the line when it is dropped, or returns a place that it was already
/// given.
struct QueuedQuery<'a> {
    queue: &'a FairQueue,
    client: QueueClient,
    id: u64,
    receiver: oneshot::Receiver<usize>,
}

impl Drop for QueuedQuery<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.remove_waiter(&self.client, self.id);
        // A place that was already passed to this waiter goes to the next one.
        self.receiver.close();
        if let Ok(number) = self.receiver.try_recv() {
            state.pass_place(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    type Entering = std::pin::Pin<Box<dyn Future<Output = Result<QueryPermit, QueueFull>>>>;

    fn client(name: &str) -> QueueClient {
        QueueClient::Tenant(TenantId::new(name).unwrap())
    }

    fn enter(queue: &FairQueue, name: &str) -> Entering {
        let (queue, client) = (queue.clone(), client(name));
        let mut entering: Entering = Box::pin(async move { queue.enter(client).await });
        assert!(poll(&mut entering).is_none(), "{name} is not in the queue");
        entering
    }

    fn poll(entering: &mut Entering) -> Option<Result<QueryPermit, QueueFull>> {
        match pin!(entering).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn place(queue: &FairQueue, name: &str) -> QueryPermit {
        let entering = queue.enter(client(name));
        match pin!(entering).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place.unwrap(),
            Poll::Pending => panic!("no place is free"),
        }
    }

    /// Passes the only place of a queue to one waiter after the other. Returns the names in order.
    fn order(held: QueryPermit, waiters: Vec<(&'static str, Entering)>) -> String {
        let (mut held, mut waiters, mut order) = (Some(held), waiters, String::new());
        while !waiters.is_empty() {
            drop(held.take());
            let ready = waiters.iter_mut().enumerate();
            let mut ready = ready.filter_map(|(i, (_, e))| poll(e).map(|place| (i, place)));
            let (at, place) = ready.next().expect("a waiter has its turn");
            assert!(ready.next().is_none(), "one place, two holders");
            held = Some(place.unwrap());
            order += waiters.remove(at).0;
        }
        order
    }

    #[test]
    fn queue_serves_clients_in_turn_and_each_in_order() {
        let queue = FairQueue::new(1, 100);
        let held = place(&queue, "a");
        let names = ["a", "a", "a", "b", "c", "b", "a"];
        let waiters = names.map(|name| (name, enter(&queue, name)));
        assert_eq!(order(held, waiters.into()), "abcabaa");
        assert_eq!(queue.state().waiting, 0);
        assert!(queue.state().lines.is_empty());
        assert_eq!(queue.state().free, [0]);
    }

    #[test]
    fn waiter_that_goes_leaves_its_line_and_its_place() {
        let queue = FairQueue::new(1, 100);
        let held = place(&queue, "a");
        let (first, second) = (enter(&queue, "a"), enter(&queue, "b"));
        let third = enter(&queue, "c");
        drop(second);
        assert_eq!(queue.state().waiting, 2);
        drop(held);
        // The first waiter was given the place, and is dropped before it polls again.
        drop(first);
        assert_eq!(order(place_of(third), Vec::new()), "");
        assert_eq!(queue.state().free, [0]);
    }

    fn place_of(mut entering: Entering) -> QueryPermit {
        poll(&mut entering).expect("its turn").unwrap()
    }

    #[test]
    fn queue_that_is_full_refuses_the_last_of_the_longest_line() {
        let queue = FairQueue::new(1, 3);
        let held = place(&queue, "a");
        let waiters: Vec<_> = (0..3).map(|_| ("a", enter(&queue, "a"))).collect();
        let mut waiters = waiters;
        let b = enter(&queue, "b");
        let refused = poll(&mut waiters[2].1).expect("it is refused");
        let full = refused.unwrap_err();
        assert_eq!(
            full.to_string(),
            "query queue is full: 3 queries wait, limit 3"
        );
        waiters.truncate(2);
        waiters.push(("b", b));
        let mut a = enter_refused(&queue, "a");
        assert!(matches!(poll(&mut a), Some(Err(_))));
        assert_eq!(order(held, waiters), "aba");
    }

    fn enter_refused(queue: &FairQueue, name: &str) -> Entering {
        let (queue, client) = (queue.clone(), client(name));
        Box::pin(async move { queue.enter(client).await })
    }

    #[test]
    fn client_of_an_address_is_its_network_in_ipv6() {
        let at = |text: &str| QueueClient::from_address(Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:3"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
