//! The stream of changes that a gateway sends to an agent.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{DEADLINE, Key, until};

/// An open change stream.
pub struct ChangeStream {
    stream: TcpStream,
    text: String,
}

impl ChangeStream {
    #[track_caller]
    pub(super) fn open(port: u16, key: &Key) -> ChangeStream {
        let mut stream =
            TcpStream::connect(("127.0.0.1", port)).expect("the gateway takes connections");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket has a timeout");
        let header = key.header();
        write!(stream, "GET /v1/upstream/changes HTTP/1.1\r\nHost: localhost\r\n{header}\r\n")
            .expect("it reads");
        let mut first = [0; 15];
        stream.read_exact(&mut first).expect("it answers");
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        ChangeStream { stream, text: String::new() }
    }

    /// Reads until the gateway ends it; everything that came after the first line.
    #[track_caller]
    pub fn ended(mut self) -> String {
        // A chunk of no bytes is the end.
        until("the stream to end", || {
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("it can be read");
            self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            self.text.ends_with("0\r\n\r\n")
        });
        self.text
    }

    /// Fails if the gateway has ended it.
    #[track_caller]
    pub fn is_open(mut self) {
        self.stream.set_nonblocking(true).expect("a socket can be so");
        let open = self.stream.read_to_end(&mut Vec::new()).expect_err("it goes on");
        assert_eq!(open.kind(), ErrorKind::WouldBlock);
    }
}
