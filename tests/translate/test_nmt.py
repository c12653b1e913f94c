"""Training of a translation model as processes: killed and continued, two of them instead of one, ended early by BLEU.
"""
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.jobs.run import Run
from paranmt_lab.translate.config import NmtConfig

TINY = NmtConfig('tiny', pieces=400, dim=32, feed_forward=64, heads=2, encoder_layers=1,
                 decoder_layers=1, steps=40, warmup=20, batch_tokens=800, short_first=20, learning_rate=3e-3,
                 evaluate_every=20, checkpoint_every=5, development=20, held_out={'talk': 40},
                 bf16=False, source_lang='cs')
CHILD = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import pandas as pd
from paranmt_lab.ground.settings import settings
from paranmt_lab.translate.config import NmtConfig
from paranmt_lab.translate.training import train_nmt
s = replace(settings(), workspace=Path(sys.argv[1]), device='cpu')
pairs = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\\t', quoting=3).head(300).assign(corpus='talk')
for config in sys.argv[2:]: train_nmt(NmtConfig(**json.loads(Path(config).read_text())), pairs, s, show=False)
"""


@pytest.fixture
def command(tmp_path):
    "How configs are trained in a process of their own, one after the other, or in two."
    script = tmp_path / 'child.py'
    script.write_text(CHILD)
    def of(*configs, world=1):
        launcher = ([sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', str(world), '--standalone']
                    if world > 1 else [sys.executable])
        files = [write_json(tmp_path / f'{config.name}.json', asdict(config)) for config in configs]
        return [*launcher, str(script), str(tmp_path), *map(str, files)]
    return of


ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', PYTHONPATH=str(Path(__file__).parents[2]))


def finished(tmp_path, command):
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=600)
    return Run.open(tmp_path / 'runs', Path(command[-1]).stem)


def train_here(tmp_path, config, pairs=200, **columns):
    "Train a config in this process, on the first pairs of the sample, some columns of them changed."
    from paranmt_lab.translate.training import train_nmt
    frame = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).head(pairs).assign(corpus='talk')
    return train_nmt(config, frame.assign(**columns), replace(settings(), workspace=tmp_path, device='cpu'), show=False)


def reached(folder, step):
    "Whether a checkpoint of that step or a later one is there."
    if not (folder / 'checkpoint/checkpoint.safetensors').exists(): return False
    return Run(folder).checkpoint()[1]['step'] >= step


def test_killed_trainings_end_with_the_same_weights(tmp_path, command):
    """SIGKILL wherever it falls once some steps are done; then to the end."""
    config = replace(TINY, name='killed')
    child = subprocess.Popen(command(replace(TINY, name='whole'), config), env=ENVIRONMENT)
    while child.poll() is None and not reached(tmp_path / 'runs/killed', 7): time.sleep(0.05)
    assert child.poll() is None, 'it ended before it could be killed'
    child.send_signal(signal.SIGKILL)
    child.wait()
    whole, killed = Run.open(tmp_path / 'runs', 'whole'), finished(tmp_path, command(config))
    assert whole.finished
    first, second = (load_file(run.folder / 'transformers/model.safetensors') for run in (whole, killed))
    assert first.keys() == second.keys() and all((first[k] == second[k]).all() for k in first)
    for figure in ('step', 'held_out', 'bleu'):
        assert whole.metrics()[figure].iloc[-1] == killed.metrics()[figure].iloc[-1]


@pytest.mark.soak
def test_two_processes_are_one_and_stop_together(tmp_path, command):
    "With torchrun and without dropout two processes compute what one does; both hear from BLEU when to end."
    config = replace(TINY, dropout=0., patience=1, evaluate_every=5, steps=400, learning_rate=1e-4)
    one = train_here(tmp_path, replace(config, name='one'), pairs=300)
    two = finished(tmp_path, command(replace(config, name='two'), world=2))
    assert one.finished['steps'] == two.finished['steps'] < 400 and two.finished['processes'] == 2
    for figure in ('loss', 'held_out'):
        np.testing.assert_allclose(one.metrics()[figure], two.metrics()[figure], rtol=1e-3)
    assert (two.folder / 'transformers/model.safetensors').is_file()


def test_a_vocabulary_for_each_language_ends_in_a_folder_that_translates(tmp_path):
    """BPE of two vocabularies, from bitext to CTranslate2."""
    from paranmt_lab.translate.training import convert, same_translations
    config = replace(TINY, name='apart', joint=False, segmenter='bpe', pieces=200, steps=20)
    run = train_here(tmp_path, config, pairs=300)
    folder = convert(run.folder / 'transformers', tmp_path / 'apart', 'int8')
    assert {p.name for p in folder.glob('*vocabulary.json')} == {'source_vocabulary.json', 'target_vocabulary.json'}
    found = same_translations(run.folder / 'transformers',
                              ['Kde je ten pes?', 'Ahoj.', 'Sněžilo celou noc.'], beam_size=1)
    assert found.same.all() and found.ctranslate2.str.len().min() > 0, found


# --- a config is checked with its data, before the first file ---------------------------------------------------------

SHORT = replace(TINY, name='short', steps=4, evaluate_every=2, checkpoint_every=2)


def soak(changes): return pytest.param(changes, marks=pytest.mark.soak)


@pytest.mark.parametrize('changes', [{}, soak(dict(held_out={})), dict(held_out={}, development=0),
                                     soak(dict(warmup=0)), dict(evaluate_every=0), soak(dict(checkpoint_every=0)),
                                     soak(dict(cooldown=0.)), soak(dict(cooldown=1.))], ids=str)
def test_every_config_that_is_accepted_trains_to_its_end(tmp_path, changes):
    "Nothing held out, no warm-up, no looks, no checkpoints: each means none, and the last step still learns."
    run = train_here(tmp_path, replace(SHORT, **changes))
    last = run.metrics().iloc[-1]
    assert run.finished['steps'] == last.step == 4 and last.rate > 0 and np.isfinite(last.held_out)
    assert (run.finished['held_out']
            == (40 if run.config['held_out'] else 10)), 'a twentieth of the distinct sources where none are named'
    assert len(run.metrics()) == (1 if run.config['evaluate_every'] == 0 else 2)


REFUSED = {
    'all held out': (dict(held_out={'talk': -1}), 'nothing is left to train on: of 200 pairs 200 are held out'),
    'none held out': (dict(held_out={'talk': 0}), "held_out: talk=0, expected 1 or more, or -1"),
    'another domain': (dict(held_out={'news': 4}), r"cannot hold out \['news'\]"),
    'no weight': (dict(weights={'talk': 0.}), 'nothing is left to train on: .* weight 0'),
    'unknown weight': (dict(weights={'news': 2.}), r"weights name \['news'\]"),
    'negative weight': (dict(weights={'talk': -1.}), 'weights: talk=-1.0, expected 0 or more'),
    'too few pieces': (dict(pieces=30), 'pieces = 30'),
    'no heads': (dict(heads=0), 'heads = 0, expected'),
    'no layers': (dict(decoder_layers=0), 'decoder_layers = 0, expected'),
    'negative': (dict(evaluate_every=-1), 'evaluate_every = -1, expected'),
    'patience without looks': (dict(patience=2, evaluate_every=0), 'patience = 2 counts looks, and evaluate_every = 0'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_cannot_be_trained_is_refused_and_leaves_no_run(tmp_path, name):
    changes, why = REFUSED[name]
    with pytest.raises(ValueError, match=why): train_here(tmp_path, replace(SHORT, **changes))
    assert not list((tmp_path / 'runs').glob('[!.]*')), 'the name stays free for the corrected command'


def test_ready_pairs_are_no_bitext(tmp_path):
    with pytest.raises(ValueError, match='200 of 200 pairs have no source'): train_here(tmp_path, SHORT, source=None)
    assert not list((tmp_path / 'runs').glob('[!.]*'))
    assert train_here(tmp_path, SHORT).finished, 'the corrected command takes the same name'


# --- other columns, and runs of earlier versions ----------------------------------------------------------------------

def test_two_columns_of_english_make_a_generator(tmp_path):
    """A model that reads references and writes their paraphrases: English on both sides, without being told."""
    pairs = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).head(200)
    config = replace(SHORT, first='reference', second='translation', source_lang='')
    run = train_here(tmp_path, config, translation=pairs.reference.str.lower(), source=None)
    assert run.finished['steps'] == 4 and run.config['source_lang'] == 'en'
    held = pd.read_parquet(run.folder / 'held-out.parquet')
    assert (held.source.str.lower() == held.reference).all() and not (held.source == held.reference).all()
    assert '"source_lang": "en"' in (run.folder / 'transformers/tokenizer_config.json').read_text()
    with pytest.raises(ValueError, match="no column 'paraphrase'"):
        train_here(tmp_path, replace(config, name='none', second='paraphrase'))


def test_a_checkpoint_of_an_earlier_version_is_resumed(tmp_path, monkeypatch):
    """It named the batches of the epoch `at`, counted no units of work, and its config knew no columns."""
    from paranmt_lab.translate.training import Seq2SeqLearner
    whole = train_here(tmp_path, SHORT)
    step = Seq2SeqLearner.step
    def ends_at_3(self, rows):
        if self.at.step == 3: raise RuntimeError('killed')
        yield from step(self, rows)
    monkeypatch.setattr(Seq2SeqLearner, 'step', ends_at_3)
    with pytest.raises(RuntimeError, match='killed'): train_here(tmp_path, replace(SHORT, name='early'))
    monkeypatch.setattr(Seq2SeqLearner, 'step', step)
    early = Run.open(tmp_path / 'runs', 'early')
    tensors, state = early.checkpoint()
    kept = {k: state[k] for k in ('step', 'epoch', 'share', 'waited')}
    early.save_checkpoint(tensors, kept | dict(at=state['batch'], best=-1.))
    write_json(early.folder / 'config.json', {k: v for k, v in early.config.items() if k not in ('first', 'second')})
    early = train_here(tmp_path, replace(SHORT, name='early'))
    first, second = (load_file(run.folder / 'transformers/model.safetensors') for run in (whole, early))
    assert state['step'] == 2 and early.finished['steps'] == 4 and all((first[k] == second[k]).all() for k in first)
