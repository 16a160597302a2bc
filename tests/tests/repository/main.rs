//! What the repository says of itself: documents, schemas, manifests, and the rules of its rooms.

mod charts;
mod docs;
mod forge;
mod manifests;
mod openapi;
mod readme;
mod rules;
mod schemas;
