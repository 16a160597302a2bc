//! What is committed is what the files in `protos/` say, and these say what RFC-049 does.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, ServiceDescriptorProto};

const FILES: [&str; 3] =
    ["prism/admin/v1/control_plane.proto", "prism/control_plane.proto", "tenure/v1/routes.proto"];
const GENERATED: [&str; 4] = ["descriptors.bin", "prism.admin.v1.rs", "prism.rs", "tenure.v1.rs"];
/// The number of the first field that is an addition.
const ADDED_FROM: i32 = 100;

/// Run with `TENURE_WRITE=1` to write what is generated instead of comparing it.
#[test]
fn the_committed_code_is_made_from_the_files() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = tempfile::tempdir().unwrap();
    let set = protox::compile(FILES, [here.join("protos")]).unwrap();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .compile_fds(set.clone())
        .unwrap();
    let mut bare = set;
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    fs::write(made.path().join("descriptors.bin"), bare.encode_to_vec()).unwrap();
    let committed = here.join("src/generated");
    for name in GENERATED {
        let made = fs::read(made.path().join(name)).unwrap();
        if std::env::var_os("TENURE_WRITE").is_some() {
            fs::write(committed.join(name), &made).unwrap();
        }
        let is_same = fs::read(committed.join(name)).unwrap() == made;
        assert!(is_same, "{name} is out of date: TENURE_WRITE=1 cargo test -p tenure-proto");
    }
}

fn set(file: &str, folder: &Path) -> FileDescriptorSet {
    protox::compile([file], [folder]).unwrap()
}

fn of_package(set: FileDescriptorSet) -> (Vec<ServiceDescriptorProto>, Vec<DescriptorProto>) {
    let file = set.file.into_iter().find(|file| file.package() == "prism.admin.v1").unwrap();
    (file.service, file.message_type)
}

#[test]
fn the_control_plane_is_that_of_the_rfc_and_additions_from_100_on() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rfc = of_package(set("rfc_049.proto", &here.join("tests")));
    let (services, mut messages) = of_package(set(FILES[0], &here.join("protos")));
    for message in &mut messages {
        message.field.retain(|field| field.number() < ADDED_FROM);
    }
    assert_eq!((services, messages), rfc);
}
