//! Interface for request signatures: headers computed from method, URL, headers and body.

use firn_model::error::Error;
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Uri};
use std::future::Future;
use std::pin::Pin;

/// Future of the headers to add, or of the error that prevents the signature.
pub type Signing<'a> = Pin<Box<dyn Future<Output = Result<HeaderMap, Error>> + Send + 'a>>;

/// The request to be signed, as it will be sent except for the signature.
#[derive(Clone, Copy, Debug)]
pub struct UnsignedRequest<'a> {
    /// Method of the request, such as GET or POST.
    pub method: &'a Method,
    /// Target URL of the request, including its query.
    pub uri: &'a Uri,
    /// Headers of the request, without those that the signer adds.
    pub headers: &'a HeaderMap,
    /// Complete body of the request, which signatures can cover.
    pub body: &'a Bytes,
}

/// Signer of requests, such as AWS Signature Version 4 or an issuer of access tokens.
pub trait RequestSigner: Send + Sync {
    /// Returns the headers to add to `request`. May send requests of its own to obtain keys.
    fn sign<'a>(&'a self, request: UnsignedRequest<'a>) -> Signing<'a>;
}
