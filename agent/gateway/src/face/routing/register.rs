//! Proxies become known to the control plane (ADR-055).

use std::sync::Arc;

use tenure_proto::prism::control_plane_server::ControlPlane;
use tenure_proto::prism::{PartitionRange, ProxyRegistration, ProxyRegistrationAck};
use tonic::{Request, Response, Status};

use crate::delivery::{NotRegistered, Registration};
use crate::face::Face;

/// Longest id or address of a proxy, bytes.
const NAME_MAX: usize = 200;

/// The service `prism.ControlPlane`.
pub(super) struct Register(pub(super) Arc<Face>);

#[tonic::async_trait]
impl ControlPlane for Register {
    async fn register_proxy(
        &self,
        request: Request<ProxyRegistration>,
    ) -> Result<Response<ProxyRegistrationAck>, Status> {
        let face = &self.0;
        let caller = face.admit_grpc(&request)?;
        let ProxyRegistration { proxy_id, address, .. } = request.into_inner();
        for (field, value) in [("proxy_id", &proxy_id), ("address", &address)] {
            if !(1..=NAME_MAX).contains(&value.len()) || value.chars().any(char::is_control) {
                let rule =
                    format!("{field}: must have 1 to {NAME_MAX} bytes, no control characters");
                return Err(Status::invalid_argument(rule));
            }
        }
        let tenant = face.tenant_of_routes(&caller, "")?;
        if let Some(names) = &caller.bounds.scope.names {
            let rule = format!(
                "a proxy is told of all routes of its tenant, and the bounds of this key are names = {names}; \
                 use another key, or tenure.v1.Routes/Watch"
            );
            return Err(Status::permission_denied(rule));
        }
        let registration =
            Registration { tenant, proxy_id: proxy_id.into(), address: address.into() };
        let ack = match face.delivery.register(caller.principal.mark, registration).await {
            Ok(range) => ProxyRegistrationAck {
                success: true,
                message: String::new(),
                partition_ranges: vec![PartitionRange {
                    start: i32::from(*range.start()),
                    end: i32::from(*range.end()),
                }],
            },
            Err(error @ NotRegistered::Address(_)) => {
                return Err(Status::invalid_argument(error.to_string()));
            }
            Err(error @ NotRegistered::Store(_)) => {
                return Err(Status::unavailable(error.to_string()));
            }
            // As the control plane refuses a lease: in its answer.
            Err(error @ (NotRegistered::Taken(_) | NotRegistered::TooMany)) => {
                let (success, message) = (false, error.to_string());
                ProxyRegistrationAck { success, message, ..ProxyRegistrationAck::default() }
            }
        };
        Ok(Response::new(ack))
    }
}
