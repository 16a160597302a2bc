//! Sockets that launchd made for this process; see launch(3) and launchd.plist(5) on macOS.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

#[cfg(target_os = "macos")]
unsafe extern "C" {
    fn launch_activate_socket(
        name: *const c_char,
        descriptors: *mut *mut c_int,
        count: *mut libc::size_t,
    ) -> c_int;
}

#[cfg(not(target_os = "macos"))]
use tests::launch_activate_socket;

/// The socket of that name; `None` when launchd did not start this process, or knows no such socket.
/// launchd gives each only once.
///
/// # Errors
///
/// When launchd refuses.
pub(super) fn activate(name: &str) -> io::Result<Option<OwnedFd>> {
    let name = CString::new(name)?;
    let (mut descriptors, mut count) = (std::ptr::null_mut::<c_int>(), 0);
    // SAFETY: the name ends with a zero, and both places are ours to be written to.
    let error =
        unsafe { launch_activate_socket(name.as_ptr(), &raw mut descriptors, &raw mut count) };
    match error {
        0 if descriptors.is_null() => return Ok(None),
        0 => {}
        libc::ESRCH | libc::ENOENT => return Ok(None),
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    // SAFETY: launchd made an array of that many open descriptors, and gave each of them to us alone.
    let taken: Vec<OwnedFd> =
        unsafe { (0..count).map(|i| OwnedFd::from_raw_fd(*descriptors.add(i))).collect() };
    // SAFETY: the array is from malloc(3), for us to free, and not used any more.
    unsafe { libc::free(descriptors.cast()) };
    // A path makes one; what else there might be is closed.
    Ok(taken.into_iter().next())
}

#[cfg(test)]
mod tests {
    #[cfg(not(target_os = "macos"))]
    use super::*;

    /// In the place of launchd: knows the sockets "api", "none" and "taken".
    #[cfg(not(target_os = "macos"))]
    pub(super) unsafe fn launch_activate_socket(
        name: *const c_char,
        descriptors: *mut *mut c_int,
        count: *mut libc::size_t,
    ) -> c_int {
        use std::os::fd::IntoRawFd;

        // SAFETY: as the function that it stands for, called with a string that ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        match name.to_str() {
            Ok("api") => {}
            Ok("none") => return 0,
            Ok("taken") => return libc::EALREADY,
            Ok("unknown") => return libc::ENOENT,
            _ => return libc::ESRCH,
        }
        let files = [1, 2].map(|_| std::fs::File::open("/dev/null").unwrap().into_raw_fd());
        // SAFETY: room for two descriptors, which are written there; the caller frees it.
        unsafe {
            *descriptors = libc::malloc(size_of_val(&files)).cast();
            (*descriptors).copy_from_nonoverlapping(files.as_ptr(), files.len());
            *count = files.len();
        }
        0
    }

    #[test]
    #[cfg(not(target_os = "macos"))]
    fn takes_one_socket_and_binds_as_usual_without() {
        assert!(activate("api").unwrap().is_some());
        assert!(activate("none").unwrap().is_none());
        assert!(activate("unknown").unwrap().is_none());
        assert!(activate("not started by launchd").unwrap().is_none());
        let error = activate("taken").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EALREADY));
    }
}
