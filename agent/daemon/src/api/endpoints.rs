//! All endpoints, once: the router, the document, the counters and the errors are made of this list.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use tenure_wire::{Code, Problem, rules};
use utoipa::OpenApi;

use super::context::Context;
use super::respond::Refused;
use super::{
    acquire, agents, answers, beat, can, checkpoint, doctor, events, health, history, leftovers,
    list, log, metrics, openapi, quarantine, register, release, revoke, routes, standing, status,
};
use crate::telemetry::{Answers, Metrics};

/// Paths whose answer is a stream. A HEAD would open it, and close it with what it tethers.
const STREAMS: [&str; 2] = ["/v1/events", "/v1/observe"];

macro_rules! endpoints {
    ($($method:ident $path:literal $module:ident::$handler:ident;)*) => {
        const ENDPOINTS: &[(&str, &str)] = &[$((stringify!($method), $path)),*];

        fn routes_of_all() -> Router<Arc<Context>> {
            Router::new()$(.route($path, on(MethodFilter::$method, $module::$handler)))*
        }

        #[derive(OpenApi)]
        #[openapi(
            paths($($module::$handler),*),
            components(
                schemas(Problem),
                responses(
                    answers::Forbidden, answers::AdministratorsOnly, answers::SessionUnknown,
                    answers::SessionLost, answers::TooLarge, answers::Invalid,
                    answers::NoParameters, answers::QuotaExceeded, answers::Unavailable,
                ),
            ),
            info(
                title = "Tenure",
                version = "1",
                description = "The local API of tenured, on a Unix socket. Times are integers with the unit last in \
                               the name. Unknown request fields are refused; clients ignore unknown reply fields. \
                               Bounds of times are those of the default configuration. What is not HTTP is \
                               answered with 400, a head of more than 16 KiB with 431, both without a body; an \
                               unknown path with 404, another method with 405, each with a problem."
            ),
            tags(
                (name = "session", description = "A program's registration, its life and its events"),
                (name = "hold", description = "What a session holds or waits for"),
                (name = "fleet", description = "Who holds what, across all agents"),
                (name = "agent", description = "The agent itself"),
            )
        )]
        pub(super) struct Document;
    };
}

endpoints! {
    POST "/v1/register" register::register;
    POST "/v1/acquire" acquire::acquire;
    POST "/v1/release" release::release;
    POST "/v1/checkpoint" checkpoint::checkpoint;
    POST "/v1/beat" beat::beat;
    POST "/v1/leftovers" leftovers::leftovers;
    POST "/v1/revoke" revoke::revoke;
    POST "/v1/quarantine/end" quarantine::end;
    GET "/v1/events" events::events;
    GET "/v1/observe" events::observe;
    GET "/v1/standing" standing::standing;
    GET "/v1/list" list::list;
    GET "/v1/history" history::history;
    GET "/v1/agents" agents::agents;
    GET "/v1/routes" routes::routes;
    GET "/v1/status" status::status;
    GET "/v1/doctor" doctor::doctor;
    GET "/v1/can" can::can;
    GET "/v1/log" log::read_log;
    PUT "/v1/log" log::set_log;
    GET "/healthz" health::healthz;
    GET "/readyz" health::readyz;
    GET "/metrics" metrics::metrics;
    GET "/openapi.json" openapi::openapi;
}

/// All endpoints.
///
/// No middleware: the peer comes with each request as an extension that [`super::serve`] adds; without it
/// whatever needs to know the caller is refused as `unauthorized`.
pub(super) fn router(context: Arc<Context>) -> Router {
    let streams = STREAMS.into_iter();
    streams
        .fold(routes_of_all(), |router, path| {
            router.route(path, on(MethodFilter::HEAD, wrong_method))
        })
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(context)
}

async fn not_found(uri: Uri) -> Refused {
    let path = rules::quote(uri.path());
    let endpoints: Vec<_> =
        ENDPOINTS.iter().map(|(method, path)| format!("{method} {path}")).collect();
    let endpoints = endpoints.join(", ");
    Problem::new(Code::NotFound, format!("there is no {path}; there are: {endpoints}")).into()
}

/// Refuses a method that a path does not take.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let mut wanted = Vec::new();
    for (method, _) in ENDPOINTS.iter().filter(|(_, path)| *path == uri.path()) {
        wanted.push(*method);
        if *method == "GET" && !STREAMS.contains(&uri.path()) {
            wanted.push("HEAD");
        }
    }
    let wanted = wanted.join(", ");
    let method = rules::quote(method.as_str());
    let detail = format!("{} does not take {method}; use {wanted}", uri.path());
    let mut response = Refused::from(Problem::new(Code::MethodNotAllowed, detail)).into_response();
    if let Ok(wanted) = HeaderValue::try_from(wanted) {
        response.headers_mut().insert(header::ALLOW, wanted);
    }
    response
}

/// The endpoint under which requests for paths that do not exist are counted: the number of series
/// is bounded, whatever clients send.
const ELSEWHERE: &str = "other";

/// Counts of answers, by endpoint.
pub(super) struct Answered {
    endpoints: Vec<Answers>,
    elsewhere: Answers,
}

impl Answered {
    pub(super) fn new(metrics: &Metrics) -> Answered {
        Answered {
            endpoints: ENDPOINTS.iter().map(|(_, path)| metrics.answers(path)).collect(),
            elsewhere: metrics.answers(ELSEWHERE),
        }
    }

    /// The counter of answers to requests for that path.
    pub(super) fn of(&self, path: &str) -> &Answers {
        let at = ENDPOINTS.iter().position(|(_, known)| *known == path);
        at.map_or(&self.elsewhere, |at| &self.endpoints[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_document_the_method_and_path_that_they_have() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().map(|item| item.as_object().unwrap().len()).sum::<usize>();
        assert_eq!(operations, ENDPOINTS.len());
        for (method, path) in ENDPOINTS {
            assert!(paths[*path][method.to_lowercase()].is_object(), "{method} {path}");
        }
    }
}
