"""For users of numba.cuda: `emulate`, `emulating` and the command, on files as they are."""

import re
import runpy
import textwrap
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numba import cuda, float32

from difftest import cli
from numba_kernels.emulator import DataRace, OutOfBounds, emulate, emulating

PAGE = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

PROGRAM = textwrap.dedent("""
    import numpy as np
    from numba import cuda, float32, int32, void

    @cuda.jit(device=True)
    def twice(v):
        return v * 2

    @cuda.jit
    def add(a, b):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += twice(b[i])

    @cuda.jit(void(float32[:], int32))
    def shifted(x, by):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        x[t] = s[(t + by) % 64]

    @cuda.jit
    def racy(x, y):
        x[0] = cuda.threadIdx.x
        y[cuda.threadIdx.x] = 1

    def arguments():
        return np.zeros(1), np.zeros(32)

    if __name__ == "__main__":
        host = np.arange(64, dtype=np.float32)
        stream, start, end = cuda.stream(), cuda.event(), cuda.event()
        start.record(stream)
        x, y = cuda.to_device(host, stream=stream), cuda.device_array(64, np.float32)
        y.copy_to_device(host)
        with stream.auto_synchronize():
            add[2, 32, stream](x, y)
        shifted[1, 64](x, 1)
        add.forall(64)(host, x)
        end.record()
        end.synchronize()
        print(x.copy_to_host()[:3], host[:3], start.elapsed_time(end) >= 0)
""")


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "program.py"
    made.write_text(PROGRAM)
    return made


def command(*words):
    return CliRunner().invoke(cli.main, ["emulate", *map(str, words)])


@pytest.mark.parametrize("text", EXAMPLES, ids=["a kernel", "a program", "a lock"])
def test_an_example_of_the_page_prints_what_its_comment_says(text, tmp_path, capsys):
    file = tmp_path / "example.py"
    file.write_text(text)
    runpy.run_path(str(file))
    (said,) = re.findall(r"print\(.*\)  # (.*)", text)
    assert capsys.readouterr().out.strip() == said


def test_an_unmodified_program_runs(file):
    result = command(file)
    assert result.exit_code == 0, result.output
    assert "[3. 6. 9.] [ 6. 13. 20.] True" in result.stdout
    assert "nothing found in 3 launches" in result.stdout


def test_a_race_is_said_with_both_lines_and_both_threads(file):
    result = command(f"{file}:racy", "--grid", 1, "--block", 32, "--args", "arguments")
    assert result.exit_code == 1
    assert "racy, program.py:25, block (0, 0, 0), thread 1: writes an element that thread 0 wrote in line 25" in result.stdout
    assert result.stdout.count("program.py:25: x[0] = cuda.threadIdx.x") == 2


def test_a_kernel_that_is_right(file):
    words = ("--grid", "2", "--block", "32", "--arg", "arange:float32:64", "--arg", "ones:float32:64", "--schedules", "2")
    result = command(f"{file}:add", *words)
    assert result.exit_code == 0
    assert "argument 0: [ 2.  3.  4.  5. ... 62. 63. 64. 65.]" in result.stdout
    assert "nothing found (check full, 2 schedules)" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.py:k"], "no.py: no such file; wanted is FILE.py:KERNEL or FILE.py"),
        (["FILE:rac", "--grid", "1", "--block", "1"], "'rac' is not a function of it (did you mean racy?)"),
        (["FILE:racy", "--grid", "1,2,3,4", "--block", "1"], "--grid: '1,2,3,4' is not one to three sizes"),
        (["FILE:racy", "--grid", "1", "--block", "x"], "--block: 'x' is not one to three sizes"),
        (["FILE:racy"], "--grid and --block are needed"),
        (["FILE:racy", "--grid", "1", "--block", "1"], "racy takes 2 arguments, 0 given"),
        (["FILE:racy", "--grid", "1", "--block", "1", "--arg", "ones:float99:3"], "--arg: 'ones:float99:3' is not a number"),
        (["FILE:racy", "--grid", "1", "--block", "1", "--arg", "1", "--args", "arguments"], "one of them, not both"),
        (["FILE", "--grid", "1"], "not for a whole program"),
        (["FILE", "--schedules", "0"], "--schedules: 0 is not a number from 1 on"),
    ],
)
def test_bad_usage_gets_one_line_and_status_2(words, said, file):
    result = command(*(w.replace("FILE", str(file)) for w in words))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_dispatcher_made_before_runs_too_and_afterwards_nothing_has_changed():
    @cuda.jit
    def kernel(x):
        x[cuda.grid(1)] += 1

    before = cuda.to_device, cuda.jit, cuda.stream
    x = np.zeros(4, np.float32)
    with emulating(check="fast"):
        assert cuda.is_available()
        kernel[1, 4](x)
    assert (x == 1).all()
    assert (cuda.to_device, cuda.jit, cuda.stream) == before


@pytest.mark.parametrize("seed", [3, 4])
def test_the_schedule_of_an_error_repeats_it(seed):
    def kernel(x, y):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        if t % 32 == 0:
            s[0] = t
        y[t] = s[1]

    found = []
    for _ in range(2):
        with pytest.raises(DataRace, match=rf"\(schedule_seed={seed}\)") as caught, emulating(schedule_seed=seed) as run:
            cuda.jit(kernel)[1, 64](np.zeros(64), np.zeros(64))
        found.append(str(caught.value))
        assert run.launches == 1
    assert found[0] == found[1]


def test_later_schedules_start_from_the_same_memory():
    @cuda.jit
    def kernel(x):
        x[cuda.grid(1)] += 1

    x = np.zeros(8)
    assert emulate(kernel, 1, 8, (x,), schedules=3) == []
    assert (x == 1).all()


TEXT = """
@cuda.jit
def doubled(x):
    i = cuda.grid(1)
    x[i] *= 2
"""


def test_a_kernel_that_exec_made_keeps_its_source():
    with emulating():
        made = {"cuda": cuda}
        exec(TEXT, made)
        x = np.ones(4)
        made["doubled"][1, 4](x)
    assert (x == 2).all()


def test_exec_without_namespaces_is_in_its_caller_s():
    with emulating():
        here = 1
        exec("found = here + 1")
        assert locals()["found"] == here + 1


def test_what_is_given_as_in_is_not_written():
    with emulating():

        @cuda.jit
        def kernel(x):
            x[0] = 3

        x = np.zeros(1)
        kernel[1, 1](cuda.In(x))
        assert x[0] == 0
        kernel[1, 1](cuda.InOut(x))
        assert x[0] == 3


def test_in_debug_mode_a_kernel_s_exception_is_its_own_with_both_indices():
    with emulating():

        @cuda.jit(debug=True, opt=False)
        def kernel(x):
            if cuda.grid(1) == 6:
                raise ValueError("six")

        with pytest.raises(ValueError, match=r"In function 'kernel', file .*, line \d+, tid=\[2, 0, 0\] ctaid=\[1, 0, 0\]: six"):
            kernel[2, 4](np.zeros(1))


def test_the_signature_that_fits_best_is_taken():
    with emulating():

        @cuda.jit(["void(float64[:], int64)", "void(float64[:], float64)"])
        def kernel(x, value):
            x[0] = value / 2

        x = np.zeros(1)
        kernel[1, 1](x, 2.5)
        assert x[0] == 1.25


@cuda.jit(device=True)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


def test_a_device_function_may_call_itself():
    def kernel(x):
        x[cuda.grid(1)] = fibonacci(cuda.grid(1))

    for check in ("fast", "full"):
        x = np.zeros(8, np.int64)
        emulate(kernel, 1, 8, (x,), check=check)
        assert list(x) == [0, 1, 1, 2, 3, 5, 8, 13]


@pytest.mark.parametrize("check", ["fast", "full"])
def test_a_device_array_outside_the_kernel_is_read_as_it_is_when_it_runs(check):
    with emulating(check=check):
        prices = cuda.to_device(np.array([10.0, 25.0]))

        @cuda.jit(device=True)
        def price(i):
            found = prices[i]
            return found

        @cuda.jit
        def totals(x):
            x[cuda.grid(1)] = price(cuda.grid(1)) + prices[0]

        x = np.zeros(2)
        totals[1, 2](x)
        assert list(x) == [20, 35]
        prices.copy_to_device(np.array([1.0, 2.0]))
        totals[1, 2](x)
        assert list(x) == [2, 3]
        with pytest.raises(OutOfBounds, match="is out of bounds"):
            totals[1, 3](np.zeros(3))


def test_a_race_in_a_device_array_outside_the_kernel():
    with emulating():
        total = cuda.to_device(np.zeros(1))

        @cuda.jit
        def kernel(x):
            total[0] += x[cuda.grid(1)]

        with pytest.raises(DataRace):
            kernel[1, 2](np.ones(2))


@pytest.mark.parametrize("check", ["fast", "full"])
def test_an_address_is_an_argument_where_the_signature_says_so(check):
    with emulating(check=check):

        @cuda.jit("void(CPointer(float32), uint32)")
        def add_one(x, n):
            i = cuda.grid(1)
            if i < n:
                x[i] += 1

        x = cuda.to_device(np.arange(10, dtype=np.float32))
        add_one[1, 32](x.__cuda_array_interface__["data"][0], 9)
        assert list(x.copy_to_host()) == [*range(1, 10), 9]
        with pytest.raises(TypeError, match="No matching definition"):
            add_one[1, 32](x, 9)


def test_a_grid_that_synchronises_has_as_many_blocks_as_an_h200_holds():
    with emulating(check="fast"):

        @cuda.jit("void(float32[::1])")
        def kernel(x):
            s = cuda.shared.array(1024, float32)
            s[cuda.threadIdx.x] = 1
            cuda.cg.this_grid().sync()
            x[cuda.grid(1)] = s[cuda.threadIdx.x]

        form = kernel.overloads[(float32[::1],)]
        of_threads, of_blocks, of_memory = 132 * (2048 // 768), 132 * 32, 132 * (228 // (200 + 1))
        assert form.max_cooperative_grid_blocks((32, 12, 2)) == of_threads
        assert form.max_cooperative_grid_blocks(32) == of_blocks
        assert form.max_cooperative_grid_blocks(32, 196 * 1024) == of_memory
        kernel[of_memory, 32, 0, 196 * 1024](np.zeros(of_memory * 32, np.float32))
        with pytest.raises(ValueError, match=f"at most {of_memory} blocks of 32 threads, not {of_memory + 1}"):
            kernel[of_memory + 1, 32, 0, 196 * 1024](np.zeros((of_memory + 1) * 32, np.float32))
        with pytest.raises(KeyError):
            kernel.overloads[(float32,)]
