use std::future::poll_fn;
use std::sync::mpsc;

use redis::{ErrorKind, ServerErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// Everything that a server may say, one after the other, and the meaning of it.
fn said() -> (Vec<u8>, Vec<Value>) {
    let text = |text: &str| Value::BulkString(text.into());
    let error = |line: &str| redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
    let all: [(&[u8], Option<Value>); 16] = [
        (b"+OK\r\n", Some(Value::Okay)),
        (b"+held\r\n", Some(Value::SimpleString("held".into()))),
        (b"-ERR no\r\n", Some(error("ERR no"))),
        (b":-7\r\n", Some(Value::Int(-7))),
        (b"$5\r\na\r\nb\n\r\n", Some(text("a\r\nb\n"))),
        (b"$0\r\n\r\n", Some(text(""))),
        (b"$-1\r\n", Some(Value::Nil)),
        (b"_\r\n", Some(Value::Nil)),
        (b",0.5\r\n", Some(Value::Double(0.5))),
        (b"#t\r\n", Some(Value::Boolean(true))),
        (b"!8\r\nERR a\r\nb\r\n", Some(error("ERR a  b"))),
        (b"=6\r\ntxt:ab\r\n", Some(text("ab"))),
        (b"|1\r\n+ttl\r\n:1\r\n*0\r\n", Some(Value::Array(Vec::new()))),
        (
            b"*3\r\n*1\r\n:1\r\n%1\r\n+a\r\n*2\r\n_\r\n~1\r\n:2\r\n$1\r\nx\r\n",
            Some(Value::Array(vec![
                Value::Array(vec![Value::Int(1)]),
                Value::Map(vec![(
                    Value::SimpleString("a".into()),
                    Value::Array(vec![Value::Nil, Value::Set(vec![Value::Int(2)])]),
                )]),
                text("x"),
            ])),
        ),
        (
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
            Some(Value::Push {
                kind: PushKind::Invalidate,
                data: vec![Value::Array(vec![text("k")])],
            }),
        ),
        (b"*-1\r\n", Some(Value::Nil)),
    ];
    let bytes = all.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    (bytes, all.into_iter().filter_map(|(_, value)| value).collect())
}

fn read(replies: &mut Replies, pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Vec<Value> {
    let mut values = Vec::new();
    for piece in pieces {
        replies.add(piece.as_ref());
        while let Some(value) = replies.next().unwrap() {
            values.push(value);
        }
    }
    values
}

#[test]
fn replies_are_the_same_however_they_are_cut() {
    let (bytes, expected) = said();
    for cut in 0..=bytes.len() {
        let (one, two) = bytes.split_at(cut);
        assert_eq!(read(&mut Replies::default(), [one, two].iter()), expected, "cut at {cut}");
    }
    assert_eq!(read(&mut Replies::default(), bytes.chunks(1)), expected);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..500 {
        let mut rest = bytes.repeat(3);
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = 1 + (state >> 33) as usize % 40;
            pieces.push(rest.drain(..length.min(rest.len())).collect::<Vec<u8>>());
        }
        let values = read(&mut Replies::default(), pieces.iter());
        assert!(values.chunks(expected.len()).all(|values| values == expected), "{pieces:?}");
    }
}

#[test]
fn what_is_no_reply_is_an_error() {
    let deep = b"*1\r\n".repeat(40);
    let endless = [b"+".as_slice(), &[b'x'; 70_000]].concat();
    let many = [b"*4000000\r\n".as_slice(), &b"$4\r\nabcd\r\n".repeat(2_000_000)].concat();
    let hostile: [&[u8]; 12] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b":x\r\n",
        b"$x\r\n",
        b"$99999999999\r\n",
        b"$3\r\nabcd\r\n",
        b"+\xff\r\n",
        b",x\r\n",
        b">0\r\n",
        &deep,
        &endless,
        &many,
    ];
    for bytes in hostile {
        let mut replies = Replies::default();
        replies.add(bytes);
        let error = std::iter::from_fn(|| replies.next().transpose()).find_map(Result::err);
        let error = error.unwrap_or_else(|| panic!("{:?}", bytes.escape_ascii().to_string()));
        assert_eq!(error.kind(), ErrorKind::Parse);
    }
    // An announced length takes no room before anything comes.
    let mut replies = Replies::default();
    replies.add(b"*9000000000000000000\r\n%9223372036854775807\r\n");
    assert_eq!(replies.next().unwrap(), None);
}

/// A connection, its pump, the server's end, and what was said unasked.
fn bench(room: usize) -> (Connection, Pump, DuplexStream, mpsc::Receiver<PushInfo>) {
    let (ours, theirs) = duplex(room);
    let (heard_in, heard) = mpsc::channel();
    let (connection, pump) = Connection::new(Box::new(ours), move |push, _| {
        heard_in.send(push).unwrap();
    });
    (connection, pump, theirs, heard)
}

/// Polls the pump once; whether the connection lives.
async fn pump_once(pump: &mut Pump) -> bool {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *pump).poll(context).is_pending())).await
}

async fn read_all(server: &mut DuplexStream) -> String {
    let mut bytes = [0; 1024];
    let length = server.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn ping(number: u32) -> Cmd {
    redis::cmd("PING").arg(number).take()
}

#[tokio::test]
async fn a_flush_has_commands_leave_and_answers_come_in_their_order() {
    let (connection, mut pump, mut server, heard) = bench(4096);
    assert!(pump_once(&mut pump).await);
    let (one, given_up, three) =
        (connection.send(&ping(1)), connection.send(&ping(2)), connection.send(&ping(3)));
    connection.flush();
    let asked = read_all(&mut server).await;
    assert_eq!(asked.matches("PING").count(), 3, "{asked}");
    drop(given_up);
    server
        .write_all(b":1\r\n>2\r\n+invalidate\r\n_\r\n-NOSCRIPT two\r\n-READONLY three\r\n")
        .await
        .unwrap();
    assert!(pump_once(&mut pump).await);
    assert_eq!(one.await.unwrap(), Value::Int(1));
    let error = three.await.unwrap().extract_error().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
    assert_eq!(heard.try_recv().unwrap().kind, PushKind::Invalidate);
}

#[tokio::test]
async fn a_subscription_is_answered_when_all_of_it_is_confirmed_or_refused() {
    let (connection, mut pump, mut server, heard) = bench(4096);
    let subscribe = redis::cmd("SUBSCRIBE").arg("a").arg("b").take();
    let (subscribed, pinged, refused) =
        (connection.send(&subscribe), connection.send(&ping(1)), connection.send(&subscribe));
    let confirmation = b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    server.write_all(confirmation).await.unwrap();
    server.write_all(b">2\r\n+message\r\n_\r\n").await.unwrap();
    assert!(pump_once(&mut pump).await);
    let waiting = connection.shared().waiting.len();
    assert_eq!((waiting, heard.try_iter().count()), (3, 2));
    server.write_all(confirmation).await.unwrap();
    server.write_all(b"+PONG\r\n-NOPERM no\r\n").await.unwrap();
    assert!(pump_once(&mut pump).await);
    assert_eq!(subscribed.await.unwrap(), Value::Okay);
    assert_eq!(pinged.await.unwrap(), Value::SimpleString("PONG".into()));
    assert!(refused.await.unwrap().extract_error().is_err());
}

#[tokio::test]
async fn a_command_that_is_half_written_goes_on_when_there_is_room() {
    let (connection, mut pump, mut server, _heard) = bench(64);
    assert!(pump_once(&mut pump).await);
    let long = redis::cmd("ECHO").arg("x".repeat(1000)).take();
    let answer = connection.send(&long);
    connection.flush();
    let mut asked = 0;
    while asked < long.get_packed_command().len() {
        asked += read_all(&mut server).await.len();
        assert!(pump_once(&mut pump).await);
    }
    server.write_all(b"+done\r\n").await.unwrap();
    assert!(pump_once(&mut pump).await);
    assert_eq!(answer.await.unwrap(), Value::SimpleString("done".into()));
    let shared = connection.shared();
    assert_eq!((shared.out.len(), shared.written), (0, 0));
}

#[tokio::test]
async fn each_call_is_answered_once_when_the_connection_ends() {
    for last_words in [b"".as_slice(), b"$5\r\nhal", b"?\r\n", b":1\r\n:2\r\n:3\r\n"] {
        let (connection, mut pump, mut server, _heard) = bench(4096);
        let (one, two) = (connection.send(&ping(1)), connection.send(&ping(2)));
        server.write_all(last_words).await.unwrap();
        drop(server);
        assert!(!pump_once(&mut pump).await);
        let answers = [one.await, two.await];
        let is_answered = last_words.starts_with(b":1");
        assert_eq!(answers.map(|answer| answer.is_ok()), [is_answered; 2]);
        // Later ones never leave.
        assert!(connection.send(&ping(3)).await.is_err());
        connection.flush();
    }
    let (connection, pump, mut server, _heard) = bench(4096);
    let waiting = connection.send(&ping(1));
    drop(pump);
    assert!(waiting.await.unwrap_err().is_unrecoverable_error());
    assert_eq!(server.read(&mut [0; 64]).await.unwrap(), 0, "the stream is closed");
}
