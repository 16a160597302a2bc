# Lanes, from the quickest to the longest: `just` lists them. `pip install rust-just` or `cargo install just` installs the runner.
# Each is a line or two: whoever has no runner types them.

features := "--features tenured/systemd,tenure-cluster-simulation/run"

_lanes:
    @just --list --unsorted

# Only three packages: with --workspace, nextest would link every test program first.
# What to run after every edit: format, lints but for those of tests, the pure crates, 200 seeds
quick: format
    cargo clippy --workspace {{features}} -- -D warnings
    cargo nextest run --package tenure-bounds --package tenure-core --package tenure-wire
    {{just_executable()}} seeds 1 201

# Tests whose path has NAME in it, of every crate and area
test NAME:
    cargo nextest run --workspace {{features}} -E 'test({{NAME}})'

# End-to-end tests of an AREA: agent, gateway, cluster, sdk, repository, images; of those, the ones with NAME in their path
e2e AREA NAME='':
    cargo nextest run --workspace {{features}} -E 'binary({{AREA}}) and test(/{{NAME}}/)'

# Seeds of the simulation
seeds FIRST='1' LAST='501':
    cargo build --workspace {{features}} --bin simulate
    ${CARGO_TARGET_DIR:-target}/debug/simulate --seeds {{FIRST}}..{{LAST}}

# Format, lints, licences, the documentation, and a build with the fewest features
lint:
    tests/lint

# Everything, as README says
all:
    tests/run

# What takes hours: `just long` says what there is
long *WHAT:
    tests/long {{WHAT}}

# Benchmarks: `just bench P15`
bench *ROWS:
    tests/bench/run {{ROWS}}

# All that must hold before a change is taken: lint and all
ci:
    .ci/run

format:
    cargo fmt --all --check
