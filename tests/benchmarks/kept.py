"""Figures that nbs/papers/speed.ipynb shows: a benchmark called with `keep` among its arguments writes them here, with the date, the commit and the machine.

One record a measurement, in nbs/papers/speed.json; a new one takes the place of the last of the same name.
"""
import os, sys
from pathlib import Path

from paranmt_lab.runs import provenance
from paranmt_lab.settings import read_json, write_json

PATH = Path(__file__).resolve().parents[2] / 'nbs/papers/speed.json'
COMMAND = os.environ.setdefault('BENCHMARK', ' '.join(['python', 'tests/benchmarks/' + Path(sys.argv[0]).name, *sys.argv[1:]]))  # processes that it starts inherit it


def processor():
    "Name of the processor, as far as the system tells it."
    lines = Path('/proc/cpuinfo').read_text().splitlines() if Path('/proc/cpuinfo').exists() else []
    return next((line.partition(':')[2].strip() for line in lines if line.startswith('model name')), 'unknown')


def keep(name, **figures):
    "Write a measurement down, if the command says so: plain numbers, texts and lists of them."
    if 'keep' not in COMMAND.split(): return
    there = read_json(PATH) if PATH.exists() else {}
    write_json(PATH, there | {name: provenance() | dict(command=COMMAND, processor=processor(), cores=os.cpu_count(), load=round(os.getloadavg()[0], 2)) | figures})
