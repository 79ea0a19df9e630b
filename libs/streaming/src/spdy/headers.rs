//! Blocks of headers, compressed with a dictionary. All blocks of one direction are one zlib
//! stream.
//!
//! Source: SPDY/3.1, section 2.6.10.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::frame::Malformed;

/// The dictionary of SPDY/3, section 2.6.10.1.
static DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

/// The longest block that is read, in bytes before compression.
const MAX_BLOCK_LENGTH: usize = 64 << 10;
/// The maximum number of headers of a block.
const MAX_HEADERS: usize = 64;

/// Names in lower case, and values.
pub type Headers = Vec<(String, String)>;

/// Reads the blocks of a connection.
pub struct Decoder(Decompress);

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder(Decompress::new(true))
    }
}

impl Decoder {
    /// Decodes the headers of the next block.
    ///
    /// # Errors
    /// The block is invalid or too large.
    pub fn decode(&mut self, block: &[u8]) -> Result<Headers, Malformed> {
        parse(&self.decompress(block)?)
    }

    fn decompress(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut text = Vec::with_capacity(4 << 10);
        loop {
            let (read, written) = (self.0.total_in(), text.len());
            let result = self.0.decompress_vec(block, &mut text, FlushDecompress::Sync);
            let read = usize::try_from(self.0.total_in() - read).unwrap_or(block.len());
            block = block.get(read..).unwrap_or_default();
            if let Err(error) = result {
                error.needs_dictionary().ok_or(Malformed("headers that are not compressed"))?;
                self.0.set_dictionary(DICTIONARY).map_err(|_| Malformed("headers of another dictionary"))?;
                continue;
            }
            let is_full = text.len() == text.capacity();
            if block.is_empty() && !is_full {
                return Ok(text);
            }
            if is_full {
                if text.len() >= MAX_BLOCK_LENGTH {
                    return Err(Malformed("headers that are too long"));
                }
                text.reserve(text.len());
            } else if read == 0 && text.len() == written {
                return Err(Malformed("headers after the end of their compression"));
            }
        }
    }
}

/// Writes blocks for a connection.
pub struct Encoder(Compress);

impl Encoder {
    /// Creates the encoder of a new connection.
    ///
    /// # Errors
    /// The library has no dictionaries.
    pub fn new() -> Result<Encoder, Malformed> {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(DICTIONARY).map_err(|_| Malformed("a dictionary that is not taken"))?;
        Ok(Encoder(compress))
    }

    /// Encodes a block of headers.
    ///
    /// # Errors
    /// The library fails.
    pub fn encode(&mut self, headers: &[(String, String)]) -> Result<Vec<u8>, Malformed> {
        let mut text = Vec::new();
        let length =
            |length: usize| u32::try_from(length).map(u32::to_be_bytes).map_err(|_| Malformed("a long text"));
        text.extend(length(headers.len())?);
        for part in headers.iter().flat_map(|(name, value)| [name, value]) {
            text.extend(length(part.len())?);
            text.extend(part.as_bytes());
        }
        // More than any compression takes, so that one call is enough.
        let mut block = Vec::with_capacity(text.len() * 2 + 1024);
        self.0
            .compress_vec(&text, &mut block, FlushCompress::Sync)
            .map_err(|_| Malformed("headers that cannot be compressed"))?;
        Ok(block)
    }
}

fn parse(mut text: &[u8]) -> Result<Headers, Malformed> {
    const CUT: Malformed = Malformed("headers that are cut off");
    let number = |text: &mut &[u8]| -> Result<usize, Malformed> {
        let (number, rest) = text.split_first_chunk::<4>().ok_or(CUT)?;
        *text = rest;
        usize::try_from(u32::from_be_bytes(*number)).map_err(|_| CUT)
    };
    let count = number(&mut text)?;
    if count > MAX_HEADERS {
        return Err(Malformed("too many headers"));
    }
    let mut part = || -> Result<String, Malformed> {
        let length = number(&mut text)?;
        let (part, rest) = text.split_at_checked(length).ok_or(CUT)?;
        text = rest;
        Ok(String::from_utf8_lossy(part).into_owned())
    };
    (0..count).map(|_| Ok((part()?.to_ascii_lowercase(), part()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(entries: &[(&str, &str)]) -> Headers {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn blocks_of_a_connection_follow_each_other() {
        let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::default());
        let long = "x".repeat(20_000);
        for entries in [
            headers(&[("streamtype", "data"), ("port", "80"), ("requestid", "0")]),
            headers(&[]),
            headers(&[("streamtype", "error"), ("long", &long)]),
            headers(&[("streamtype", "data"), ("port", "80"), ("requestid", "1")]),
        ] {
            let block = encoder.encode(&entries).unwrap();
            assert_eq!(decoder.decode(&block).unwrap(), entries);
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let block = |entries: &[(&str, &str)]| Encoder::new().unwrap().encode(&headers(entries)).unwrap();
        let bomb = "x".repeat(MAX_BLOCK_LENGTH * 4);
        let many: Vec<(&str, &str)> = vec![("a", "b"); MAX_HEADERS + 1];
        let good = block(&[("streamtype", "error")]);
        for (case, bytes) in [
            ("plain text", b"streamtype: error".to_vec()),
            ("nothing", Vec::new()),
            ("cut off", good[..good.len() - 8].to_vec()),
            ("a bomb", block(&[("a", &bomb)])),
            ("too many", block(&many)),
        ] {
            assert!(Decoder::default().decode(&bytes).is_err(), "{case}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let mut decoder = Decoder::default();
            let _ = decoder.decode(&bytes);
            let _ = decoder.decode(&bytes);
            let _ = parse(&bytes);
        }
    }
}
