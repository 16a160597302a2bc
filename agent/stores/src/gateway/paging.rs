//! Pure. Listings that go on at another gateway, or at the same one after a restart.
//!
//! The cursor of a page is good at the gateway that gave it, as long as that runs. Where one is refused, the listing
//! begins at its first page again: its reader meets rows twice, which the stores' own walks may do, too. That happens
//! once for a listing: behind a balancer that changes the gateway with each call it would never end.

use hyper::StatusCode;
use tenure_core::model::{Answer, Page, Request};
use tenure_wire::Problem;

use super::http::Answered;

/// The `field` of the refusal of a cursor that is not, or no more, one of the gateway that is asked: the listing begins
/// at its first page.
pub const PAGE_AFTER: &str = "page.after";
/// Before the cursors of a listing that has begun again. No gateway's cursor begins with it.
const AGAIN: &str = "~";

/// A listing of which a page is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// From here on it may begin again.
    First,
    Again,
}

impl Listing {
    /// Takes its mark out of the cursor of a request.
    pub(super) fn of(request: &mut Request) -> Listing {
        if let Some(Page { after: Some(after), .. }) = page(request)
            && let Some(own) = after.strip_prefix(AGAIN)
        {
            *after = own.into();
            return Listing::Again;
        }
        Listing::First
    }

    /// Makes the request one for the first page, if the gateway has refused its cursor; true if it did.
    pub(super) fn begins_again(&mut self, request: &mut Request, answered: &Answered) -> bool {
        if *self == Listing::Again || answered.status != StatusCode::UNPROCESSABLE_ENTITY {
            return false;
        }
        let problem = serde_json::from_slice::<Problem>(&answered.body).ok();
        if problem.and_then(|it| it.field).as_deref() != Some(PAGE_AFTER) {
            return false;
        }
        let Some(Page { after: after @ Some(_), .. }) = page(request) else { return false };
        *after = None;
        *self = Listing::Again;
        true
    }

    /// Puts its mark on the cursor of an answer.
    pub(super) fn mark(self, answer: &mut Answer) {
        if self == Listing::First {
            return;
        }
        let marked = |cursor: &str| format!("{AGAIN}{cursor}");
        match answer {
            Answer::Members(Some(members)) => {
                members.next = members.next.take().map(|next| marked(&next).into());
            }
            Answer::Resources { next, .. } => {
                *next = next.take().map(|next| marked(&next).into());
            }
            Answer::Routes(routes) => {
                routes.cursor = routes.cursor.take().map(|cursor| marked(&cursor));
            }
            _ => {}
        }
    }
}

fn page(request: &mut Request) -> Option<&mut Page> {
    match request {
        Request::Members { page, .. } => page.as_mut(),
        Request::Routes { page, .. } | Request::Resources { page } => Some(page),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn resources(after: Option<&str>) -> Request {
        Request::Resources { page: Page { after: after.map(Into::into), limit: 3 } }
    }

    fn refusal(status: StatusCode, field: &str) -> Answered {
        let body = json!({"type": "about:blank", "title": "x", "status": 422, "code": "invalid", "detail": "d",
            "field": field});
        Answered { status, retry_after: None, body: Bytes::from(body.to_string()) }
    }

    #[test]
    fn a_listing_begins_again_once() {
        let refused = refusal(StatusCode::UNPROCESSABLE_ENTITY, PAGE_AFTER);
        let mut request = resources(Some("abc"));
        let mut listing = Listing::of(&mut request);
        assert!(listing.begins_again(&mut request, &refused));
        assert_eq!(request, resources(None));
        assert!(!listing.begins_again(&mut request, &refused), "it has no cursor now");
        let mut answer = Answer::Resources { resources: Vec::new(), next: Some("def".into()) };
        listing.mark(&mut answer);
        let Answer::Resources { next: Some(next), .. } = answer else { panic!("{answer:?}") };
        let mut request = resources(Some(&next));
        let mut listing = Listing::of(&mut request);
        assert_eq!(request, resources(Some("def")), "the gateway sees its own cursor");
        assert!(!listing.begins_again(&mut request, &refused), "twice");
    }

    #[test]
    fn other_refusals_are_told() {
        for (status, field, after) in [
            (StatusCode::UNPROCESSABLE_ENTITY, "tenant", Some("abc")),
            (StatusCode::FORBIDDEN, PAGE_AFTER, Some("abc")),
            (StatusCode::UNPROCESSABLE_ENTITY, PAGE_AFTER, None),
        ] {
            let mut request = resources(after);
            let mut listing = Listing::of(&mut request);
            assert!(!listing.begins_again(&mut request, &refusal(status, field)), "{field}");
            let mut answer = Answer::Resources { resources: Vec::new(), next: Some("d".into()) };
            listing.mark(&mut answer);
            assert_eq!(answer, Answer::Resources { resources: Vec::new(), next: Some("d".into()) });
        }
    }
}
