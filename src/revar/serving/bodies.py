"""Requests to examples: media types, sizes, and how much is held at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from revar.data.inputs import Inputs
from revar.serving.inputs import (
    Examples,
    image,
    json_bytes,
    reads_images,
    rows,
    safe_name,
    shape_of,
)
from revar.serving.limits import Limits
from revar.serving.refusals import Refused, busy

_T = TypeVar("_T")
_QUICK = 16_384
"""Bytes that are parsed sooner than a thread is reached."""


class _InMemory(MultiPartParser):
    """Files of a form are never written to a disk: they may be patients."""

    spool_max_size = 2**62
    ended = False

    def on_end(self) -> None:
        """The last boundary was there; without it the last file is missing, in silence."""
        self.ended = True


class BodyReader:
    """Reads the examples of requests to one model.

    Attributes:
        inputs: what the model reads.
        limits: of sizes.
        threads: where pictures are decoded and long JSON is parsed.
    """

    def __init__(self, inputs: Inputs, limits: Limits, threads: ThreadPoolExecutor) -> None:
        self.inputs = inputs
        self.limits = limits
        self.threads = threads
        self._held = 0

    async def read(self, request: Request) -> Examples:
        """The examples of a request.

        Raises:
            Refused: 400, 413, 415, 422, or 503 where too many bodies are held already.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise Refused(415, f'encoding "{encoding[:40]}" is not read: send the body plain')
        if kind == "application/json":
            return await self._rows(request)
        if kind == "multipart/form-data":
            return await self._images(request)
        given = f'"{kind[:60]}"' if kind else "missing"
        raise Refused(415, f"the content type is {given}: {self.wanted}")

    @property
    def wanted(self) -> str:
        """What to send, in words."""
        as_rows = f'send application/json with {{"rows": [...]}}, each {shape_of(self.inputs)}'
        if reads_images(self.inputs):
            return f"send multipart/form-data with image files, or {as_rows.removeprefix('send ')}"
        return as_rows

    async def _rows(self, request: Request) -> Examples:
        most = min(self.limits.max_bytes, json_bytes(self.inputs, self.limits.max_items))
        counted = _Counted(self, request, most)
        try:
            body = b"".join([chunk async for chunk in counted.chunks()])
            x = await self._aside(
                lambda: rows(body, self.inputs, self.limits.max_items), len(body) > _QUICK
            )
        finally:
            counted.release()
        return Examples(x, tuple(str(i) for i in range(len(x))))

    async def _images(self, request: Request) -> Examples:
        if not reads_images(self.inputs):
            raise Refused(415, f"this model reads no image files: {self.wanted}")
        counted = _Counted(self, request, self.limits.max_bytes)
        try:
            files = await self._files(request, counted.chunks())
            shape = self.inputs.shape
            decoded = await asyncio.gather(
                *(
                    self._aside(
                        lambda name=name, content=content: image(  # type: ignore[misc]
                            content, name, shape, self.limits.max_pixels
                        )
                    )
                    for name, content in files
                )
            )
        finally:
            counted.release()
        return Examples(torch.stack(decoded), tuple(name for name, _ in files))

    async def _files(
        self, request: Request, chunks: AsyncGenerator[bytes, None]
    ) -> list[tuple[str, bytes]]:
        most = self.limits.max_items
        parser = _InMemory(request.headers, chunks, max_files=most, max_fields=0)
        try:
            form = await parser.parse()
        except MultiPartException as error:
            if "Too many files" in error.message:
                raise Refused(
                    413, f"too many images for one request: send at most {most}"
                ) from error
            if "Too many fields" in error.message:
                msg = "the form has a field that is no file: send image files only, with names"
                raise Refused(400, msg) from error
            raise Refused(400, f"the form cannot be read: {error.message}") from error
        except (FormParserError, UnicodeDecodeError, ValueError) as error:
            raise Refused(400, "the form cannot be read: its parts are damaged") from error
        try:
            if not parser.ended:
                raise Refused(400, "the form cannot be read: its end is missing")
            given = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            if not given:
                raise Refused(422, "the form has no files: send at least one image")
            return [
                (safe_name(part.filename, number), await part.read())
                for number, part in enumerate(given)
            ]
        finally:
            await form.close()

    async def _aside(self, work: Callable[[], _T], long: bool = True) -> _T:
        """Do long work in a thread, so that other requests go on."""
        if not long:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def hold(self, size: int) -> None:
        """Count bytes that are kept.

        Raises:
            Refused: 503, all requests together keep too many.
        """
        if self._held + size > self.limits.held_bytes:
            raise busy("too much is being uploaded at once: try again later", 1.0)
        self._held += size

    def drop(self, size: int) -> None:
        """Count bytes that are no longer kept."""
        self._held -= size


class _Counted:
    """The body of one request, refused as soon as it is too long."""

    def __init__(self, reader: BodyReader, request: Request, most: int) -> None:
        self._reader, self._request, self._most = reader, request, most
        self._held = 0
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise self._too_long()

    def _too_long(self) -> Refused:
        return Refused(413, f"the body is longer than {self._most} bytes: send less at once")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its bytes as they come."""
        try:
            async for chunk in self._request.stream():
                if self._held + len(chunk) > self._most:
                    raise self._too_long()
                self._reader.hold(len(chunk))
                self._held += len(chunk)
                yield chunk
        except ClientDisconnect as error:
            raise Refused(400, "the client went away before its request was complete") from error

    def release(self) -> None:
        """The body is no longer needed."""
        self._reader.drop(self._held)
        self._held = 0
