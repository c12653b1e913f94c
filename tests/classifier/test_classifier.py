"""Classifiers of references and translations as processes and commands: killed and continued, scored with, refused."""
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from command import paranmt
from paranmt_lab.classifier.config import ClassifierConfig
from paranmt_lab.classifier.lists import divided_pairs, read_lists
from paranmt_lab.classifier.training import ClassifierLearner, accuracies, new_classifier, train_classifier
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.fields import build
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.jobs.run import Run
from paranmt_lab.selection import Selection, select

PER_LIST = 3


def wordy(text, place): return ' '.join([*(words := text.split())[:place], 'so', *words[place:]])


@pytest.fixture
def s(tmp_path):
    "A workspace with the corpus `wordy`: lists of three translations, which say `so` where references do not."
    s = replace(settings(), workspace=tmp_path, resources=Path('/nowhere'), device='cpu')
    sample = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).drop_duplicates('reference').head(300)
    sides = [sample.assign(translation=[wordy(text, k) for text in sample.reference], segment=range(300), rank=k)
             for k in range(PER_LIST)]
    pairs = pd.concat(sides).assign(source_lang=['cs', 'de'] * 450, corpus='talk').sort_values(['segment', 'rank'])
    corpus = Corpus.create('wordy', s)
    columns = ['segment', 'source', 'reference', 'translation', 'source_lang', 'corpus', 'rank']
    for shard in range(2): corpus.write_pairs(shard, pairs[columns][shard * 450:(shard + 1) * 450])
    return s


def config(name, **options):
    return build(ClassifierConfig, name=name, corpus='wordy',
                 **dict(dim=20, epochs=6, learning_rate=.03, batch_size=20) | options)


def weights(run):
    files = sorted((run.folder / 'classifier').rglob('*.safetensors'))
    return {f'{file.stem}/{name}': t for file in files for name, t in load_file(file).items()}


def assert_same(first, second):
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert first.finished['test'] == second.finished['test']


@pytest.mark.parametrize('options', [
    dict(negative='hardest', l2=1e-6), pytest.param(dict(), marks=pytest.mark.soak),
    pytest.param(dict(model='LSTM', hidden=8), marks=pytest.mark.soak)], ids=str)
def test_a_killed_training_ends_with_the_same_weights(s, options):
    """SIGKILL twice in a process of its own, wherever it falls, then to the end in this one."""
    options |= dict(epochs=12, patience=0)
    whole = train_classifier(config('whole', **options), s, show=False)
    command = ['paranmt_lab', 'judge', 'train-classifier', 'wordy', 'killed', '--checkpoint-every', '0',
               *(word for k, x in (dict(dim=20, learning_rate=.03, batch_size=20) | options).items()
                 for word in ('--' + k.replace('_', '-'), str(x)))]
    environment = os.environ | dict(PARANMT_WORKSPACE=str(s.workspace), PARANMT_DEVICE='cpu', OMP_NUM_THREADS='1')
    for least in (3, 20):
        child = subprocess.Popen([sys.executable, '-m', *command], env=environment, stdout=subprocess.DEVNULL)
        while child.poll() is None and not _reached(s.runs / 'killed', least): time.sleep(.02)
        assert child.poll() is None, 'it ended before it could be killed'
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert Run.open(s.runs, 'killed').checkpoint()[1]['step'] < 144
    killed = train_classifier(config('killed', checkpoint_every=0., **options), s, show=False)
    assert_same(whole, killed)
    pd.testing.assert_frame_equal(*(r.metrics()[['step', 'accuracy', 'loss']] for r in (whole, killed)))


def _reached(folder, step):
    if not (folder / 'checkpoint/checkpoint.safetensors').exists(): return False
    return Run(folder).checkpoint()[1]['step'] >= step


@pytest.mark.soak
def test_a_stopped_command_goes_on_and_ends_in_a_model(s):
    run_command = partial(paranmt, PARANMT_WORKSPACE=str(s.workspace), PARANMT_DEVICE='cpu', COLUMNS='120')
    line = ('model train classifier wordy so --set dim=20 --set epochs=40 --set learning_rate=0.03 --set batch_size=20 '
            '--set patience=0')
    asked = iter([False] * 30 + [True])
    options = dict(epochs=40, patience=0)
    run = train_classifier(config('so', **options), s, show=False, stop=lambda: next(asked))
    assert run.status == 'stopped' and not (s.models / 'so').exists()
    done = run_command(line)
    assert done.returncode == 0 and 'Accuracy of classifier:so' in done.stdout, done.stderr
    card = (s.models / 'so/README.md').read_text()
    assert 'paranmt model train classifier wordy so' in card and 'lists for training, development and test' in card
    scored = run_command('score wordy reference_probability --model classifier:so')
    assert scored.returncode == 0 and 'was trained on the references of 720 of the 900 pairs' in \
        ' '.join(scored.stdout.split()), scored.stdout + scored.stderr
    assert run_command(line + ' --set l2=1e-5').returncode == 1  # another config under the same name


def test_scoring_writes_a_column_and_a_note_once(s):
    train_classifier(config('so'), s, show=False)
    model = f"classifier:{s.runs / 'so/classifier'}"
    fresh = Corpus.create('fresh', s)
    fresh.write_pairs(0, pd.DataFrame(dict(reference=['We left at noon.'] * 4,
                                           translation=['We left at twelve.', None, ' ', 'So we left so early.'])))
    found = score(fresh, ['reference_probability'], [model], show=False)
    assert found.attrs['notes'] == [] and found.no_value.tolist() == [2]
    values = fresh.frame(['reference_probability@classifier']).iloc[:, 0].to_numpy()
    assert np.isnan(values[[1, 2]]).all() and values[0] > values[3]
    assert fresh.count('reference_probability', 0, 1) == 2  # null passes no range
    wordy = Corpus.open('wordy', s)
    for _ in range(2):  # the second time nothing is computed, and the note is still there
        [note] = score(wordy, ['reference_probability'], [model], workers=1, show=False).attrs['notes']
        assert '720 of the 900 pairs of wordy' in note
    assert wordy.manifest('score-reference_probability@classifier')['notes'] == [note]
    assert score(wordy, ['trigram_overlap'], show=False).attrs['notes'] == []


def test_values_are_those_of_the_model_and_do_not_depend_on_the_batch(s):
    train_classifier(config('so'), s, show=False)
    model = open_model(f"classifier:{s.runs / 'so/classifier'}", s)
    texts = Corpus.open('wordy', s).frame(['translation']).translation.tolist()
    one_by_one = np.concatenate([model.probability([text]) for text in texts[:50]])
    np.testing.assert_allclose(model.probability(texts)[:50], one_by_one, atol=1e-6)
    odd = ['', ' ', '東京', 'a' * 10_000, '\u0000', 'so ' * 5_000]
    assert np.isfinite(model.probability(odd)).all()


def test_splits_share_no_segment_and_the_selection_is_kept(s):
    corpus = Corpus.open('wordy', s)
    select(corpus, Selection('first', where='rank = 0'))
    run = train_classifier(config('so', selection='first', lists=100), s, show=False)
    pairs = pd.read_parquet(run.folder / 'classifier/pairs.parquet')
    assert pairs.groupby('segment').split.nunique().eq(1).all()
    assert pairs.split.value_counts().to_dict() == dict(train=100, development=30, test=30)
    ids = corpus.frame(['pair_id'], where='rank = 0').pair_id
    assert set(pairs.pair_id) <= set(ids)
    test = pd.read_parquet(run.folder / 'test.parquet')
    assert set(test.pair_id) == set(pairs.pair_id[pairs.split == 'test'])
    assert accuracies(test) == run.finished['test']


def test_what_cannot_be_trained_is_refused_and_leaves_no_run(s):
    small = Corpus.create('small', s)
    small.write_pairs(0, pd.DataFrame(dict(reference=['a b'] * 5, translation=['c'] * 5, segment=range(5))))
    for options, error, why in ((dict(corpus='small'), ValueError, '5 segments have a pair'),
                                (dict(corpus='none'), FileNotFoundError, "no corpus 'none'"),
                                (dict(selection='none'), FileNotFoundError, "no selection 'none'"),
                                (dict(vectors='glove.txt'), FileNotFoundError, "vectors = 'glove.txt'")):
        with pytest.raises(error, match=why):
            train_classifier(build(ClassifierConfig, **dict(name='x', corpus='wordy') | options), s, show=False)
        assert not (s.runs / 'x').exists()


def test_a_run_is_not_continued_on_other_pairs(s):
    corpus = Corpus.open('wordy', s)
    asked = iter([False] * 3 + [True])
    run = train_classifier(config('so'), s, show=False, stop=lambda: next(asked))
    assert run.status == 'stopped'
    pairs = corpus.frame(['segment', 'reference', 'translation'])
    corpus.write_pairs(2, pairs.head(9))
    with pytest.raises(ValueError, match='was begun on other pairs'): train_classifier(config('so'), s, show=False)


def test_word_vectors_are_where_words_start(s, tmp_path):
    file = tmp_path / 'vectors.txt'
    file.write_text('so 1 2 3\nzebra 4 5 6\nthe 7 8 9\n')
    corpus, options = Corpus.open('wordy', s), config('so', vectors=str(file))
    lists = read_lists(corpus, divided_pairs(corpus, options.data))
    model = new_classifier(options, lists, s)
    vocabulary = model.encoder.vocabularies['word']
    assert model.encoder.dim == 3 and 'zebra' in vocabulary
    assert model.layer.weight_rd[vocabulary.index['zebra']].tolist() == [4, 5, 6]
    learner = ClassifierLearner(options, lists, model)
    list(learner.step(learner.batches()[0]))
    assert model.layer.weight_rd[vocabulary.index['zebra']].tolist() == [4, 5, 6]  # no penalty, no batch: no change
    assert model.layer.weight_rd[vocabulary.index['so']].tolist() != [1, 2, 3]
