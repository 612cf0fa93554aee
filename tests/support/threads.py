"""One thread for small linear algebra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


@contextmanager
def one_thread() -> Iterator[None]:
    """Small fits wait up to a hundred times longer for threads than they compute.

    That is so where there are more busy threads than cores, as when tests run side by side.
    """
    with threadpool_limits(1, user_api="blas"):
        yield
