//! The routes of mailboxes over gRPC: streams of them, and proxies that register to be told.

mod register;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::routing::post_service;
use tenure_core::model::Page;
use tenure_core::model::Request;
use tenure_proto::prism::control_plane_server::ControlPlaneServer as ProxiesServer;
use tenure_proto::tenure::v1::routes_server::RoutesServer;
use tenure_wire::{Code, rules};

use self::register::Register;
use self::watch::Watch;
use super::Face;
use super::grpc::MESSAGE_MAX;
use super::refused::Refused;
use crate::access::Caller;
use crate::mailbox;

/// The tenant of a caller whose key names none.
const TENANT: &str = "default";

/// The services, for callers that were let in.
pub(super) fn router(face: &Arc<Face>) -> Router<Arc<Face>> {
    let watch = RoutesServer::new(Watch(Arc::clone(face)));
    let register = ProxiesServer::new(Register(Arc::clone(face)));
    let watch = watch.max_decoding_message_size(MESSAGE_MAX);
    let register = register.max_decoding_message_size(MESSAGE_MAX);
    Router::new()
        .route("/tenure.v1.Routes/{*method}", post_service(watch))
        .route("/prism.ControlPlane/{*method}", post_service(register))
}

/// The caller of a call that was let in.
fn caller<T>(request: &tonic::Request<T>) -> Result<Caller, Refused> {
    let missing = || Refused::new(Code::UpstreamUnavailable, "the caller is not known");
    request.extensions().get().cloned().ok_or_else(missing)
}

impl Face {
    /// The tenant whose routes a caller asks for: without a name the one that its key covers.
    ///
    /// # Errors
    ///
    /// When its key covers several, or not that one.
    fn tenant_of_routes(&self, caller: &Caller, named: &str) -> Result<Arc<str>, Refused> {
        rules::optional("tenant", mailbox::text(named), rules::tenant)?;
        let tenant: Arc<str> = match (named, &caller.bounds.scope.tenants) {
            ("", None) => TENANT.into(),
            ("", Some(globs)) => match globs.texts() {
                [one] if !one.contains(['*', '?', '[', '{', '\\']) => one.as_str().into(),
                _ => {
                    let rule = format!("must be named: the key covers several, {globs}");
                    return Err(Refused::field("tenant", &rule));
                }
            },
            (named, _) => named.into(),
        };
        let request =
            Request::Routes { tenant: Arc::clone(&tenant), name: None, page: Page::whole() };
        let judged = caller.bounds.judge(&request).map_err(|denied| Refused::denied(&denied));
        judged.map(|()| tenant)
    }
}
