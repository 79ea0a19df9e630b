//! Frames: eight bytes of header, and what follows them.
//!
//! Source: SPDY/3.1, section 2.2.

/// The version of the protocol, in each control frame.
const VERSION: u16 = 3;
/// The flag of the last frame of a stream in one direction.
pub const FLAG_FIN: u8 = 1;
/// The status of a stream that is refused, in RST_STREAM.
const REFUSED_STREAM: u32 = 3;

/// The peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client sends {0}")]
pub struct Malformed(pub &'static str);

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: u8,
    /// The length of what follows, in bytes.
    pub length: usize,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data {
        stream: u32,
    },
    SynStream,
    SynReply,
    RstStream,
    Ping,
    GoAway,
    Headers,
    /// Without a meaning here: SETTINGS, WINDOW_UPDATE, and what is unknown.
    Ignored,
}

impl Header {
    /// Parses a header from its bytes.
    ///
    /// # Errors
    /// It is of another version.
    pub fn parse(bytes: [u8; 8]) -> Result<Header, Malformed> {
        let [a, b, c, d, flags, e, f, g] = bytes;
        let length = usize::from(e) << 16 | usize::from(f) << 8 | usize::from(g);
        if a & 0x80 == 0 {
            return Ok(Header {
                kind: Kind::Data { stream: u32::from_be_bytes([a, b, c, d]) },
                flags,
                length,
            });
        }
        if u16::from_be_bytes([a & 0x7f, b]) != VERSION {
            return Err(Malformed("a frame of another version than 3"));
        }
        let kind = match u16::from_be_bytes([c, d]) {
            1 => Kind::SynStream,
            2 => Kind::SynReply,
            3 => Kind::RstStream,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::Headers,
            _ => Kind::Ignored,
        };
        Ok(Header { kind, flags, length })
    }
}

/// Parses the number of a stream from its four bytes.
pub fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

/// Builds the header of a data frame.
pub fn data(stream: u32, length: usize, flags: u8) -> [u8; 8] {
    let [a, b, c, d] = stream.to_be_bytes();
    let [_, e, f, g] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, flags, e, f, g]
}

/// Builds a SYN_REPLY with a block of headers.
pub fn syn_reply(stream: u32, block: &[u8]) -> Vec<u8> {
    control(2, &[&stream.to_be_bytes(), block].concat())
}

/// Builds a SYN_STREAM as a client sends it.
#[cfg(test)]
pub fn syn_stream(stream: u32, block: &[u8]) -> Vec<u8> {
    control(1, &[&stream.to_be_bytes()[..], &[0; 6], block].concat())
}

/// Builds a RST_STREAM that refuses a stream.
pub fn refused(stream: u32) -> Vec<u8> {
    control(3, &[stream.to_be_bytes(), REFUSED_STREAM.to_be_bytes()].concat())
}

/// Builds a PING.
pub fn ping(id: u32) -> Vec<u8> {
    control(6, &id.to_be_bytes())
}

/// Builds a GOAWAY without an error.
///
/// - `last`: the last stream that was accepted
pub fn goaway(last: u32) -> Vec<u8> {
    control(7, &[last.to_be_bytes(), [0; 4]].concat())
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let [_, e, f, g] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let [a, b] = (0x8000 | VERSION).to_be_bytes();
    let [c, d] = kind.to_be_bytes();
    [&[a, b, c, d, 0, e, f, g], payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_frames() {
        let first = |frame: Vec<u8>| Header::parse(*frame.first_chunk().expect("a header"));
        assert_eq!(
            Header::parse(data(5, 0x01_0203, FLAG_FIN)),
            Ok(Header { kind: Kind::Data { stream: 5 }, flags: FLAG_FIN, length: 0x01_0203 })
        );
        for (frame, kind, length) in [
            (syn_stream(1, b"x"), Kind::SynStream, 11),
            (syn_reply(1, b"x"), Kind::SynReply, 5),
            (refused(1), Kind::RstStream, 8),
            (ping(1), Kind::Ping, 4),
            (goaway(1), Kind::GoAway, 8),
            (control(4, b""), Kind::Ignored, 0),
        ] {
            assert_eq!(first(frame), Ok(Header { kind, flags: 0, length }));
        }
        assert!(Header::parse(*b"\x80\x02\x00\x01\x00\x00\x00\x00").is_err());
        assert_eq!(stream_id([0x80, 0, 0, 1]), 1);
    }
}
