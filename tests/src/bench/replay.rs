//! Scripts of a real agent, repeated one by one: what each costs Redis' processor, whoever else wants it.
//!
//! Redis' own log of slow commands counts the time during which the machine did something else, too.

use redis::Value;

use super::shared_redis::SharedRedis;
use crate::harness::cpu_ns;

/// One script that was called, with everything that it was called with.
pub(super) type Call = Vec<Vec<u8>>;

/// Watches until so many scripts were called.
pub(super) fn called(redis: &SharedRedis, count: usize) -> anyhow::Result<Vec<Call>> {
    let mut watch = redis.connect()?;
    watch.send_packed_command(&redis::cmd("MONITOR").get_packed_command())?;
    let mut calls = Vec::new();
    while calls.len() < count {
        if let Value::SimpleString(line) = watch.recv_response()? {
            calls.extend(script_of(&line));
        }
    }
    Ok(calls)
}

/// The least processor time of each of them, µs, when all are called again so often, one after the other.
pub(super) fn processor_us(
    redis: &SharedRedis,
    calls: &[Call],
    repetitions: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut connection = redis.connect()?;
    let mut least = vec![f64::INFINITY; calls.len()];
    for _ in 0..repetitions {
        for (call, least) in calls.iter().zip(&mut least) {
            let mut command = redis::Cmd::new();
            command.arg(call);
            let before = cpu_ns(redis.pid());
            command.exec(&mut connection)?;
            *least = least.min((cpu_ns(redis.pid()) - before) as f64 / 1e3);
        }
    }
    Ok(least)
}

/// The script that a line of `MONITOR` tells of: `TIME [DB ADDRESS] "EVALSHA" "…" …`.
fn script_of(line: &str) -> Option<Call> {
    let (_, command) = line.split_once("] ")?;
    let words = words(command);
    words.first()?.eq_ignore_ascii_case(b"evalsha").then_some(words)
}

/// Quoted words, as Redis escapes them.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.by_ref().any(|it| it == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                b'\\' => match bytes.next() {
                    Some(b'x') => {
                        let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                        word.extend(u8::from_str_radix(&digits, 16));
                    }
                    Some(b'n') => word.push(b'\n'),
                    Some(b'r') => word.push(b'\r'),
                    Some(b't') => word.push(b'\t'),
                    Some(b'a') => word.push(7),
                    Some(b'b') => word.push(8),
                    Some(other) => word.push(other),
                    None => break,
                },
                other => word.push(other),
            }
        }
        words.push(word);
    }
    words
}
