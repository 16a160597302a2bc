//! An HTTP answer.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure::wire::{Code, Problem};

/// An answer of the agent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as a shape of the wire, if the status is the expected one.
    #[track_caller]
    pub fn expect<T: DeserializeOwned>(&self, status: u16) -> T {
        assert_eq!(self.status, status, "unexpected answer: {}", self.text());
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the answer {}", self.text()))
    }

    /// The body as JSON, if the status is the expected one.
    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        self.expect(status)
    }

    /// The refusal, if it is this one in every respect: code, status, content type, title, and a
    /// detail.
    #[track_caller]
    pub fn problem(&self, code: Code) -> Problem {
        let problem: Problem = self.expect(code.status());
        assert_eq!(problem.code, code, "{}", self.text());
        assert_eq!(problem.status, code.status(), "{}", self.text());
        assert_eq!(problem.kind, format!("urn:tenure:problem:{code}"));
        assert_eq!(problem.title, code.title());
        assert!(!problem.detail.is_empty(), "a refusal says what was wrong: {}", self.text());
        let content_type = self.header("content-type").unwrap_or_default();
        assert!(content_type.starts_with("application/problem+json"), "{content_type}");
        problem
    }
}
