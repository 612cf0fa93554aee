"""Images over HTTP: read as files are, and nothing else is read."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from support.browser import browser_page
from support.pictures import pixels, save
from support.serving import (
    Running,
    Served,
    check_answers,
    expected,
    refused,
    save_images,
    serving,
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return save_images(tmp_path_factory.mktemp("images") / "run")


@pytest.fixture(scope="module")
def server(images: Served) -> Iterator[Running]:
    options = ("--max-megapixels", "0.05", "--max-items", "40", "--timeout", "3")
    with serving(images.run, *options, "--max-megabytes", "2") as running:
        yield running


def upload(folder: Path) -> list[tuple[str, tuple[str, bytes]]]:
    """Every file below a folder, as a form sends it."""
    return [("images", (path.name, path.read_bytes())) for path in sorted(folder.iterdir())]


def png(values: object = None) -> bytes:
    buffer = BytesIO()
    shown = pixels(12, 12, 3) if values is None else np.asarray(values)
    Image.fromarray(shown).save(buffer, "PNG")
    return buffer.getvalue()


def test_pictures_of_every_kind_are_read_as_the_command_reads_files(
    server: Running, images: Served, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    for number, picture in enumerate(images.unseen):
        save(folder / f"{number:02}.png", picture)
    save(folder / "camera.jpg", pixels(40, 60, 3), orientation=6)
    save(folder / "grey.png", pixels(9, 30))
    save(folder / "alpha.png", pixels(20, 20, 4))
    save(folder / "deep.png", pixels(16, 16).astype(np.uint16) * 257)
    Image.fromarray(pixels(15, 15, 3)).quantize(8).save(folder / "palette.gif")
    Image.fromarray(pixels(15, 15, 4), "CMYK").save(folder / "print.tif")
    Image.fromarray(pixels(15, 15, 3)).save(folder / "web.webp")
    wanted = expected(images.run, folder)
    assert {row["accepted"] for row in wanted} == {"true", "false"}, "the test needs both"
    answers = server.client.post("/predict", files=upload(folder)).json()["predictions"]
    assert [answer["input"] for answer in answers] == [row["input"] for row in wanted]
    check_answers(answers, wanted)
    one = server.client.post("/predict", files=upload(folder)[:1]).json()["predictions"]
    check_answers(one, wanted[:1])


def test_pixels_as_json_give_the_same_answers(server: Running, images: Served) -> None:
    """Channels may come last or first."""
    files = [("f", (f"{i}.png", png(x))) for i, x in enumerate(images.unseen)]
    first = server.client.post("/predict", files=files).json()["predictions"]
    for x in (images.unseen, np.moveaxis(images.unseen, -1, 1)):
        second = server.client.post("/predict", json={"rows": x.tolist()}).json()["predictions"]
        for a, b in zip(first, second, strict=True):
            assert a["uncertainty"] == pytest.approx(b["uncertainty"], rel=1e-5)
            assert a["label"] == b["label"]
    floats = {"rows": (images.unseen[:1] / 255).tolist()}
    refused(server.client.post("/predict", json=floats), 422, "whole numbers from 0 to 255")


def bomb() -> bytes:
    """A picture that claims to be 60,000 pixels wide and high."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checked

    packed = chunk(b"IDAT", zlib.compress(b"\0" * 100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + packed + chunk(b"IEND", b"")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
BAD: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 415, "no image of a known format"),
    "text": (b"hello", 415, "no image of a known format"),
    "a format that starts a program": (POSTSCRIPT, 415, "no image of a known format"),
    "a pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00.", 415, "no image"),
    "cut": (png()[:200], 422, "cannot be read as an image"),
    "a bomb": (bomb(), 413, "shrink it"),
    "many pixels": (png(np.zeros((300, 300, 3), dtype=np.uint8)), 413, "more than 50000 pixels"),
    "many bytes": (b"x" * 2_100_000, 413, "longer than 2000000 bytes"),
}


@pytest.mark.parametrize(("content", "status", "words"), BAD.values(), ids=BAD.keys())
def test_bad_images_are_refused_in_one_sentence(
    server: Running, content: bytes, status: int, words: str
) -> None:
    good = ("images", ("good.png", png()))
    files = [good, ("images", ("../../etc/passwd.png", content))]
    answer = server.client.post("/predict", files=files)
    refused(answer, status, words)
    assert "etc" not in answer.text
    assert server.client.post("/predict", files=[good]).status_code == 200


def test_a_path_for_a_name_is_said_back_without_its_folders(
    server: Running, images: Served, tmp_path: Path
) -> None:
    """It is a name of the client's, whatever lies there on the server."""
    names = [
        "/etc/passwd",
        "..\\..\\boot.ini",
        "a\x07b.png",
        str(images.run / "weights.safetensors"),
    ]
    given = [("images", (name, png())) for name in names]
    answers = server.client.post("/predict", files=given).json()["predictions"]
    said = [answer["input"] for answer in answers]
    assert said[:2] == ["passwd", "boot.ini"]
    assert said[3] == "weights.safetensors"
    assert all("/" not in name and name.isprintable() for name in said)


def test_bad_forms_are_refused_in_one_sentence(server: Running) -> None:
    client = server.client
    many = [("images", (f"{i}.png", png())) for i in range(41)]
    refused(client.post("/predict", files=many), 413, "at most 40")
    form = {"content-type": "multipart/form-data"}
    refused(client.post("/predict", content=b"x", headers=form), 400, "boundary")
    form = {"content-type": "multipart/form-data; boundary=b"}
    refused(client.post("/predict", content=b"not a form", headers=form), 400, "cannot be read")
    refused(client.post("/predict", content=b"--b--\r\n", headers=form), 422, "no files")
    unnamed = b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"
    refused(client.post("/predict", content=unnamed, headers=form), 400, "cannot be read")
    field = b'--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n/etc/passwd\r\n--b--\r\n'
    refused(client.post("/predict", content=field, headers=form), 400, "no file")
    cut = b'--b\r\nContent-Disposition: form-data; name="i"; filename="i.png"\r\n\r\n\x89PNG'
    refused(client.post("/predict", content=cut, headers=form), 400, "its end is missing")


def test_a_client_that_stops_sending_is_not_waited_for(server: Running) -> None:
    parts = urlsplit(server.url)
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        "Content-Length: 100\r\n\r\n{"
    )
    began = time.monotonic()
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.settimeout(20)
        connection.sendall(head.encode())
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert 2.5 < time.monotonic() - began < 15
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(head.encode())
    assert server.client.get("/health").json()["status"] == "ok"


def test_images_are_decided_in_the_browser(server: Running, images: Served, tmp_path: Path) -> None:
    """What a person sees is what the server decides."""
    paths = [tmp_path / f"{i}.png" for i in range(len(images.unseen))]
    for path, picture in zip(paths, images.unseen, strict=True):
        save(path, picture)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with browser_page(width=380, height=800, scheme="dark") as seen:
        files = [("images", (path.name, path.read_bytes())) for path in paths]
        wanted = server.client.post("/predict", files=files).json()["predictions"]
        page = seen.page
        page.goto(server.url)
        page.get_by_text("Drop images here").wait_for()
        assert server.client.get("/model").json()["model"] in page.inner_text("#about")
        assert not page.is_visible("#row")
        page.set_input_files("#files", paths)
        page.get_by_text(f"of {len(paths)} answered").wait_for()
        said = page.locator("article .decision").all_inner_texts()
        assert said == [f"✓ {a['label']}" if a["accepted"] else "I abstain" for a in wanted]
        assert "I abstain" in said
        assert len(set(said)) > 1
        likely = max(wanted[0]["probabilities"].items(), key=lambda item: item[1])
        first = page.locator("article").first
        assert first.locator("tr").first.inner_text().split()[0] == likely[0]
        assert f"{100 * likely[1]:.1f} %" in first.inner_text()
        assert first.locator("img").evaluate("image => image.naturalWidth") == 12
        # Nothing sticks out of a narrow window.
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        assert (seen.errors, seen.external) == ([], [])
        # A browser reports every answer of status 4xx on its console, whatever the page does.
        page.set_input_files("#files", [tmp_path / "broken.png"])
        page.get_by_role("alert").wait_for()
        assert "no image of a known format" in page.get_by_role("alert").inner_text()
        assert page.locator("article").count() == 0
