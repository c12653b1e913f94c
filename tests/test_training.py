"""Training as a process: killed and continued, repeated, overfitted; mining against its plain reference."""
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
import torch
from hypothesis import given, settings as limits, strategies as st

from paranmt_lab.corpus import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.runs import Run
from paranmt_lab.settings import read_json, write_json
from paranmt_lab.training.data import TrainConfig, choose_pairs, prepare
from paranmt_lab.training.loop import Trainee, train
from paranmt_lab.training.megabatch import POOLS, cosine, margin_loss, margin_loss_slow, mine, mine_slow
from paranmt_lab.training.optimizer import DenseAdam

BASE = TrainConfig('whole', 'halves', model='WORD,TRIGRAM', dim=24, vocabulary=500, batch_size=20, megabatch=2, epochs=8, learning_rate=0.01,
                   scramble=0.3, checkpoint_every=0, probes=6)


@pytest.fixture(scope='module')
def workspace(halves): return halves()


def weights(s, name):
    return (s.runs / name / 'encoder' / 'weights.safetensors').read_bytes()


def test_same_seed_same_bits_other_seed_other_bits(workspace):
    for name, seed in (('whole', 0), ('twin', 0), ('other', 1)): train(replace(BASE, name=name, seed=seed), workspace, show=False)
    assert weights(workspace, 'whole') == weights(workspace, 'twin') != weights(workspace, 'other')
    pd.testing.assert_frame_equal(*(pd.read_parquet(workspace.runs / name / 'negatives.parquet') for name in ('whole', 'twin')))
    scores = [Run.open(workspace.runs, name).metrics().development.tolist() for name in ('whole', 'twin')]
    assert scores[0] == scores[1] and len(scores[0]) == BASE.epochs


CHILD = """
import json, sys
from dataclasses import replace
from pathlib import Path
from paranmt_lab.settings import settings
from paranmt_lab.training.loop import TrainConfig, train
s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path('/nowhere'), device='cpu')
for config in sys.argv[2:]: train(TrainConfig(**json.loads(Path(config).read_text())), s)
"""


def test_killed_runs_end_with_the_same_bits(workspace, tmp_path):
    """SIGKILL at three moments, the last of them wherever it falls; then to the end."""
    config = replace(BASE, name='killed')
    command = [sys.executable, '-c', CHILD, str(workspace.workspace), str(write_json(tmp_path / 'config.json', asdict(config)))]
    for step in (7, 31, 52):
        child = subprocess.Popen(command)
        deadline = time.time() + 120
        while child.poll() is None and time.time() < deadline:
            try: done = Run.open(workspace.runs, 'killed').checkpoint()
            except FileNotFoundError: done = None
            if done and done[1]['step'] >= step: break
            time.sleep(0.005)
        assert child.poll() is None, 'the run ended before it was killed'
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not Run.open(workspace.runs, 'killed').finished
    subprocess.run(command, check=True)
    train(replace(BASE, name='whole'), workspace, show=False)
    assert weights(workspace, 'killed') == weights(workspace, 'whole')
    pd.testing.assert_frame_equal(*(pd.read_parquet(workspace.runs / name / 'negatives.parquet') for name in ('killed', 'whole')))


def test_bits_are_the_same_whether_kernels_are_compiled_or_loaded(workspace, tmp_path):
    """The first process of a run compiles what the next one loads; here in a cache of its own, then with half of the kernels compiled anew."""
    cache, found = tmp_path / 'kernels', []
    for name in ('compiled', 'loaded', 'mixed'):
        configs = [replace(BASE, name=f'{name}-{model.lower().replace(",", "-")}', model=model, epochs=2, scramble=0.0) for model in ('WORD,TRIGRAM', 'LSTM')]
        written = [str(write_json(tmp_path / f'{config.name}.json', asdict(config))) for config in configs]
        subprocess.run([sys.executable, '-c', CHILD, str(workspace.workspace), *written], check=True, env=os.environ | dict(NUMBA_CACHE_DIR=str(cache)))
        found.append([weights(workspace, config.name) for config in configs])
        own = [path for path in cache.rglob('*.nbi') if path.name.split('.')[0] in ('averages', 'deferred', 'recurrent')]
        assert own
        if name == 'loaded':
            for path in own: path.unlink()
    assert found[0] == found[1] == found[2]


def test_interrupt_stops_at_a_mega_batch_and_leaves_a_checkpoint(workspace, tmp_path):
    """One Ctrl-C is a clean stop: exit code 0, status `stopped`, and the run goes on from there."""
    config = replace(BASE, name='interrupted', checkpoint_every=1000, epochs=400)
    child = subprocess.Popen([sys.executable, '-c', CHILD, str(workspace.workspace), str(write_json(tmp_path / 'config.json', asdict(config)))])
    folder, deadline = workspace.runs / 'interrupted', time.time() + 120
    while not (folder / 'encoder').is_dir() and time.time() < deadline: time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 0
    run = Run(folder)
    assert not run.finished and run.checkpoint()[1]['step'] > 0
    assert '"stopped"' in (folder / 'progress.json').read_text()


@pytest.mark.parametrize('threads', [1, 2])
def test_two_hundred_pairs_are_learned_by_heart(workspace, threads):
    """Halves of a sentence have few words in common: only training can bring them together."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try: train(replace(BASE, name=f'learned-{threads}', model='WORD', scramble=0.0, epochs=40, megabatch=10, learning_rate=0.02), workspace, show=False)
    finally: torch.set_num_threads(before)
    pairs = Corpus.open('halves', workspace).frame(['reference', 'translation'])
    encoder = SentenceEncoder.load(workspace.runs / f'learned-{threads}' / 'encoder')
    first, second = (torch.nn.functional.normalize(torch.from_numpy(encoder.encode(pairs[c].tolist()))) for c in ('reference', 'translation'))
    assert ((first @ second.T).argmax(1).numpy() == np.arange(len(pairs))).mean() > 0.95


def test_start_takes_over_an_encoder(workspace):
    train(replace(BASE, name='first'), workspace, show=False)
    start = workspace.runs / 'first' / 'encoder'
    run = train(replace(BASE, name='second', start=str(start), epochs=1, learning_rate=1e-9), workspace, show=False)
    texts = ['Where is the dog?', 'Snow fell all night.']
    old, new = (SentenceEncoder.load(folder) for folder in (start, run.folder / 'encoder'))
    assert {f: v.tokens for f, v in old.vocabularies.items()} == {f: v.tokens for f, v in new.vocabularies.items()}
    np.testing.assert_allclose(old.encode(texts), new.encode(texts), atol=1e-5)


def test_word_vectors_are_the_start_and_fill_the_vocabulary(workspace, tmp_path):
    (tmp_path / 'vectors.txt').write_text('the 1 0 0\nzebra 0 2 0\n' + ''.join(f'rare{i} 0 0 {i}\n' for i in range(2000)))
    config = replace(BASE, name='vectors', model='WORD', vectors=str(tmp_path / 'vectors.txt'), epochs=1, learning_rate=1e-9, vocabulary=2000)
    encoder = SentenceEncoder.load(train(config, workspace, show=False).folder / 'encoder')
    assert encoder.dim == 3 and len(encoder.vocabularies['word']) == 2001
    np.testing.assert_allclose(encoder.encode(['zebra']), [[0, 2, 0]], atol=1e-6)


def test_a_stopped_preparation_leaves_nothing(workspace, monkeypatch):
    """The cache holds whole arrays or none."""
    from paranmt_lab.training import data
    monkeypatch.setattr(data.Progress, 'stopping', property(lambda self: True))
    corpus = Corpus.open('halves', workspace)
    assert prepare(corpus, np.arange(10), replace(BASE, vocabulary=77), workspace) is None
    assert not list((corpus.folder / 'cache' / 'training').glob('*.part'))


@limits(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from(list(POOLS)), st.booleans(), st.booleans(), st.integers(1, 20))
def test_mining_equals_the_plain_reference(n, dim, seed, pool, reference, ties, block):
    rng = torch.Generator().manual_seed(seed)
    axes = torch.cat([torch.eye(dim), -torch.eye(dim), torch.zeros(1, dim)])
    first, second = axes[torch.randint(0, len(axes), (2, n), generator=rng)] if ties else torch.randn(2, n, dim + 2, generator=rng)
    segments = torch.randint(0, n, (n,), generator=rng)
    found = mine(first, second, segments, pool, reference, block)
    assert [x.tolist() for x in found] == [list(x) for x in mine_slow(first, second, segments.tolist(), pool, reference)]


@limits(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 2))
def test_loss_equals_the_plain_reference(n, dim, seed, margin):
    a, b, p, q = vectors = torch.randn(4, n, dim, generator=torch.Generator().manual_seed(seed)).double()
    fast = margin_loss(cosine(a, b), torch.stack([cosine(a, p), cosine(b, q)]), margin)
    assert abs(fast.item() - margin_loss_slow(*vectors.tolist(), margin)) < 1e-9


RANKS = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, torch
from paranmt_lab.settings import settings
from paranmt_lab.training import loop
from paranmt_lab.training.loop import TrainConfig, Trainee, train
s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path('/nowhere'), device='cpu', workers=1)
torch.set_num_threads(1)
losses, mined = [], []
mega_batch, negatives = Trainee.mega_batch, Trainee.negatives
def heard_mega_batch(self, *args):
    for found in mega_batch(self, *args):
        losses.append(found[0])
        yield found
def heard_negatives(self, *args):
    found = negatives(self, *args)
    mined.append(found.tolist())
    return found
Trainee.mega_batch, Trainee.negatives = heard_mega_batch, heard_negatives
run = train(TrainConfig(**json.loads(Path(sys.argv[2]).read_text())), s, show=False)
import os
if not int(os.environ.get('RANK', 0)): Path(sys.argv[3]).write_text(json.dumps(dict(losses=losses, mined=mined[0])))
"""


@pytest.mark.parametrize('fields', [{}, dict(clip=0.5, model='WORD'), dict(model='LSTM', scramble=0.3)], ids=['deferred', 'clipped', 'lstm'])
def test_two_processes_are_one_with_a_mini_batch_of_twice_the_size(workspace, tmp_path, fields):
    """As users start it: torchrun, gloo, two processes. Of 199 pairs one is left for the last mini-batch, so the second process has nothing to do in it."""
    common = dict(epochs=2, megabatch=4, probes=2, scramble=0.0, limit=199) | fields
    script, name = tmp_path / 'ranks.py', '-'.join(['ranks', *map(str, fields)])
    script.write_text(RANKS)
    environment = os.environ | dict(OMP_NUM_THREADS='1', PYTHONPATH=str(Path(__file__).parents[1]))
    found = {}
    for world, batch in ((1, 22), (2, 11)):
        config = write_json(tmp_path / f'{world}.json', asdict(replace(BASE, name=f'{name}-{world}', batch_size=batch, **common)))
        arguments = [str(script), str(workspace.workspace), str(config), str(tmp_path / f'{world}.out.json')]
        launcher = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '2', '--standalone'] if world == 2 else [sys.executable]
        subprocess.run(launcher + arguments, check=True, env=environment, timeout=300)
        found[world] = read_json(tmp_path / f'{world}.out.json')
    assert found[1]['mined'] == found[2]['mined']
    np.testing.assert_allclose(found[1]['losses'], found[2]['losses'], atol=1e-5)
    assert len(found[1]['losses']) == 20
    runs = [Run.open(workspace.runs, f'{name}-{world}') for world in (1, 2)]
    assert [run.finished['processes'] for run in runs] == [1, 2]
    assert [len(run.metrics().development.dropna()) for run in runs] == [2, 2]
    written = (runs[1].folder / 'done.json').read_bytes()
    (tmp_path / '2.out.json').write_text('')
    script.write_text(RANKS.replace('mined=mined[0]', 'mined=mined'))
    subprocess.run(launcher + arguments, check=True, env=environment, timeout=120)  # finished: every process returns, nobody waits for another
    assert read_json(tmp_path / '2.out.json') == dict(losses=[], mined=[]) and (runs[1].folder / 'done.json').read_bytes() == written


def steps(s, config, megas=10, way='compiled'):
    """Losses and last weights of some mega-batches: by compiled steps where there are such, by steps that stay on the device, or by the plain ones."""
    corpus = Corpus.open(config.corpus, s)
    trainee, losses = Trainee(config, prepare(corpus, choose_pairs(corpus), config, s, show=False), s), []
    if way == 'resident': trainee.reside()
    if way == 'plain': trainee.compiled = None
    for mega in range(megas):
        trainee.mega = mega
        losses += [loss for loss, *_ in trainee.mega_batch(np.random.default_rng(mega).permutation(100))]
    return losses, {name: x.cpu() for name, x in trainee.optimizer.settled().items()}, trainee


@pytest.mark.parametrize('model', ['WORD', 'WORD,TRIGRAM', 'WORD+TRIGRAM'])
@pytest.mark.parametrize('fields', [dict(negatives='opposite', sides=1, cooldown=1.), dict(sampling='MIX'), dict(batch_size=100, megabatch=1)], ids=['one side', 'mixed', 'alone'])
@pytest.mark.parametrize('way', ['compiled', 'resident'])
def test_shorter_ways_are_the_same(workspace, model, fields, way):
    config = replace(BASE, name='shorter', model=model, **dict(megabatch=5) | fields)
    (plain, theirs, slow), (shorter, ours, fast) = (steps(workspace, config, way=x) for x in ('plain', way))
    assert slow.compiled is None and slow.resident is None and (fast.resident if way == 'resident' else fast.compiled)
    assert len(plain) == 1000 // config.batch_size and np.allclose(plain, shorter, atol=1e-4)
    for name in theirs: assert (theirs[name] - ours[name]).abs().max() < 1e-3


def test_a_resident_state_goes_on_where_it_was(workspace):
    config = replace(BASE, name='resident', megabatch=5, cooldown=1.)
    whole, _, _ = steps(workspace, config, 6, 'resident')
    first, _, before = steps(workspace, config, 3, 'resident')
    after = Trainee(config, before.data, workspace)
    after.reside()
    for name, p in after.parameters.items(): p.data.copy_(before.parameters[name].data)
    after.optimizer.load({k: x.clone() for k, x in before.optimizer.state().items()})
    after.step = before.step
    for mega in range(3, 6):
        after.mega = mega
        first += [loss for loss, *_ in after.mega_batch(np.random.default_rng(mega).permutation(100))]
    assert first == whole


def test_a_dense_optimizer_takes_the_plain_way(workspace, monkeypatch):
    """As on a second GPU (`cuda:1`), whose steps are not recorded."""
    monkeypatch.setattr('paranmt_lab.training.loop.make_optimizer', lambda layer, config, *_: DenseAdam(dict(layer.named_parameters())))
    losses, _, trainee = steps(workspace, replace(BASE, name='dense', megabatch=5), 1)
    assert trainee.compiled is None and len(losses) == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason='NO GPU: that CPU and GPU have the same losses over 50 steps was not tested')
@pytest.mark.parametrize('model', ['WORD', 'TRIGRAM', 'WORD,TRIGRAM', 'LSTM'])
def test_cpu_and_gpu_have_the_same_losses(workspace, model):
    config = replace(BASE, name='devices', model=model, megabatch=5, learning_rate=1e-3)
    on_cpu, _, _ = steps(workspace, config)
    on_gpu, _, trainee = steps(replace(workspace, device='cuda'), config)
    assert (trainee.resident is not None) == (model != 'LSTM')
    assert np.allclose(on_cpu, on_gpu, atol=1e-3)


ALONE = """
import builtins, runpy, sys
there = builtins.__import__
def bare(name, *more, **others):
    if name.partition('.')[0] in ('numba', 'pandas', 'pyarrow', 'duckdb', 'fastcore'): raise ImportError(f'no {name} here')
    return there(name, *more, **others)
builtins.__import__ = bare
sys.argv = [sys.argv[1], '--cpu']
sys.path.insert(0, sys.argv[0].rpartition('/')[0])  # as for any script
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def test_the_benchmark_for_gpus_runs_where_there_is_nothing_but_torch_and_numpy():
    "A few small steps on the CPU, all other packages hidden."
    script = Path(__file__).parent / 'benchmarks/training_gpu.py'
    done = subprocess.run([sys.executable, '-c', ALONE, str(script)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    models = [line[:14].strip() for line in done.stdout.splitlines()[2:]]
    assert models[:9] == [model for model in ('WORD', 'TRIGRAM', 'WORD,TRIGRAM') for _ in range(3)]
    assert done.stdout.splitlines()[-1] == 'BLSTM: not available (no pandas here)'
