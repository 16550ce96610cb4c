//! Paginated lists: the position of the next page, with an upper limit on the number of pages.
//!
//! ```text
//! first -> page -> position of the next -> page -> .. -> none
//! ```
//!
//! Invariant: a list that never ends fails, so that it consumes neither unlimited memory nor
//! unlimited time. The caller defines the meaning of a position (a URL, a token, a number). Callers
//! that sign each request separately use [`ApiPageCursor`] directly.

use super::api::{ApiClient, ApiResponse, invalid_response_error};
use firn_model::error::Error;
use hyper::header::{ACCEPT, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;

/// Maximum number of pages per list. The smallest pages have 20 entries, so lists of 100,000
/// entries fit.
const PAGES_MAX: usize = 5000;

/// Read position in a paginated list, with the number of pages read so far.
#[derive(Debug)]
pub(super) struct ApiPageCursor {
    next: Option<String>,
    count: usize,
}

impl ApiPageCursor {
    /// Creates a position at the page `first`, which may be empty for APIs that need no token for
    /// it.
    pub(super) fn from(first: impl Into<String>) -> Self {
        Self {
            next: Some(first.into()),
            count: 0,
        }
    }

    /// Returns the position of the page to read next, or `None` after the last page. Fails if there
    /// are too many pages.
    pub(super) fn next_position(&mut self) -> Result<Option<String>, Error> {
        let next = self.next.take();
        self.count += 1;
        match next {
            Some(_) if self.count > PAGES_MAX => Err(invalid_response_error(format!(
                "the list is too long: more than {PAGES_MAX} pages"
            ))),
            next => Ok(next),
        }
    }

    /// Returns the number of the current page, starting at 1.
    pub(super) fn page_number(&self) -> usize {
        self.count
    }

    /// Sets the position of the following page. `None` or an empty position ends the list.
    pub(super) fn set_next(&mut self, next: Option<String>) {
        self.next = next.filter(|next| !next.is_empty());
    }
}

impl ApiClient {
    /// Reads all pages of a JSON list. `next` receives each page with its number, starting at 1,
    /// and returns the URL of the following page.
    pub(super) async fn get_pages<P, N>(
        &self,
        first: &str,
        headers: &HeaderMap,
        next: N,
    ) -> Result<Vec<P>, Error>
    where
        P: DeserializeOwned + Send + 'static,
        N: Fn(&P, usize) -> Option<String> + Send + Sync,
    {
        let mut pages = ApiPageCursor::from(first);
        let mut read = Vec::new();
        while let Some(url) = pages.next_position()? {
            let number = pages.page_number();
            let page = self.get_page(&url, headers).await;
            let page = page.map_err(|e| Error::new(e.kind, format!("page {number}: {e}")))?;
            pages.set_next(next(&page, number));
            read.push(page);
        }
        Ok(read)
    }

    async fn get_page<P>(&self, url: &str, headers: &HeaderMap) -> Result<P, Error>
    where
        P: DeserializeOwned + Send + 'static,
    {
        self.get_success(url, headers).await?.decode_json().await
    }

    /// Sends a GET request that accepts JSON. Fails if the status is not 2xx.
    pub(super) async fn get_success(
        &self,
        url: &str,
        headers: &HeaderMap,
    ) -> Result<ApiResponse, Error> {
        let mut headers = headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        self.get(url, &headers).await?.require_success()
    }
}

#[cfg(test)]
mod tests {
    use super::super::stub::{StubResponse, StubServer};
    use super::*;
    use firn_http_client::HttpSettings;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Page {
        next: Option<String>,
    }

    #[tokio::test]
    async fn list_is_read_to_its_end_and_one_without_end_is_refused() {
        let stub = StubServer::start(|asked| async move {
            let next = match asked.path.as_str() {
                "/a" => "\"/b\"",
                "/b" => "\"\"",
                _ => "\"/round\"",
            };
            StubResponse::with_status(200, &format!("{{\"next\": {next}}}"))
        })
        .await;
        let api = ApiClient::new(&HttpSettings::default(), 1 << 20);
        let read = async |first: &str| {
            let next = |page: &Page, _| {
                let next = page.next.clone().filter(|next| !next.is_empty());
                next.map(|next| format!("{}{next}", stub.url))
            };
            let first = format!("{}{first}", stub.url);
            let pages = api.get_pages(&first, &HeaderMap::new(), next).await;
            pages.map(|pages| pages.len()).map_err(|e| e.message)
        };
        assert_eq!(read("/a").await, Ok(2));
        assert_eq!(
            read("/round").await.unwrap_err(),
            "the list is too long: more than 5000 pages"
        );
    }
}
