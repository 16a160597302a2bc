//! Calls that every client of the agent has.

use serde_json::{Value, json};
use tenure::wire::{Acquired, Registered, Released, Standing, Status, Waiting};
use uuid::Uuid;

use super::Answer;

/// A registered session.
pub type Session = Registered;
/// A grant.
pub type Granted = Acquired;

/// A way to call the agent: in this process, through curl, or from another process.
pub trait Client {
    /// One call.
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer;

    /// GET.
    fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, None)
    }

    /// POST with a JSON body.
    fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, Some(body))
    }

    /// Registers; the call must succeed.
    #[track_caller]
    fn register(&mut self, with: &Value) -> Session {
        self.post("/v1/register", with).expect(201)
    }

    /// Takes up an earlier session; the call must succeed.
    #[track_caller]
    fn resume(&mut self, earlier: &Session) -> Session {
        let resume = json!({"session": earlier.session, "secret": earlier.secret});
        let session: Session = self.post("/v1/register", &json!({"resume": resume})).expect(201);
        assert!(session.resumed);
        assert_eq!(session.session, earlier.session);
        session
    }

    /// Asks for a hold; `more` adds to, or replaces, the fields.
    fn ask(&mut self, session: Uuid, kind: &str, name: &str, more: &Value) -> Answer {
        let mut body = json!({"session": session, "kind": kind});
        if kind != "master" {
            body["name"] = json!(name);
        }
        for (key, value) in more.as_object().expect("more fields are an object") {
            body[key] = value.clone();
        }
        self.post("/v1/acquire", &body)
    }

    /// Asks for a hold; it must be granted.
    #[track_caller]
    fn acquire(&mut self, session: Uuid, kind: &str, name: &str, more: &Value) -> Granted {
        self.ask(session, kind, name, more).expect(200)
    }

    /// Asks for a hold with `wait: queue`; it must be queued.
    #[track_caller]
    fn queue(&mut self, session: Uuid, kind: &str, name: &str, more: &Value) -> Waiting {
        let mut with = more.clone();
        with["wait"] = json!("queue");
        self.ask(session, kind, name, &with).expect(202)
    }

    /// Releases a hold; the call must succeed.
    #[track_caller]
    fn release(&mut self, session: Uuid, hold: Uuid) -> bool {
        let body = json!({"session": session, "hold": hold});
        self.post("/v1/release", &body).expect::<Released>(200).released
    }

    /// Ends a session; the call must succeed.
    #[track_caller]
    fn end(&mut self, session: Uuid) -> bool {
        self.post("/v1/release", &json!({"session": session})).expect::<Released>(200).released
    }

    /// All pages of `GET /v1/status`, as one.
    #[track_caller]
    fn status(&mut self) -> Status {
        let mut whole: Status = self.get("/v1/status?limit=1000").expect(200);
        while let Some(cursor) = whole.cursor.take() {
            let next: Status =
                self.get(&format!("/v1/status?limit=1000&cursor={cursor}")).expect(200);
            whole.cursor = next.cursor;
            for session in next.sessions {
                match whole.sessions.last_mut() {
                    // Its holds went on to the next page.
                    Some(last) if last.session == session.session => {
                        last.holds.extend(session.holds)
                    }
                    _ => whole.sessions.push(session),
                }
            }
        }
        whole
    }

    /// `GET /v1/standing`.
    #[track_caller]
    fn standing(&mut self, kind: &str, name: &str) -> Standing {
        self.get(&format!("/v1/standing?kind={kind}&name={name}")).expect(200)
    }
}
