use super::*;

const OWN: &str = "127.0.0.1:8740";

fn guard(listened: &str, listed: &str) -> Guard {
    let listed = HostList::parse(listed).unwrap();
    Guard { listened: listened.parse().unwrap(), listed, setting: "hosts", page: Some("/") }
}

/// The status of the refusal of a request with these headers; 0 if it is none.
fn judged(guard: &Guard, target: &str, headers: &[(&str, &str)]) -> u16 {
    let (method, uri) = target.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(()).unwrap();
    let is_certified = |host: &Host<'_>| *host == Host::Name("certified.example");
    let judged = guard.judge(Head::of(&request), is_certified);
    judged.map_or_else(|foreign| foreign.problem().status, |()| 0)
}

#[test]
fn a_host_is_an_address_that_is_listened_at_or_is_listed() {
    let loopback = guard("127.0.0.1", "tenure.example");
    let everywhere = guard("::", "");
    let one = guard("10.0.0.5", "");
    for (host, [at_loopback, at_all, at_one]) in [
        (OWN, [0, 0, 0]),
        ("127.0.0.1", [0, 0, 0]),
        ("127.0.0.1:1", [0, 0, 0]),
        ("localhost:8740", [0, 0, 0]),
        ("LOCALHOST.", [0, 0, 0]),
        ("[::1]:8740", [0, 0, 0]),
        ("certified.example", [0, 0, 0]),
        ("tenure.example:443", [0, 421, 421]),
        ("10.0.0.5:8740", [421, 0, 0]),
        ("10.0.0.6", [421, 0, 421]),
        ("[2001:db8::1]", [421, 0, 421]),
        ("rebound.evil.example:8740", [421, 421, 421]),
        ("localhost.evil.example", [421, 421, 421]),
        ("127.0.0.1.evil.example", [421, 421, 421]),
        ("2130706433", [421, 421, 421]),
        ("0x7f.1", [421, 421, 421]),
        ("evil@127.0.0.1", [400, 400, 400]),
        ("127.0.0.1, evil.example", [400, 400, 400]),
        ("", [400, 400, 400]),
    ] {
        let of = |guard| judged(guard, "GET /v1/resources", &[("host", host)]);
        assert_eq!(
            [of(&loopback), of(&everywhere), of(&one)],
            [at_loopback, at_all, at_one],
            "{host}"
        );
    }
}

#[test]
fn a_host_is_named_once_and_by_all_that_name_it() {
    let guard = guard("127.0.0.1", "");
    assert_eq!(judged(&guard, "GET /", &[]), 400);
    assert_eq!(judged(&guard, "GET /", &[("host", OWN), ("host", OWN)]), 400);
    // As HTTP/2 has it, and the absolute form.
    assert_eq!(judged(&guard, "GET http://127.0.0.1:8740/", &[]), 0);
    assert_eq!(judged(&guard, "GET http://evil.example/", &[]), 421);
    assert_eq!(judged(&guard, "GET http://evil.example/", &[("host", OWN)]), 421);
    assert_eq!(judged(&guard, "GET http://127.0.0.1:8740/", &[("host", "evil.example")]), 421);
    let old = Request::builder().version(Version::HTTP_10).body(()).unwrap();
    guard.judge(Head::of(&old), |_| false).unwrap();
}

#[test]
fn only_own_pages_send_anything() {
    let guard = guard("127.0.0.1", "tenure.example, *.corp.example");
    for (host, origin, expected) in [
        (OWN, "http://127.0.0.1:8740", 0),
        (OWN, "https://127.0.0.1:8740", 0),
        ("localhost", "http://localhost", 0),
        ("localhost", "http://localhost:80", 0),
        ("localhost:443", "https://localhost", 0),
        ("certified.example", "https://certified.example", 0),
        (OWN, "https://tenure.example", 0),
        (OWN, "https://a.corp.example:8443", 0),
        // Pages of other programs on this host.
        (OWN, "http://127.0.0.1:3000", 403),
        (OWN, "http://127.0.0.1", 403),
        (OWN, "http://localhost:8740", 403),
        (OWN, "http://evil.example", 403),
        (OWN, "https://tenure.example.evil.example", 403),
        (OWN, "https://corp.example", 403),
        (OWN, "null", 403),
        (OWN, "", 403),
        (OWN, "file://", 403),
        (OWN, "chrome-extension://tenure.example", 403),
        (OWN, "ftp://127.0.0.1:8740", 403),
        (OWN, "http://127.0.0.1:8740/", 403),
        (OWN, "http://evil@127.0.0.1:8740", 403),
        (OWN, "http://127.0.0.1:8740 http://evil.example", 403),
    ] {
        let found =
            judged(&guard, "POST /v1/upstream/revoke", &[("host", host), ("origin", origin)]);
        assert_eq!(found, expected, "{host} {origin}");
    }
    let both =
        [("host", OWN), ("origin", "http://127.0.0.1:8740"), ("origin", "http://evil.example")];
    assert_eq!(judged(&guard, "POST /", &both), 403);
}

#[test]
fn other_sites_send_nothing_but_persons_to_the_page() {
    let guard = guard("127.0.0.1", "tenure.example");
    let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
    let image = [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
    let listed = [("origin", "https://tenure.example")];
    for (target, site, more, expected) in [
        ("GET /v1/resources", "same-origin", &[][..], 0),
        ("GET /v1/resources", "none", &[], 0),
        ("GET /v1/resources", "same-site", &[], 403),
        ("GET /v1/resources", "same-site", &listed, 0),
        ("GET /v1/resources", "cross-site", &[], 403),
        ("GET /v1/resources", "cross-site", &listed, 403),
        ("GET /v1/resources", "unheard-of", &[], 403),
        ("GET /v1/resources", "cross-site", &link, 403),
        ("GET /", "cross-site", &link, 0),
        ("GET /?q", "same-site", &link, 0),
        ("GET /", "cross-site", &frame, 403),
        ("GET /", "cross-site", &image, 403),
        ("GET /", "cross-site", &link[..1], 403),
        ("POST /", "cross-site", &link, 403),
        ("GET /metrics", "cross-site", &image, 403),
    ] {
        let headers = [&[("host", OWN), ("sec-fetch-site", site)], more].concat();
        assert_eq!(judged(&guard, target, &headers), expected, "{target} {site} {more:?}");
    }
    let both = [("host", OWN), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
    assert_eq!(judged(&guard, "GET /healthz", &both), 403);
}

#[test]
fn a_refusal_names_the_host_and_the_setting() {
    let foreign =
        Foreign::misdirected(&[b"evil\x1b[31m\xff".as_slice(), &[b'x'; 300]].concat(), "hosts");
    let problem = foreign.problem();
    assert_eq!((problem.status, problem.field.as_deref()), (421, Some("host")));
    assert!(problem.detail.starts_with(r#""evil\x1b[31m\xffxxx"#), "{}", problem.detail);
    assert!(problem.detail.ends_with("to the setting hosts"), "{}", problem.detail);
    assert!(problem.detail.len() < 250, "{}", problem.detail);
}
