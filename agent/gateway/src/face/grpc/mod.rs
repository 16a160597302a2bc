//! gRPC: the control plane (RFC-049), health and reflection, beside HTTP on the one listener.

mod acquire;
mod control;
mod heartbeat;
mod message;
mod runners;
mod status;

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post_service;
use tenure_host::clock;
use tenure_proto::prism::admin::v1::control_plane_server::{self, ControlPlaneServer};
use tenure_proto::prism::control_plane_server as proxies_server;
use tenure_proto::tenure::v1::routes_server;
use tenure_wire::Code;
use tokio::time::timeout;
use tonic::Status;

pub use self::control::ControlPlane;
pub(super) use self::message::MESSAGE_MAX;
use super::budget::{Ending, Visit};
use super::refused::Refused;
use super::{Face, routing};
use crate::metrics::{Call, Outcome};

/// The services whose health is told.
const SERVICES: [&str; 3] =
    [control_plane_server::SERVICE_NAME, proxies_server::SERVICE_NAME, routes_server::SERVICE_NAME];

/// The services.
pub(super) fn router(face: &Arc<Face>) -> Router<Arc<Face>> {
    let control = ControlPlaneServer::new(control::Service(Arc::clone(face)))
        .max_decoding_message_size(MESSAGE_MAX);
    let (mut reporter, health) = tonic_health::server::health_reporter();
    let drain = face.drain.clone();
    // Without a runtime nobody serves, either.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            for service in SERVICES {
                reporter.set_service_status(service, tonic_health::ServingStatus::Serving).await;
            }
            drain.cancelled().await;
            // Ends those who watch, too.
            for service in iter::once("").chain(SERVICES) {
                reporter.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
                reporter.clear_service_status(service).await;
            }
        });
    }
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tenure_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = health.max_decoding_message_size(MESSAGE_MAX);
    let health = Router::new().route("/grpc.health.v1.Health/{*method}", post_service(health));
    let router = Router::new()
        .route("/prism.admin.v1.ControlPlane/{*method}", post_service(control))
        .merge(routing::router(face))
        .layer(middleware::from_fn(message::read_whole))
        .layer(middleware::from_fn_with_state(Arc::clone(face), admit));
    let mut open = health.layer(middleware::from_fn(message::read_whole));
    if let Ok(service) = describe().build_v1() {
        let service = service.max_decoding_message_size(MESSAGE_MAX);
        open = open.route_service("/grpc.reflection.v1.ServerReflection/{*method}", service);
    }
    if let Ok(service) = describe().build_v1alpha() {
        let service = service.max_decoding_message_size(MESSAGE_MAX);
        open = open.route_service("/grpc.reflection.v1alpha.ServerReflection/{*method}", service);
    }
    router.merge(open.layer(middleware::from_fn_with_state(Arc::clone(face), anonymous)))
}

/// The answer to a request for nothing there is, in the words of its protocol.
pub(super) async fn not_found(request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
        let detail = format!("there is no method {}", request.uri().path());
        return Status::unimplemented(detail).into_http::<Body>();
    }
    Refused::new(Code::NotFound, "there is no such endpoint").into_response()
}

/// Gives a stream for which nobody needs a key one of the few places for those.
async fn anonymous(State(face): State<Arc<Face>>, request: Request, next: Next) -> Response {
    let visit = request.extensions().get::<Arc<Visit>>();
    let Some(address) = visit.map(|visit| visit.address()) else { return next.run(request).await };
    let place = face.budgets.anonymous.open(address);
    next.run(request).await.map(|body| Ending::wrap(body, place))
}

/// Lets a call in before its message is read, and ends it at its deadline.
async fn admit(State(face): State<Arc<Face>>, mut request: Request, next: Next) -> Response {
    let call = Call::of(request.uri().path());
    let began = clock::now();
    let beats = call == Some(Call::Heartbeat);
    let answered = async {
        let caller = face.admit(&request, beats)?;
        let within = deadline(request.headers());
        request.extensions_mut().insert(caller);
        let answer = next.run(request);
        match within {
            None => Ok(answer.await),
            Some(within) => timeout(within, answer).await.map_err(|_| {
                Status::deadline_exceeded("the store did not answer before the call's deadline")
            }),
        }
    };
    let response = answered.await.unwrap_or_else(Status::into_http::<Body>);
    if let Some(call) = call {
        let failed = Status::from_header_map(response.headers());
        let outcome = failed.map(|status| match status.code() {
            tonic::Code::Ok => Outcome::Done,
            tonic::Code::Unavailable
            | tonic::Code::Unknown
            | tonic::Code::Internal
            | tonic::Code::DeadlineExceeded => Outcome::Failed,
            _ => Outcome::Refused,
        });
        face.metrics.mailboxes.answered(call, outcome, clock::now().since(began));
    }
    response
}

/// The time that a caller waits, as the header says it: digits and a unit.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count = digits.parse::<u32>().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(3600) * count),
        "M" => Some(Duration::from_secs(60) * count),
        "S" => Some(Duration::from_secs(1) * count),
        "m" => Some(Duration::from_millis(1) * count),
        "u" => Some(Duration::from_micros(1) * count),
        "n" => Some(Duration::from_nanos(1) * count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_has_digits_and_a_unit() {
        for (text, expected) in [
            ("5S", Some(Duration::from_secs(5))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("S", None),
            ("5", None),
            ("-1S", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(deadline(&headers), expected, "{text}");
        }
    }
}
