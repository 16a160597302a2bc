//! Which gateway this is, and which run of it.

use std::fs;
use std::path::Path;

use crate::mailbox::Place;

/// What says which gateway this is. A gateway with a copy of it would be taken for this one.
const FILE: &str = "gateway-id";

/// The place. A gateway that cannot keep it is another one at each start: runners then wait longer before they go on.
pub fn read(state_dir: &Path) -> Place {
    let mut random = [0; 5];
    // Without random bytes it has no run before.
    let is_random = getrandom::fill(&mut random).is_ok();
    let [a, b, c, d, e] = random;
    let (gateway, run) = ([a, b, c], [d, e]);
    let file = state_dir.join(FILE);
    if let Ok(kept) = fs::read(&file)
        && let Ok(gateway) = kept.try_into()
    {
        return Place { gateway, run };
    }
    if is_random && let Err(error) = fs::write(&file, gateway) {
        tracing::warn!(%error, ?file, "cannot keep which gateway this is");
    }
    Place { gateway, run }
}
