//! The control plane of RFC-049.

mod cancelled;
mod client_keepalive;
mod cluster;
mod examples;
mod floods;
mod hostile;
mod keys;
mod load;
mod processes;
mod proxy_keepalive;
mod proxy_networks;
mod proxy_routes;
mod proxy_stops;
mod runners;
