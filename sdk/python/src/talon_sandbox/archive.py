"""Directories as tar streams, without I/O on the network side: `pack` reads a tree, `Unpacker` writes one.

Used by Files.upload and Files.download. Memory stays flat: one piece of a file at a time. Invariant: an archive from
a sandbox is hostile; nothing is ever written outside the target, through a symbolic link, or as a device or set-id
file.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from .errors import TransferError
from .models import Transfer

PIECE_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_LONG_HEADERS = {tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE}
_MAX_LONG_HEADER = 1 << 20


def pack(root: Path, counted: list[int]) -> Iterator[bytes]:
    """The tree below `root` as a tar stream; `counted` becomes [files, bytes]. Sockets and devices are left out."""
    counted[:] = [0, 0]
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        try:
            yield from _entry(path, name, counted)
        except OSError as error:
            raise TransferError(f"cannot read {path}", code="local_file", cause=str(error)) from error
    yield b"\0" * (2 * _BLOCK)


def _walk(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        names.sort()
        here = Path(directory)
        if here != root:
            yield here
        yield from (here / name for name in names if (here / name).is_symlink())
        yield from (here / name for name in sorted(files))


def _entry(path: Path, name: str, counted: list[int]) -> Iterator[bytes]:
    with tarfile.TarFile(fileobj=_Nowhere(), mode="w") as maker:  # type: ignore[arg-type]
        info = maker.gettarinfo(path, arcname=name)
    if info is None or not (info.isreg() or info.islnk() or info.isdir() or info.issym()):
        return
    if info.islnk():
        info.type, info.size = tarfile.REGTYPE, path.stat().st_size
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    if info.isreg():
        with path.open("rb") as file:
            yield from _content(file, info.size, path)
        counted[0] += 1
        counted[1] += info.size


def _content(file: BinaryIO, size: int, path: Path) -> Iterator[bytes]:
    left = size
    while left:
        piece = file.read(min(PIECE_BYTES, left))
        if not piece:
            raise TransferError(f"{path} became shorter while it was read", code="local_file", remedy="try again")
        left -= len(piece)
        yield piece
    yield b"\0" * (-size % _BLOCK)


class _Nowhere:
    """The file a TarFile wants although only its header code is used."""

    name = None

    def tell(self) -> int:
        return 0

    def write(self, data: bytes) -> int:
        return len(data)


@dataclass(slots=True)
class _Open:
    """The entry whose content is being read: `left` bytes, then `padding`."""

    info: tarfile.TarInfo
    left: int
    padding: int
    file: BinaryIO | None = None
    long: bytearray | None = None


class Unpacker:
    """Writes a tar stream below `root` as its bytes come in; `finish` tells what was made."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._buffer = bytearray()
        self._open: _Open | None = None
        self._pax: dict[str, str] = {}
        self._ended = False
        self._files = 0
        self._bytes = 0
        self._skipped: list[str] = []
        self._modes: list[tuple[Path, int]] = []
        root.mkdir(parents=True, exist_ok=True)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream. TransferError when they are not an acceptable tar archive."""
        self._buffer += data
        try:
            while self._step():
                pass
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise TransferError("the archive is damaged", code="archive_invalid", cause=str(error)) from error
        except OSError as error:
            raise TransferError("cannot write the archive's files", code="local_file", cause=str(error)) from error

    def finish(self) -> Transfer:
        """Check that the stream was whole, and give directories their modes."""
        if not self._ended:
            raise TransferError("the archive ended too early", code="archive_truncated", remedy="try again")
        for path, mode in reversed(self._modes):
            path.chmod(mode)
        return Transfer(self._files, self._bytes, tuple(self._skipped))

    def close(self) -> None:
        """Let go of a half-written file (after an error)."""
        if self._open and self._open.file:
            self._open.file.close()
        self._open = None

    def _step(self) -> bool:
        if self._ended:
            self._buffer.clear()
            return False
        if self._open is not None:
            return self._take(self._open)
        if len(self._buffer) < _BLOCK:
            return False
        block = bytes(self._buffer[:_BLOCK])
        del self._buffer[:_BLOCK]
        if not block.strip(b"\0"):
            self._ended = True
        else:
            self._begin(tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape"))
        return True

    def _take(self, entry: _Open) -> bool:
        if entry.left:
            piece = bytes(self._buffer[: entry.left])
            if not piece:
                return False
            del self._buffer[: len(piece)]
            entry.left -= len(piece)
            if entry.long is not None:
                entry.long += piece
            elif entry.file:
                entry.file.write(piece)
            return True
        if len(self._buffer) < entry.padding:
            return False
        del self._buffer[: entry.padding]
        self._end(entry)
        return True

    def _begin(self, info: tarfile.TarInfo) -> None:
        if info.type in _LONG_HEADERS:
            if info.size > _MAX_LONG_HEADER:
                raise ValueError(f"an extended header of {info.size} bytes")
            self._open = _Open(info, info.size, -info.size % _BLOCK, long=bytearray())
            return
        pax, self._pax = self._pax, {}
        info.name = pax.get("path", info.name)
        info.linkname = pax.get("linkpath", info.linkname)
        size = int(pax.get("size", info.size)) if info.isreg() else 0
        info.size = size
        self._open = _Open(info, size, -size % _BLOCK, self._make(info))

    def _end(self, entry: _Open) -> None:
        self._open = None
        if entry.long is not None:
            self._pax.update(_extended(entry.info.type, bytes(entry.long)))
        elif entry.file:
            entry.file.close()
            self._files += 1
            self._bytes += entry.info.size

    def _make(self, info: tarfile.TarInfo) -> BinaryIO | None:
        """Create the entry; for a regular file give the open file its content goes to."""
        path = self._place(info.name)
        if path is None:
            return None
        if info.isdir():
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
                path.mkdir(exist_ok=True)
            self._modes.append((path, info.mode & 0o777 | 0o700))
        elif info.isreg():
            _clear(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            return os.fdopen(os.open(path, flags, info.mode & 0o777 | 0o600), "wb")
        elif info.issym() and self._inside(path, info.linkname):
            _clear(path)
            path.symlink_to(info.linkname)
        elif info.islnk() and (source := self._place(info.linkname)) and source.is_file() and not source.is_symlink():
            _clear(path)
            os.link(source, path)
        else:
            self._skipped.append(f"{info.name}: {_why_skipped(info)}")
        return None

    def _place(self, name: str) -> Path | None:
        """The local path of an entry, its parents made; TransferError when it would leave the root."""
        parts = [part for part in PurePosixPath(name).parts if part != "."]
        if ".." in parts or name.startswith("/") or "\0" in name:
            raise TransferError(
                f"the archive has an entry outside its own directory: {name!r}",
                code="archive_escapes",
                cause="the sandbox sent a path meant to overwrite other files",
                remedy="do not trust this sandbox's files",
            )
        if not parts:
            return None
        here = self._root
        for part in parts[:-1]:
            here /= part
            if here.is_symlink() or (here.exists() and not here.is_dir()):
                raise TransferError(f"{name!r} leads through a link", code="archive_escapes", cause=f"{here} is a link")
            here.mkdir(exist_ok=True)
        return here / parts[-1]

    def _inside(self, path: Path, target: str) -> bool:
        """Whether a symbolic link at `path` to `target` stays below the root."""
        if os.path.isabs(target):
            return False
        root = os.path.normpath(self._root)
        goal = os.path.normpath(path.parent / target)
        return goal == root or goal.startswith(root + os.sep)


def _clear(path: Path) -> None:
    if path.is_symlink() or path.exists():
        path.unlink()


def _why_skipped(info: tarfile.TarInfo) -> str:
    if info.issym():
        return f"links to {info.linkname}, outside the directory"
    return "is a link to a missing file" if info.islnk() else "is neither file, directory nor link"


def _extended(kind: bytes, data: bytes) -> dict[str, str]:
    """The fields of a pax ("LENGTH key=value\\n"…) or GNU long-name header (POSIX.1-2001, "pax Header Block")."""
    if kind == tarfile.XGLTYPE:
        return {}
    if kind != tarfile.XHDTYPE:
        text = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
        return {"path" if kind == tarfile.GNUTYPE_LONGNAME else "linkpath": text}
    fields: dict[str, str] = {}
    while data.strip(b"\0"):
        length = int(data[: data.index(b" ")])
        if length < 5 or length > len(data):
            raise ValueError("a pax record of a wrong length")
        key, _, value = data[data.index(b" ") + 1 : length - 1].partition(b"=")
        fields[key.decode()] = value.decode("utf-8", "surrogateescape")
        data = data[length:]
    return fields
