//! The id of this gateway, and of its run.

use std::fs;
use std::path::Path;

use crate::mailbox::GatewayRun;

/// The file with the id of the gateway. A gateway with a copy of it would be taken for this one.
const FILE: &str = "gateway-id";

/// The run that begins. A gateway that cannot keep it is another one at each start: runners then wait longer before they go on.
pub fn read(state_dir: &Path) -> GatewayRun {
    let mut random = [0; 5];
    // Without random bytes it has no run before.
    let is_random = getrandom::fill(&mut random).is_ok();
    let [a, b, c, d, e] = random;
    let (gateway, run) = ([a, b, c], [d, e]);
    let file = state_dir.join(FILE);
    if let Ok(kept) = fs::read(&file)
        && let Ok(gateway) = kept.try_into()
    {
        return GatewayRun { gateway, run };
    }
    if is_random && let Err(error) = fs::write(&file, gateway) {
        tracing::warn!(%error, ?file, "cannot keep which gateway this is");
    }
    GatewayRun { gateway, run }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_stays_itself_and_each_run_is_another() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = read(one.path());
        let runs: Vec<_> = (0..8).map(|_| read(one.path())).collect();
        assert!(runs.iter().all(|again| again.gateway == first.gateway));
        assert!(runs.iter().any(|again| again.run != first.run));
        assert_ne!(read(two.path()).gateway, first.gateway);
        // A write that was cut short.
        fs::write(two.path().join(FILE), "").unwrap();
        assert_eq!(read(two.path()).gateway, read(two.path()).gateway);
    }
}
