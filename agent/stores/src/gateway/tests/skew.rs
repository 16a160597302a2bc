//! Agents and gateways of different versions.
//!
//! `protocol_1.txt` has what both sides said when protocol 1 came out. It is never written anew: what a later
//! version says beyond it gets a file of its own, as `resources.txt` and `history.txt` are.

use serde_json::Value;

use super::*;
use crate::gateway::wire::Hello;
use crate::relay::Carried;

const RECORDED: &str = concat!(
    include_str!("protocol_1.txt"),
    include_str!("resources.txt"),
    include_str!("history.txt")
);

/// What this version says, a line each: the kind of message, and its body.
fn said() -> Vec<String> {
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let json = |value: serde_json::Result<String>| value.unwrap();
    let store = StoreInfo { kind: "toy".to_owned(), guarantee: "none".to_owned(), id: None };
    let (version, mark) = (|| "0.1.0".to_owned(), Mark::of("p"));
    let host = Some("h".to_owned());
    let hello = Hello { protocol: PROTOCOL, version: version(), host, only_looks: false };
    let welcome = Welcome {
        protocol: PROTOCOL,
        version: version(),
        store,
        state: StoreState::default(),
        mark,
    };
    let mut said = vec![
        format!("hello {}", json(serde_json::to_string(&hello))),
        format!("welcome {}", json(serde_json::to_string(&welcome))),
    ];
    let ask = |request| {
        let operation = Operation::of(&request);
        format!("ask:{operation} {}", text(request_body(request).unwrap()))
    };
    let answer =
        |(operation, answer)| format!("answer:{operation} {}", text(answer_body(answer).unwrap()));
    said.extend(requests().into_iter().map(ask));
    said.extend(answers().into_iter().map(answer));
    said.extend(all_news().into_iter().map(|news| {
        let line = text(news.line().unwrap());
        format!("news {}", line.trim_end().strip_prefix("data: ").unwrap())
    }));
    for (requests, answers) in [later(), of_history()] {
        said.extend(requests.into_iter().map(ask));
        said.extend(answers.into_iter().map(answer));
    }
    said
}

/// True if everything that was said is said still; what is new beside it is ignored by whoever does not know it.
fn says_all_of(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            then.iter().all(|(key, then)| now.get(key).is_some_and(|now| says_all_of(now, then)))
        }
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len()
                && now.iter().zip(then).all(|(now, then)| says_all_of(now, then))
        }
        _ => now == then,
    }
}

#[test]
fn the_version_before_understands_this_one() {
    let said = said();
    assert_eq!(said.len(), RECORDED.lines().count());
    for (now, then) in said.iter().zip(RECORDED.lines()) {
        let [now, then] = [now.as_str(), then].map(|line| line.split_once(' ').unwrap());
        assert_eq!(now.0, then.0);
        let parse = |text| serde_json::from_str::<Value>(text).unwrap();
        assert!(says_all_of(&parse(now.1), &parse(then.1)), "{now:?} lacks some of {then:?}");
    }
}

#[test]
fn this_version_understands_the_one_before() {
    let (later, history) = (later(), of_history());
    let mut requests = requests().into_iter().chain(later.0).chain(history.0);
    let mut answers = answers().into_iter().chain(later.1).chain(history.1);
    let mut news = all_news().into_iter();
    let operation = |name: &str| {
        Operation::ALL.into_iter().find(|operation| operation.to_string() == name).unwrap()
    };
    for line in RECORDED.lines() {
        let (kind, body) = line.split_once(' ').unwrap();
        match kind.split_once(':') {
            Some(("ask", name)) => {
                let read = operation(name).read_request(body.as_bytes()).unwrap();
                assert_eq!(Some(read), requests.next());
            }
            Some((_, name)) => {
                let read = operation(name).read_answer(body.as_bytes()).unwrap();
                assert_eq!(Some(read), answers.next().map(|(_, answer)| answer));
            }
            None if kind == "news" => {
                let read = News::read(format!("data: {body}").as_bytes());
                assert_eq!(read, Some(news.next().unwrap()));
            }
            None if kind == "hello" => {
                assert_eq!(serde_json::from_str::<Hello>(body).unwrap().protocol, 1);
            }
            None => {
                let welcome: Welcome = serde_json::from_str(body).unwrap();
                assert_eq!((welcome.protocol, welcome.mark), (1, Mark::of("p")));
            }
        }
    }
    assert!(requests.next().is_none() && answers.next().is_none() && news.next().is_none());
}

#[test]
fn a_grant_that_news_carry_is_left_out_or_ignored_by_the_version_before() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum NewsBefore {
        Granted { claim: ClaimId },
    }
    let claim = ClaimId(Uuid::from_u128(6));
    let grant = Carried { token: u64::MAX, limit: Some(2), kept: TTL };
    let news = News::Granted { claim, grant: Some(grant) };
    let line = news.line().unwrap();
    let text = line.trim_ascii_end();
    assert_eq!(News::read(text), Some(news));
    let before = serde_json::from_slice::<NewsBefore>(text.strip_prefix(b"data: ").unwrap());
    assert_eq!(before.unwrap(), NewsBefore::Granted { claim });
    let said_before = News::Granted { claim, grant: None }.line().unwrap();
    let recorded = "news ".to_owned() + std::str::from_utf8(&said_before[6..]).unwrap().trim_end();
    assert!(RECORDED.lines().any(|line| line == recorded), "{recorded}");
}

#[test]
fn the_version_before_passes_over_what_is_told_of_the_store() {
    let error = Some("refused".to_owned());
    let state = StoreState { is_down: true, since_ms: 7, error, quarantine_ms: None };
    let news = News::Store(state);
    let line = news.line().unwrap();
    let recorded = "data: {\"store\":{\"is_down\":true,\"since_ms\":7,\"error\":\"refused\"}}";
    assert_eq!(line.trim_ascii_end(), recorded.as_bytes());
    assert_eq!(News::read(recorded.as_bytes()), Some(news));
    let less = b"data: {\"store\":{\"is_down\":false}}";
    assert_eq!(News::read(less), Some(News::Store(StoreState::default())));
}
