"""Training of a translation model as processes: killed and continued, two of them instead of one, ended early by BLEU."""
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from paranmt_lab.runs import Run
from paranmt_lab.settings import write_json
from paranmt_lab.translate.data import NmtConfig

TINY = NmtConfig('tiny', pieces=400, dim=32, feed_forward=64, heads=2, encoder_layers=1, decoder_layers=1, steps=40, warmup=20, batch_tokens=800, short_first=20, learning_rate=3e-3,
                 evaluate_every=20, checkpoint_every=5, development=20, held_out={'talk': 40}, bf16=False)
CHILD = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import pandas as pd
from paranmt_lab.settings import settings
from paranmt_lab.translate.data import NmtConfig
from paranmt_lab.translate.training import train_nmt
s = replace(settings(), workspace=Path(sys.argv[1]), device='cpu')
pairs = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\\t', quoting=3).head(300).assign(corpus='talk')
train_nmt(NmtConfig(**json.loads(Path(sys.argv[2]).read_text())), pairs, s, show=False)
"""


@pytest.fixture
def command(tmp_path):
    "How a config is trained in a process of its own, or in two."
    script = tmp_path / 'child.py'
    script.write_text(CHILD)
    def of(config, world=1):
        launcher = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', str(world), '--standalone'] if world > 1 else [sys.executable]
        return [*launcher, str(script), str(tmp_path), str(write_json(tmp_path / f'{config.name}.json', asdict(config)))]
    return of


ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', PYTHONPATH=str(Path(__file__).parents[1]))


def finished(tmp_path, command):
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=600)
    return Run.open(tmp_path / 'runs', Path(command[-1]).stem)


def reached(folder, step):
    "Whether a checkpoint of that step or a later one is there."
    if not (folder / 'checkpoint/checkpoint.safetensors').exists(): return False
    return Run(folder).checkpoint()[1]['step'] >= step


def test_killed_trainings_end_with_the_same_weights(tmp_path, command):
    """SIGKILL twice, wherever it falls once some steps are done; then to the end."""
    whole = finished(tmp_path, command(replace(TINY, name='whole')))
    config = replace(TINY, name='killed')
    for step in (7, 22):
        child = subprocess.Popen(command(config), env=ENVIRONMENT)
        while child.poll() is None and not reached(tmp_path / 'runs/killed', step): time.sleep(0.05)
        assert child.poll() is None, 'it ended before it could be killed'
        child.send_signal(signal.SIGKILL)
        child.wait()
    killed = finished(tmp_path, command(config))
    first, second = (load_file(run.folder / 'transformers/model.safetensors') for run in (whole, killed))
    assert first.keys() == second.keys() and all((first[k] == second[k]).all() for k in first)
    for figure in ('step', 'held_out', 'bleu'): assert whole.metrics()[figure].iloc[-1] == killed.metrics()[figure].iloc[-1]


def test_two_processes_are_one_and_stop_together(tmp_path, command):
    """As users start it, with torchrun; without dropout two processes compute what one does. BLEU decides when to end, and both have to hear of it."""
    config = replace(TINY, dropout=0., patience=1, evaluate_every=5, steps=400, learning_rate=1e-4)
    one, two = (finished(tmp_path, command(replace(config, name=f'ranks-{world}'), world)) for world in (1, 2))
    assert one.finished['steps'] == two.finished['steps'] < 400 and two.finished['processes'] == 2
    for figure in ('loss', 'held_out'): np.testing.assert_allclose(one.metrics()[figure], two.metrics()[figure], rtol=1e-3)
    assert (two.folder / 'transformers/model.safetensors').is_file()


def test_a_vocabulary_for_each_language_ends_in_a_folder_that_translates(tmp_path, command):
    """BPE of two vocabularies, from bitext to CTranslate2."""
    from paranmt_lab.translate.training import convert, same_translations
    run = finished(tmp_path, command(replace(TINY, name='apart', joint=False, segmenter='bpe', pieces=200, steps=20)))
    folder = convert(run.folder / 'transformers', tmp_path / 'apart', 'int8')
    assert {p.name for p in folder.glob('*vocabulary.json')} == {'source_vocabulary.json', 'target_vocabulary.json'}
    found = same_translations(run.folder / 'transformers', ['Kde je ten pes?', 'Ahoj.', 'Sněžilo celou noc.'], beam_size=1)
    assert found.same.all() and found.ctranslate2.str.len().min() > 0, found
