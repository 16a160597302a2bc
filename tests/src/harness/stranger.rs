//! A caller that says to a gateway what it likes, as an agent would.

use serde_json::{Value, json};

use super::{Gateway, Key};

const TTL_S: u64 = 30;

/// A caller of the agent face, without an agent.
pub struct Stranger<'a> {
    gateway: &'a Gateway,
    header: String,
    mark: String,
}

impl<'a> Stranger<'a> {
    /// One that shows this key, and is let in.
    #[track_caller]
    pub fn new(gateway: &'a Gateway, key: &Key) -> Stranger<'a> {
        let mut caller = Stranger { gateway, header: key.header(), mark: String::new() };
        let welcome = caller.done("hello", &json!({"protocol": 1, "version": "x"}));
        caller.mark = welcome["mark"].as_str().expect("a welcome has a mark").to_owned();
        caller
    }

    /// An id of its own.
    pub fn id(&self, number: usize) -> String {
        format!("{:08x}-10b1-426f-{:04x}-{}", number >> 16, number & 0xffff, self.mark)
    }

    /// True if an id is of its principal.
    pub fn owns(&self, id: &Value) -> bool {
        id.as_str().is_some_and(|id| id.ends_with(&self.mark))
    }

    /// The status and the answer of an operation.
    #[track_caller]
    pub fn ask(&self, operation: &str, body: &Value) -> (u16, Value) {
        self.call(&format!("POST /v1/upstream/{operation}"), &body.to_string())
    }

    /// The status and the answer of any call; null if it is no JSON.
    #[track_caller]
    pub fn call(&self, head: &str, body: &str) -> (u16, Value) {
        let answer = self.gateway.call_with(&self.header, head, body);
        let (status, answer) = answer.expect("the gateway answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// The answer of an operation that is carried out.
    #[track_caller]
    pub fn done(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(operation, body);
        assert_eq!(status, 200, "{operation} {body}: {answer}");
        answer
    }

    /// The refusal of an operation that takes this right.
    #[track_caller]
    pub fn lacks(&self, operation: &str, body: &Value, right: &str) -> String {
        let (status, problem) = self.ask(operation, body);
        assert_lacks(status, &problem, right)
    }

    fn owner(&self) -> Value {
        json!({"session": self.id(0), "host": format!("host-{}", self.mark), "name": format!("name-{}", self.mark)})
    }

    /// The body of a claim under an id of its own. `number` is the priority of a master, and the limit of a semaphore.
    pub fn claim(&self, id: usize, resource: &Value, number: i64, enqueue: bool) -> Value {
        let terms = match resource["kind"].as_str() {
            Some("master") => json!({"Master": {"priority": number}}),
            Some("semaphore") => json!({"Semaphore": {"limit": number}}),
            Some("lease") => {
                json!({"Lease": {"grace": ttl(5), "attributes": {"address": "10.0.0.1:1"}}})
            }
            _ => json!("Leader"),
        };
        json!({"id": self.id(id), "resource": resource, "owner": self.owner(), "ttl": ttl(TTL_S), "terms": terms,
            "enqueue": enqueue})
    }

    /// The body of a session that is announced.
    pub fn announce(&self, tenant: &str, project: &str) -> Value {
        json!({"owner": self.owner(), "tenant": tenant, "project": project, "surface": "s", "ttl": ttl(TTL_S)})
    }

    /// The body of a beat of a claim.
    pub fn renew(&self, id: usize, resource: &Value) -> Value {
        let subject = json!({"Claim": {"claim": self.id(id), "resource": resource}});
        json!({"beats": [{"subject": subject, "ttl": ttl(TTL_S)}]})
    }

    /// The body of a release.
    pub fn release(&self, id: usize, resource: &Value) -> Value {
        json!({"claim": self.id(id), "resource": resource})
    }
}

/// Fails unless that is the refusal of a deed that takes this right; its text.
#[track_caller]
fn assert_lacks(status: u16, problem: &Value, right: &str) -> String {
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert_eq!(problem["field"], right, "{problem}");
    let detail = problem["detail"].as_str().expect("a problem has a detail");
    let way = format!("keys add --right {right}");
    assert!(detail.contains(&format!("the right {right:?}")) && detail.ends_with(&way), "{detail}");
    detail.to_owned()
}

fn ttl(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}
