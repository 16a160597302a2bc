//! Refusals in the words of gRPC, the one mapping for all its services.

use axum::body::Body;
use axum::response::Response;
use tenure_wire::Code;
use tonic::Status;

use crate::face::Face;
use crate::face::refused::Refused;
use crate::trail::By;

/// The end of a call's metadata with the instant at which it may be made again.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// The end of a call's metadata with the field or the bound that is in the way.
const FIELD: &str = "tenure-field";

impl From<&Refused> for Status {
    fn from(refused: &Refused) -> Status {
        let problem = refused.problem();
        let code = match problem.code {
            Code::Invalid => tonic::Code::InvalidArgument,
            Code::Unauthorized => tonic::Code::Unauthenticated,
            Code::Forbidden => tonic::Code::PermissionDenied,
            Code::QuotaExceeded | Code::TooLarge => tonic::Code::ResourceExhausted,
            Code::NotFound | Code::SessionUnknown => tonic::Code::NotFound,
            _ => tonic::Code::Unavailable,
        };
        let mut status = Status::new(code, problem.detail.clone());
        if let Some(field) = problem.field.as_ref().and_then(|field| field.parse().ok()) {
            status.metadata_mut().insert(FIELD, field);
        }
        if let Some(ms) = problem.retry_after_ms {
            status.metadata_mut().insert(PUSHBACK, ms.into());
        }
        status
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        Status::from(&refused)
    }
}

impl Face {
    /// A refusal, written down.
    pub(in crate::face) fn refuse(&self, by: By, refused: &Refused) -> Status {
        self.note_refusal(by, refused);
        Status::from(refused)
    }
}

/// The answer, with the codes that callers of gRPC expect where the library has others: it says OUT_OF_RANGE of a message
/// that is too long, and INTERNAL of one that cannot be read, which is its caller's fault. No service here says either.
pub(super) fn as_expected(answer: Response) -> Response {
    let Some(said) = Status::from_header_map(answer.headers()) else { return answer };
    let code = match said.code() {
        tonic::Code::OutOfRange => tonic::Code::ResourceExhausted,
        tonic::Code::Internal => tonic::Code::InvalidArgument,
        _ => return answer,
    };
    Status::new(code, said.message()).into_http::<Body>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_the_code_that_callers_expect() {
        for (code, expected) in [
            (Code::Invalid, tonic::Code::InvalidArgument),
            (Code::Unauthorized, tonic::Code::Unauthenticated),
            (Code::Forbidden, tonic::Code::PermissionDenied),
            (Code::QuotaExceeded, tonic::Code::ResourceExhausted),
            (Code::TooLarge, tonic::Code::ResourceExhausted),
            (Code::NotFound, tonic::Code::NotFound),
            (Code::UpstreamUnavailable, tonic::Code::Unavailable),
        ] {
            assert_eq!(Status::from(Refused::new(code, "why")).code(), expected, "{code:?}");
        }
    }
}
