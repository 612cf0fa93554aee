"""``python -m revar`` and the console script."""

from __future__ import annotations

from revar.cli import main

if __name__ == "__main__":
    main()
