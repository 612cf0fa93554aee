from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile

from revar.data.images import decode, header
from revar.errors import InputError
from support.pictures import pixels, save


def wrong(read: Callable[[], object], path: Path) -> str:
    """What an image is refused with: one line that names the file."""
    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f'"{path}" ')
    return message


def mode_of(path: Path) -> str:
    with Image.open(path) as image:
        return image.mode


def channels_first(values: NDArray[Any]) -> NDArray[Any]:
    return np.moveaxis(values, -1, 0)


# --- modes


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm"])
def test_greyscale_is_read_as_one_channel_or_as_three_equal_ones(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"p.{suffix}"
    values = save(path, pixels(6, 5))
    assert header(path) == (5, 6, True)
    grey = decode(path, (1, 6, 5))
    assert grey.dtype == np.uint8
    np.testing.assert_array_equal(grey, values[None])
    np.testing.assert_array_equal(decode(path, (3, 6, 5)), np.stack([values] * 3))


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm"])
def test_colour_is_read_as_three_channels_or_as_its_luma(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    values = save(path, pixels(6, 5, 3))
    assert header(path) == (5, 6, False)
    colour = decode(path, (3, 6, 5))
    assert colour.flags.c_contiguous
    np.testing.assert_array_equal(colour, channels_first(values))
    luma = values @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(decode(path, (1, 6, 5))[0], luma, atol=1)


def test_alpha_is_dropped_and_does_not_mix_into_the_colours(tmp_path: Path) -> None:
    values = save(tmp_path / "rgba.png", pixels(6, 5, 4))
    assert header(tmp_path / "rgba.png") == (5, 6, False)
    got = decode(tmp_path / "rgba.png", (3, 6, 5))
    np.testing.assert_array_equal(got, channels_first(values[..., :3]))
    grey = save(tmp_path / "la.png", pixels(6, 5, 2))
    assert mode_of(tmp_path / "la.png") == "LA"
    assert header(tmp_path / "la.png") == (5, 6, True)
    np.testing.assert_array_equal(decode(tmp_path / "la.png", (1, 6, 5))[0], grey[..., 0])
    np.testing.assert_array_equal(decode(tmp_path / "la.png", (3, 6, 5))[1], grey[..., 0])


@pytest.mark.parametrize(
    ("name", "transparency"),
    [("p.gif", None), ("p.gif", 1), ("p.png", None), ("p.png", 1), ("p.png", b"\x00\x80\xff")],
)
def test_palettes_become_colours_with_and_without_transparency(
    tmp_path: Path, name: str, transparency: int | bytes | None
) -> None:
    colours = np.array([[1, 2, 3], [250, 120, 10], [0, 99, 200]], dtype=np.uint8)
    indices = pixels(4, 6) % 3
    palette = Image.fromarray(indices, mode="P")
    palette.putpalette(colours.flatten().tolist())
    options: dict[str, Any] = {} if transparency is None else {"transparency": transparency}
    palette.save(tmp_path / name, **options)
    assert mode_of(tmp_path / name) == "P"
    assert header(tmp_path / name) == (6, 4, False)
    got = decode(tmp_path / name, (3, 4, 6))
    np.testing.assert_array_equal(got, channels_first(colours[indices]))
    luma = colours[indices] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(decode(tmp_path / name, (1, 4, 6))[0], luma, atol=1)


def test_a_transparent_colour_of_a_plain_image_is_no_pixel_of_its_own(tmp_path: Path) -> None:
    values = pixels(4, 4)
    Image.fromarray(values).save(tmp_path / "grey.png", transparency=int(values[0, 0]))
    for channels in (1, 3):
        got = decode(tmp_path / "grey.png", (channels, 4, 4))
        np.testing.assert_array_equal(got, np.stack([values] * channels))
    colour = pixels(4, 4, 3)
    first = tuple(int(value) for value in colour[0, 0])
    Image.fromarray(colour).save(tmp_path / "colour.png", transparency=first)
    got = decode(tmp_path / "colour.png", (3, 4, 4))
    np.testing.assert_array_equal(got, channels_first(colour))


def test_jpegs_of_four_inks_become_colours(tmp_path: Path) -> None:
    inks = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    inks.save(tmp_path / "inks.jpg", quality=95)
    assert mode_of(tmp_path / "inks.jpg") == "CMYK"
    assert header(tmp_path / "inks.jpg") == (8, 8, False)
    got = decode(tmp_path / "inks.jpg", (3, 8, 8)).astype(int)
    # Magenta and yellow at full is red.
    np.testing.assert_allclose(got[:, 4, 4], [255, 0, 0], atol=6)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_to_eight_and_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    path = tmp_path / f"deep.{suffix}"
    save(path, values)
    assert header(path) == (8, 8, True)
    expected = (values // 256).astype(np.uint8)
    np.testing.assert_array_equal(decode(path, (1, 8, 8))[0], expected)
    np.testing.assert_array_equal(decode(path, (3, 8, 8)), np.stack([expected] * 3))
    assert (expected.min(), expected.max()) == (0, 255)


def test_sixteen_bits_in_the_other_byte_order_are_the_same(tmp_path: Path) -> None:
    values = (np.arange(16, dtype=np.uint16) * 4000).reshape(4, 4)
    path = tmp_path / "big.tif"
    path.write_bytes(big_endian_tiff(values))
    assert mode_of(path) == "I;16B"
    assert header(path) == (4, 4, True)
    np.testing.assert_array_equal(decode(path, (1, 4, 4))[0], values // 256)


def test_sixteen_bits_that_pillow_opens_as_wider_numbers_are_scaled_too(tmp_path: Path) -> None:
    values = (np.arange(16, dtype=np.uint16) * 4000).reshape(4, 4)
    path = tmp_path / "deep.pgm"
    path.write_bytes(b"P5 4 4 65535\n" + values.astype(">u2").tobytes())
    assert mode_of(path) == "I"
    assert header(path) == (4, 4, True)
    np.testing.assert_array_equal(decode(path, (1, 4, 4))[0], values // 256)
    np.testing.assert_array_equal(decode(path, (3, 4, 4))[1], values // 256)


def big_endian_tiff(values: NDArray[np.uint16]) -> bytes:
    """The smallest TIFF there is: one strip of sixteen bits, most significant byte first."""
    data = values.astype(">u2").tobytes()
    height, width = values.shape
    # (tag, type, value): sizes, bits, no compression, black is zero, offset, rows, bytes.
    tags = [
        (256, 3, width), (257, 3, height), (258, 3, 16), (259, 3, 1), (262, 3, 1),
        (273, 4, 8), (277, 3, 1), (278, 3, height), (279, 4, len(data)),
    ]  # fmt: skip
    directory = struct.pack(">H", len(tags))
    for tag, kind, value in tags:
        packed = struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value)
        directory += struct.pack(">HHI", tag, kind, 1) + packed
    return b"MM\x00*" + struct.pack(">I", 8 + len(data)) + data + directory + b"\x00" * 4


def test_single_bits_are_black_and_white(tmp_path: Path) -> None:
    values = save(tmp_path / "bits.png", pixels(6, 5) > 127)
    assert mode_of(tmp_path / "bits.png") == "1"
    assert header(tmp_path / "bits.png") == (5, 6, True)
    expected = np.where(values, 255, 0)
    np.testing.assert_array_equal(decode(tmp_path / "bits.png", (1, 6, 5))[0], expected)
    np.testing.assert_array_equal(decode(tmp_path / "bits.png", (3, 6, 5))[2], expected)


@pytest.mark.parametrize(("kind", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_wide_numbers_are_read_where_they_are_those_of_eight_bits(
    tmp_path: Path, kind: type[np.generic], mode: str
) -> None:
    values = pixels(6, 5)
    values[0, :2] = (0, 255)
    path = tmp_path / "wide.tif"
    save(path, values.astype(kind))
    assert mode_of(path) == mode
    assert header(path) == (5, 6, True)
    np.testing.assert_array_equal(decode(path, (1, 6, 5))[0], values)
    np.testing.assert_array_equal(decode(path, (3, 6, 5))[0], values)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (np.int32, 256, "0 to 256"),
        (np.int32, -1, "-1 to 0"),
        (np.int32, 2**20, "to 1.04858e+06"),
        (np.float32, 255.5, "0 to 255.5"),
        (np.float32, 0.5, "0 to 0.5"),
        (np.float32, -0.5, "-0.5 to 0"),
        (np.float32, np.inf, "to inf"),
        (np.float32, np.nan, "nan"),
    ],
)
def test_wide_numbers_beyond_eight_bits_have_no_agreed_scale(
    tmp_path: Path, kind: type[np.generic], value: float, shown: str
) -> None:
    values = np.zeros((4, 4), dtype=kind)
    values[1, 2] = value
    path = tmp_path / "wide.tif"
    save(path, values)
    message = wrong(lambda: decode(path, (1, 4, 4)), path)
    assert shown in message
    assert message.endswith("save it with 8 or 16 bits")


def test_a_mode_that_cannot_be_converted_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lab.tif"
    Image.new("LAB", (4, 4)).save(path)
    assert "conversion" in wrong(lambda: decode(path, (1, 4, 4)), path)


# --- how a camera was held


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["p.png", "p.tif", "p.jpg", "p.webp"])
def test_pictures_are_decoded_upright_and_measured_so(
    tmp_path: Path, name: str, orientation: int
) -> None:
    path, plain = tmp_path / name, tmp_path / f"plain-{name}"
    options: dict[str, Any] = {"lossless": True} if name == "p.webp" else {}
    values = pixels(6, 9, 3)
    save(path, values, orientation=orientation, **options)
    save(plain, values, **options)
    stored = decode(plain, (3, 6, 9))
    upright = {
        1: stored,
        2: stored[:, :, ::-1],
        3: stored[:, ::-1, ::-1],
        4: stored[:, ::-1],
        5: stored.transpose(0, 2, 1),
        6: np.rot90(stored, -1, (1, 2)),
        7: stored[:, ::-1, ::-1].transpose(0, 2, 1),
        8: np.rot90(stored, 1, (1, 2)),
    }[orientation]
    height, width = upright.shape[1:]
    assert header(path) == (width, height, False)
    np.testing.assert_array_equal(decode(path, (3, height, width)), upright)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_grey_tiffs_are_turned_as_from_memory(tmp_path: Path, orientation: int) -> None:
    """Pillow maps such files, and maps what is turned wrongly."""
    path, values = tmp_path / "p.tif", pixels(6, 9)
    save(path, values, orientation=orientation)
    height, width = (6, 9) if orientation < 5 else (9, 6)
    found = decode(path, (1, height, width))
    np.testing.assert_array_equal(found, decode(path, (1, height, width), path.read_bytes()))
    assert sorted(found.ravel()) == sorted(values.ravel())


@pytest.mark.parametrize("name", ["p.png", "p.webp"])
def test_damaged_exif_is_no_reason_to_refuse_a_picture(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    values = np.full((6, 9, 3), 130, dtype=np.uint8)
    save(path, values, exif=b"Exif\x00\x00no such thing")
    with Image.open(path) as image, pytest.raises(SyntaxError):
        image.getexif()
    assert header(path) == (9, 6, False)
    np.testing.assert_allclose(decode(path, (3, 6, 9)), 130, atol=1)


@pytest.mark.parametrize("name", ["p.png", "p.jpg", "p.gif", "p.tif", "p.bmp", "p.webp"])
def test_a_header_is_read_without_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    save(path, pixels(20, 30, 3))

    decoded: list[object] = []
    for kind in (ImageFile.ImageFile, *ImageFile.ImageFile.__subclasses__()):
        monkeypatch.setattr(kind, "load", decoded.append)
    assert header(path)[:2] == (30, 20)
    assert decoded == []


# --- sizes


def test_resizing_keeps_what_a_picture_shows(tmp_path: Path) -> None:
    halves = np.zeros((40, 60), dtype=np.uint8)
    halves[:, 30:] = 200
    save(tmp_path / "h.png", halves)
    read = decode(tmp_path / "h.png", (1, 10, 12))
    assert read.shape == (1, 10, 12)
    assert (read[0, :, :5] == 0).all()
    assert (read[0, :, 7:] == 200).all()
    larger = decode(tmp_path / "h.png", (3, 80, 120))
    assert larger.shape == (3, 80, 120)
    assert (larger[:, :, :58] == 0).all()


def test_sixteen_bits_are_resized_like_eight(tmp_path: Path) -> None:
    values = pixels(16, 16)
    save(tmp_path / "deep.png", values.astype(np.uint16) * 257)
    save(tmp_path / "plain.png", values)
    deep, plain = (decode(tmp_path / f"{name}.png", (1, 8, 8)) for name in ("deep", "plain"))
    np.testing.assert_array_equal(deep, plain)


@pytest.mark.parametrize("suffix", ["gif", "tif", "webp", "png"])
def test_of_several_frames_the_first_is_read(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "lime", "blue")]
    path = tmp_path / f"film.{suffix}"
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    with Image.open(path) as image:
        assert getattr(image, "n_frames", 1) == 3
    assert header(path)[:2] == (6, 4)
    assert decode(path, (3, 4, 6))[:, 2, 3].tolist() == [255, 0, 0]


# --- files that are no pictures


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty or of an unknown kind"),
        (b"name,age\nAnna,30\n", "it is empty or of an unknown kind"),
        (b"\x89PNG\r\n\x1a\n and then nothing", ""),
        (b"GIF89a", ""),
        (b"\xff\xd8\xff\xe0 and then nothing", ""),
        (b"II*\x00\xff\xff\xff\xff", ""),
    ],
    ids=["zero bytes", "text", "png", "gif", "jpeg", "tiff"],
)
def test_what_is_no_picture_is_refused_by_both(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "p.png"
    path.write_bytes(content)
    for read in (lambda: header(path), lambda: decode(path, (3, 4, 4))):
        assert f"cannot be read as an image: {reason}" in wrong(read, path)


@pytest.mark.parametrize(("name", "kept"), [("p.jpg", 900), ("p.png", 3000), ("p.tif", 3000)])
def test_a_truncated_picture_is_refused_when_it_is_decoded(
    tmp_path: Path, name: str, kept: int
) -> None:
    path = tmp_path / name
    options: dict[str, Any] = {"compression": "tiff_lzw"} if name == "p.tif" else {}
    save(path, pixels(64, 64, 3), **options)
    path.write_bytes(path.read_bytes()[:kept])
    if name != "p.tif":  # whose directory is at its end
        assert header(path) == (64, 64, False)
    assert "cannot be read as an image" in wrong(lambda: decode(path, (3, 64, 64)), path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.png", tmp_path):
        for read in (lambda: header(path), lambda: decode(path, (1, 4, 4))):  # noqa: B023
            assert "cannot be read as an image: " in wrong(read, path)


def claimed_png(width: int, height: int) -> bytes:
    """A PNG that claims any size and holds hardly any pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + start + chunk(b"IDAT", zlib.compress(b"\0" * 64))


def test_a_picture_that_claims_a_monstrous_size_is_refused_before_it_is_decoded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(claimed_png(60_000, 60_000))
    for read in (lambda: header(path), lambda: decode(path, (1, 8, 8))):
        message = wrong(read, path)
        assert message.endswith("has too many pixels to be opened safely: shrink it")


@pytest.mark.parametrize("most", [60, 99])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_the_limit_holds_where_pillow_only_warns_whatever_becomes_of_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, action: Literal["error", "ignore"]
) -> None:
    path = tmp_path / "p.png"
    save(path, pixels(10, 10))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    with warnings.catch_warnings():
        warnings.simplefilter(action, Image.DecompressionBombWarning)
        for read in (lambda: header(path), lambda: decode(path, (1, 10, 10))):
            assert "too many pixels" in wrong(read, path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert header(path) == (10, 10, True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert header(path) == (10, 10, True)
