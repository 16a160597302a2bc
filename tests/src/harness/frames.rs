//! HTTP/2, frame by frame, as no library sends it.

/// The beginning of a connection.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Kinds of frames.
pub const DATA: u8 = 0;
/// A head.
pub const HEADERS: u8 = 1;
/// The place of a stream among others.
pub const PRIORITY: u8 = 2;
/// The end of a stream.
pub const RST_STREAM: u8 = 3;
/// The settings of a connection.
pub const SETTINGS: u8 = 4;
/// A promise of an answer.
pub const PUSH_PROMISE: u8 = 5;
/// A question to the other side, to see that it is there.
pub const PING: u8 = 6;
/// The end of a connection.
pub const GOAWAY: u8 = 7;
/// More room for answers.
pub const WINDOW_UPDATE: u8 = 8;
/// More of a head.
pub const CONTINUATION: u8 = 9;
/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame of a head.
pub const END_HEADERS: u8 = 4;

/// A frame.
#[track_caller]
pub fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// The content of a head, with fields of less than 127 bytes that are not remembered.
#[track_caller]
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("a text is short");
        assert!(length < 127, "{text} is too long");
        [&[length], text.as_bytes()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}
