"""Keep the memory that a step of training frees for the next step.

By default glibc returns large blocks to the system as soon as they are freed. An update of DrQ-v2 asks for the blocks
of the update before, and the system clears every page of them anew: a third of its time at batch 256 and 84 px
(`kept_memory_gain` of benchmarks/agent.py). Fitting a reward, whose batches are small, gains nothing.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # names of malloc.h
NEVER = -1


def keep_freed_memory() -> bool:
    """For this process, from now on; returns whether its allocator can. Only glibc's can, others are left as they are.

    For a process that trains and ends: a server would never return what its largest request took.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # no such function, or (Windows) no such library
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, NEVER))
