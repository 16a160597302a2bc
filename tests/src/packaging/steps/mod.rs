//! The steps of the test, in order.

mod configuration;
mod footprint;
mod gateway;
mod hardening;
mod install;
mod journal;
mod outages;
mod purge;
mod reboot;
mod stop;
mod user_unit;
mod users;
mod work;
mod wrapped_unit;

use super::World;

/// Something that is done, and what is expected of it.
pub type Step = (&'static str, fn(&mut World));

/// All of them; each goes on from where the one before it ended.
pub const STEPS: [Step; 23] = [
    ("The package is installed", install::install),
    ("What came with it can be read", install::documents),
    ("Members of the group may use the agent, others may not", users::members_and_others),
    ("It is as locked in as its unit says", hardening::in_force),
    ("A gateway of the host's own serves the agent", gateway::gateway),
    ("It is small", footprint::idle),
    ("A hundred holds survive systemctl restart", outages::restart),
    ("A hundred holds survive kill -9 of the agent", outages::kill),
    ("A hundred holds survive an upgrade", outages::upgrade),
    ("A hundred holds survive a hung agent", outages::watchdog),
    ("A reload with a wrong file fails, with a right one it succeeds", configuration::reload),
    ("A client that dies while the agent is away is noticed", outages::client_dies_meanwhile),
    ("The journal has stable fields", journal::fields),
    ("A stop releases everything and tells everybody", stop::stop),
    ("The first client starts the agent", stop::socket_alone),
    ("A wrong configuration fails until it is mended", configuration::wrong_until_mended),
    ("The upstream's password comes as a credential", configuration::credential),
    ("A unit whose program the wrapper starts is ready, watched, and waits", wrapped_unit::service),
    ("A user has an agent of its own", user_unit::lingering),
    ("Nobody else holds what work of a machine holds that reboots", reboot::reboot),
    ("A removal ends work, stops the agent and keeps what was configured", purge::remove),
    ("It is installed again", install::install_again),
    ("A purge leaves nothing", purge::purge),
];
