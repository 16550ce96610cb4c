//! A memory budget that many holders share, without any of them being able to use all of it. A
//! holder can grow up to the amount of memory that is still free. A single holder therefore gets at
//! most half of the budget, and any number of large ones leave space for small ones.

use firn_model::budget::{Budget, Reservation};
use firn_model::error::{Error, ErrorKind};

/// Memory is reserved in multiples of this size.
const STEP_BYTES: usize = 64 << 10;

/// Memory of one holder, which is released when this value is dropped.
#[derive(Debug)]
pub struct MemoryShare {
    budget: Budget,
    held: Reservation,
    what: &'static str,
}

impl MemoryShare {
    /// Creates an empty share of `budget`. Error texts contain `what` as the name of the content.
    pub fn new(budget: &Budget, what: &'static str) -> Result<Self, Error> {
        Ok(Self {
            held: budget.reserve(0)?,
            budget: budget.clone(),
            what,
        })
    }

    /// Grows the share to at least `bytes`. Fails with [`ErrorKind::Limited`] if too little memory
    /// is free.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Error> {
        let held = self.held.bytes();
        if bytes <= held {
            return Ok(());
        }
        let more = (bytes - held).next_multiple_of(STEP_BYTES);
        let free = self
            .budget
            .limit_bytes()
            .saturating_sub(self.budget.used_bytes());
        if held + more > free {
            let message = format!(
                "{} too large: {bytes} bytes, {free} bytes are free for all targets",
                self.what
            );
            return Err(Error::new(ErrorKind::Limited, message));
        }
        self.held.grow(more)
    }

    /// Releases the memory in excess of `bytes`, so that other holders can use it.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.held.bytes() {
            self.held.shrink_to(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_greedy_holders_leave_room_for_small_ones() {
        let budget = Budget::new("all", 64 << 20);
        let mut greedy: Vec<MemoryShare> = (0..4)
            .map(|_| MemoryShare::new(&budget, "body").unwrap())
            .collect();
        for bytes in (0..64 << 20).step_by(STEP_BYTES) {
            for share in &mut greedy {
                // A share that cannot grow further remains as it is.
                let _ = share.grow_to(bytes);
            }
        }
        let mut small = MemoryShare::new(&budget, "body").unwrap();
        small.grow_to(8 << 20).unwrap();
        let e = greedy[0].grow_to(64 << 20).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Limited);
        assert!(
            e.message.starts_with("body too large: 67108864 bytes, "),
            "{e}"
        );
        drop(greedy);
        small.shrink_to(1 << 20);
        assert_eq!(budget.used_bytes(), 1 << 20);
    }
}
