//! A limit of HTTP/2's control frames: they cost the server more than the client, and no request
//! stands behind them.
//!
//! Go's server and hyper bound the replies that wait, but not how many frames are answered. Frames
//! are only counted here; hyper reads them. Updates of windows are not counted, since a client may
//! read as much as it likes: of these, and of all else, a connection reads a little at a time
//! ([`turns`](super::turns)).

use std::io;
use std::time::Instant;

use super::observed::Observer;

/// The beginning of each connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// The flag of a frame that has padding.
const PADDED: u8 = 8;

/// The control frames that a connection may send at any time.
const BURST: f64 = 1000.0;
/// The control frames that it may send for each request: some clients ask for a reply when they
/// cancel one.
const PER_REQUEST: f64 = 10.0;
/// The control frames that it may send each second: pings to measure a connection, or to keep it
/// open.
const PER_SECOND: f64 = 100.0;

/// Ends a decrypted connection, which may be one of HTTP/1.1 too, with an error after too many
/// control frames.
pub struct ControlFrames {
    position: Position,
    allowed: f64,
    /// The time at which the frames of the seconds before were added.
    added: Instant,
}

/// The place in what the client sends.
enum Position {
    /// After so many bytes of the preface.
    Preface(usize),
    /// After so many bytes of a frame's header.
    Header([u8; HEADER], usize),
    /// Before so many bytes of a frame's payload.
    Payload(usize),
    /// In another protocol.
    Foreign,
}

impl ControlFrames {
    /// Counts the frames that begin in the bytes.
    ///
    /// # Errors
    /// There are too many.
    fn count(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(next) = bytes.first() {
            let taken = match &mut self.position {
                Position::Foreign => return Ok(()),
                Position::Preface(at) => {
                    let is_preface = PREFACE.get(*at) == Some(next);
                    *at += 1;
                    if !is_preface {
                        self.position = Position::Foreign;
                    } else if *at == PREFACE.len() {
                        self.position = Position::Header([0; HEADER], 0);
                    }
                    1
                }
                Position::Header(header, filled) => {
                    let taken = bytes.len().min(HEADER - *filled);
                    header[*filled..*filled + taken].copy_from_slice(&bytes[..taken]);
                    *filled += taken;
                    if *filled == HEADER {
                        let [a, b, c, kind, flags, ..] = *header;
                        let length = u32::from_be_bytes([0, a, b, c]);
                        self.position = Position::Payload(usize::try_from(length).unwrap_or(usize::MAX));
                        self.count_frame(kind, flags, length)?;
                    }
                    taken
                }
                Position::Payload(rest) => {
                    let taken = bytes.len().min(*rest);
                    *rest -= taken;
                    taken
                }
            };
            bytes = &bytes[taken..];
            if let Position::Payload(0) = self.position {
                self.position = Position::Header([0; HEADER], 0);
            }
        }
        Ok(())
    }

    fn count_frame(&mut self, kind: u8, flags: u8, length: u32) -> io::Result<()> {
        match kind {
            HEADERS => self.allowed = (self.allowed + PER_REQUEST).min(BURST),
            // Padding may be all that is in it.
            DATA if length > 0 && flags & PADDED == 0 => {}
            // Clients that read much send many updates; hyper limits the parts of headers.
            WINDOW_UPDATE | CONTINUATION => {}
            _ => self.allowed -= 1.0,
        }
        if self.allowed >= 0.0 {
            return Ok(());
        }
        let now = Instant::now();
        let seconds = now.duration_since(self.added).as_secs_f64();
        self.added = now;
        self.allowed = (self.allowed + seconds * PER_SECOND).min(BURST);
        if self.allowed >= 0.0 { Ok(()) } else { Err(io::Error::other("too many control frames")) }
    }
}

impl Default for ControlFrames {
    fn default() -> ControlFrames {
        ControlFrames { position: Position::Preface(0), allowed: BURST, added: Instant::now() }
    }
}

impl Observer for ControlFrames {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const SETTINGS: u8 = 4;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, 0, 0, 0, 0, 0], &*vec![PING; usize::from(length)]].concat()
    }

    /// Counts bytes in pieces of some size.
    fn count(bytes: &[u8], piece: usize) -> io::Result<()> {
        let mut connection = ControlFrames::default();
        bytes.chunks(piece).try_for_each(|piece| connection.count(piece))
    }

    #[test]
    fn control_frames_are_limited() {
        let http2 = |frames: &[u8]| [PREFACE, frames].concat();
        let many = 3 * BURST as usize;
        let padded = [&[0, 0, 1, DATA, PADDED, 0, 0, 0, 1][..], &[0]].concat();
        let request =
            [frame(HEADERS, 30), frame(DATA, 100), frame(WINDOW_UPDATE, 4), frame(PING, 8)].concat();
        for (case, bytes, is_allowed) in [
            ("few pings", http2(&frame(PING, 8).repeat(BURST as usize)), true),
            ("many pings", http2(&frame(PING, 8).repeat(many)), false),
            ("many settings", http2(&frame(SETTINGS, 0).repeat(many)), false),
            ("many frames of no known type", http2(&frame(200, 1).repeat(many)), false),
            ("much data without a byte", http2(&frame(DATA, 0).repeat(many)), false),
            ("much data of padding", http2(&padded.repeat(many)), false),
            ("many resets without requests", http2(&frame(3, 4).repeat(many)), false),
            ("many requests, and a ping with each", http2(&request.repeat(many)), true),
            ("HTTP/1.1", frame(PING, 8).repeat(many), true),
            ("almost HTTP/2", [&PREFACE[..20], &frame(PING, 8).repeat(many)].concat(), true),
        ] {
            for piece in [1, 7, 8192] {
                assert_eq!(count(&bytes, piece).is_ok(), is_allowed, "{case}, in pieces of {piece}");
            }
        }
    }

    #[test]
    fn frames_of_each_second_are_allowed() {
        let mut connection = ControlFrames::default();
        connection.count(PREFACE).expect("a preface");
        connection.count(&frame(PING, 8).repeat(BURST as usize)).expect("a burst");
        connection.added -= std::time::Duration::from_secs(2);
        connection.count(&frame(PING, 8).repeat(2 * PER_SECOND as usize)).expect("two seconds' frames");
        connection.count(&frame(PING, 8).repeat(BURST as usize)).expect_err("no more");
    }
}
