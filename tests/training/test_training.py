"""Training as a process: killed and continued, repeated, overfitted; mining against its plain reference."""
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings as limits, strategies as st

from paranmt_lab.annotation.store import EventLog, flag
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.encoders.zoo import layer_of
from paranmt_lab.evaluation.results import read_results
from paranmt_lab.evaluation.tasks import evaluate_run
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.fields import alter, flat
from paranmt_lab.ground.settings import MACHINE, read_json, settings, write_json
from paranmt_lab.jobs.run import Run
from paranmt_lab.pages.negatives import encoded, megabatch, negatives_at
from paranmt_lab.selection import Selection, select
from paranmt_lab.training import origin
from paranmt_lab.training.beginning import config_of, learned_pairs
from paranmt_lab.training.config import PRESETS, train_config
from paranmt_lab.training.data import arrays_folder, choose_pairs, prepare
from paranmt_lab.training.loop import EncoderLearner, train
from paranmt_lab.training.megabatch import POOLS, cosine, epoch_order, margin_loss, mine
from paranmt_lab.training.origin import Origin
from paranmt_lab.training.steppers import AutogradStepper, CompiledStepper, ResidentStepper, stepper_kind
from paranmt_lab.training.sweep import run_row
from references import references

SLOW = references('training.megabatch')
BASE = train_config('whole', 'halves', model='WORD,TRIGRAM', dim=24,
                   vocabulary=500, batch_size=20, megabatch=2, epochs=8, learning_rate=0.01,
                   scramble=0.3, checkpoint_every=0, probes=6)


@pytest.fixture(scope='module')
def workspace(halves): return halves()


def weights(s, name):
    return (s.runs / name / 'encoder' / 'weights.safetensors').read_bytes()


def test_same_seed_same_bits_other_seed_other_bits(workspace):
    for name, seed in (('whole', 0), ('twin', 0), ('other', 1)):
        train(alter(BASE, name=name, seed=seed), workspace, show=False)
    assert weights(workspace, 'whole') == weights(workspace, 'twin') != weights(workspace, 'other')
    pd.testing.assert_frame_equal(*(pd.read_parquet(workspace.runs / name / 'negatives.parquet')
                                    for name in ('whole', 'twin')))
    scores = [Run.open(workspace.runs, name).metrics().development.tolist() for name in ('whole', 'twin')]
    assert scores[0] == scores[1] and len(scores[0]) == BASE.optimizer.epochs


CHILD = """
import json, sys
from dataclasses import replace
from pathlib import Path
from paranmt_lab.ground.settings import settings
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path('/nowhere'), device='cpu')
for config in sys.argv[2:]: train(train_config(**json.loads(Path(config).read_text())), s)
"""


@pytest.mark.parametrize('moments', [(7,), pytest.param((3, 40), marks=pytest.mark.soak)], ids=['once', 'twice'])
def test_killed_runs_end_with_the_same_bits(workspace, tmp_path, moments):
    """SIGKILL wherever it falls once some steps are done; then to the end."""
    config = alter(BASE, name=f'killed-{len(moments)}')
    command = [sys.executable, '-c', CHILD, str(workspace.workspace),
               str(write_json(tmp_path / 'config.json', flat(config)))]
    for step in moments:
        child = subprocess.Popen(command)
        deadline = time.time() + 120
        while child.poll() is None and time.time() < deadline:
            try: done = Run.open(workspace.runs, config.run.name).checkpoint()
            except FileNotFoundError: done = None
            if done and done[1]['step'] >= step: break
            time.sleep(0.005)
        assert child.poll() is None, 'the run ended before it was killed'
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not Run.open(workspace.runs, config.run.name).finished
    subprocess.run(command, check=True)
    train(alter(BASE, name='whole'), workspace, show=False)
    assert weights(workspace, config.run.name) == weights(workspace, 'whole')
    pd.testing.assert_frame_equal(*(pd.read_parquet(workspace.runs / name / 'negatives.parquet')
                                    for name in (config.run.name, 'whole')))


@pytest.mark.soak
def test_bits_are_the_same_whether_kernels_are_compiled_or_loaded(workspace, tmp_path):
    "The first process compiles what the next one loads; in a new cache, then with half of them compiled anew."
    cache, found = tmp_path / 'kernels', []
    for name in ('compiled', 'loaded', 'mixed'):
        configs = [alter(BASE, name=f'{name}-{model.lower().replace(",", "-")}', model=model, epochs=2, scramble=0.0)
                   for model in ('WORD,TRIGRAM', 'LSTM')]
        written = [str(write_json(tmp_path / f'{config.run.name}.json', flat(config))) for config in configs]
        subprocess.run([sys.executable, '-c', CHILD, str(workspace.workspace), *written],
                       check=True, env=os.environ | dict(NUMBA_CACHE_DIR=str(cache)))
        found.append([weights(workspace, config.run.name) for config in configs])
        own = [path for path in cache.rglob('*.nbi')
               if path.name.split('.')[0] in ('averages', 'deferred', 'recurrent')]
        assert own
        if name == 'loaded':
            for path in own: path.unlink()
    assert found[0] == found[1] == found[2]


def test_a_checkpoint_of_an_earlier_version_is_resumed(workspace):
    """It counted `mega` and `pairs`, and held the sums of its metrics as a list."""
    config = alter(BASE, name='early', patience=20, average=0.5)
    train(alter(config, name='undisturbed'), workspace, show=False)
    calls = iter(range(100))
    early = train(config, workspace, show=False, stop=lambda: next(calls) == 7)
    tensors, state = early.checkpoint()
    assert state['batch'] > 0 and state['epoch'] > 0 and not early.finished
    kept = {k: state[k] for k in ('epoch', 'step', 'best', 'waited', 'records', 'taken', 'data', 'world')}
    early.save_checkpoint(tensors, kept | dict(mega=state['batch'], pairs=state['done'], sums=[0.0] * 5))
    assert train(config, workspace, show=False).finished
    assert weights(workspace, 'early') == weights(workspace, 'undisturbed')
    pd.testing.assert_frame_equal(*(pd.read_parquet(workspace.runs / name / 'negatives.parquet')
                                    for name in ('early', 'undisturbed')))
    scores = [Run.open(workspace.runs, name).metrics().development.tolist() for name in ('early', 'undisturbed')]
    assert scores[0] == scores[1]


def test_a_config_of_an_earlier_version_is_understood(workspace):
    """`reference` was one switch, and the fields that came since were not written."""
    settings_2018 = PRESETS['reference'] | dict(split='words')
    config = alter(BASE, name='switch', epochs=2, **settings_2018)
    train(alter(config, name='switches'), workspace, show=False)
    calls = iter(range(100))
    run = train(config, workspace, show=False, stop=lambda: next(calls) == 7)
    older = {k: x for k, x in run.config.items() if k not in settings_2018 | dict(development='', first_embeddings='')}
    write_json(run.folder / 'config.json', older | dict(reference=True))
    assert config_of(Run(run.folder)) == config
    assert train(config, workspace, show=False).finished
    assert weights(workspace, 'switch') == weights(workspace, 'switches')
    with pytest.raises(ValueError, match="exists with another config .exclude: 'pair' there, 'segment' here"):
        train(alter(config, exclude='segment'), workspace, show=False)


@pytest.mark.parametrize('preset', PRESETS)
def test_a_preset_trains(workspace, preset):
    fields = dict(dim=8, epochs=2, megabatch=1, vocabulary=500, evaluate_every=2)
    config = train_config(preset, 'halves', preset, model='WORD,GRAN', **fields)
    run = train(config, workspace, show=False)
    encoder = SentenceEncoder.load(run.folder / 'encoder')
    assert encoder.vocabularies['word'].split == config.encoder.split and run.finished['steps'] > 0
    first = Origin(config, workspace).new_encoder(encoder.vocabularies).layer.parts[0].weight_rd.detach()
    assert (first.abs().max() <= 0.01) == (preset == 'opusparcus')
    assert config.optimizer.batch_size == (128 if preset == 'opusparcus' else 100)


def test_the_preset_of_2017_has_the_papers_settings_and_scrambling_leaves_characters_alone(workspace):
    config = train_config('a', 'halves', 'paper-2017')
    assert (config.data.limit, config.mining.megabatch, config.mining.scramble) == (24_000, 1, 0)
    assert (config.optimizer.epochs, config.optimizer.batch_size, config.encoder.dim) == (20, 100, 300)
    base = dict(model='TRIGRAM', dim=8, epochs=1, megabatch=1, vocabulary=500)
    for name, scramble in (('plain-3', 0.), ('scrambled-3', .9)):
        train(train_config(name, 'halves', 'paper-2018', **base | dict(scramble=scramble)), workspace, show=False)
    assert weights(workspace, 'plain-3') == weights(workspace, 'scrambled-3')


def test_the_development_set_is_a_field(workspace, tmp_path):
    with pytest.raises(FileNotFoundError, match="development = 'nowhere.tsv': no such file of graded pairs"):
        train(alter(BASE, name='graded', development='nowhere.tsv'), workspace, show=False)
    assert not (workspace.runs / 'graded').exists()
    own = tmp_path / 'own.tsv'
    rows = [('sentence1', 'sentence2', 'score'), ('It is late.', 'It is late!', '5'), ('Go.', 'Stay.', '0'),
            ('So.', 'No.', '1')]
    own.write_text(''.join('\t'.join(row) + '\n' for row in rows))
    run = train(alter(BASE, name='graded', epochs=1, development=str(own)), workspace, show=False)
    last = run.metrics().dropna(subset=['development']).iloc[-1]
    assert last.development_set == str(own) and last.development > 0


def test_the_development_score_is_the_mean_over_sets(workspace, tmp_path):
    """A folder gives all its files, the metrics keep each score, and a run resumes with the same sets."""
    folder = tmp_path / 'sets'
    folder.mkdir()
    for name, grade in (('a', 5), ('b', 1)):
        rows = [('sentence1', 'sentence2', 'score'), ('It is late.', 'It is late!', '5'), ('Go.', 'Stay.', '0'),
                ('So.', 'No way.', str(grade))]
        (folder / f'{name}.tsv').write_text(''.join('\t'.join(row) + '\n' for row in rows))
    config = alter(BASE, name='means', epochs=2, development=str(folder))
    stops = iter([True])
    assert not train(config, workspace, show=False, stop=lambda: next(stops, False)).finished
    metrics = train(config, workspace, show=False).metrics().dropna(subset=['development'])
    each = pd.DataFrame(metrics.development_each.tolist(), index=metrics.index)
    assert list(each) == [f'{folder}/{name}.tsv' for name in 'ab']
    assert np.allclose(metrics.development, each.mean(axis='columns')) and each.nunique(axis='columns').eq(2).all()
    assert set(metrics.development_set) == {f'mean of 2 sets: {folder}'}
    both = alter(config, name='listed', development=f'{folder}/a.tsv, {folder}/b.tsv')
    listed = train(both, workspace, show=False).metrics().dropna(subset=['development'])
    assert listed.development.tolist() == metrics.development.tolist()
    (tmp_path / 'empty').mkdir()
    with pytest.raises(FileNotFoundError, match='has no file of graded pairs'):
        train(alter(BASE, name='none', development=str(tmp_path / 'empty')), workspace, show=False)


def test_a_training_can_be_developed_on_detection(workspace, tmp_path):
    """The score is the accuracy of the best threshold; no development pairs are an error before the run begins."""
    s = replace(workspace, resources=tmp_path)
    config = alter(BASE, name='detected', epochs=1, development='detect-PIT')
    with pytest.raises(FileNotFoundError, match="development = 'detect-PIT': no file .*dev.tsv; name a set"):
        train(config, s, show=False)
    (tmp_path / 'eval/pit2015').mkdir(parents=True)
    rows = ['sentence1\tsentence2\tlabel', *(f'It is {k}.\tIt is {k % 5}.\t{int(k < 5)}' for k in range(20))]
    (tmp_path / 'eval/pit2015/dev.tsv').write_text('\n'.join(rows) + '\n')
    run = train(config, s, show=False)
    last = run.metrics().dropna(subset=['development']).iloc[-1]
    assert (last.development_measure, last.development_set) == ('accuracy', 'detect-PIT')
    assert 75 <= last.development <= 100 and run_row(run)['score'] == 'accuracy on detect-PIT'
    with pytest.raises(ValueError, match='Pearson and accuracy have no common mean'):
        train(alter(config, name='mixed', development='detect-PIT,eval/pit2015/dev.tsv'), s, show=False)


def test_word_vectors_are_read_once(workspace, tmp_path, monkeypatch):
    """The arrays, the coverage and the first embeddings need them, and so does the next training of a sweep."""
    (tmp_path / 'vectors.txt').write_text('the 1 2\nzebra 3 4\n')
    times = []
    read = origin.read_vectors
    monkeypatch.setattr(origin, 'read_vectors', lambda *args: times.append(args) or read(*args))
    config = alter(BASE, name='once', model='WORD', epochs=1, vectors=str(tmp_path / 'vectors.txt'))
    train(config, workspace, show=False)
    train(alter(config, name='again', seed=2), workspace, show=False)
    assert len(times) == 1
    (tmp_path / 'vectors.txt').write_text('the 1 2\nzebra 5 6\n')
    train(alter(config, name='changed'), workspace, show=False)
    assert len(times) == 2


@pytest.mark.soak
def test_interrupt_stops_at_a_mega_batch_and_leaves_a_checkpoint(workspace, tmp_path):
    """One Ctrl-C is a clean stop: exit code 0, status `stopped`, and the run goes on from there."""
    config = alter(BASE, name='interrupted', checkpoint_every=1000, epochs=400)
    child = subprocess.Popen([sys.executable, '-c', CHILD, str(workspace.workspace),
                              str(write_json(tmp_path / 'config.json', flat(config)))])
    folder, deadline = workspace.runs / 'interrupted', time.time() + 120
    while not (folder / 'encoder').is_dir() and time.time() < deadline: time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 0
    run = Run(folder)
    assert not run.finished and run.checkpoint()[1]['step'] > 0
    assert '"stopped"' in (folder / 'progress.json').read_text()


@pytest.mark.parametrize('threads', [1, pytest.param(2, marks=pytest.mark.soak)])
def test_two_hundred_pairs_are_learned_by_heart(workspace, threads):
    """Halves of a sentence have few words in common: only training can bring them together."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        train(alter(BASE, name=f'learned-{threads}', model='WORD',
                      scramble=0.0, epochs=40, megabatch=10, learning_rate=0.02), workspace, show=False)
    finally: torch.set_num_threads(before)
    pairs = Corpus.open('halves', workspace).frame(['reference', 'translation'])
    encoder = SentenceEncoder.load(workspace.runs / f'learned-{threads}' / 'encoder')
    first, second = (torch.nn.functional.normalize(torch.from_numpy(encoder.encode(pairs[c].tolist())))
                     for c in ('reference', 'translation'))
    assert ((first @ second.T).argmax(1).numpy() == np.arange(len(pairs))).mean() > 0.95


def test_start_takes_over_an_encoder(workspace):
    train(alter(BASE, name='first'), workspace, show=False)
    start = workspace.runs / 'first' / 'encoder'
    run = train(alter(BASE, name='second', start=str(start), epochs=1, learning_rate=1e-9), workspace, show=False)
    texts = ['Where is the dog?', 'Snow fell all night.']
    old, new = (SentenceEncoder.load(folder) for folder in (start, run.folder / 'encoder'))
    assert {f: v.tokens for f, v in old.vocabularies.items()} == {f: v.tokens for f, v in new.vocabularies.items()}
    np.testing.assert_allclose(old.encode(texts), new.encode(texts), atol=1e-5)


def test_word_vectors_are_the_start_and_fill_the_vocabulary(workspace, tmp_path):
    (tmp_path / 'vectors.txt').write_text('the 1 0 0\nzebra 0 2 0\n'
                                          + ''.join(f'rare{i} 0 0 {i}\n' for i in range(2000)))
    config = alter(BASE, name='vectors', model='WORD', vectors=str(tmp_path / 'vectors.txt'),
                     epochs=1, learning_rate=1e-9, vocabulary=2000)
    encoder = SentenceEncoder.load(train(config, workspace, show=False).folder / 'encoder')
    assert encoder.dim == 3 and len(encoder.vocabularies['word']) == 2001
    np.testing.assert_allclose(encoder.encode(['zebra']), [[0, 2, 0]], atol=1e-6)


def test_a_stopped_preparation_leaves_nothing(workspace, monkeypatch):
    """The cache holds whole arrays or none."""
    from paranmt_lab.training import data
    monkeypatch.setattr(data.Progress, 'stopping', property(lambda self: True))
    corpus = Corpus.open('halves', workspace)
    assert prepare(np.arange(10), Origin(alter(BASE, vocabulary=77), workspace)) is None
    assert not list((corpus.folder / 'cache' / 'training').glob('.*.part'))


def test_the_next_preparation_removes_what_a_killed_one_left(workspace):
    """A killed process leaves the folder that it was filling; one that still runs keeps its own."""
    corpus = Corpus.open('halves', workspace)
    home = arrays_folder(corpus, dict(recipe='another'))
    gone, alive = (subprocess.Popen(['sleep', '60']) for _ in range(2))
    parts = [home.with_name(f'.{home.name}.{MACHINE}-{child.pid}-{child.pid}.part') for child in (gone, alive)]
    for part in parts: part.mkdir(parents=True)
    gone.kill(), gone.wait()
    try: assert prepare(np.arange(10), Origin(alter(BASE, vocabulary=78), workspace))
    finally: alive.kill(), alive.wait()
    assert [part.exists() for part in parts] == [False, True]
    parts[1].rmdir()


MINED = {'plain': {}, 'one side': dict(negatives='same'), 'published': dict(exclude='pair', negatives='opposite'),
         'apart': dict(apart=0.2, apart_from=1), 'judge': dict(judge='paraphrase-scorer', judge_above=0.3),
         'limit': dict(limit=130, seed=5), 'flagged': dict(flagged=True), 'its own M': dict(megabatch=6, limit=90)}

OFTEN = 'plain', 'published', 'flagged', 'its own M'


@pytest.mark.parametrize('fields', [pytest.param(fields, id=name, marks=() if name in OFTEN else pytest.mark.soak)
                                    for name, fields in MINED.items()])
def test_the_page_of_negatives_finds_what_the_run_recorded(workspace, fields):
    "Epoch 2 mines with the encoder that epoch 1 ended with: the page finds each recorded negative with it."
    s = replace(workspace, annotations=f'sqlite:///{workspace.workspace}/flags.sqlite')
    name = 'mined-' + '-'.join(fields)
    base = alter(BASE, name=name, model='WORD', megabatch=10, scramble=0.0, probes=30, epochs=2)
    corpus = Corpus.open('halves', workspace)
    if 'flagged' in fields:
        plain = pd.read_parquet(train(alter(base, name='unflagged'), s, show=False).folder / 'negatives.parquet')
        side = lambda number: base.data.columns[number - 1]
        for row in plain[plain.epoch == 1].head(20).itertuples():
            flag(EventLog(s.annotations), 'ada', 'halves', (row.pair_id, side(row.side)),
                 (row.negative_pair_id, side(row.negative_side)))
    two = train(alter(base, **fields), s, show=False)
    one = train(alter(base, **fields | dict(name=f'{name}-one', epochs=1)), s, show=False)
    recorded = pd.read_parquet(two.folder / 'negatives.parquet').query('epoch == 1')
    learned = learned_pairs(two, corpus)
    config = alter(base, **fields)
    encoder = SentenceEncoder.load(one.folder / 'encoder')
    order = learned.pair_id[epoch_order(len(learned.pair_id), config.run.seed, 1)]
    opinion = SentenceEncoder.load(settings().shipped / 'models' / config.mining.judge) if config.mining.judge else None
    assert len(recorded)
    for pair, rows in recorded.groupby('pair_id'):
        mega = megabatch(corpus, learned, pair,
                         len(order)).set_index('pair_id').loc[[pair, *order[order != pair]]].reset_index()
        judge = (np.stack([opinion.encode(mega[side].tolist(), dtype='float16')
                           for side in config.data.columns], 1) if opinion else None)
        sizes = config.mining.megabatch,
        found = negatives_at(mega, encoded(mega, encoder.encode), config, sizes, epoch=1, judge=judge)
        rows = rows[rows.megabatch == config.mining.megabatch].sort_values('side')
        assert found.negative_pair_id.tolist() == rows.negative_pair_id.tolist()
        assert found.cosine.tolist() == pytest.approx(rows.cosine_negative.tolist(), abs=1e-5)


def test_the_pairs_of_a_run_are_its_own(workspace):
    "Selection and limit stay as the run had them, even if replaced; it is refused when the corpus has grown."
    import shutil
    s = replace(workspace, workspace=workspace.workspace.parent / 'own')
    shutil.copytree(Corpus.open('halves', workspace).folder, s.corpora / 'halves',
                    ignore=shutil.ignore_patterns('cache'))
    corpus = Corpus.open('halves', s)
    score(corpus, ['reference_length'], show=False)
    select(corpus, Selection('short', ranges=(('reference_length', None, 5.0),)))
    run = train(alter(BASE, name='limited', selection='short', limit=25, epochs=1, seed=4), s, show=False)
    learned = learned_pairs(run, corpus)
    assert len(learned.pair_id) == 25
    assert (corpus.pairs_by_id(learned.pair_id, ['reference_length']).reference_length <= 5).all()
    record = read_json(run.folder / 'selection.json')
    (corpus.folder / 'selections' / 'short.json').unlink()
    select(corpus, Selection('short', ranges=(('reference_length', 5.0, None),)))
    shutil.rmtree(corpus.folder / 'cache')
    assert learned_pairs(run, corpus).pair_id.tolist() == learned.pair_id.tolist()
    assert record == read_json(run.folder / 'selection.json') != read_json(corpus.folder / 'selections' / 'short.json')


@limits(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1),
       st.sampled_from(list(POOLS)), st.booleans(), st.booleans(), st.integers(1, 20))
def test_mining_equals_the_plain_reference(n, dim, seed, pool, reference, ties, block):
    rng = torch.Generator().manual_seed(seed)
    axes = torch.cat([torch.eye(dim), -torch.eye(dim), torch.zeros(1, dim)])
    first, second = (axes[torch.randint(0, len(axes), (2, n), generator=rng)] if ties
                     else torch.randn(2, n, dim + 2, generator=rng))
    segments = torch.randint(0, n, (n,), generator=rng)
    found = mine(first, second, segments, pool, reference, block)
    assert ([x.tolist() for x in found]
            == [list(x) for x in SLOW.mine_slow(first, second, segments.tolist(), pool, reference)])


@limits(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 2))
def test_loss_equals_the_plain_reference(n, dim, seed, margin):
    a, b, p, q = vectors = torch.randn(4, n, dim, generator=torch.Generator().manual_seed(seed)).double()
    fast = margin_loss(cosine(a, b), torch.stack([cosine(a, p), cosine(b, q)]), margin)
    assert abs(fast.item() - SLOW.margin_loss_slow(*vectors.tolist(), margin)) < 1e-9


RANKS = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, torch
from paranmt_lab.ground.settings import settings
from paranmt_lab.training import loop
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import EncoderLearner, train
s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path('/nowhere'), device='cpu', workers=1)
torch.set_num_threads(1)
losses, mined = [], []
mega_batch, negatives = EncoderLearner.mega_batch, loop.hardest_negatives
def heard_mega_batch(self, *args):
    for step in mega_batch(self, *args):
        losses.append(step.loss)
        yield step
def heard_negatives(*args):
    found = negatives(*args)
    mined.append(found.tolist())
    return found
EncoderLearner.mega_batch, loop.hardest_negatives = heard_mega_batch, heard_negatives
run = train(train_config(**json.loads(Path(sys.argv[2]).read_text())), s, show=False)
assert run.finished, 'the first process marks the run before another returns'
import os
if not int(os.environ.get('RANK', 0)): Path(sys.argv[3]).write_text(json.dumps(dict(losses=losses, mined=mined[0])))
"""


def heard(workspace, tmp_path, config, world, script=RANKS):
    "Losses and negatives of a training in one process, or in two by torchrun."
    program, out = tmp_path / 'ranks.py', tmp_path / f'{world}.out.json'
    program.write_text(script)
    file = write_json(tmp_path / f'{world}.json', flat(config))
    launcher = ['-m', 'torch.distributed.run', '--nproc-per-node', '2', '--standalone'] if world == 2 else []
    environment = os.environ | dict(OMP_NUM_THREADS='1', PYTHONPATH=str(Path(__file__).parents[2]))
    subprocess.run([sys.executable, *launcher, str(program), str(workspace.workspace), str(file), str(out)],
                   check=True, env=environment, timeout=300)
    return read_json(out)


@pytest.mark.parametrize('fields', [
    pytest.param({}, id='deferred'),
    pytest.param(dict(clip=0.5, model='WORD'), id='clipped', marks=pytest.mark.soak),
    pytest.param(dict(model='LSTM', scramble=0.3), id='lstm', marks=pytest.mark.soak)])
def test_two_processes_are_one_with_a_mini_batch_of_twice_the_size(workspace, tmp_path, fields):
    "With torchrun, two processes; of 199 pairs one is left for the last mini-batch, none for the second process."
    common = dict(epochs=2, megabatch=4, probes=2, scramble=0.0, limit=199) | fields
    name = '-'.join(['ranks', *map(str, fields)])
    one, two = (heard(workspace, tmp_path, alter(BASE, name=f'{name}-{world}', batch_size=batch, **common), world)
                for world, batch in ((1, 22), (2, 11)))
    assert one['mined'] == two['mined']
    np.testing.assert_allclose(one['losses'], two['losses'], atol=1e-5)
    assert len(one['losses']) == 20
    runs = [Run.open(workspace.runs, f'{name}-{world}') for world in (1, 2)]
    assert [run.finished['processes'] for run in runs] == [1, 2]
    assert [len(run.metrics().development.dropna()) for run in runs] == [2, 2]


@pytest.mark.soak
def test_every_process_returns_from_a_finished_run(workspace, tmp_path):
    "Nobody waits for another, and nothing is trained or written."
    config = alter(BASE, name='returned', epochs=1)
    run = train(config, workspace, show=False)
    written = (run.folder / 'done.json').read_bytes()
    script = RANKS.replace('mined=mined[0]', 'mined=mined')
    assert heard(workspace, tmp_path, config, 2, script) == dict(losses=[], mined=[])
    assert (run.folder / 'done.json').read_bytes() == written


def steps(s, config, megas=10, kind=None):
    "Losses and last weights of some mega-batches, by one kind of stepper; None takes the kind that training chooses."
    corpus = Corpus.open(config.data.corpus, s)
    data = prepare(choose_pairs(corpus), Origin(config, s), show=False)
    learner, losses = EncoderLearner(Origin(config, s), data, kind=kind), []
    for mega in range(megas):
        learner.at.batch = mega
        losses += [step.loss for step in learner.mega_batch(np.random.default_rng(mega).permutation(100))]
    return losses, {name: x.cpu() for name, x in learner.stepper.optimizer.settled().items()}, learner


FIELDS = {'one side': dict(negatives='opposite', sides=1, cooldown=1.), 'mixed': dict(sampling='MIX'),
          'alone': dict(batch_size=100, megabatch=1)}


@pytest.mark.parametrize('model', ['WORD', 'WORD,TRIGRAM', 'WORD+TRIGRAM'])
@pytest.mark.parametrize('fields', FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize('kind', [CompiledStepper, ResidentStepper])
def test_all_steppers_give_the_losses_of_the_reference(workspace, model, fields, kind):
    config = alter(BASE, name='steppers', model=model, **dict(megabatch=5) | fields)
    (reference, theirs, _), (faster, ours, _) = (steps(workspace, config, kind=x) for x in (AutogradStepper, kind))
    assert len(reference) == 1000 // config.optimizer.batch_size and np.allclose(reference, faster, atol=1e-4)
    for name in theirs: assert (theirs[name] - ours[name]).abs().max() < 1e-3


@pytest.mark.parametrize('negatives', ['both', 'opposite'])
def test_compiled_steps_know_what_the_published_programs_do(workspace, negatives):
    """Plain concatenation, exclusion of the own pair alone, their epsilon."""
    config = alter(BASE, name='published', megabatch=5, negatives=negatives, **PRESETS['reference'])
    reference, theirs, _ = steps(workspace, config, kind=AutogradStepper)
    faster, ours, learner = steps(workspace, config)
    assert isinstance(learner.stepper, CompiledStepper) and learner.stepper.kernels.joined == 'plain'
    assert np.allclose(reference, faster, atol=1e-4)
    for name in theirs: assert (theirs[name] - ours[name]).abs().max() < 1e-3


@pytest.mark.parametrize('kind', [AutogradStepper, CompiledStepper, ResidentStepper])
def test_a_state_goes_on_where_it_was(workspace, kind):
    config = alter(BASE, name='state', megabatch=5, cooldown=1.)
    whole, _, _ = steps(workspace, config, 6, kind)
    first, _, before = steps(workspace, config, 3, kind)
    after = EncoderLearner(Origin(config, workspace), before.data, kind=kind)
    after.load_state_dict({k: x.clone() if isinstance(x, torch.Tensor) else x for k, x in before.state_dict().items()})
    for mega in range(3, 6):
        after.at.batch = mega
        first += [step.loss for step in after.mega_batch(np.random.default_rng(mega).permutation(100))]
    assert first == whole


@pytest.mark.skipif(not torch.cuda.is_available(),
                    reason='NO GPU: that CPU and GPU have the same losses over 50 steps was not tested')
@pytest.mark.parametrize('model', ['WORD', 'TRIGRAM', 'WORD,TRIGRAM', 'LSTM'])
def test_cpu_and_gpu_have_the_same_losses(workspace, model):
    config = alter(BASE, name='devices', model=model, megabatch=5, learning_rate=1e-3)
    on_cpu, _, _ = steps(workspace, config)
    on_gpu, _, learner = steps(replace(workspace, device='cuda'), config)
    assert isinstance(learner.stepper, ResidentStepper) == (model != 'LSTM')
    assert np.allclose(on_cpu, on_gpu, atol=1e-3)


REFUSED = {'a selection': dict(selection='nosuch'), 'a model': dict(model='WORT'),
           'vectors': dict(vectors='nosuch.txt'), 'a start': dict(start='nosuch'), 'a judge': dict(judge='nosuch'),
           'vectors of another form': dict(vectors='{prose}'),
           'vectors for no words': dict(vectors='{vectors}', model='TRIGRAM'),
           'vectors of other words': dict(vectors='{vectors}'),
           'sizes that cannot be added': dict(vectors='{vectors}', model='WORD+TRIGRAM', dim=5),
           'a start without that part': dict(start='paraphrase-scorer', model='LSTM')}


@pytest.mark.parametrize('fields', REFUSED.values(), ids=REFUSED)
def test_a_refused_training_claims_no_name(workspace, tmp_path, fields):
    """The corrected command must be able to take the same name."""
    files = dict(prose=tmp_path / 'prose.txt', vectors=tmp_path / 'vectors.txt')
    files['prose'].write_text('Call me Ishmael.\nSome years ago\n')
    files['vectors'].write_text('qwertz 1 2\nasdfgh 3 4\n')
    fields = {k: v.format(**files) if isinstance(v, str) else v for k, v in fields.items()}
    before = sorted(p.name for p in workspace.runs.glob('[!.]*'))
    with pytest.raises((ValueError, OSError)):
        train(alter(BASE, scramble=0.0, name='w50', **fields), workspace, show=False)
    assert sorted(p.name for p in workspace.runs.glob('[!.]*')) == before


@pytest.mark.soak
def test_a_second_training_of_a_run_is_refused(workspace, tmp_path):
    """... while the first one lives; a killed one leaves no lock behind."""
    config = alter(BASE, name='twice', epochs=400)
    child = subprocess.Popen([sys.executable, '-c', CHILD, str(workspace.workspace),
                              str(write_json(tmp_path / 'config.json', flat(config)))])
    run, deadline = workspace.runs / 'twice', time.time() + 120
    while not (run / 'checkpoint').is_dir() and time.time() < deadline: time.sleep(0.01)
    with pytest.raises(RuntimeError, match=f'another process is working in {run}'): train(config, workspace, show=False)
    assert child.poll() is None
    child.kill()
    child.wait()
    stopped = train(config, workspace, show=False, stop=lambda: True)
    assert not stopped.finished and stopped.checkpoint()[1]['step'] > 0


def cut(path): path.write_bytes(path.read_bytes()[:-100])
def flip(path): (lambda b: path.write_bytes(b[:-9] + bytes([b[-9] ^ 64]) + b[-8:]))(path.read_bytes())
def of_another_run(path): path.write_bytes((path.parents[2] / 'small' / 'checkpoint' / path.name).read_bytes())
def a_pickle(path): torch.save({'parameter/weight': torch.ones(3)}, path)


@pytest.mark.parametrize('harm', [cut, flip, of_another_run, a_pickle])
def test_a_damaged_checkpoint_is_one_line_with_a_remedy(workspace, harm):
    """Named with its file; the run is as it was, and begins anew without the file."""
    config = alter(BASE, name='damaged', epochs=2)
    train(alter(BASE, name='small', dim=5), workspace, show=False, stop=lambda: True)
    run = train(config, workspace, show=False, stop=lambda: True)
    harm(run.checkpoint_file)
    with pytest.raises(ValueError, match='delete it, and the same command begins the run anew') as error:
        train(config, workspace, show=False)
    assert str(run.checkpoint_file) in str(error.value) and '\n' not in str(error.value)
    run.checkpoint_file.unlink()
    assert train(config, workspace, show=False, stop=lambda: True).checkpoint()[1]['step'] > 0


FULL = """
import resource, sys
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.encoders.zoo import layer_of
from paranmt_lab.jobs.run import Run
encoder, run = SentenceEncoder.load(sys.argv[1] + '/encoder'), Run(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try: encoder.save(sys.argv[1] + '/encoder') if sys.argv[3] == 'encoder' else run.save_checkpoint(*run.checkpoint())
except OSError as e: print(f'{e.filename}: {e.strerror}')
"""


@pytest.mark.parametrize('part', ['encoder', 'checkpoint'])
@pytest.mark.parametrize('longest', [pytest.param(50, marks=pytest.mark.soak), 5000])
def test_a_full_disk_leaves_encoder_and_checkpoint_whole(workspace, part, longest):
    """No file may be longer than that, as on a disk that is full at the first or at a later file."""
    run = train(alter(BASE, name='full', epochs=1), workspace, show=False)
    before = {p: p.read_bytes() for p in run.folder.rglob('*') if p.is_file()}
    said = subprocess.run([sys.executable, '-c', FULL, str(run.folder), str(longest), part],
                          capture_output=True, text=True, check=True).stdout
    assert f'{run.folder}/{part}' in said and 'make room' in said
    assert {p: p.read_bytes() for p in run.folder.rglob('*') if p.is_file()} == before


def test_files_of_a_run_are_readable_by_those_the_umask_allows(workspace, tmp_path):
    """The library of safetensors gives its files to their owner alone."""
    before = os.umask(0o022)
    try: run = train(alter(BASE, name='shared', epochs=1), workspace, show=False)
    finally: os.umask(before)
    assert {f'{p.stat().st_mode & 0o777:o}' for p in run.folder.rglob('*') if p.is_file()} == {'644'}


@pytest.mark.parametrize('device', ['cuda', 'cuda:0', 'cuda:1'])
def test_every_gpu_counts_as_one(device):
    """Sentences stay on the second GPU as on the first; what autograd has to do is plain on all."""
    def kind(model, device, processes=1, **fields):
        return stepper_kind(layer_of(model, dict(word=9, trigram=9), 4), alter(BASE, **fields), device, processes)
    assert kind('WORD,TRIGRAM', device) is ResidentStepper and kind('WORD,TRIGRAM', 'cpu') is CompiledStepper
    reference = kind('LSTM', device), kind('WORD', device, dropout=0.1), kind('WORD', device, processes=2)
    assert set(reference) == {AutogradStepper}
    for fields in (dict(epsilon='lasagne'), dict(exclude='pair')):
        assert kind('WORD', device, **fields) is AutogradStepper


def test_a_gpu_that_is_not_there_is_refused(workspace):
    with pytest.raises(ValueError, match="device = 'cuda:99'"):
        train(alter(BASE, name='nowhere'), replace(workspace, device='cuda:99'), show=False)
    assert not (workspace.runs / 'nowhere').exists()


def test_results_are_replaced_by_complete_ones_only(workspace, tmp_path):
    """A file that is not there and an evaluation without the sets leave the recorded figures."""
    run = train(alter(BASE, name='measured', epochs=1), workspace, show=False)
    graded = tmp_path / 'eval' / 'sts17' / 'en-en.tsv'
    graded.parent.mkdir(parents=True)
    graded.write_text((workspace.sample / 'graded.tsv').read_text())
    evaluate_run(run, replace(workspace, resources=tmp_path), ['STS17'])
    before = (run.folder / 'results.parquet').read_bytes()
    with pytest.raises(FileNotFoundError, match='nosuch.tsv'): evaluate_run(run, workspace, [], Path('nosuch.tsv'))
    assert (run.folder / 'results.parquet').read_bytes() == before
    lacking = evaluate_run(run, workspace, ['STS17', 'STS12'])
    assert lacking[lacking.task == 'STS17'].status.tolist() == ['not available'] * 2
    kept = read_results(run.folder / 'results.parquet').query("metric == 'pearson'").set_index('task')
    assert kept.status['STS17'] == kept.status['graded'] == 'ok' and (kept.status['STS12'] == 'not available').all()


def test_a_damaged_record_of_negatives_is_named(workspace):
    run = train(alter(BASE, name='recorded', epochs=2), workspace, show=False, stop=lambda: True)
    (run.folder / 'negatives.parquet').write_bytes(b'PAR1')
    with pytest.raises(ValueError, match='negatives.parquet is damaged .*: delete it and run the same again'):
        train(alter(BASE, name='recorded', epochs=2), workspace, show=False)
    (run.folder / 'negatives.parquet').unlink()
    assert train(alter(BASE, name='recorded', epochs=2), workspace, show=False).finished
