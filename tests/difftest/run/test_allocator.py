"""Memory that is freed is handed out again, rather than given back to the system and cleared by it."""

import subprocess
import sys

import pytest

from difftest.run import allocator

SCRIPT = """
import resource, sys
import torch
from difftest.run import allocator

def work():  # blocks of several sizes, freed in another order
    for k in (1, 7, 3):
        blocks = [torch.empty(50_000 * k).fill_(1.0) for _ in range(4)]
        total = blocks[0] + blocks[1]
        del blocks

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

torch.set_num_threads(1)
if sys.argv[1] == "kept":
    assert allocator.keep_freed()
for _ in range(5):
    work()
before = pages()
for _ in range(20):
    work()
print(pages() - before)
"""


@pytest.mark.skipif(not allocator.keep_freed(), reason="C's library is not glibc")
def test_what_is_freed_is_handed_out_again_without_the_system():
    taken = {
        how: int(subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "given back")
    }
    assert taken["kept"] < 100 < 10_000 < taken["given back"], taken
