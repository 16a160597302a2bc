//! The right to read a page.

use std::fs::File;
use std::io;

/// Lets one more user read the file, and nobody else: a POSIX access control list, as
/// `linux/posix_acl_xattr.h` lays it out. `Unsupported` where there are none.
#[cfg(target_os = "linux")]
pub(super) fn let_read(file: &File, uid: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    const VERSION: u32 = 2;
    const READ: u16 = 4;
    const NOBODY: u32 = u32::MAX;
    let (owner, user, group, mask, other) = (0x01_u16, 0x02, 0x04, 0x10, 0x20);
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (owner, READ, NOBODY),
        (user, READ, uid),
        (group, 0, NOBODY),
        (mask, READ, NOBODY),
        (other, 0, NOBODY),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    // SAFETY: the descriptor is open, the name ends with a zero, and the value is as long as
    // stated.
    let done = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            c"system.posix_acl_access".as_ptr(),
            list.as_ptr().cast(),
            list.len(),
            0,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn let_read(_: &File, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
