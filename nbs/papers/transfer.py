"""SentEval's transfer tasks: ours beside `paranmt-arxiv.14`.

    python nbs/papers/transfer.py run [NAME ...]
        # measures the encoders (all if none is named); a task that is in nbs/papers/transfer.json is not done again
    python nbs/papers/transfer.py dimensions
        # the GloVe average by its number of dimensions, and with a wider grid of penalties
    python nbs/papers/transfer.py keep
        # the figures go to where `paranmt results table paranmt-arxiv.14` finds them

PARANMT_RESOURCES names the folder that holds `eval` and `train/vectors`. An encoder is named as `open_model` takes it;
one of another identity is measured again."""
import os
import platform
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.evaluation import transfer
from paranmt_lab.evaluation.tables import keep_measured
from paranmt_lab.evaluation.transfer import SEED, TRANSFER, usable_files
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance

FILE = Path(__file__).with_name('transfer.json')
GLOVE = 'vectors:train/vectors/glove-6b-100d-60k.txt.gz'
ENCODERS = {  # Name to what the tables call it
    GLOVE: 'GloVe average',
    'paraphrase-scorer': 'paraphrase-scorer',
    'paraphrase-scorer-2': 'paraphrase-scorer-2',
    'static:wordllama': 'WordLlama',
    'onnx:paraphrase-MiniLM-L3-v2': 'paraphrase-MiniLM-L3-v2',
    'st:all-MiniLM-L6-v2': 'all-MiniLM-L6-v2',
}
# GloVe's average with 300 dimensions (840 billion tokens) and SentEval's PyTorch regression: Conneau et al. (2017),
# Table 4, arXiv:1705.02364
PUBLISHED_GLOVE = {'MR': .787, 'CR': .785, 'SUBJ': .916, 'MPQA': .876, 'SST': .798, 'TREC': .836}
ORDER = ['TREC', 'CR', 'MPQA', 'SICK-E', 'SICK-R', 'MRPC', 'MR', 'SUBJ', 'SST']  # the longest last
WIDE = 2. ** np.arange(-2, 9, 2)


def kept(): return read_json(FILE) if FILE.exists() else {}


def made():
    "When, by which commit, on which machine, by which command."
    facts, path = provenance(), Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.exists() else []
    cpu = next((line.partition(': ')[2] for line in lines if line.startswith('model name')), platform.processor())
    return dict(date=facts['date'], commit=facts['commit'], machine=cpu, threads=os.environ.get('OMP_NUM_THREADS', ''),
                command=shlex.join(['python', *sys.argv]))


def remembering(encode):
    "An encoder that encodes a sentence once; SICK's two tasks have the same ones."
    known = {}
    def encoding(sentences):
        new = [text for text in dict.fromkeys(sentences) if text not in known]
        known.update(zip(new, encode(new)))
        return np.array([known[text] for text in sentences])
    return encoding


def run(names):
    "Measure what is not in the file, task by task."
    s = settings()
    for name in names:
        identity, file, encode = identity_of(name, s), kept(), None
        if file.get(name, {}).get('identity') != identity: file[name] = dict(identity=identity, tasks={})
        for task in ORDER:
            if task in file[name]['tasks']: continue
            if not encode:
                encoder = open_model(name, s, 'Encoder')
                file[name]['dim'], encode = encoder.dim, remembering(encoder.encode)
            start = time.process_time()
            rows = transfer.measure_transfer(encode, s.resources, task)
            seconds = round(time.process_time() - start, 2)
            file = kept() | {name: file[name]}
            file[name]['tasks'][task] = dict(rows=rows, cpu_seconds=seconds) | made()
            write_json(FILE, file)
            print(name, task, seconds, [r.get('value') for r in rows], flush=True)


def dimensions():
    "GloVe's strongest 25 and 50 principal axes and all 100, by SentEval's grid; all 100 by a wider grid too."
    s, file = settings(), kept()
    encoder = open_model(GLOVE, s)
    axes_dd = np.linalg.eigh(np.cov(encoder.layer.weight_rd.detach().numpy()[:20_000].T))[1]
    usual = dict(transfer.GRIDS)
    for task, grid, dim in [(task, *cell) for task in PUBLISHED_GLOVE
                            for cell in (('SentEval', 25), ('SentEval', 50), ('SentEval', 100), ('wide', 100))]:
        cells = file.setdefault('dimensions', {}).setdefault(task, {}).setdefault(grid, {})
        files = usable_files(TRANSFER[task], s.resources / 'eval')
        if str(dim) in cells or not files: continue
        transfer.GRIDS.update(usual if grid == 'SentEval' else dict.fromkeys(usual, WIDE))
        encode = lambda sentences, dim=dim: encoder.encode(sentences) @ axes_dd[:, -dim:]
        found = transfer.predict_transfer(encode, TRANSFER[task], files, s.resources / 'eval')
        accuracy = float((found.truth_n == found.predicted_n).mean())
        cells[str(dim)] = dict(accuracy=accuracy, chosen=found.chosen) | made()
        file = kept() | dict(dimensions=file['dimensions'])
        write_json(FILE, file)
        print(task, grid, dim, cells[str(dim)]['accuracy'], found.chosen, flush=True)
    transfer.GRIDS.update(usual)


def frame():
    "A row for each encoder and figure."
    return pd.DataFrame([row | dict(name=name, system=ENCODERS[name], dim=facts['dim'], seconds=of.get('cpu_seconds'))
                         for name, facts in kept().items() if name in ENCODERS
                         for of in facts['tasks'].values() for row in of['rows']])


def keep():
    "The figures as those of `paranmt-arxiv.14`; a part that stands in for an absent test part is named."
    rows = frame()
    stands_in = rows.protocol.str.contains('test part is absent')
    rows = rows[stands_in | (rows.status.fillna('ok') == 'ok')]
    stands_in = rows.protocol.str.contains('test part is absent')
    rows = rows.assign(counterpart=np.where(stands_in, 'test', ''), training='', config=rows.name)
    rows = rows.drop(columns=['name', 'seconds', 'status'])
    print(keep_measured('paranmt-arxiv.14', rows, command='python nbs/papers/transfer.py run', seeds=str(SEED),
                        machine=made()['machine']))


if __name__ == '__main__':
    action, *names = sys.argv[1:] or ['']
    if action == 'run': run(names or list(ENCODERS))
    elif action == 'dimensions': dimensions()
    elif action == 'keep': keep()
    else: print(__doc__)
