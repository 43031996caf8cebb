"""The files of one sandbox (`sb.fs`): small ones as text or bytes, large ones and directories as streams.

Relative paths begin at the sandbox's working directory. Memory stays flat in upload and download whatever the size.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import NotFoundError, TransferError
from ..models import FileInfo, Match, Transfer, parse
from .concurrency import blocking, in_pieces
from .transport import AsyncTransport, Call

_TRANSFER_TIMEOUT_S = 120.0
_PIECE_BYTES = 1 << 20


async def batched(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Larger pieces, so that writing each is worth its way to another thread."""
    held: builtins.list[bytes] = []
    size = 0
    async for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


class AsyncFiles:
    """Reads, writes and moves files of one sandbox."""

    def __init__(self, transport: AsyncTransport, base: str, user: str | None = None) -> None:
        self._transport = transport
        self._base = base
        self._path = f"{base}/fs"
        self._user = user

    def as_user(self, user: str) -> AsyncFiles:
        """The same files reached as another user of the sandbox, for example "root"."""
        return AsyncFiles(self._transport, self._base, user)

    def _query(self, path: str | None = None, **more: Any) -> dict[str, Any]:
        return {"path": path, "user": self._user, **more}

    def _post(self, verb: str, body: dict[str, Any]) -> Call:
        return Call("POST", f"{self._path}/{verb}", self._query(), json=body)

    async def read_bytes(self, path: str) -> bytes:
        """A file's content."""
        async with self._transport.stream(Call("GET", self._path, self._query(path))) as answer:
            return await answer.read()

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """A file's content as text."""
        return (await self.read_bytes(path)).decode(encoding)

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """A file's content in pieces."""
        call = Call("GET", self._path, self._query(path), read_timeout_s=_TRANSFER_TIMEOUT_S)
        async with self._transport.stream(call) as answer:
            async for piece in answer:
                yield piece

    async def write_bytes(
        self,
        path: str,
        data: bytes | AsyncIterable[bytes],
        *,
        mode: str | None = None,
        parents: bool = True,
    ) -> None:
        """Write a file as a whole (readers see the old or the new one); `mode` such as "0755"."""
        query = self._query(path, mode=mode, parents=parents)
        headers = {"Content-Type": "application/octet-stream"}
        call = Call("PUT", self._path, query, content=data, headers=headers, read_timeout_s=_TRANSFER_TIMEOUT_S)
        await self._transport.json(call)

    async def write_text(self, path: str, text: str, *, mode: str | None = None, parents: bool = True) -> None:
        """Write a text file (UTF-8)."""
        await self.write_bytes(path, text.encode(), mode=mode, parents=parents)

    async def list(self, path: str = ".", *, depth: int = 1, limit: int | None = None) -> builtins.list[FileInfo]:
        """What is in a directory."""
        query = self._query(path, depth=depth, limit=limit)
        answer = await self._transport.json(Call("GET", f"{self._path}/list", query))
        return [parse(FileInfo, item) for item in answer["items"]]

    async def stat(self, path: str) -> FileInfo:
        """One entry; a symbolic link is described itself, not followed."""
        return parse(FileInfo, await self._transport.json(Call("GET", f"{self._path}/stat", self._query(path))))

    async def exists(self, path: str) -> bool:
        """Whether something is there. NotFoundError only when the sandbox itself is gone."""
        try:
            await self.stat(path)
        except NotFoundError as error:
            if "sandbox" in error.code.lower():
                raise
            return False
        return True

    async def mkdir(self, path: str, *, parents: bool = True, mode: str | None = None) -> None:
        """Make a directory."""
        body = {"path": path, "parents": parents} | ({"mode": mode} if mode else {})
        await self._transport.json(self._post("mkdir", body))

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename or move."""
        body = {"from": source, "to": target, "overwrite": overwrite}
        await self._transport.json(self._post("move", body))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a directory and all in it."""
        await self._transport.json(Call("DELETE", self._path, self._query(path, recursive=recursive)))

    async def chmod(
        self, path: str, mode: str | None = None, *, owner: str | None = None, group: str | None = None
    ) -> None:
        """Change mode ("0755"), owner or group."""
        given = {"mode": mode, "owner": owner, "group": group}
        body = {"path": path} | {name: value for name, value in given.items() if value is not None}
        await self._transport.json(self._post("chmod", body))

    async def search(
        self, path: str = ".", pattern: str = "**", *, limit: int | None = None
    ) -> builtins.list[FileInfo]:
        """Entries below `path` whose path matches a glob such as "**/*.py"."""
        query = self._query(path, pattern=pattern, limit=limit)
        answer = await self._transport.json(Call("GET", f"{self._path}/search", query))
        return [parse(FileInfo, item) for item in answer["items"]]

    async def grep(
        self, content: str, path: str = ".", pattern: str = "**", *, limit: int | None = None
    ) -> builtins.list[Match]:
        """Lines that hold `content`, in the files below `path` whose path matches the glob."""
        query = self._query(path, pattern=pattern, content=content, limit=limit)
        answer = await self._transport.json(Call("GET", f"{self._path}/search", query))
        return [parse(Match, item) for item in answer["items"]]

    async def upload(self, local: str | Path, remote: str, *, mode: str | None = None) -> Transfer:
        """Copy a local file or directory into the sandbox; `remote` is the name of the copy."""
        source = Path(local)
        if await blocking(source.is_dir):
            return await self._upload_directory(source, remote)
        try:
            file = await blocking(source.open, "rb")
        except OSError as error:
            raise TransferError(f"cannot read {source}", code="local_file", cause=str(error)) from error
        with file:
            size = source.stat().st_size
            permissions = mode or f"{source.stat().st_mode & 0o777:04o}"
            await self._put_file(file, size, remote, permissions)
        return Transfer(1, size)

    async def _put_file(self, file: BinaryIO, size: int, remote: str, mode: str) -> None:
        pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        query = self._query(remote, mode=mode, parents=True)
        content = in_pieces(pieces)
        call = Call("PUT", self._path, query, content=content, headers=headers, read_timeout_s=_TRANSFER_TIMEOUT_S)
        await self._transport.json(call)

    async def _upload_directory(self, source: Path, remote: str) -> Transfer:
        from ..archive import pack

        counted = [0, 0]
        call = Call(
            "PUT",
            f"{self._path}/archive",
            self._query(remote),
            content=in_pieces(pack(source, counted)),
            headers={"Content-Type": "application/x-tar"},
            read_timeout_s=_TRANSFER_TIMEOUT_S,
        )
        await self._transport.json(call)
        return Transfer(files=counted[0], bytes=counted[1])

    async def upload_archive(self, content: bytes | AsyncIterable[bytes], remote: str) -> None:
        """Unpack a tar stream into a directory of the sandbox."""
        headers = {"Content-Type": "application/x-tar"}
        call = Call("PUT", f"{self._path}/archive", self._query(remote), content=content, headers=headers)
        call.read_timeout_s = _TRANSFER_TIMEOUT_S
        await self._transport.json(call)

    async def download(self, remote: str, local: str | Path) -> Transfer:
        """Copy a file or directory of the sandbox to this machine; `local` is the name of the copy.

        Links that lead out of the directory are left out and named in the result's `skipped`.
        """
        if (await self.stat(remote)).is_dir:
            return await self._download_directory(remote, Path(local))
        return await self._download_file(remote, Path(local))

    async def _download_file(self, remote: str, target: Path) -> Transfer:
        draft = target.with_name(f".{target.name}.part")
        size = 0
        try:
            with await blocking(draft.open, "wb") as file:
                async for piece in batched(self.read_stream(remote)):
                    size += len(piece)
                    await blocking(file.write, piece)
            await blocking(draft.replace, target)
        except OSError as error:
            raise TransferError(f"cannot write {target}", code="local_file", cause=str(error)) from error
        finally:
            await blocking(draft.unlink, missing_ok=True)
        return Transfer(1, size)

    async def _download_directory(self, remote: str, target: Path) -> Transfer:
        from ..archive import Unpacker

        unpacker = await blocking(Unpacker, target)
        try:
            async for piece in batched(self.download_archive(remote)):
                await blocking(unpacker.feed, piece)
            return await blocking(unpacker.finish)
        finally:
            unpacker.close()

    async def download_archive(self, remote: str) -> AsyncIterator[bytes]:
        """A directory of the sandbox as a tar stream."""
        call = Call("GET", f"{self._path}/archive", self._query(remote), read_timeout_s=_TRANSFER_TIMEOUT_S)
        call.headers = {"Accept": "application/x-tar"}
        async with self._transport.stream(call) as answer:
            async for piece in answer:
                yield piece
