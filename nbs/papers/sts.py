"""Encoders and baselines on STS: three protocols, intervals, differences, and test pairs in training data.

    python nbs/papers/sts.py measure SYSTEM ...
        # figures of some systems (all if none is named) on the suite `sts`, with seconds, into nbs/papers/sts.json;
        # those of `RIVALS` are compared with the shipped scorer too, by Williams' test and the paired bootstrap
    python nbs/papers/sts.py contamination
        # test pairs in two files of training pairs, and the speed of looking

The tables paranmt.8, .9 and paranmt-arxiv.16 have recipes: `paranmt results reproduce`. PARANMT_RESOURCES names the
folder that holds `eval`, `train/vectors` and `train/paraphrase`. What is in the file is not
measured again unless its system is named."""
import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.contamination import check_contamination, contaminated, overlap_counts
from paranmt_lab.evaluation.graded_pairs import compare_systems
from paranmt_lab.evaluation.sts import YEARLY
from paranmt_lab.evaluation.tasks import evaluate, open_system
from paranmt_lab.ground.settings import atomic, settings
from paranmt_lab.jobs.provenance import provenance

FILE = Path(__file__).with_name('sts.json')
BASELINES = 'organisers-overlap', 'token-overlap', 'bleu', 'meteor', 'glove-average', 'sif'
SCORER, PEER = 'paraphrase-scorer', 'st:all-MiniLM-L6-v2'
TASKS = {PEER: [*YEARLY, 'STS-B captions']}  # a slow system's; others have the suite
RIVALS = 'sif', PEER
SUPERVISED = SCORER,  # systems whose vectors a regression is trained on too
TRAINING = 'wmt21-23', 'multi30k-captions'  # files of training pairs to look through
SIDES = {'wmt21-23': ('reference', 'hypothesis')}


def load(): return json.loads(FILE.read_text()) if FILE.exists() else {}


def keep(**parts):
    "Put parts into the file."
    with atomic(FILE) as part: part.write_text(json.dumps(load() | parts, indent=1, ensure_ascii=False) + '\n')


def rows_of(frame):
    "Rows of results as short dictionaries, figures rounded to six digits."
    columns = ['task', 'dataset', 'metric', 'value', 'low', 'high', 'n', 'protocol', 'status']
    return json.loads(frame[columns].round(6).to_json(orient='records'))


class Remembered:
    "A system that rates the same sentences once."
    def __init__(self, system): self.system, self.rated = system, {}

    def similarity_pairwise(self, first, second):
        key = tuple(first), tuple(second)
        if key not in self.rated: self.rated[key] = self.system.similarity_pairwise(first, second)
        return self.rated[key]


def measure(names):
    "Measure systems; the time is that of the whole suite, bootstrap and reading included, after the system is open."
    s = settings()
    for name in names or (*BASELINES, SCORER, PEER):
        if name in load().get('figures', {}) and not names: continue
        system = Remembered(open_system(name, s))
        start, cpu = time.perf_counter(), time.process_time()
        tasks = TASKS.get(name)
        frame = evaluate(system, tasks, s=s, suites=() if tasks else ['sts'])
        seconds = dict(wall=round(time.perf_counter() - start, 1), cpu=round(time.process_time() - cpu, 1))
        if name in SUPERVISED: frame = pd.concat([frame, evaluate(system.system, ['STS-B supervised'], s=s)])
        made = {key: provenance()[key] for key in ('date', 'commit')}
        keep(figures=load().get('figures', {}) | {name: dict(rows=rows_of(frame), seconds=seconds, **made)})
        print(name, seconds, flush=True)
        if name not in RIVALS: continue
        scorer = open_system(SCORER, s)
        table = compare_systems(system.similarity_pairwise, scorer.similarity_pairwise, s.resources, YEARLY)
        keep(differences=load().get('differences', {}) | {name: json.loads(table.round(6).to_json(orient='records'))})


def contamination():
    "Test pairs in two files of training pairs."
    s, found = settings(), {}
    for name in TRAINING:
        lab = replace(s, workspace=Path(tempfile.mkdtemp()))
        frame = pq.read_table(s.resources / f'train/paraphrase/{name}.parquet').to_pandas()
        sides = SIDES.get(name, ('sentence1', 'sentence2'))
        corpus = Corpus.create(name, lab)
        corpus.write_pairs(0, pd.DataFrame(dict(zip(('reference', 'translation'), (frame[side] for side in sides)))))
        start, cpu = time.perf_counter(), time.process_time()
        overlap = check_contamination(corpus, lab, show=False)
        seconds = dict(wall=round(time.perf_counter() - start, 1), cpu=round(time.process_time() - cpu, 1))
        counts = overlap_counts(overlap)
        found[name] = dict(pairs=len(frame), seconds=seconds, seen=int(contaminated(overlap).sum()), tests=len(overlap),
                           sets=json.loads(counts[counts.near > 0].to_json(orient='records')))
        keep(contamination=load().get('contamination', {}) | found)
        print(name, len(frame), seconds, found[name]['seen'], flush=True)
        shutil.rmtree(lab.workspace)


if __name__ == '__main__':
    command, *words = sys.argv[1:] or ['help']
    {'measure': lambda: measure(words), 'contamination': contamination}.get(command, lambda: print(__doc__))()
