//! Single HTTP requests over their own connection, for cases that the shared HTTP client does not
//! support: Unix sockets, and PUT requests to services on the same machine. Only a few are sent per
//! minute.

use super::api::ApiResponse;
use firn_http_client::ResponseBody;
use firn_model::error::Error;
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` over `stream` and reads the response. Fails if its body exceeds the limit of
/// `bytes_max` bytes.
pub(super) async fn send_once<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    bytes_max: u64,
) -> Result<ApiResponse, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |e: hyper::Error| Error::unavailable(e.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        ApiResponse::read_response(response.map(ResponseBody::from), bytes_max).await
    };
    tokio::pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        ended = connection => match ended {
            // The response may have been received completely before the connection ended.
            Ok(()) => asked.await,
            Err(e) => Err(failed(e)),
        }
    }
}
