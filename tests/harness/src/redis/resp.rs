//! Finds the end of a frame of the Redis protocol.

/// The length of the first frame, and whether it is a push that says something happened: an
/// invalidation, or a message on a channel. `None` while it is not complete.
pub(super) fn first_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let length = frame_length(bytes)?;
    Some((length, bytes[0] == b'>' && is_news(&bytes[..length])))
}

/// Confirmations of subscriptions are pushes too; whoever subscribes waits for them.
fn is_news(push: &[u8]) -> bool {
    const NEWS: [&[u8]; 4] = [b"invalidate", b"message", b"pmessage", b"smessage"];
    let mut lines = push.split(|&byte| byte == b'\n').map(|line| line.trim_ascii_end());
    let name = lines.nth(1).filter(|line| line.starts_with(b"+")).map(|line| &line[1..]);
    let name = name.or_else(|| lines.next());
    name.is_some_and(|name| NEWS.contains(&name))
}

fn frame_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let after = line + 2;
    let count = || std::str::from_utf8(&bytes[1..line]).ok()?.parse::<i64>().ok();
    match *bytes.first()? {
        b'$' | b'=' | b'!' => match usize::try_from(count()?) {
            Ok(length) => (bytes.len() >= after + length + 2).then_some(after + length + 2),
            Err(_) => Some(after),
        },
        b'*' | b'~' | b'>' => elements(bytes, after, count()?),
        b'%' | b'|' => elements(bytes, after, count()? * 2),
        _ => Some(after),
    }
}

fn elements(bytes: &[u8], mut at: usize, count: i64) -> Option<usize> {
    for _ in 0..count {
        at += frame_length(&bytes[at..])?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_end_where_they_end() {
        for (frame, news) in [
            ("+OK\r\n", false),
            (":1\r\n", false),
            ("$5\r\nhello\r\n", false),
            ("$-1\r\n", false),
            ("_\r\n", false),
            ("*2\r\n:1\r\n$1\r\n\r\r\n", false),
            ("%1\r\n+a\r\n*0\r\n", false),
            (">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", true),
            (">2\r\n+invalidate\r\n_\r\n", true),
            (">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", true),
            (">3\r\n$9\r\nsubscribe\r\n$7\r\nmessage\r\n:1\r\n", false),
        ] {
            let with_next = format!("{frame}+next\r\n");
            assert_eq!(first_frame(with_next.as_bytes()), Some((frame.len(), news)), "{frame:?}");
            for cut in 0..frame.len() {
                assert_eq!(first_frame(&frame.as_bytes()[..cut]), None, "{cut} of {frame:?}");
            }
        }
    }
}
