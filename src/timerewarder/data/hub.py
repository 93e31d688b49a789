"""Files on the Hugging Face Hub: those of datasets, and those of models."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any, Literal

from timerewarder.errors import UserError


def fetch(repo_id: str, names: Sequence[str], revision: str | None = None) -> Path:
    """The folder with these files of a dataset, downloaded if need be; a name that ends with / is all below it.

    The folder is called after the commit, which is the `revision` to give for more files of the same state.
    """
    return download(repo_id, "dataset", [escape(name) for name in names], revision=revision)


def download(repo_id: str, kind: Literal["dataset", "model"], patterns: Sequence[str], **options: Any) -> Path:
    """The folder with the files that fit; `options` are those of `huggingface_hub.snapshot_download`."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    try:
        return Path(snapshot_download(repo_id, repo_type=kind, allow_patterns=list(patterns), **options))
    except (HTTPError, OSError, ValueError) as error:  # refused or unreachable, not cached, not a name for such a thing
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{repo_id} does not exist here and cannot be fetched from the Hub as a {kind} ({reason}): "
            f"check the path or the name, the network, and for a private {kind} the login (`hf auth login` or HF_TOKEN)"
        ) from error
