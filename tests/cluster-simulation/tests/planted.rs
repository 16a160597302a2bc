//! Faults that are planted in the code to see that the simulation finds them.

use std::path::Path;
use std::process::Command;

#[test]
fn every_planted_fault_has_its_place() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = here.ancestors().nth(2).expect("the crate is inside");
    let patches: Vec<_> = std::fs::read_dir(here.join("planted"))
        .expect("the faults")
        .map(|entry| entry.expect("a fault").path())
        .collect();
    assert!(patches.len() >= 6, "{patches:?}");
    for patch in patches {
        let mut git = Command::new("git");
        let fits = git.args(["apply", "--check"]).arg(&patch).current_dir(tree).output();
        let fits = fits.expect("git runs");
        assert!(fits.status.success(), "{}", String::from_utf8_lossy(&fits.stderr));
    }
}
