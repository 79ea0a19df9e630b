//! A connection: its frames become the streams of a session.

use std::collections::HashMap;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::mpsc;

use super::frame::{self, FLAG_FIN, Header, Kind, Malformed};
use super::headers::{Decoder, Encoder};
use crate::session::{self, Driver, Incoming, MAX_CHUNK_LENGTH, Outgoing, Session, unless_stalled};

/// The streams that a client may have open.
const MAX_STREAMS: usize = 2048;
/// The longest control frame, in bytes.
const MAX_CONTROL_FRAME_LENGTH: usize = 64 << 10;

/// Serves the streams of a connection until the handler has returned or the client closes.
pub(crate) async fn serve<IO, H>(io: IO, handle: impl FnOnce(Session) -> H)
where
    IO: AsyncRead + AsyncWrite,
    H: Future<Output = ()>,
{
    let (reader, mut writer) = tokio::io::split(io);
    let read = async move |driver| {
        let reader = Reader {
            io: BufReader::new(reader),
            decoder: Decoder::default(),
            streams: HashMap::new(),
            last: 0,
            driver,
        };
        if let Err(error) = reader.read().await {
            tracing::debug!(%error, "SPDY connection ended");
        }
    };
    let write = async |frames| {
        if let Err(error) = write(&mut writer, frames).await {
            tracing::debug!(%error, "SPDY connection ended");
        }
    };
    session::run(read, write, handle).await;
    // Only now, since nothing may be read from a TLS connection that was ended.
    session::within(session::CLOSE_TIMEOUT, writer.shutdown()).await;
}

/// The end of a connection that is not its close.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Stalled(#[from] session::Stalled),
}

struct Reader<R> {
    io: R,
    decoder: Decoder,
    /// The queues of the streams that the client has not ended.
    streams: HashMap<u32, Incoming>,
    /// The last stream that was opened.
    last: u32,
    driver: Driver,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads frames until the client closes.
    async fn read(mut self) -> Result<(), Error> {
        loop {
            let mut header = [0; 8];
            match self.io.read_exact(&mut header).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            let header = Header::parse(header)?;
            if let Kind::Data { stream } = header.kind {
                self.data(stream, header).await?;
                continue;
            }
            if header.length > MAX_CONTROL_FRAME_LENGTH {
                return Err(Malformed("a control frame that is too long").into());
            }
            let mut payload = vec![0; header.length];
            self.io.read_exact(&mut payload).await?;
            self.control(header, &payload).await?;
        }
    }

    /// Passes the bytes of a frame on as they come. What nobody reads is left out.
    async fn data(&mut self, stream: u32, header: Header) -> Result<(), Error> {
        let mut left = header.length;
        while left > 0 {
            let mut chunk = BytesMut::zeroed(left.min(MAX_CHUNK_LENGTH));
            self.io.read_exact(&mut chunk).await?;
            left -= chunk.len();
            if let Some(stream) = self.streams.get(&stream) {
                stream.put(chunk.freeze()).await?;
            }
        }
        if header.flags & FLAG_FIN != 0 {
            self.streams.remove(&stream);
        }
        Ok(())
    }

    async fn control(&mut self, header: Header, payload: &[u8]) -> Result<(), Error> {
        const CUT: Malformed = Malformed("a frame that is too short");
        let id = || payload.first_chunk::<4>().copied().ok_or(CUT);
        match header.kind {
            Kind::SynStream => {
                let stream = frame::stream_id(id()?);
                // Five more bytes name another stream and a priority.
                let headers = self.decoder.decode(payload.get(10..).ok_or(CUT)?)?;
                self.open(stream, headers, header.flags & FLAG_FIN != 0).await?;
            }
            // Decoded, because the blocks that follow depend on it.
            Kind::Headers | Kind::SynReply => {
                self.decoder.decode(payload.get(4..).ok_or(CUT)?)?;
                if header.flags & FLAG_FIN != 0 {
                    self.streams.remove(&frame::stream_id(id()?));
                }
            }
            Kind::RstStream => {
                if let Some(stream) = self.streams.remove(&frame::stream_id(id()?)) {
                    stream.reset();
                }
            }
            Kind::Ping => self.driver.send(Outgoing::Pong(u32::from_be_bytes(id()?))).await,
            Kind::GoAway | Kind::Ignored | Kind::Data { .. } => {}
        }
        Ok(())
    }

    async fn open(
        &mut self,
        stream: u32,
        headers: Vec<(String, String)>,
        is_ended: bool,
    ) -> Result<(), Error> {
        if stream <= self.last || stream.is_multiple_of(2) {
            return Err(Malformed("the number of a stream that it cannot open").into());
        }
        self.last = stream;
        // Streams that ended in both directions are not known to have; the handler has dropped what
        // it reads from them.
        self.streams.retain(|_, chunks| !chunks.is_closed());
        if self.streams.len() >= MAX_STREAMS {
            self.driver.send(Outgoing::Refuse(stream)).await;
            return Ok(());
        }
        self.driver.send(Outgoing::Accept(stream)).await;
        // Once the session is over, what the client still sends is read and left out.
        if let Ok(incoming) = self.driver.open(stream, headers).await
            && !is_ended
        {
            self.streams.insert(stream, incoming);
        }
        Ok(())
    }
}

/// Writes frames until there are no more, and then the end of the connection.
async fn write(io: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Outgoing>) -> Result<(), Error> {
    let mut io = BufWriter::new(io);
    let mut encoder = Encoder::new()?;
    let mut last = 0;
    while let Some(frame) = frames.recv().await {
        let bytes = match &frame {
            Outgoing::Data(stream, data) => frame::data(*stream, data.len(), 0).to_vec(),
            Outgoing::End(stream) => frame::data(*stream, 0, FLAG_FIN).to_vec(),
            Outgoing::Accept(stream) => {
                last = *stream;
                frame::syn_reply(*stream, &encoder.encode(&[])?)
            }
            Outgoing::Refuse(stream) => frame::refused(*stream),
            Outgoing::Pong(id) => frame::ping(*id),
        };
        let is_last = frames.is_empty();
        let written = async {
            io.write_all(&bytes).await?;
            if let Outgoing::Data(_, data) = &frame {
                io.write_all(data).await?;
            }
            if is_last { io.flush().await } else { Ok(()) }
        };
        unless_stalled(written).await??;
    }
    io.write_all(&frame::goaway(last)).await?;
    io.flush().await?;
    Ok(())
}
