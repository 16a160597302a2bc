//! The files of one directory, as the journal and the ledger use them.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tenure_host::directory::Directory;

/// A directory of files that are known by name.
///
/// A write that fails may have been done in part. Nothing but [`sync`](Disk::sync) survives the machine;
/// everything that was written survives the process.
pub trait Disk: Debug {
    /// The length of a file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or is no regular file.
    fn length(&mut self, file: &'static str) -> io::Result<Option<u64>>;

    /// Reads what is there from an offset on; 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn read_at(&mut self, file: &'static str, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Makes an empty file, whatever was there.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    fn create(&mut self, file: &'static str) -> io::Result<()>;

    /// Writes all of it at an offset.
    ///
    /// # Errors
    ///
    /// When it is not written, or not wholly.
    fn write_at(&mut self, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Takes space up to that length, so that writes before it do not fail for want of it.
    ///
    /// # Errors
    ///
    /// When there is not enough. Where the file system cannot reserve, nothing is reserved.
    fn reserve(&mut self, file: &'static str, from: u64, upto: u64) -> io::Result<()>;

    /// Waits until the file is on the medium.
    ///
    /// # Errors
    ///
    /// When it may not be.
    fn sync(&mut self, file: &'static str) -> io::Result<()>;

    /// Puts a file in the place of another.
    ///
    /// # Errors
    ///
    /// When both are as before.
    fn rename(&mut self, from: &'static str, to: &'static str) -> io::Result<()>;

    /// Removes a file, if there is one.
    ///
    /// # Errors
    ///
    /// When it is still there.
    fn remove(&mut self, file: &'static str) -> io::Result<()>;

    /// The directory, for files of other kinds; `None` if there is no real one.
    fn directory(&self) -> Option<&Directory> {
        None
    }
}

/// Whether there was no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The files of a directory of the agent's own.
#[derive(Debug)]
pub struct Files {
    directory: Directory,
    /// A handful.
    open: Vec<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    name: &'static str,
    file: File,
    /// Its name may not be on the medium.
    is_new: bool,
}

impl Files {
    /// The files of that directory.
    pub fn of(directory: Directory) -> Files {
        Files { directory, open: Vec::new() }
    }

    fn file(&mut self, name: &'static str) -> io::Result<&mut OpenFile> {
        let at = match self.open.iter().position(|open| open.name == name) {
            Some(at) => at,
            None => {
                // To read and write it would make one that is missing.
                self.directory.read(name, u64::MAX)?;
                let file = self.directory.write(name, u64::MAX)?;
                self.open.push(OpenFile { name, file, is_new: false });
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[at])
    }

    fn forget(&mut self, name: &'static str) {
        self.open.retain(|open| open.name != name);
    }
}

impl Disk for Files {
    fn directory(&self) -> Option<&Directory> {
        Some(&self.directory)
    }

    fn length(&mut self, file: &'static str) -> io::Result<Option<u64>> {
        match self.file(file) {
            Ok(open) => Ok(Some(open.file.metadata()?.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_at(&mut self, file: &'static str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file(file)?.file.read_at(into, at)
    }

    fn create(&mut self, file: &'static str) -> io::Result<()> {
        self.remove(file)?;
        let made = self.directory.create(file, 0o600)?;
        self.open.push(OpenFile { name: file, file: made, is_new: true });
        Ok(())
    }

    fn write_at(&mut self, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(file)?.file.write_all_at(bytes, at)
    }

    #[cfg(target_os = "linux")]
    fn reserve(&mut self, file: &'static str, from: u64, upto: u64) -> io::Result<()> {
        use nix::errno::Errno;
        use nix::fcntl::{FallocateFlags, fallocate};
        let length = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
        let (from, count) = (length(from)?, length(upto.saturating_sub(from))?);
        let kept = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&self.file(file)?.file, kept, from, count) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&mut self, _file: &'static str, _from: u64, _upto: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self, file: &'static str) -> io::Result<()> {
        let directory = self.directory.clone();
        let open = self.file(file)?;
        open.file.sync_data()?;
        if std::mem::take(&mut open.is_new) {
            nix::unistd::fsync(directory)?;
        }
        Ok(())
    }

    fn rename(&mut self, from: &'static str, to: &'static str) -> io::Result<()> {
        self.directory.rename(from, to)?;
        self.forget(to);
        if let Some(open) = self.open.iter_mut().find(|open| open.name == from) {
            open.name = to;
        }
        Ok(())
    }

    fn remove(&mut self, file: &'static str) -> io::Result<()> {
        self.directory.remove(file)?;
        self.forget(file);
        Ok(())
    }
}
