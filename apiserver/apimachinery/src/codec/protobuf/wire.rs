//! The wire format of protobuf: tags, varints, delimited bytes. Knows no message.

use std::cell::Cell;
use std::rc::Rc;

use super::super::DecodeError;
use super::super::limits::{MAX_COLLECTIONS, MAX_DEPTH};

type Result<T> = std::result::Result<T, DecodeError>;

/// A wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// 0: a varint.
    Varint,
    /// 1: eight bytes.
    Fixed64,
    /// 2: length-delimited bytes.
    Bytes,
    /// 3: the start of a group.
    StartGroup,
    /// 4: the end of a group.
    EndGroup,
    /// 5: four bytes.
    Fixed32,
    /// 6 and 7 have no meaning.
    Illegal(u8),
}

impl Wire {
    fn of(code: u8) -> Wire {
        match code {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::StartGroup,
            4 => Wire::EndGroup,
            5 => Wire::Fixed32,
            other => Wire::Illegal(other),
        }
    }

    /// Returns the number of the wire type.
    pub fn code(self) -> u8 {
        match self {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Bytes => 2,
            Wire::StartGroup => 3,
            Wire::EndGroup => 4,
            Wire::Fixed32 => 5,
            Wire::Illegal(code) => code,
        }
    }
}

/// Creates a decoding error with this text.
pub fn error(text: impl Into<String>) -> DecodeError {
    DecodeError::TypeMismatch(text.into())
}

fn cut_short() -> DecodeError {
    error("unexpected EOF")
}

/// Reads the fields of one message.
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The number of messages around this one.
    depth: usize,
    /// The number of messages begun by this reader and its parents.
    collection_count: Rc<Cell<usize>>,
}

impl<'a> Reader<'a> {
    /// Reads a message at that depth, after that many others.
    pub fn inside(bytes: &'a [u8], depth: usize, collection_count: Rc<Cell<usize>>) -> Reader<'a> {
        Reader { rest: bytes, depth, collection_count }
    }

    /// Returns the number of messages around this one.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of messages begun so far; separately decoded parts add their objects and
    /// arrays.
    pub fn collection_count(&self) -> &Rc<Cell<usize>> {
        &self.collection_count
    }

    /// Reads the next field's number and wire type; None at the end. `message` names the message in
    /// errors.
    pub fn tag(&mut self, message: &str) -> Result<Option<(u32, Wire)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = Wire::of((tag & 7) as u8);
        if wire == Wire::EndGroup {
            return Err(error(format!("proto: {message}: wiretype end group for non-group")));
        }
        match i32::try_from(tag >> 3) {
            Ok(number) if number > 0 => Ok(Some((number.unsigned_abs(), wire))),
            _ => {
                let number = (tag >> 3) as u32 as i32;
                Err(error(format!("proto: {message}: illegal tag {number} (wire type {})", wire.code())))
            }
        }
    }

    /// Reads a varint.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (at, &byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(error("proto: integer overflow"));
            }
            value |= u64::from(byte & 0x7f) << (7 * at).min(63);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(cut_short())
    }

    /// Reads length-delimited bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()?;
        if length > i64::MAX as u64 {
            return Err(error("proto: negative length found during unmarshaling"));
        }
        self.take(usize::try_from(length).map_err(|_| cut_short())?)
    }

    /// Reads eight bytes.
    pub fn fixed64(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    /// Reads a message inside of this one.
    pub fn message(&mut self) -> Result<Reader<'a>> {
        if self.depth >= MAX_DEPTH {
            return Err(error("proto: exceeded max depth"));
        }
        if self.collection_count.get() >= MAX_COLLECTIONS {
            return Err(error("proto: exceeded max number of messages"));
        }
        self.collection_count.set(self.collection_count.get() + 1);
        Ok(Reader {
            rest: self.bytes()?,
            depth: self.depth + 1,
            collection_count: self.collection_count.clone(),
        })
    }

    /// Skips the value of an unknown field.
    pub fn skip(&mut self, wire: Wire) -> Result<()> {
        let mut groups = 0usize;
        let mut wire = wire;
        loop {
            match wire {
                Wire::Varint => self.varint().map(|_| ())?,
                Wire::Fixed64 => self.take(8).map(|_| ())?,
                Wire::Bytes => self.bytes().map(|_| ())?,
                Wire::Fixed32 => self.take(4).map(|_| ())?,
                Wire::StartGroup => groups += 1,
                Wire::EndGroup if groups == 0 => return Err(error("proto: unexpected end of group")),
                Wire::EndGroup => groups -= 1,
                Wire::Illegal(code) => return Err(error(format!("proto: illegal wireType {code}"))),
            }
            if groups == 0 {
                return Ok(());
            }
            wire = Wire::of((self.varint()? & 7) as u8);
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Appends the parts of a message.
pub trait Write {
    /// Appends a varint.
    fn varint(&mut self, value: u64);
    /// Appends a field's tag.
    fn tag(&mut self, number: u32, wire: Wire);
    /// Appends a field of bytes.
    fn bytes_field(&mut self, number: u32, bytes: &[u8]);
    /// Writes an integer field. A negative number takes ten bytes.
    fn int_field(&mut self, number: u32, value: i64);
    /// Appends a field with the message that `write` appends.
    fn message_field(&mut self, number: u32, write: impl FnOnce(&mut Self));
}

impl Write for Vec<u8> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn tag(&mut self, number: u32, wire: Wire) {
        self.varint(u64::from(number) << 3 | u64::from(wire.code()));
    }

    fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, Wire::Bytes);
        self.varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    fn int_field(&mut self, number: u32, value: i64) {
        self.tag(number, Wire::Varint);
        self.varint(value as u64);
    }

    fn message_field(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        self.tag(number, Wire::Bytes);
        // One byte is enough for most lengths; a longer one moves the message.
        let at = self.len();
        self.push(0);
        write(self);
        let length = self.len() - at - 1;
        if length < 0x80 {
            self[at] = length as u8;
        } else {
            let mut prefix = Vec::with_capacity(5);
            prefix.varint(length as u64);
            self.splice(at..=at, prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fields_are_read_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            bytes.varint(value);
            assert_eq!(Reader::inside(&bytes, 0, Rc::default()).varint(), Ok(value));
        }
        for length in [0, 127, 128, 20_000] {
            let mut bytes = Vec::new();
            bytes.message_field(3, |out| out.resize(out.len() + length, 7));
            let mut reader = Reader::inside(&bytes, 0, Rc::default());
            assert_eq!(reader.tag("M"), Ok(Some((3, Wire::Bytes))));
            assert_eq!(reader.bytes().map(<[u8]>::len), Ok(length));
            assert_eq!(reader.tag("M"), Ok(None));
        }
    }

    #[test]
    fn errors_have_gos_messages() {
        let all = |bytes: &[u8]| {
            let mut reader = Reader::inside(bytes, 0, Rc::default());
            while let Some((_, wire)) = reader.tag("M")? {
                reader.skip(wire)?;
            }
            Ok(())
        };
        for (bytes, want) in [
            (&[0xff][..], "unexpected EOF"),
            (&[0x0a, 5, b'a'], "unexpected EOF"),
            (&[0x00, 0x00], "proto: M: illegal tag 0 (wire type 0)"),
            (&[0x0c], "proto: M: wiretype end group for non-group"),
            (&[0x0e, 0x00], "proto: illegal wireType 6"),
            (&[0xff; 11], "proto: integer overflow"),
            (&[0x0b], "unexpected EOF"),
        ] {
            assert_eq!(all(bytes), Err(error(want)), "{bytes:?}");
        }
        let groups = [vec![0x0b; 100_000], vec![0x0c; 100_000]].concat();
        assert_eq!(all(&groups), Ok(()));
    }
}
