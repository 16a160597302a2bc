//! What the repository says of itself: documents, schemas, manifests, and the rules of its rooms.

mod api_reference;
mod charts;
mod docs;
mod forge;
mod launchd;
mod manifests;
mod openapi;
mod pod_security;
mod readme;
mod rules;
mod runbook;
mod schemas;
