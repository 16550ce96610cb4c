//! Password checks: results are cached under a keyed hash. Other passwords are checked with bcrypt,
//! one at a time on a blocking thread.
//!
//! ```text
//! password -> cached? -> yes: result immediately
//!                     -> no: waits in the queue -> bcrypt -> result is cached
//! ```
//!
//! The queue alternates between the newest and the oldest entry. Taking the newest helps a
//! legitimate client during an attack: attackers that wait for each answer leave this place free,
//! so its first password is checked next. Taking the oldest guarantees progress for all.
//!
//! Invariant: at most one core computes hashes, and at most [`WAITING_MAX`] passwords wait; further
//! ones replace the oldest. Wrong passwords never evict cached right ones. Passwords are kept in
//! memory only while they wait.

use firn_model::env::Rng;
use firn_model::sync::lock;
use ring::hmac::{self, HMAC_SHA256, Key};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Maximum number of passwords that wait to be checked.
const WAITING_MAX: usize = 64;

/// Maximum number of cached right passwords: one per user, plus those of users whose hash has
/// changed.
const RIGHT_MAX: usize = 10_000;

/// Maximum number of cached wrong passwords, for clients that retry an outdated password.
const WRONG_MAX: usize = 256;

/// Keyed hash of user name, bcrypt hash and password, under which a result is cached. A changed
/// password hash changes it.
type Digest = [u8; 32];

/// Cache and queue of password checks, shared by all requests. Clones share the same state.
#[derive(Clone)]
pub(super) struct PasswordChecker {
    key: Key,
    state: Arc<Mutex<PasswordCheckState>>,
}

#[derive(Default)]
struct PasswordCheckState {
    right: HashSet<Digest>,
    wrong: VecDeque<Digest>,
    /// Passwords that wait to be checked, the newest at the end.
    waiting: VecDeque<PasswordCheck>,
    is_hashing: bool,
    /// True if the next check takes the oldest waiting password.
    is_turn_of_oldest: bool,
}

struct PasswordCheck {
    digest: Digest,
    hash: String,
    password: Vec<u8>,
    /// False for an unknown user: the check takes the same time and always fails.
    is_user: bool,
    answer: oneshot::Sender<bool>,
}

/// A user name and password from a request, with the hash to check them against. Borrows from the
/// request and the rules.
pub(super) struct GivenPassword<'a> {
    pub(super) user: &'a [u8],
    pub(super) password: &'a [u8],
    /// Hash of the user or, for an unknown user, another hash with a similar cost.
    pub(super) hash: &'a str,
    pub(super) is_user: bool,
}

impl PasswordChecker {
    /// Creates an empty cache with a random key, so that cached digests are useless outside of the
    /// process.
    pub(super) fn new(rng: &dyn Rng) -> Self {
        let mut seed = [0; 32];
        for part in seed.chunks_exact_mut(8) {
            part.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        Self {
            key: Key::new(HMAC_SHA256, &seed),
            state: Arc::default(),
        }
    }

    /// Returns the cached result of this check; `None` if the password was not checked recently.
    /// Does not block.
    pub(super) fn cached_result(&self, given: &GivenPassword<'_>) -> Option<bool> {
        let digest = self.digest(given);
        let state = lock(&self.state);
        if state.right.contains(&digest) {
            Some(given.is_user)
        } else {
            state.wrong.contains(&digest).then_some(false)
        }
    }

    /// Checks the password with bcrypt and caches the result. Returns `None` if the check was
    /// displaced because too many passwords wait.
    pub(super) async fn check(&self, given: &GivenPassword<'_>) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        let check = PasswordCheck {
            digest: self.digest(given),
            hash: given.hash.to_owned(),
            password: given.password.to_vec(),
            is_user: given.is_user,
            answer,
        };
        let begins = {
            let mut state = lock(&self.state);
            if state.waiting.len() >= WAITING_MAX {
                state.waiting.pop_front();
            }
            state.waiting.push_back(check);
            !std::mem::replace(&mut state.is_hashing, true)
        };
        if begins {
            let passwords = self.clone();
            spawn_blocking(move || passwords.hash());
        }
        answered.await.ok()
    }

    /// Returns the number of passwords that wait to be checked, without the current one.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Checks waiting passwords until the queue is empty. Runs on a blocking thread, one instance
    /// at a time.
    fn hash(&self) {
        while let Some(check) = self.next() {
            // The client has disconnected, so the result is not needed.
            if check.answer.is_closed() {
                continue;
            }
            let known = lock(&self.state).right.contains(&check.digest);
            let is_right = check.is_user
                && (known || bcrypt::verify(&check.password, &check.hash).unwrap_or(false));
            if !check.is_user {
                // Takes as long as for an existing user; the result is ignored.
                let _ = bcrypt::verify(&check.password, &check.hash);
            }
            let mut state = lock(&self.state);
            if is_right {
                state.keep_right(check.digest)
            } else {
                state.keep_wrong(check.digest)
            }
            drop(state);
            let _ = check.answer.send(is_right);
        }
    }

    fn next(&self) -> Option<PasswordCheck> {
        let mut state = lock(&self.state);
        state.is_turn_of_oldest = !state.is_turn_of_oldest;
        let next = if state.is_turn_of_oldest {
            state.waiting.pop_back()
        } else {
            state.waiting.pop_front()
        };
        state.is_hashing = next.is_some();
        next
    }

    fn digest(&self, given: &GivenPassword<'_>) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [given.user, given.hash.as_bytes(), given.password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

impl PasswordCheckState {
    fn keep_right(&mut self, digest: Digest) {
        if self.right.len() >= RIGHT_MAX {
            self.right.clear();
        }
        self.right.insert(digest);
    }

    fn keep_wrong(&mut self, digest: Digest) {
        if self.wrong.len() >= WRONG_MAX {
            self.wrong.pop_front();
        }
        self.wrong.push_back(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::real;

    const COST: u32 = 4;

    fn passwords() -> PasswordChecker {
        PasswordChecker::new(&*real::system_env().unwrap().rng)
    }

    fn given<'a>(
        user: &'a str,
        password: &'a str,
        hash: &'a str,
        is_user: bool,
    ) -> GivenPassword<'a> {
        GivenPassword {
            user: user.as_bytes(),
            password: password.as_bytes(),
            hash,
            is_user,
        }
    }

    #[tokio::test]
    async fn password_is_known_once_it_was_checked_and_only_for_its_user_and_hash() {
        let passwords = passwords();
        let hash = bcrypt::hash("secret", COST).unwrap();
        let other = bcrypt::hash("secret", COST).unwrap();
        let right = given("a", "secret", &hash, true);
        assert_eq!(passwords.cached_result(&right), None);
        assert_eq!(passwords.check(&right).await, Some(true));
        assert_eq!(passwords.cached_result(&right), Some(true));
        for unknown in [
            given("b", "secret", &hash, true),
            given("a", "secret", &other, true),
            given("asec", "ret", &hash, true),
        ] {
            assert_eq!(passwords.cached_result(&unknown), None);
        }
        let wrong = given("a", "guess", &hash, true);
        assert_eq!(passwords.check(&wrong).await, Some(false));
        assert_eq!(passwords.cached_result(&wrong), Some(false));
        // A cached password is right only for its own user.
        let stranger = given("nobody", "secret", &hash, false);
        assert_eq!(passwords.check(&stranger).await, Some(false));
        assert_eq!(passwords.cached_result(&right), Some(true));
    }

    #[test]
    fn newest_and_oldest_have_their_turns() {
        let passwords = passwords();
        for i in 0..5u8 {
            let check = PasswordCheck {
                digest: [i; 32],
                hash: String::new(),
                password: Vec::new(),
                is_user: true,
                answer: oneshot::channel().0,
            };
            lock(&passwords.state).waiting.push_back(check);
        }
        let order = std::iter::from_fn(|| Some(passwords.next()?.digest[0]));
        assert_eq!(order.collect::<Vec<_>>(), [4, 0, 3, 1, 2]);
        assert!(!lock(&passwords.state).is_hashing);
    }

    #[tokio::test]
    async fn guesses_beyond_the_bound_give_way_and_forget_no_right_password() {
        let passwords = passwords();
        let hash = bcrypt::hash("secret", COST).unwrap();
        let right = given("a", "secret", &hash, true);
        assert_eq!(passwords.check(&right).await, Some(true));
        let guesses: Vec<_> = (0..3 * WRONG_MAX)
            .map(|i| {
                let (passwords, hash) = (passwords.clone(), hash.clone());
                tokio::spawn(async move {
                    let guess = format!("guess {i}");
                    passwords.check(&given("a", &guess, &hash, true)).await
                })
            })
            .collect();
        let (mut refused, mut wrong) = (0, 0);
        for guess in guesses {
            match guess.await.unwrap() {
                None => refused += 1,
                Some(is_right) => {
                    assert!(!is_right);
                    wrong += 1;
                }
            }
        }
        assert!(refused > 0 && wrong > 0, "{refused} {wrong}");
        assert_eq!(passwords.waiting(), 0);
        assert_eq!(passwords.cached_result(&right), Some(true));
        assert!(lock(&passwords.state).wrong.len() <= WRONG_MAX);
    }
}
