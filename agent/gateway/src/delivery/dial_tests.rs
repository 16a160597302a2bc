use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::net::TcpListener;

use super::*;

#[test]
fn an_address_is_a_host_and_a_port() {
    for good in ["proxy-01.prism.local:8980", "127.0.0.1:1", "[::1]:8980"] {
        assert!(is_address(good), "{good}");
    }
    for bad in [
        "",
        "host",
        "host:",
        "a b:1",
        "http://host:1",
        "user@host:1",
        "host:1/path",
        ":1",
        "host:0",
    ] {
        assert!(!is_address(bad), "{bad}");
    }
}

#[test]
fn every_spelling_of_an_address_is_one() {
    for (text, expected) in [
        ("127.0.0.1:1", Some("127.0.0.1:1")),
        ("2130706433:1", Some("127.0.0.1:1")),
        ("0x7f000001:1", Some("127.0.0.1:1")),
        ("0X7F.1:1", Some("127.0.0.1:1")),
        ("127.1:1", Some("127.0.0.1:1")),
        ("127.0.1:1", Some("127.0.0.1:1")),
        ("0177.0.0.01:1", Some("127.0.0.1:1")),
        ("10.65537:1", Some("10.1.0.1:1")),
        ("[::1]:1", Some("[::1]:1")),
        ("[::ffff:127.0.0.1]:1", Some("[::ffff:127.0.0.1]:1")),
        ("256.0.0.1:1", None),
        ("1.2.3.256:1", None),
        ("1.16777216:1", None),
        ("4294967296:1", None),
        ("08.0.0.1:1", None),
        ("1.2.3.4.5:1", None),
        ("1..2:1", None),
        ("0x:1", None),
        ("+1.2.3.4:1", None),
        ("host:1", None),
        ("a1.b2:1", None),
    ] {
        let expected = expected.map(|it| it.parse().unwrap());
        assert_eq!(literal(text), expected, "{text}");
    }
}

/// Serves 127.0.0.2 alone; what is its own has other addresses.
fn networks() -> Option<Arc<Networks>> {
    let named = Some(vec!["127.0.0.2".parse().unwrap()]);
    Some(Arc::new(Networks::new(named, "127.0.0.1:9".parse().unwrap(), None)))
}

fn answers(answers: Vec<Vec<SocketAddr>>) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_, _| {
        let answer = answers[count.fetch_add(1, Relaxed).min(answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    });
    (lookup, asked)
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_later_is_not_followed() {
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outside.local_addr().unwrap().port();
    let inside = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let [good, bad] = [inside.local_addr().unwrap(), outside.local_addr().unwrap()];
    // Good when it is looked at first, and rebound then.
    let (lookup, asked) = answers(vec![vec![bad, good], vec![bad]]);
    let dialer = Dialer::new(format!("rebound.example:{port}").into(), networks(), lookup.clone());
    let stream = dialer.connect().await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), good, "the bad one comes first, and is passed over");
    assert_eq!(asked.load(Relaxed), 1, "what was judged is connected to");
    let refused = dialer.connect().await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    assert_eq!(asked.load(Relaxed), 2, "each dial is judged");
    // One of the configuration is the administrator's.
    let dialer = Dialer::new(format!("rebound.example:{port}").into(), None, lookup);
    assert_eq!(dialer.connect().await.unwrap().peer_addr().unwrap(), bad);
    // The one connection above, and none before it.
    outside.accept().await.unwrap();
}

#[tokio::test]
async fn a_literal_is_judged_at_each_dial_too_and_never_looked_up() {
    let (lookup, asked) = answers(vec![vec![]]);
    let dialer = Dialer::new("2130706433:80".into(), networks(), lookup);
    let refused = dialer.connect().await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    assert_eq!(asked.load(Relaxed), 0);
}

#[tokio::test]
async fn a_silent_name_is_asked_once_at_a_time() {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_, _| {
        count.fetch_add(1, Relaxed);
        Box::pin(std::future::pending())
    });
    let dialer = Dialer::new("silent.example:1".into(), networks(), lookup);
    for _ in 0..4 {
        let given_up = tokio::time::timeout(Duration::from_millis(5), dialer.connect());
        given_up.await.unwrap_err();
    }
    assert_eq!(asked.load(Relaxed), 1);
}

#[tokio::test]
async fn the_system_looks_after_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    prepare(&stream).unwrap();
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
    #[cfg(target_os = "linux")]
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(ACKNOWLEDGED_WITHIN));
}
