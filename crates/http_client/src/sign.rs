//! Signatures of whole requests: headers that are made of method, URL, headers and body.

use firn_model::error::Error;
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Uri};
use std::future::Future;
use std::pin::Pin;

/// The headers to add, or why there are none.
pub type Signing<'a> = Pin<Box<dyn Future<Output = Result<HeaderMap, Error>> + Send + 'a>>;

/// A request that is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct ToSign<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Where it goes.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: &'a Bytes,
}

/// Signs requests.
pub trait Sign: Send + Sync {
    /// What is added to the headers of `request`. May ask others for keys.
    fn sign<'a>(&'a self, request: ToSign<'a>) -> Signing<'a>;
}
