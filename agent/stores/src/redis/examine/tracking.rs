//! How soon the agent hears that something was changed by others.

use tenure_wire::Check;

use super::rights::grant;
use super::{Asker, NoAnswer, names};
use crate::redis::feed::RESP2_ONLY;
use crate::redis::layout::Layout;

pub(super) async fn look(asker: &mut Asker, layout: &Layout, user: &str) -> [Check; 2] {
    [tracking(asker, layout, user).await, keyspace_events(asker, user).await]
}

/// Looks whether the server tells of changed keys: asked for on this connection, for keys that
/// nobody writes.
async fn tracking(asker: &mut Asker, layout: &Layout, user: &str) -> Check {
    const NAME: &str = names::TRACKING;
    if asker.connection.speaks_resp2() {
        return Check::warning(
            NAME,
            format!("{RESP2_ONLY}; what others change is found by asking, up to a second late"),
            "write the address of the server itself into upstream, not that of a proxy, or upgrade it",
        );
    }
    let nobodys = format!("{}:doctor:", layout.prefixes().tenure_prefix);
    let track = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", &nobodys];
    match asker.ask::<()>(&track).await {
        Ok(()) => {
            // The connection ends with the examination in any case.
            let _ = asker.ask::<()>(&["CLIENT", "TRACKING", "OFF"]).await;
            Check::ok(NAME, "the server tells at once which keys were changed, by any program")
        }
        Err(why @ NoAnswer::Forbidden(_)) => Check::warning(
            NAME,
            format!("{why}; what others change is found by asking, up to a second late"),
            grant(user, "+client|tracking"),
        ),
        Err(why) => Check::unknown(NAME, why.to_string(), "run this again"),
    }
}

/// Only for people: nothing depends on it.
async fn keyspace_events(asker: &mut Asker, user: &str) -> Check {
    const NAME: &str = names::KEYSPACE_EVENTS;
    match asker.setting("notify-keyspace-events").await {
        Ok(flags) => Check::ok(NAME, events(&flags)),
        Err(why @ NoAnswer::Forbidden(_)) => Check::unknown(
            NAME,
            format!("{why}; nothing of Tenure depends on it"),
            format!("leave it, or {}", grant(user, "+config|get")),
        ),
        Err(why) => Check::unknown(NAME, why.to_string(), "leave it: nothing depends on it"),
    }
}

/// The meaning of the flags of notify-keyspace-events for programs that listen to expiries.
fn events(flags: &str) -> &'static str {
    let has = |flag| flags.contains(flag);
    if has('E') && (has('x') || has('A')) {
        "expired keys are told of; the agent does not depend on it, other programs may"
    } else {
        "expired keys are not told of; the agent does not depend on it, other programs may"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_need_two_flags() {
        for (flags, told) in
            [("", false), ("Ex", true), ("AKE", true), ("Kx", false), ("Eg", false)]
        {
            assert_eq!(events(flags).starts_with("expired keys are told"), told, "{flags}");
        }
    }
}
