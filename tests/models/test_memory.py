"""Memory that is freed is kept: measured by the pages that the system has to give a process anew."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from timerewarder.models.memory import keep_freed_memory


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(16_000_000)  # 64 MB, larger than all that glibc keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


by_default, kept, settling, settled = faults(), keep_freed_memory(), faults(), faults()
print(by_default, kept, settled)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left as they are")
def test_freed_memory_is_not_asked_for_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    by_default, kept, settled = done.stdout.split()
    assert kept == "True"
    assert int(settled) < 0.05 * int(by_default)
