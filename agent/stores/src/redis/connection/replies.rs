//! Pure. Replies of a Redis (RESP3, which has all of RESP2), which come in pieces.
//!
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use redis::{ErrorKind, PushKind, RedisError, Value};

/// Longest reply, with everything in it, bytes: some ten times the longest that is asked for.
const REPLY_MAX: usize = 16 * 1024 * 1024;
/// Longest line, bytes: numbers, errors and words.
const LINE_MAX: usize = 64 * 1024;
/// Most replies that are open within each other.
const DEPTH_MAX: usize = 32;
/// Room that is made for items before they come.
const ITEMS_EXPECTED_MAX: usize = 256;
/// Room that is kept between two replies, bytes.
const KEPT_MAX: usize = 64 * 1024;

/// Bytes in, replies out. What is not a reply ends the connection.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Bytes that have been read.
    read: usize,
    /// Bytes of the reply that is not complete, as far as they have been read.
    length: usize,
    open: Vec<Open>,
}

/// A reply of several items, of which some are to come.
#[derive(Debug)]
struct Open {
    sort: Sort,
    left: usize,
    items: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Array,
    Set,
    Map,
    Push,
    /// Facts about the reply that follows; nobody asks for them.
    Attribute,
}

enum Part {
    Whole(Value),
    Begins(Sort, usize),
}

impl Replies {
    /// Takes what came.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next reply that is complete.
    ///
    /// # Errors
    ///
    /// When what came is not a reply, or one beyond every measure.
    pub(super) fn next(&mut self) -> Result<Option<Value>, RedisError> {
        loop {
            let before = self.read;
            let part = self.part()?;
            self.length += self.read - before;
            let part = match part {
                Some(part) => part,
                None if self.length + self.bytes.len() - self.read > REPLY_MAX => {
                    return Err(strange("a reply is too long"));
                }
                None => {
                    self.forget_what_was_read();
                    return Ok(None);
                }
            };
            let mut value = match part {
                Part::Whole(value) => Some(value),
                Part::Begins(sort, 0) => sort.of(Vec::new())?,
                Part::Begins(_, _) if self.open.len() == DEPTH_MAX => {
                    return Err(strange("a reply is too deep"));
                }
                Part::Begins(sort, left) => {
                    let items = Vec::with_capacity(left.min(ITEMS_EXPECTED_MAX));
                    self.open.push(Open { sort, left, items });
                    continue;
                }
            };
            while let Some(whole) = value {
                let Some(open) = self.open.last_mut() else {
                    self.length = 0;
                    return Ok(Some(whole));
                };
                open.items.push(whole);
                open.left -= 1;
                if open.left > 0 {
                    break;
                }
                value = match self.open.pop() {
                    Some(Open { sort, items, .. }) => sort.of(items)?,
                    None => None,
                };
            }
        }
    }

    fn forget_what_was_read(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(KEPT_MAX);
        }
    }

    /// The next part of a reply, if all of it is there.
    fn part(&mut self) -> Result<Option<Part>, RedisError> {
        let rest = &self.bytes[self.read..];
        let Some(end) = rest.windows(2).take(LINE_MAX).position(|pair| pair == b"\r\n") else {
            let is_line = rest.len() <= LINE_MAX;
            return if is_line { Ok(None) } else { Err(strange("a line is too long")) };
        };
        let (line, after) = (&rest[1.min(end)..end], end + 2);
        let begins = |sort, items| -> Result<_, RedisError> {
            let count = usize::try_from(number(line)?).map(|count| count.saturating_mul(items));
            Ok((count.map_or(Part::Whole(Value::Nil), |count| Part::Begins(sort, count)), after))
        };
        let whole = |value| (Part::Whole(value), after);
        let (part, length) = match rest[0] {
            b'$' | b'!' | b'=' => {
                let Ok(length) = usize::try_from(number(line)?) else {
                    self.read += after;
                    return Ok(Some(Part::Whole(Value::Nil)));
                };
                if length > REPLY_MAX {
                    return Err(strange("a reply is too long"));
                }
                let Some(text) = rest.get(after..after + length + 2) else { return Ok(None) };
                let Some(text) = text.strip_suffix(b"\r\n") else {
                    return Err(strange("a text does not end where it should"));
                };
                let value = match rest[0] {
                    b'!' => error(text)?,
                    // Three letters tell the format.
                    b'=' => Value::BulkString(text.get(4..).unwrap_or_default().to_vec()),
                    _ => Value::BulkString(text.to_vec()),
                };
                (Part::Whole(value), after + length + 2)
            }
            b'+' if line == b"OK" => whole(Value::Okay),
            b'+' => whole(Value::SimpleString(text(line)?.to_owned())),
            b'-' => whole(error(line)?),
            b':' => whole(Value::Int(number(line)?)),
            b'_' => whole(Value::Nil),
            b'#' => whole(Value::Boolean(line == b"t")),
            b',' => whole(Value::Double(
                text(line)?.parse().map_err(|_| strange("a number is not one"))?,
            )),
            b'(' => whole(Value::BulkString(line.to_vec())),
            b'*' => begins(Sort::Array, 1)?,
            b'~' => begins(Sort::Set, 1)?,
            b'>' => begins(Sort::Push, 1)?,
            b'%' => begins(Sort::Map, 2)?,
            b'|' => begins(Sort::Attribute, 2)?,
            _ => return Err(strange("a reply begins as none does")),
        };
        self.read += length;
        Ok(Some(part))
    }
}

impl Sort {
    /// The reply that has these items, if it is one.
    fn of(self, items: Vec<Value>) -> Result<Option<Value>, RedisError> {
        Ok(Some(match self {
            Sort::Array => Value::Array(items),
            Sort::Set => Value::Set(items),
            Sort::Map => {
                let mut items = items.into_iter();
                let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
                Value::Map(pairs.collect())
            }
            Sort::Push => {
                let mut data = items.into_iter();
                let kind = match data.next() {
                    Some(Value::BulkString(kind)) => push_kind(text(&kind)?),
                    Some(Value::SimpleString(kind)) => push_kind(&kind),
                    _ => return Err(strange("a push does not say what it is")),
                };
                Value::Push { kind, data: data.collect() }
            }
            Sort::Attribute => return Ok(None),
        }))
    }
}

fn push_kind(kind: &str) -> PushKind {
    match kind {
        "invalidate" => PushKind::Invalidate,
        "message" => PushKind::Message,
        "subscribe" => PushKind::Subscribe,
        "unsubscribe" => PushKind::Unsubscribe,
        other => PushKind::Other(other.to_owned()),
    }
}

/// A server's error. The crate alone can make one, of what the server said.
fn error(line: &[u8]) -> Result<Value, RedisError> {
    let line = String::from_utf8_lossy(line).replace(['\r', '\n'], " ");
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes())
}

fn text(line: &[u8]) -> Result<&str, RedisError> {
    std::str::from_utf8(line).map_err(|_| strange("a word is not text"))
}

fn number(line: &[u8]) -> Result<i64, RedisError> {
    text(line)?.parse().map_err(|_| strange("a number is not one"))
}

fn strange(what: &'static str) -> RedisError {
    (ErrorKind::Parse, what).into()
}
