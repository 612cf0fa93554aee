"""The page at ``/``: one file that asks nobody but this server, which its policy enforces."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

PAGE: str = files("revar.serving").joinpath("page.html").read_text(encoding="utf-8")


def _hash_of(tag: str) -> str:
    """The hash by which the policy knows the one script or style of the page."""
    found = re.search(rf"<{tag}>(.*?)</{tag}>", PAGE, flags=re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_hash_of('script')}",
        f"style-src {_hash_of('style')}",
        "connect-src 'self'",
        "img-src blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
