//! The place of a trail: a file that rotates by itself, or the standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The place of a trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The output that a service manager's journal keeps.
    Stdout,
    File(PathBuf),
}

impl Place {
    /// The place with that name; `-` is the standard output.
    pub fn named(path: &Path) -> Place {
        if path == Path::new("-") { Place::Stdout } else { Place::File(path.to_owned()) }
    }

    pub(super) fn open(&self, bytes_max: u64, files_max: u32) -> io::Result<Output> {
        match self {
            Place::Stdout => Ok(Output::Stdout(io::stdout())),
            Place::File(path) => Ok(Output::File(Rotating::open(path, bytes_max, files_max)?)),
        }
    }
}

/// An open place.
#[derive(Debug)]
pub(super) enum Output {
    Stdout(io::Stdout),
    File(Rotating),
}

impl Output {
    /// Makes room for so many bytes that follow the end of a line.
    pub(super) fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        match self {
            Output::Stdout(_) => Ok(()),
            Output::File(file) => file.make_room(bytes as u64),
        }
    }

    /// Writes a part of them; how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Stdout(output) => {
                let written = output.write(bytes)?;
                output.flush()?;
                Ok(written)
            }
            Output::File(file) => file.write(bytes),
        }
    }
}

/// A file that gives way to a new one when it is full: `audit` becomes `audit.1`, that `audit.2`, and so on.
#[derive(Debug)]
pub(super) struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// With the one that is written.
    files_max: u32,
    /// Devices and pipes have no size.
    is_plain: bool,
}

impl Rotating {
    fn open(path: &Path, bytes_max: u64, files_max: u32) -> io::Result<Rotating> {
        let file = open(path)?;
        let metadata = file.metadata()?;
        // A link stays, and what it leads to rotates beside itself.
        let path = fs::canonicalize(path)?;
        let (bytes, is_plain) = (metadata.len(), metadata.is_file());
        Ok(Rotating { path, file, bytes, bytes_max, files_max, is_plain })
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        if !self.is_plain || self.bytes == 0 || self.bytes + bytes <= self.bytes_max {
            return Ok(());
        }
        let open = self.file.metadata()?;
        if open.len() + bytes <= self.bytes_max {
            // It was cut by another program.
            self.bytes = open.len();
            return Ok(());
        }
        // Another program that moved it away has numbered it already.
        if fs::metadata(&self.path).is_ok_and(|named| named.ino() == open.ino()) {
            self.shift()?;
        }
        self.file = open_in(&self.path)?;
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }

    /// Numbers the files anew. The oldest is replaced by the one before it.
    fn shift(&self) -> io::Result<()> {
        let numbered = |number: u32| match number {
            0 => self.path.clone(),
            number => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                PathBuf::from(name)
            }
        };
        if self.files_max <= 1 {
            return fs::remove_file(&self.path);
        }
        for number in (0..self.files_max - 1).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).append(true).mode(0o600);
    options
}

fn open(path: &Path) -> io::Result<File> {
    options().open(path)
}

/// Opens it, and sees to it that its name and those of the files before it outlive a crash of the host.
fn open_in(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(output: &mut Output, line: &str) {
        output.make_room(line.len()).unwrap();
        assert_eq!(output.write(line.as_bytes()).unwrap(), line.len());
    }

    fn read(dir: &Path) -> Vec<(String, String)> {
        let mut found: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_goes() {
        for (files_max, expected) in [
            (1, vec![("audit", "5\n")]),
            (3, vec![("audit", "5\n"), ("audit.1", "3\n4\n"), ("audit.2", "1\n2\n")]),
            (2, vec![("audit", "5\n"), ("audit.1", "3\n4\n")]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let place = Place::File(dir.path().join("audit"));
            let mut output = place.open(4, files_max).unwrap();
            for number in 1..=5 {
                write(&mut output, &format!("{number}\n"));
                // One that begins again knows how much there is.
                output = place.open(4, files_max).unwrap();
            }
            let found = read(dir.path());
            let found: Vec<_> = found.iter().map(|(name, text)| (&**name, &**text)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_another_program_moved_or_cut_is_not_numbered_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut output = Place::File(path.clone()).open(4, 3).unwrap();
        write(&mut output, "1\n2\n");
        fs::rename(&path, dir.path().join("audit.1")).unwrap();
        write(&mut output, "3\n4\n");
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        write(&mut output, "5\n");
        let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(read(dir.path()), [named("audit", "5\n"), named("audit.1", "1\n2\n")]);
    }

    #[test]
    fn a_link_stays_and_a_device_does_not_rotate() {
        let dir = tempfile::tempdir().unwrap();
        let (link, real) = (dir.path().join("link"), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(real.path().join("audit"), &link).unwrap();
        let mut output = Place::File(link.clone()).open(2, 2).unwrap();
        write(&mut output, "1\n");
        write(&mut output, "2\n");
        assert!(link.is_symlink() && fs::read_to_string(&link).unwrap() == "2\n");
        assert_eq!(read(real.path()).len(), 2);
        let mut device = Place::File(PathBuf::from("/dev/null")).open(2, 2).unwrap();
        for _ in 0..3 {
            write(&mut device, "1\n");
        }
    }
}
