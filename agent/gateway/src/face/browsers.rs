//! Requests of web pages: refused before anything else is looked at, unless they are the page's own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tenure_service::browsers::{Guard, Head, Host, HostList};
use tenure_stores::gateway::wire::AGENT;
use tonic::Status;

use super::Face;
use super::refused::Refused;
use crate::access::Peer;
use crate::tls::Tls;
use crate::trail::By;

const CORP: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const GRPC: &str = "application/grpc";
const JSON: &str = "application/json";
/// The beginnings of the paths of JSON: what agents, people and programs of the session plane ask for.
const JSON_PATHS: [&str; 2] = ["/v1/", "/api/"];

/// The hosts that the gateway is, by its addresses, its settings and its certificate.
#[derive(Debug)]
pub struct Hosts {
    guard: Guard,
    tls: Option<Arc<Tls>>,
}

impl Default for Hosts {
    /// The hosts of a gateway that is listened at on loopback and has no names.
    fn default() -> Hosts {
        Hosts::new(Ipv4Addr::LOCALHOST.into(), HostList::default(), None)
    }
}

impl Hosts {
    /// Where the gateway is listened at, and the hosts of the setting.
    pub fn new(listened: IpAddr, listed: HostList, tls: Option<Arc<Tls>>) -> Hosts {
        Hosts { guard: Guard { listened, listed, setting: "hosts", page: Some("/") }, tls }
    }

    /// The certificates, if TLS is spoken.
    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    fn judge(&self, request: &Request) -> Result<(), Refused> {
        let is_certified = |host: &Host<'_>| self.tls.as_ref().is_some_and(|tls| tls.is_for(host));
        let judged = self.guard.judge(Head::of(request), is_certified);
        judged.map_err(|foreign| Refused::from(foreign.problem()))?;
        match request.method() {
            &Method::GET | &Method::HEAD => Ok(()),
            _ => judge_media_type(request.uri().path(), request.headers()),
        }
    }
}

/// Refuses bodies of the types that a page of another origin may send without asking: texts, forms, and none at all.
fn judge_media_type(path: &str, headers: &HeaderMap) -> Result<(), Refused> {
    let is_json = JSON_PATHS.iter().any(|start| path.starts_with(start));
    // Services of gRPC have packages in their names. What has neither is no endpoint, or takes no bodies.
    let is_grpc = path.split('/').nth(1).is_some_and(|service| service.contains('.'));
    let expected = match (is_json, is_grpc) {
        (true, _) => JSON,
        (false, true) => GRPC,
        (false, false) => return Ok(()),
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_expected = |given: &HeaderValue| {
        given.to_str().is_ok_and(|given| match is_json {
            true => essence(given).eq_ignore_ascii_case(JSON),
            false => is_of_grpc(given),
        })
    };
    match (types.next(), types.next()) {
        (Some(given), None) if is_expected(given) => Ok(()),
        // A browser asks before it sends one of these for a page of another origin, and is never told that it may.
        (None, _)
            if is_json
                && (headers.contains_key(header::AUTHORIZATION) || headers.contains_key(AGENT)) =>
        {
            Ok(())
        }
        (given, _) => Err(Refused::media_type(expected, given.map(HeaderValue::as_bytes))),
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split_once(';').map_or(media_type, |(essence, _)| essence).trim()
}

fn is_of_grpc(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence == GRPC || essence.strip_prefix(GRPC).is_some_and(|rest| rest.starts_with('+'))
}

/// Lets through what no page of others sent, and has browsers keep answers to themselves.
pub(super) async fn keep_out(face: &Face, hosts: &Hosts, request: Request, next: Next) -> Response {
    let media_type = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = media_type.and_then(|given| given.to_str().ok()).is_some_and(is_of_grpc);
    let mut response = match hosts.judge(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
            face.note_refusal(By { peer, ..By::default() }, &refused);
            if is_grpc { Status::from(&refused).into_http() } else { refused.into_response() }
        }
    };
    if !is_grpc {
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CORP, "same-origin"),
        ] {
            // The page's files may be kept, and say so.
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_json_or_grpc() {
        let agent = (AGENT, "an agent");
        let key = ("authorization", "Bearer tnr_");
        let of = |media_type| ("content-type", media_type);
        let claim = "/v1/upstream/claim";
        let beat = "/prism.admin.v1.ControlPlane/Heartbeat";
        for (path, headers, expected) in [
            (claim, vec![of("application/json")], true),
            (claim, vec![of("Application/JSON; charset=utf-8")], true),
            ("/api/v1/controller/register", vec![of("application/json")], true),
            (claim, vec![], false),
            (claim, vec![key], true),
            (claim, vec![agent], true),
            (claim, vec![key, of("text/plain")], false),
            (claim, vec![of("text/plain;charset=UTF-8")], false),
            (claim, vec![of("application/x-www-form-urlencoded")], false),
            (claim, vec![of("multipart/form-data; boundary=x")], false),
            (claim, vec![of("text/plain; application/json")], false),
            (claim, vec![of("application/jsonp")], false),
            (claim, vec![of("application/grpc")], false),
            (claim, vec![of("application/json"), of("text/plain")], false),
            (claim, vec![of("")], false),
            (beat, vec![of("application/grpc")], true),
            (beat, vec![of("application/grpc+proto")], true),
            (beat, vec![of("application/grpc-web")], false),
            (beat, vec![of("application/json")], false),
            (beat, vec![key], false),
            ("/", vec![], true),
            ("/nothing", vec![of("text/plain")], true),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            assert_eq!(judge_media_type(path, &map).is_ok(), expected, "{path} {headers:?}");
        }
    }
}
