//! The end of a growing log file, line by line, safe for a terminal.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::process::printable;

/// Lines kept.
const MAX_LINES: usize = 2000;
/// A longer line is broken.
const MAX_LINE: usize = 4096;
/// More than this between two looks is skipped, but for its end: the file has it all.
const MAX_BEHIND: u64 = 1 << 20;

/// The last lines of a file.
#[derive(Debug)]
pub struct Tail {
    file: File,
    at: u64,
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Tail {
    /// Reads from the start of the file, or from near its end if it is long.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { file, at: 0, lines: VecDeque::new(), partial: Vec::new() })
    }

    /// Reads what has come since; whether there was anything.
    pub fn update(&mut self) -> io::Result<bool> {
        let len = self.file.metadata()?.len();
        if len < self.at {
            // Someone cut the file.
            self.at = len;
        }
        if len - self.at > MAX_BEHIND {
            self.at = len - MAX_BEHIND;
            self.partial.clear();
        }
        let start = self.at;
        let mut buffer = [0; 16 << 10];
        while self.at < len {
            let read = match self.file.read_at(&mut buffer, self.at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.at += read as u64;
            self.push(buffer.get(..read).unwrap_or_default());
        }
        Ok(self.at != start)
    }

    /// The lines, oldest first; the last may not be finished.
    #[must_use]
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = String> + '_ {
        let partial = (!self.partial.is_empty()).then(|| plain(&self.partial));
        self.lines.iter().cloned().chain(partial)
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.partial.len() >= MAX_LINE {
                self.lines.push_back(plain(&self.partial));
                self.partial.clear();
                if self.lines.len() > MAX_LINES {
                    self.lines.pop_front();
                }
            }
            if *byte != b'\n' {
                self.partial.push(*byte);
            }
        }
    }
}

/// A line as a terminal would leave it: without colours, and of a progress bar only the last state.
fn plain(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.rsplit(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut kept = Vec::with_capacity(line.len());
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            // `ESC [ … letter` sets colours and moves; `ESC ] … BEL` sets titles.
            0x1b => match rest.next() {
                Some(b'[') => while rest.next().is_some_and(|byte| !(0x40..=0x7e).contains(&byte)) {},
                Some(b']') => while rest.next().is_some_and(|byte| !matches!(byte, 0x07 | 0x1b)) {},
                _ => {}
            },
            b'\t' => kept.extend(b"    "),
            byte => kept.push(byte),
        }
    }
    printable(&kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn tail_of(bytes: &[u8]) -> (tempfile::NamedTempFile, Tail) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut tail = Tail::open(file.path()).unwrap();
        tail.update().unwrap();
        (file, tail)
    }

    #[test]
    fn lines_come_as_they_are_written() {
        let (mut file, mut tail) = tail_of(b"one\ntw");
        assert_eq!(tail.lines().collect::<Vec<_>>(), ["one", "tw"]);
        assert!(!tail.update().unwrap());
        file.write_all(b"o\n\n").unwrap();
        assert!(tail.update().unwrap());
        assert_eq!(tail.lines().collect::<Vec<_>>(), ["one", "two", ""]);
        file.as_file().set_len(0).unwrap();
        assert!(!tail.update().unwrap());
    }

    #[test]
    fn colours_bars_and_titles_are_taken_out() {
        let (_file, tail) =
            tail_of(b"\x1b[1;32mINFO\x1b[0m a\tb\x1b]0;title\x07!\n 10%\r 20%\r 30%\rnul\0\r\n");
        assert_eq!(tail.lines().collect::<Vec<_>>(), ["INFO a    b!", "nul\u{2400}"]);
    }

    #[test]
    fn a_flood_keeps_its_end() {
        let mut text = Vec::new();
        for number in 0..400_000 {
            writeln!(text, "line {number}").unwrap();
        }
        let (_file, tail) = tail_of(&text);
        assert_eq!(tail.lines().next_back().unwrap(), "line 399999");
        assert_eq!(tail.lines().count(), MAX_LINES);
        let (_file, tail) = tail_of(&vec![b'x'; 10_000]);
        assert!(tail.lines().all(|line| line.len() <= MAX_LINE));
    }

    proptest! {
        #[test]
        fn nothing_a_command_prints_commands_the_terminal(bytes: Vec<u8>) {
            prop_assert!(plain(&bytes).chars().all(|character| !character.is_control()));
        }
    }
}
