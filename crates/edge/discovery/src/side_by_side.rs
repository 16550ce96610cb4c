//! Concurrent requests with an upper limit on their number.
//!
//! Invariant: results have the order of the requests. The first failure cancels all requests.

use super::api::{AnyValue, invalid_response_error};
use super::discover::BoxFuture;
use firn_model::error::Error;
use std::collections::BTreeMap;
use std::future::Future;
use tokio::task::JoinSet;

/// Runs the requests, at most `limit` at a time, and returns their results in order.
pub(super) async fn run_concurrently<T, F, I>(limit: usize, requests: I) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
    I: IntoIterator<Item = F>,
    I::IntoIter: Send,
{
    let mut requests = requests.into_iter().map(erase_type);
    let answers = run_erased(limit, &mut requests).await?;
    let answers = answers.into_iter().map(|answer| answer.downcast::<T>());
    let answers = answers.map(|answer| *answer.expect("erased returns the type of its request"));
    Ok(answers.collect())
}

/// Erases the type of a request, so that the runtime's task code is compiled once instead of once
/// per type.
fn erase_type<T, F>(request: F) -> BoxFuture<'static, Result<AnyValue, Error>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    Box::pin(async move { Ok(Box::new(request.await?) as AnyValue) })
}

async fn run_erased(
    limit: usize,
    requests: &mut (dyn Iterator<Item = BoxFuture<'static, Result<AnyValue, Error>>> + Send),
) -> Result<Vec<AnyValue>, Error> {
    let mut running: JoinSet<Result<(usize, AnyValue), Error>> = JoinSet::new();
    let mut answers = BTreeMap::new();
    let mut requests = requests.enumerate();
    loop {
        while running.len() < limit.max(1)
            && let Some((index, request)) = requests.next()
        {
            running.spawn(async move { Ok((index, request.await?)) });
        }
        // Dropping the set on an error cancels the running requests.
        match running.join_next().await {
            None => return Ok(answers.into_values().collect()),
            Some(answer) => {
                let (index, answer) =
                    answer.map_err(|e| invalid_response_error(e.to_string()))??;
                answers.insert(index, answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn answers_stand_in_order_and_a_failure_ends_all() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let request = |number: usize| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
                for _ in 0..10 - number {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::Relaxed);
                match number {
                    9 => Err(invalid_response_error("nine")),
                    number => Ok(number),
                }
            }
        };
        let answers = run_concurrently(3, (0..9).map(request)).await;
        assert_eq!(answers, Ok((0..9).collect()));
        assert_eq!(most.load(Ordering::Relaxed), 3);
        let failed = run_concurrently(3, (5..10).map(request)).await;
        assert_eq!(failed.unwrap_err().message, "nine");
    }
}
