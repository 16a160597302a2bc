//! Answered requests by endpoint and status.

use std::sync::OnceLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Statuses whose counters are kept at hand, the most frequent first.
const STATUSES: [u16; 14] = [200, 204, 201, 202, 409, 410, 404, 422, 429, 503, 403, 405, 401, 413];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    endpoint: &'static str,
    code: u32,
}

/// Every counter of answered requests.
pub(super) type Requests = Family<RequestLabels, Counter>;

/// Counts the answers of one endpoint. A counter is looked up, under a lock, once for its status;
/// from then on counting is one atomic addition.
#[derive(Debug)]
pub struct Answers {
    endpoint: &'static str,
    requests: Requests,
    found: [OnceLock<Counter>; STATUSES.len()],
}

impl Answers {
    pub(super) fn new(endpoint: &'static str, requests: Requests) -> Answers {
        Answers { endpoint, requests, found: Default::default() }
    }

    pub fn count(&self, status: u16) {
        let find = || {
            let labels = RequestLabels { endpoint: self.endpoint, code: u32::from(status) };
            self.requests.get_or_create_owned(&labels)
        };
        match STATUSES.iter().position(|known| *known == status) {
            Some(at) => self.found[at].get_or_init(find).inc(),
            None => find().inc(),
        };
    }
}
