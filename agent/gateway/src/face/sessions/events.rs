//! The events of a session and of its project.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request as Call, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;
use tenure_core::model::{Failure, Members, Request, SessionId, Within};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_stores::gateway::wire::News;
use tokio::time::timeout;

use super::{expired, session};
use crate::access::{Caller, Right};
use crate::face::refused::Refused;
use crate::face::stream::{self, SIGN_OF_LIFE_EVERY, Source};
use crate::face::{Face, owners};
use crate::store::{Listener, Missed};

/// The last word of a stream whose session has ended.
const EXPIRED: &[u8] = b": session expired, re-register via prism_start\n\n";

/// A session that is gone while there is news is told the news of its end, too, if that comes so soon.
const END_COMES_WITHIN: Duration = Duration::from_secs(1);

/// Tells a session what it and its project are told, from now on, each event at most once, until the session ends.
pub(super) async fn events(State(face): State<Arc<Face>>, call: Call) -> Result<Response, Refused> {
    let caller = face.admit(&call, false)?;
    let outcome = open(Arc::clone(&face), &caller, call.headers()).await;
    face.noting(&caller, outcome)
}

async fn open(face: Arc<Face>, caller: &Caller, headers: &HeaderMap) -> Result<Response, Refused> {
    let session = session(headers, caller)?;
    // Before the first byte: what happens after it is told.
    let mark = caller.principal.mark;
    let place = face.budgets.stream(caller)?;
    let listener = face.store.listen(mark).await;
    let listener = listener.map_err(|gone| Failure::Unavailable(gone.to_string()))?;
    let project = face.look(caller, session).await?.ok_or_else(expired)?;
    let told = Told {
        listener,
        face: Arc::clone(&face),
        caller: caller.clone(),
        session,
        project,
        look_at: clock::now() + SIGN_OF_LIFE_EVERY,
        looking: None,
        is_quiet: false,
        is_over: false,
    };
    Ok(stream::open(face, caller.clone(), place, told))
}

/// A look at a session's project.
type Look = Pin<Box<dyn Future<Output = Result<Option<Members>, Refused>> + Send>>;

/// What a session is told.
struct Told {
    listener: Listener,
    face: Arc<Face>,
    caller: Caller,
    session: SessionId,
    project: Members,
    /// When to look whether the session is there still.
    look_at: Boottime,
    /// The look that is on its way: whoever asks for the next event may have asked before.
    looking: Option<Look>,
    /// It follows a silence.
    is_quiet: bool,
    /// The last word was said.
    is_over: bool,
}

impl Source for Told {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            if let Some(look) = &mut self.looking {
                let found = look.await;
                self.looking = None;
                match found {
                    Ok(Some(project)) => self.project = project,
                    // The news of its end may be on its way still.
                    Ok(None) if !self.is_quiet => self.look_at = clock::now() + END_COMES_WITHIN,
                    Ok(None) => {
                        self.is_over = true;
                        return Some(Bytes::from_static(EXPIRED));
                    }
                    // The store is away; it is looked at again.
                    Err(_) => {}
                }
            }
            let left = self.look_at.since(clock::now());
            let heard = timeout(left, self.listener.next()).await;
            self.is_quiet = heard.is_err();
            match heard {
                Ok(Ok(None)) => return None,
                Ok(Ok(Some(line))) => match News::read(line.trim_ascii_end()) {
                    Some(News::Message { tenant, project, session, mut payload })
                        if self.is_for(&tenant, &project, session) =>
                    {
                        self.is_over = self.is_end(&payload);
                        if !self.caller.has(Right::Owners) {
                            owners::hide_message(self.caller.principal.mark, &mut payload);
                        }
                        return Some(event(&payload));
                    }
                    // Somebody has to notice that a master's time is up, for all to be told.
                    Some(News::Resource(resource)) if resource == self.project.resource() => {}
                    Some(News::Reset | News::FeedLost) => {}
                    _ => continue,
                },
                Ok(Err(Missed)) | Err(_) => {}
            }
            self.look_at = clock::now() + SIGN_OF_LIFE_EVERY;
            let (face, caller, session) =
                (Arc::clone(&self.face), self.caller.clone(), self.session);
            self.looking = Some(Box::pin(async move { face.look(&caller, session).await }));
        }
        None
    }
}

impl Told {
    fn is_for(&self, tenant: &str, project: &str, session: Option<SessionId>) -> bool {
        match session {
            Some(session) => session == self.session,
            None => *self.project.tenant == *tenant && *self.project.project == *project,
        }
    }

    /// True if the event tells of the end of this session.
    fn is_end(&self, payload: &Value) -> bool {
        payload["type"] == "session_ended" && payload["session"] == self.session.to_string()
    }
}

impl Face {
    /// Looks at a session's project, whose next change is news then; `None` if the session has ended.
    async fn look(&self, caller: &Caller, session: SessionId) -> Result<Option<Members>, Refused> {
        let found = self.members(caller, Within::Session(session), false).await?;
        if let Some(found) = &found {
            self.carry_out(caller, Request::Inspect(found.resource())).await?;
        }
        Ok(found)
    }
}

/// An event, as it was published. Its type is the event's, too.
fn event(payload: &Value) -> Bytes {
    let is_word =
        |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match payload["type"].as_str().filter(is_word) {
        Some(word) => format!("event: {word}\ndata: {payload}\n\n").into(),
        None => format!("data: {payload}\n\n").into(),
    }
}
