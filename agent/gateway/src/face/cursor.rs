//! Cursors of long answers, sealed: those of a store name rows, also such as their reader must not see.
//!
//! A sealed cursor is good for the principal that it was given to, for the same question, at the same gateway, until that
//! gateway ends. With any other one a listing begins at its first page.

use std::fmt;
use std::io;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use tenure_core::model::{Answer, Page, Request};
use tenure_stores::gateway::paging::PAGE_AFTER;
use tenure_stores::gateway::wire::{Operation, request_body};
use tenure_wire::Code;

use super::refused::Refused;

/// Cursors are padded to a multiple of so many bytes: their length would tell that of a name. One block makes 198
/// characters, which agents that take no longer cursors than names take.
const BLOCK: usize = 120;
/// Bytes before a cursor that tell its length.
const LENGTH: usize = 2;
/// Characters of a cursor that is refused which are shown.
const SHOWN_MAX: usize = 24;

/// Seals and opens cursors, with a key that nobody has and that ends with the process.
pub(super) struct Cursors(LessSafeKey);

static OWN: LazyLock<io::Result<Cursors>> = LazyLock::new(Cursors::new);

impl fmt::Debug for Cursors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursors")
    }
}

impl Cursors {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub(super) fn own() -> Result<&'static Cursors, Refused> {
        OWN.as_ref().map_err(|error| {
            let detail = format!("there is no key for cursors: {error}");
            Refused::new(Code::UpstreamUnavailable, detail)
        })
    }

    fn new() -> io::Result<Cursors> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key);
        let key = key.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Cursors(LessSafeKey::new(key)))
    }

    /// The question of a request that is answered page by page, whose cursor is opened; `None` for any other one.
    ///
    /// # Errors
    ///
    /// 422 for a cursor that no answer to this question had.
    pub(super) fn open(
        &self,
        principal: &str,
        request: &mut Request,
    ) -> Result<Option<Question>, Refused> {
        let operation = Operation::of(request);
        let mut bare = request.clone();
        let Some(of_bare) = page(&mut bare) else { return Ok(None) };
        *of_bare = Page { after: None, limit: 0 };
        let body = request_body(bare)
            .map_err(|error| Refused::new(Code::Invalid, format!("the question: {error}")))?;
        let length = u64::try_from(principal.len()).unwrap_or(u64::MAX).to_be_bytes();
        let parts = [&length, principal.as_bytes(), operation.path().as_bytes(), &[0], &body];
        let question = Question(parts.concat());
        if let Some(Page { after: Some(after), .. }) = page(request) {
            let opened = self.opened(&question, after).ok_or_else(|| refuse(after))?;
            *after = opened;
        }
        Ok(Some(question))
    }

    /// Seals the cursor of an answer.
    ///
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub(super) fn seal(&self, question: &Question, answer: &mut Answer) -> Result<(), Refused> {
        let sealed = |cursor: &str| {
            self.sealed(question, cursor).ok_or_else(|| {
                let detail = "the cursor of this answer could not be sealed; ask again";
                Refused::new(Code::UpstreamUnavailable, detail)
            })
        };
        match answer {
            Answer::Members(Some(members)) => {
                if let Some(next) = &mut members.next {
                    *next = sealed(next)?.into();
                }
            }
            Answer::Resources { next: Some(next), .. } => *next = sealed(next)?.into(),
            Answer::Routes(routes) => {
                if let Some(cursor) = &mut routes.cursor {
                    *cursor = sealed(cursor)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sealed(&self, Question(question): &Question, cursor: &str) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut sealed = Vec::from(u16::try_from(cursor.len()).ok()?.to_be_bytes());
        sealed.extend(cursor.as_bytes());
        sealed.resize(sealed.len().next_multiple_of(BLOCK), 0);
        let (once, bound) = (Nonce::assume_unique_for_key(nonce), Aad::from(question));
        self.0.seal_in_place_append_tag(once, bound, &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    fn opened(&self, Question(question): &Question, cursor: &str) -> Option<Arc<str>> {
        let mut bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk_mut()?;
        let once = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(once, Aad::from(question), sealed).ok()?;
        let (length, cursor) = opened.split_first_chunk::<LENGTH>()?;
        let cursor = cursor.get(..usize::from(u16::from_be_bytes(*length)))?;
        std::str::from_utf8(cursor).ok().map(Into::into)
    }
}

/// A principal and its question; a cursor is for nothing else.
pub(super) struct Question(Vec<u8>);

fn page(request: &mut Request) -> Option<&mut Page> {
    match request {
        Request::Members { page, .. } => page.as_mut(),
        Request::Routes { page, .. } | Request::Resources { page } => Some(page),
        _ => None,
    }
}

fn refuse(cursor: &str) -> Refused {
    let shown: String = cursor.chars().take(SHOWN_MAX).collect();
    let rule = format!(
        "begins with {shown:?} and has {} bytes, but must be the cursor that an answer of this gateway to the same \
         question had, for the same principal; begin at the first page",
        cursor.len()
    );
    Refused::field(PAGE_AFTER, &rule)
}

#[cfg(test)]
mod tests {
    use tenure_wire::rules::CURSOR_MAX;

    use super::*;

    fn resources(after: Option<&str>, limit: usize) -> Request {
        Request::Resources { page: Page { after: after.map(Into::into), limit } }
    }

    fn routes(tenant: &str, after: &str) -> Request {
        let page = Page { after: Some(after.into()), limit: 1 };
        Request::Routes { tenant: tenant.into(), name: None, page }
    }

    fn sealed(cursors: &Cursors, principal: &str, cursor: &str) -> String {
        let question = cursors.open(principal, &mut resources(None, 1)).unwrap().unwrap();
        let mut answer = Answer::Resources { resources: Vec::new(), next: Some(cursor.into()) };
        cursors.seal(&question, &mut answer).unwrap();
        let Answer::Resources { next: Some(next), .. } = answer else { panic!("{answer:?}") };
        next.to_string()
    }

    #[test]
    fn a_cursor_is_for_its_principal_its_question_and_its_gateway() {
        let cursors = Cursors::new().unwrap();
        let secret = r#"p["umbrella","SECRET"]"#;
        let next = sealed(&cursors, "alpha", secret);
        let mut good = resources(Some(&next), 7);
        cursors.open("alpha", &mut good).unwrap();
        assert_eq!(good, resources(Some(secret), 7));
        let mut flipped = next.clone().into_bytes();
        flipped[40] ^= 1;
        let flipped = String::from_utf8(flipped).unwrap();
        for (principal, mut request) in [
            ("beta", resources(Some(&next), 7)),
            ("alpha", routes("acme", &next)),
            ("alpha", resources(Some(&flipped), 7)),
            ("alpha", resources(Some(&next[1..]), 7)),
            ("alpha", resources(Some(secret), 7)),
            ("alpha", resources(Some(""), 7)),
            ("alpha", resources(Some("0"), 7)),
        ] {
            let refused = cursors.open(principal, &mut request).err().unwrap();
            let problem = refused.problem();
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some("page.after")));
            assert!(problem.detail.ends_with("begin at the first page"), "{}", problem.detail);
        }
        let other = Cursors::new().unwrap();
        assert!(other.open("alpha", &mut resources(Some(&next), 7)).is_err());
        assert_ne!(sealed(&cursors, "alpha", secret), next, "the same place looks different");
    }

    #[test]
    fn a_cursor_tells_no_length_and_fits_where_names_do() {
        let cursors = Cursors::new().unwrap();
        for length in [0, 1, 50, 118] {
            assert_eq!(sealed(&cursors, "p", &"x".repeat(length)).len(), 198);
        }
        let long = "x".repeat(1200);
        let next = sealed(&cursors, "p", &long);
        assert!(next.len() < CURSOR_MAX, "{}", next.len());
        let mut request = resources(Some(&next), 1);
        cursors.open("p", &mut request).unwrap();
        assert_eq!(request, resources(Some(&long), 1));
    }
}
