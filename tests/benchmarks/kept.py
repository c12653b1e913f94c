"""Figures that the notebooks of nbs/papers show: what is called with `keep` among its arguments writes them here, with
the date, the commit and the machine.

One record a measurement, in nbs/papers/speed.json or in translation.json; a new one takes the place of the last of the
same name."""
import os
import re
import resource
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import commit, provenance

ROOT = Path(__file__).resolve().parents[2]
PATH, TRANSLATION = (ROOT / 'nbs/papers' / f'{name}.json' for name in ('speed', 'translation'))


def command():
    "What was called, from the top of the repository, as somebody else would call it."
    called = Path(sys.argv[0]).resolve()
    return ' '.join(
        ['python', str(called.relative_to(ROOT)) if called.is_relative_to(ROOT) else called.name, *sys.argv[1:]])


COMMAND = os.environ.setdefault('BENCHMARK', command())  # processes that it starts inherit both
COMMIT = os.environ.setdefault('BENCHMARK_COMMIT', commit())  # as it began: what is kept makes the work tree differ


EXTRAS = dict.fromkeys(('polars', 'datasets', 'accelerate'), 'bench')
EXTRAS |= dict.fromkeys(('sentence_transformers', 'model2vec', 'tokenizers'), 'peers')
EXTRAS |= dict.fromkeys(('ctranslate2', 'transformers'), 'translate')
EXTRAS |= dict(kenlm='judge', py3langid='judge', playwright='dev')
PACKAGES = dict(lingua='lingua-language-detector')  # of other modules, where it is not the module's name


def needs(*modules, words='', resource='', variables=()):
    "Say in one line what a benchmark lacks and how to get it, and end, before anything is measured."
    script = f"tests/benchmarks/{Path(sys.argv[0]).name}"
    if words and len(sys.argv) < 2: sys.exit(f'{script} needs {words}: python {script} {words}')
    if lacking := [name for name in modules if not find_spec(name)]:
        extras = sorted({EXTRAS[name] for name in lacking if name in EXTRAS})
        what = [f"-e '.[{','.join(extras)}]'"] if extras else []
        what += [PACKAGES.get(name, name) for name in lacking if name not in EXTRAS]
        sys.exit(f"{script} needs {', '.join(lacking)}: pip install -c constraints.txt {' '.join(what)}")
    if resource and not (settings().resources / resource).exists():
        sys.exit(f'{script} needs {resource} among the resources: set PARANMT_RESOURCES to their folder')
    if unset := [name for name in variables if name not in os.environ]:
        sys.exit(f"{script} needs {', '.join(unset)} in the environment; its first lines say how to get them")


def processor():
    "Name of the processor, as far as the system tells it."
    lines = Path('/proc/cpuinfo').read_text().splitlines() if Path('/proc/cpuinfo').exists() else []
    return next((line.partition(':')[2].strip() for line in lines if line.startswith('model name')), 'unknown')


def pace():
    "Pace of this machine now: GFLOP a second of a float32 product, GB a second of a copy, each the best of five."
    x, y, z = np.ones((1_500, 1_500), np.float32), np.ones(25_000_000, np.float32), np.zeros(25_000_000, np.float32)
    def best(call):
        times = []
        for _ in range(6):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times[1:])
    return dict(gflops=round(2 * len(x) ** 3 / best(lambda: x @ x) / 1e9, 1),
                copied_gb=round(2 * y.nbytes / best(lambda: np.copyto(z, y)) / 1e9, 1))


def peak():
    "Peak memory of this process, MiB; from Linux where it tells, since `ru_maxrss` begins with the parent's memory."
    status = Path('/proc/self/status')
    return (int(re.search(r'VmHWM:\s+(\d+)', status.read_text())[1]) / 2**10 if status.exists()
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)


def keep(name, path=PATH, **figures):
    "Write a measurement down, if the command says so: plain numbers, texts and lists of them."
    if 'keep' not in COMMAND.split(): return
    there = read_json(path) if path.exists() else {}
    write_json(path, there | {name: provenance()
                              | dict(command=COMMAND, commit=COMMIT, processor=processor(),
                                     cores=os.cpu_count(), load=round(os.getloadavg()[0], 2)) | pace() | figures})
