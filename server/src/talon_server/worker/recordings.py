"""The recording files of one host: opened for the agents, closed, signed, read and checked here.

A recording is a directory `<home>/recordings/<id>` with `timeline.jsonl` while its sandbox lives and, once closed,
`timeline.jsonl.zst` with `head.json`: the chain's last hash, signed with the server's Ed25519 key. Only one writer
appends at a time: the sandbox's agent while it runs, this module after its end. The format of the lines is
`model.recording`'s. Blocking: call it from a thread when the file may be large.
"""

import base64
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from talon_server.model.recording import START, Verification, last_hash, seal, verify

PLAIN, PACKED, HEAD = "timeline.jsonl", "timeline.jsonl.zst", "head.json"
_TAIL_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """What is signed at the close: the number of records, their size in bytes, the last hash, and when (Unix s)."""

    recording: str
    records: int
    size: int
    hash: str
    closed_at: float
    key: str
    signature: str

    def message(self) -> bytes:
        """The bytes under the signature."""
        fields = [self.recording, self.records, self.size, self.hash, self.closed_at]
        return json.dumps(["talon-recording-1", *fields]).encode()


class Recordings:
    """All recordings below one directory, and the key that signs them."""

    def __init__(self, root: Path, key: Ed25519PrivateKey) -> None:
        self._root = root
        self._key = key

    @classmethod
    def at(cls, home: Path) -> "Recordings":
        """Those of a server's home; makes the directory and the key on first use."""
        root = home / "recordings"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(root, _signing_key(home / "recording.key"))

    def fresh(self, sandbox: str) -> str:
        """The id of a sandbox's next recording: its own, then with a number."""
        name, number = sandbox, 1
        while (self._root / name).exists():
            number += 1
            name = f"{sandbox}.{number}"
        return name

    def open(self, recording: str) -> int:
        """A descriptor that appends to this recording, for its agent. Raises OSError when it cannot be made."""
        directory = self._root / recording
        directory.mkdir(mode=0o700, exist_ok=True)
        return os.open(directory / PLAIN, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, recording: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Add one record after the agent's last; only when the agent is no longer writing."""
        path = self._root / recording / PLAIN
        with path.open("r+b") as file:
            number, previous = _resume(file)
            record = {"n": number, "at": round(time.time(), 6), "kind": kind, **fields}
            file.seek(0, os.SEEK_END)
            file.write(seal(previous, record)[0])

    def close(self, recording: str) -> Head | None:
        """Sign and compress a recording whose writer is gone; None when there is none or it is closed already."""
        directory = self._root / recording
        plain = directory / PLAIN
        if not plain.exists():
            return None
        with plain.open("r+b") as file:
            _resume(file)
            file.seek(0)
            found = verify(file)
        head = self._sign(recording, found)
        packed = directory / (PACKED + ".part")
        with plain.open("rb") as source, packed.open("wb") as target:
            zstandard.ZstdCompressor(level=6).copy_stream(source, target)
            target.flush()
            os.fsync(target.fileno())
        _write(directory / HEAD, json.dumps(_fields(head)))
        packed.rename(directory / PACKED)
        plain.unlink()
        return head

    def lines(self, recording: str) -> Iterator[bytes]:
        """The lines of a recording, open or closed. Raises FileNotFoundError."""
        directory = self._root / recording
        if (directory / PACKED).exists():
            with (directory / PACKED).open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
                yield from _split(stream)
        else:
            with (directory / PLAIN).open("rb") as file:
                yield from file

    def records(self, recording: str) -> Iterator[dict[str, Any]]:
        """The records of a recording; a last line that is still being written is left out."""
        for line in self.lines(recording):
            if line.endswith(b"}\n"):
                yield json.loads(line)

    def verify(self, recording: str) -> tuple[Verification, Head | None, bool]:
        """Check the chain, and the signature when closed: (what the chain says, the head, does its signature hold)."""
        head = self.head(recording)
        found = verify(self.lines(recording), head.hash if head else None)
        return found, head, head is not None and self._signature_holds(head)

    def head(self, recording: str) -> Head | None:
        """The signed head of a closed recording."""
        path = self._root / recording / HEAD
        return Head(**json.loads(path.read_text())) if path.exists() else None

    def ids(self) -> list[str]:
        """All recordings here."""
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())

    def is_open(self, recording: str) -> bool:
        return (self._root / recording / PLAIN).exists()

    def path(self, recording: str) -> Path:
        """The file that is being written, to follow it."""
        return self._root / recording / PLAIN

    def size(self, recording: str) -> int:
        """Bytes on disk; 0 when there is none."""
        directory = self._root / recording
        return sum(entry.stat().st_size for entry in directory.iterdir()) if directory.exists() else 0

    def delete(self, recording: str) -> None:
        """Remove a recording for good."""
        shutil.rmtree(self._root / recording, ignore_errors=True)

    def _sign(self, recording: str, found: Verification) -> Head:
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        unsigned = Head(recording, found.records, found.size, found.head, time.time(), _b64(public), "")
        return Head(**{**_fields(unsigned), "signature": _b64(self._key.sign(unsigned.message()))})

    def _signature_holds(self, head: Head) -> bool:
        own = _b64(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        return head.key == own and signature_holds(head)


def signature_holds(head: Head) -> bool:
    """Does the head's signature fit the key it names? Whether that is the server's key is the caller's to know."""
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(head.key))
    try:
        public.verify(base64.b64decode(head.signature), head.message())
    except InvalidSignature:
        return False
    return True


def _resume(file: Any) -> tuple[int, bytes]:
    """The next record's number and the last hash of an open file; cuts off a half-written last line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read()
    whole = tail[: tail.rfind(b"\n") + 1]
    if len(whole) < len(tail):
        file.truncate(size - (len(tail) - len(whole)))
    if not whole:
        return 0, START
    line = whole[whole.rfind(b"\n", 0, len(whole) - 1) + 1 :]
    return json.loads(line)["n"] + 1, last_hash(line)


def _split(stream: Any) -> Iterator[bytes]:
    rest = b""
    while chunk := stream.read(1 << 20):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _fields(head: Head) -> dict[str, Any]:
    return {name: getattr(head, name) for name in Head.__slots__}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def _signing_key(path: Path) -> Ed25519PrivateKey:
    if path.exists():
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    key = Ed25519PrivateKey.generate()
    raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    part.rename(path)
    return key
