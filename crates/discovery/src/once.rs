//! One request over a connection of its own, for what the HTTP client does not do: sockets of the
//! machine, and methods that only a service on the same machine takes. There are few in a minute.

use super::api::Answer;
use firn_http_client::ResponseBody;
use firn_model::error::Error;
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` over `stream`; its answer has fewer than `bytes_max` bytes.
pub(super) async fn ask_once<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    bytes_max: u64,
) -> Result<Answer, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |e: hyper::Error| Error::unavailable(e.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        Answer::read(response.map(ResponseBody::from), bytes_max).await
    };
    tokio::pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        ended = connection => match ended {
            // What was read already may be the whole answer.
            Ok(()) => asked.await,
            Err(e) => Err(failed(e)),
        }
    }
}
