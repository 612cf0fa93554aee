"""Whoever keeps the checkpoints of a run."""

from __future__ import annotations

from pathlib import Path

from revar.preparation import Prepared
from revar.run import RunFolder
from revar.training import TrainingState


class FolderKeeper:
    """Keeps checkpoints in the folder of a run."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)

    def begin(self, data: Prepared, state: TrainingState) -> None:
        """From the last one on."""
        self.folder.begin(data.recipe, {}, resume=True)
        self.folder.load_checkpoint(state)

    def save(self, state: TrainingState) -> None:
        """Keep it."""
        self.folder.save_checkpoint(state)
