//! Calls: requests in the words of one face.

use std::ffi::OsString;

use super::Face;
use super::json::Carrier;
use super::request::Field;

/// A server of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Agent,
    Gateway,
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) enum Sent {
    Http {
        to: Server,
        method: &'static str,
        target: String,
        /// More headers, each with the end of its line.
        headers: String,
        body: Vec<u8>,
    },
    Grpc {
        path: &'static str,
        message: Vec<u8>,
        tenant: Option<String>,
    },
    Process {
        program: &'static str,
        arguments: Vec<OsString>,
    },
}

impl Sent {
    pub(super) fn post(to: Server, path: &str, body: Vec<u8>) -> Sent {
        let (target, headers) = (path.to_owned(), String::new());
        Sent::Http { to, method: "POST", target, headers, body }
    }

    pub(super) fn get(to: Server, target: String) -> Sent {
        Sent::Http { to, method: "GET", target, headers: String::new(), body: Vec::new() }
    }
}

/// A request in the words of a face, and the fields of it that the face is given.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub face: Face,
    pub carried: Vec<Field>,
    pub sent: Sent,
}

impl Call {
    pub(super) fn new(face: Face, carrier: Carrier<'_>, sent: Sent) -> Call {
        Call { face, carried: carrier.carried, sent }
    }
}
