//! The gateway, as agents, programs, people, browsers and attackers meet it.

mod agents;
mod bounds;
mod browsers;
mod control_plane;
mod cursors;
mod denials;
mod failover;
mod floods;
mod hostile;
mod hostile_principal;
mod join;
mod keys;
mod keys_model;
mod load;
mod one;
mod page;
mod people;
mod refusals;
mod rights;
mod seed_backend;
mod sessions;
mod sessions_refused;
mod several;
mod store_keys;
mod tls;
mod trail;
