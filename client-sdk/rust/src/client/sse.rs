//! Server-sent events, as far as the agent sends them.
//!
//! Source: the parsing rules of the HTML standard, section 9.2.6; without `retry:`, and with ids
//! that are numbers.

/// An event larger than this is refused, bytes. The largest that the agent sends is a snapshot of 4095
/// holds, each with a name and a request id of 200 bytes; a standing lists at most 100 of each sort.
pub(super) const FRAME_SIZE_MAX: usize = 8 << 20;

/// One event as it came over the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The event's number, if the agent gave it one.
    pub(super) id: Option<u64>,
    pub(super) event: String,
    pub(super) data: String,
}

/// An event is larger than [`FRAME_SIZE_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {FRAME_SIZE_MAX} bytes")]
pub(super) struct TooLarge;

/// Puts chunks of a stream together to frames.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Bytes of lines not yet looked at.
    buffer: Vec<u8>,
    /// The start of the next line in `buffer`.
    start: usize,
    /// Up to here `buffer` has no line end, so that a long line is searched once.
    searched: usize,
    id: Option<u64>,
    event: String,
    data: Option<String>,
}

impl Parser {
    /// Takes the next chunk, cut anywhere.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete frame of what was fed.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, TooLarge> {
        while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n')
        {
            let end = self.searched + length;
            let line = &self.buffer[self.start..end];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            let line = line.into_owned();
            self.start = end + 1;
            self.searched = self.start;
            if let Some(frame) = self.take_line(&line)? {
                return Ok(Some(frame));
            }
        }
        self.searched = self.buffer.len();
        if self.searched - self.start > FRAME_SIZE_MAX { Err(TooLarge) } else { Ok(None) }
    }

    fn take_line(&mut self, line: &str) -> Result<Option<Frame>, TooLarge> {
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = value.parse().ok(),
            "event" => value.clone_into(&mut self.event),
            "data" => match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            },
            // A comment (no field name), or a field of a later version.
            _ => {}
        }
        let size = self.data.as_ref().map_or(0, String::len);
        if size > FRAME_SIZE_MAX { Err(TooLarge) } else { Ok(None) }
    }

    fn dispatch(&mut self) -> Option<Frame> {
        let id = self.id.take();
        let event = std::mem::take(&mut self.event);
        self.data.take().map(|data| Frame { id, event, data })
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Feeds the stream whole and byte by byte, and compares `id event data` of each frame.
    fn check(stream: &str, expected: &[&str]) {
        for size in [1, 2, 7, stream.len().max(1)] {
            let mut parser = Parser::default();
            let mut frames = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                parser.feed(chunk);
                while let Some(frame) = parser.next_frame().expect("small") {
                    let id = frame.id.map_or("-".into(), |id| id.to_string());
                    frames.push(format!("{id} {} {}", frame.event, frame.data));
                }
            }
            assert_eq!(frames, expected, "in chunks of {size}");
        }
    }

    #[test]
    fn frames() {
        check("", &[]);
        check("id: 7\nevent: granted\ndata: {}\n\n", &["7 granted {}"]);
        check("id: 7\r\nevent: granted\r\ndata: {}\r\n\r\n", &["7 granted {}"]);
        check("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", &["- a 1", "- b 2"]);
        check("data:1\ndata: 2\ndata\n\n", &["-  1\n2\n"]);
        check(": keep-alive\n\ndata: {}\n: in between\n\n", &["-  {}"]);
        check("id: 9\nevent: unfinished\ndata: {}\n", &[]);
        check("event: without data\n\ndata: x\n\n", &["-  x"]);
        check("id: none\nretry: 10\nfuture: y\ndata: x\n\n", &["-  x"]);
        check("id: 1\ndata: grüße\n\n", &["1  grüße"]);
    }

    #[test]
    fn the_largest_snapshot_is_read() {
        let hold = format!(r#"{{"name":"{0}","request":"{0}"}},"#, r#"\""#.repeat(200));
        let data = hold.repeat(4095);
        let mut parser = Parser::default();
        parser.feed(format!("event: snapshot\ndata: {data}\n\n").as_bytes());
        let frame = parser.next_frame().expect("not too large").expect("complete");
        assert_eq!(frame.data.len(), data.len());
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = Parser::default();
        parser.feed(&vec![b'x'; FRAME_SIZE_MAX + 1]);
        assert_eq!(parser.next_frame(), Err(TooLarge));
    }

    #[test]
    fn endless_data_is_refused() {
        let mut parser = Parser::default();
        let line = format!("data: {}\n", "x".repeat(FRAME_SIZE_MAX / 2));
        let mut results = (0..3).map(|_| {
            parser.feed(line.as_bytes());
            parser.next_frame()
        });
        assert!(results.any(|result| result == Err(TooLarge)));
    }
}
