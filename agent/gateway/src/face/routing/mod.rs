//! The routes of mailboxes over gRPC: streams of them, and proxies that register to be told.

mod register;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::http::Request as Call;
use tenure_core::model::Page;
use tenure_core::model::Request;
use tenure_proto::prism::control_plane_server::ControlPlaneServer as ProxiesServer;
use tenure_proto::tenure::v1::routes_server::RoutesServer;
use tenure_wire::Code;
use tonic::{Code as GrpcCode, Status};

use self::register::Register;
use self::watch::Watch;
use super::Face;
use super::refused::Refused;
use crate::access::{Caller, Peer};
use crate::trail::By;

/// The tenant of a caller whose key names none.
const TENANT: &str = "default";
/// Longest message of a caller, bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// The services.
pub(super) fn router(face: &Arc<Face>) -> Router<Arc<Face>> {
    let watch = RoutesServer::new(Watch(Arc::clone(face)));
    let register = ProxiesServer::new(Register(Arc::clone(face)));
    Router::new()
        .route_service("/tenure.v1.Routes/{*method}", watch.max_decoding_message_size(MESSAGE_MAX))
        .route_service(
            "/prism.ControlPlane/{*method}",
            register.max_decoding_message_size(MESSAGE_MAX),
        )
}

impl Face {
    /// Lets the caller of a gRPC call in, if its key is good and it is not too fast.
    fn admit_grpc<T>(&self, request: &tonic::Request<T>) -> Result<Caller, Status> {
        let mut call = Call::new(());
        *call.headers_mut() = request.metadata().clone().into_headers();
        if let Some(peer) = request.extensions().get::<Peer>() {
            call.extensions_mut().insert(peer.clone());
        }
        self.admit(&call, false).map_err(Status::from)
    }

    /// The tenant whose routes a caller asks for: without a name the one that its key covers.
    ///
    /// # Errors
    ///
    /// When its key covers several, or not that one.
    fn tenant_of_routes(&self, caller: &Caller, named: &str) -> Result<Arc<str>, Status> {
        let tenant: Arc<str> = match (named, &caller.bounds.scope.tenants) {
            ("", None) => TENANT.into(),
            ("", Some(globs)) => match globs.texts() {
                [one] if !one.contains(['*', '?', '[', '{', '\\']) => one.as_str().into(),
                _ => {
                    let rule = format!("tenant: the key covers several, {globs}: name one of them");
                    return Err(Status::invalid_argument(rule));
                }
            },
            (named, _) => named.into(),
        };
        let request =
            Request::Routes { tenant: Arc::clone(&tenant), name: None, page: Page::whole() };
        let judged = caller.bounds.judge(&request).map_err(|denied| Refused::denied(&denied));
        judged.inspect_err(|refused| self.note_refusal(By::from(caller), refused))?;
        Ok(tenant)
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let code = match refused.problem().code {
            Code::Unauthorized => GrpcCode::Unauthenticated,
            Code::Forbidden => GrpcCode::PermissionDenied,
            Code::QuotaExceeded => GrpcCode::ResourceExhausted,
            Code::UpstreamUnavailable => GrpcCode::Unavailable,
            Code::Invalid => GrpcCode::InvalidArgument,
            _ => GrpcCode::FailedPrecondition,
        };
        Status::new(code, refused.to_string())
    }
}
