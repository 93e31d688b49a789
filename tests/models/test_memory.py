"""Memory that is freed is kept: measured by the pages that the system has to give a process anew."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from timerewarder.models.memory import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else None
for _ in range(10):  # it settles down in a few rounds
    torch.ones(16_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(16_000_000)  # 64 MB, larger than all that glibc keeps by itself
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(what: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", FAULTS, what], capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left as they are")
def test_freed_memory_is_not_asked_for_again():
    (_, by_default), (kept, keeping) = faults("default"), faults("keep")
    assert kept == "True"
    assert keeping < 0.05 * by_default
