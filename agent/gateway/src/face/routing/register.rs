//! Proxies become known to the control plane (ADR-055).

use std::sync::Arc;

use tenure_proto::prism::control_plane_server::ControlPlane;
use tenure_proto::prism::{PartitionRange, ProxyRegistration, ProxyRegistrationAck};
use tenure_wire::Code;
use tenure_wire::rules::visible;
use tonic::{Request, Response, Status};

use crate::access::{Caller, Event, Fact, Right};
use crate::delivery::{NotRegistered, Registration};
use crate::face::Face;
use crate::face::refused::Refused;
use crate::trail::By;

/// The service `prism.ControlPlane`.
pub(super) struct Register(pub(super) Arc<Face>);

#[tonic::async_trait]
impl ControlPlane for Register {
    async fn register_proxy(
        &self,
        request: Request<ProxyRegistration>,
    ) -> Result<Response<ProxyRegistrationAck>, Status> {
        let caller = super::caller(&request)?;
        let ack = self.register(&caller, request.into_inner()).await;
        ack.map(Response::new).map_err(|refused| self.0.refuse(By::from(&caller), &refused))
    }
}

impl Register {
    async fn register(
        &self,
        caller: &Caller,
        sent: ProxyRegistration,
    ) -> Result<ProxyRegistrationAck, Refused> {
        let face = &self.0;
        caller.needs(Right::Proxy, || "registering a proxy".to_owned())?;
        let ProxyRegistration { proxy_id, address, .. } = sent;
        visible("proxy_id", &proxy_id)?;
        visible("address", &address)?;
        let tenant = face.tenant_of_routes(caller, "")?;
        if let Some(names) = &caller.bounds.scope.names {
            let rule = format!(
                "a proxy is told of all routes of its tenant, and the bounds of this key are names = {names}; \
                 use another key, or tenure.v1.Routes/Watch"
            );
            return Err(Refused::new(Code::Forbidden, rule));
        }
        let event = format!("proxy {proxy_id:?} at {address}, tenant {tenant:?}");
        let registration =
            Registration { tenant, proxy_id: proxy_id.into(), address: address.into() };
        let quota = face.budgets.allowance.proxies(&caller.bounds);
        match face.delivery.register(caller.principal.mark, registration, quota).await {
            Ok(range) => {
                face.trail.tell(By::from(caller), Fact::new(Event::Register, &event));
                let (start, end) = (i32::from(*range.start()), i32::from(*range.end()));
                let partition_ranges = vec![PartitionRange { start, end }];
                Ok(ProxyRegistrationAck { success: true, partition_ranges, ..Default::default() })
            }
            Err(error @ NotRegistered::Address(_)) => {
                Err(Refused::new(Code::Invalid, error.to_string()))
            }
            Err(error @ NotRegistered::Outside(_)) => {
                Err(Refused::forbidden("proxy_networks", error.to_string()))
            }
            Err(NotRegistered::Quota(denied)) => Err(Refused::denied(&denied)),
            Err(NotRegistered::Store(failure)) => Err(failure.into()),
            // As the control plane refuses a lease: in its answer.
            Err(
                error @ (NotRegistered::Taken(_)
                | NotRegistered::TooMany
                | NotRegistered::TooManyInAll),
            ) => {
                let message = error.to_string();
                face.trail.tell(By::from(caller), Fact::new(Event::Refusal, &message));
                Ok(ProxyRegistrationAck { success: false, message, ..Default::default() })
            }
        }
    }
}
