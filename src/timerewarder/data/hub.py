"""Files of datasets on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path

from timerewarder.errors import UserError


def fetch(repo_id: str, names: Sequence[str], revision: str | None = None) -> Path:
    """The folder with these files of a dataset, downloaded if need be; a name that ends with / is all below it.

    The folder is called after the commit, which is the `revision` to give for more files of the same state.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    patterns = [escape(name) for name in names]
    try:
        return Path(snapshot_download(repo_id, repo_type="dataset", revision=revision, allow_patterns=patterns))
    except (HTTPError, OSError, ValueError) as error:  # refused or unreachable, not cached, not a name for a dataset
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{repo_id} does not exist here and cannot be fetched from the Hub as a dataset ({reason}): "
            "check the path or the name, the network, and for a private dataset the login (`hf auth login` or HF_TOKEN)"
        ) from error
