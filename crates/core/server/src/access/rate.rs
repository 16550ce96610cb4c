//! Request rate limit: a token bucket, like Go's `rate.Limiter`.

use firn_model::access::RequestRateLimit;
use firn_model::sync::lock;
use std::sync::Mutex;
use std::time::Duration;

/// A token bucket. It starts full and is shared by all requests of the server. Each admitted
/// request takes one token.
#[derive(Default)]
pub(super) struct TokenBucket(Mutex<Option<TokenBucketState>>);

struct TokenBucketState {
    limit: RequestRateLimit,
    tokens: f64,
    at: Duration,
}

impl TokenBucket {
    /// Takes a token if one is available at the time `now`, and returns whether it did. A changed
    /// limit starts with a full bucket.
    pub(super) fn take_token(&self, limit: RequestRateLimit, now: Duration) -> bool {
        let mut level = lock(&self.0);
        let level = match &mut *level {
            Some(level) if level.limit == limit => level,
            other => other.insert(TokenBucketState {
                limit,
                tokens: limit.burst as f64,
                at: now,
            }),
        };
        let passed = now.saturating_sub(level.at).as_secs_f64();
        let filled = level.tokens + passed / limit.interval.as_secs_f64();
        level.tokens = filled.min(limit.burst as f64);
        level.at = level.at.max(now);
        let is_there = level.tokens >= 1.0;
        if is_there {
            level.tokens -= 1.0;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_gives_its_burst_and_then_one_an_interval() {
        let bucket = TokenBucket::default();
        let limit = RequestRateLimit {
            interval: Duration::from_millis(100),
            burst: 3,
        };
        let take = |at| bucket.take_token(limit, Duration::from_millis(at));
        assert_eq!([0, 0, 1, 2].map(take), [true, true, true, false]);
        assert_eq!([99, 101, 102, 201].map(take), [false, true, false, true]);
        assert_eq!([9_000; 4].map(take), [true, true, true, false]);
        let nothing = RequestRateLimit { burst: 0, ..limit };
        assert!(!bucket.take_token(nothing, Duration::from_secs(99)));
    }
}
