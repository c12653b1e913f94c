"""Tasks of sentences in two languages: absent files say so, and retrieval is a nearest neighbour."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paranmt_lab.evaluation.crosslingual import TRACKS, retrieved
from paranmt_lab.evaluation.pending import fetch_command
from paranmt_lab.evaluation.tasks import Baseline, choose_tasks, evaluate
from paranmt_lab.ground.settings import settings


@pytest.fixture
def lab(tmp_path):
    return replace(settings(), workspace=tmp_path / 'lab', resources=tmp_path / 'resources')


def letters(sentences):
    "Counts of small letters: an encoder that knows no language."
    return np.array([[text.lower().count(chr(c)) for c in range(97, 123)] for text in sentences], float)


def cosines(first, second):
    a, b = letters(first), letters(second)
    return (a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-12)


SYSTEM = Baseline(cosines, letters)


def test_absent_data_are_not_available_and_the_command_fetches_them(lab):
    rows = evaluate(SYSTEM, s=lab, suites=['cross-lingual'])
    assert set(rows.status) == {'not available'} and rows.value.isna().all()
    assert set(rows.dataset) == {*TRACKS, ''}
    assert fetch_command('STS17 cross-lingual') == "paranmt workspace fetch sts --only '2017*' --yes"
    assert fetch_command('translation retrieval') == 'paranmt workspace fetch tatoeba --yes'


def test_a_track_that_is_there_is_measured(lab):
    path = lab.resources / 'eval/sts17/es-en-WMT.tsv'
    path.parent.mkdir(parents=True)
    path.write_text('sentence1\tsentence2\tscore\nLlueve.\tIt rains.\t4\nMadrid\tMadrid\t5\nSol\tRain\t0\n')
    rows = evaluate(SYSTEM, ['STS17 cross-lingual'], s=lab).set_index(['dataset', 'metric']).sort_index()
    assert rows.status['es-en-WMT', 'spearman'] == 'ok' and rows.n['es-en-WMT', 'pearson'] == 3
    assert (rows.drop('es-en-WMT').status == 'not available').all()


def test_the_default_tasks_and_the_suite_sts_are_the_same_as_before():
    for tasks in (choose_tasks(), choose_tasks(suites=['sts'])):
        assert not any(task.group == 'cross-lingual' for task in tasks)


def test_retrieval_is_the_nearest_neighbour():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 8))
    second = first[rng.permutation(40)] * rng.uniform(.5, 2, (40, 1))
    slow = [max(range(40), key=lambda j: first[i] @ second[j] / np.linalg.norm(second[j])) == i for i in range(40)]
    assert retrieved(first, second).tolist() == slow and retrieved(first, 3 * first).all()


def test_pairs_are_of_tatoeba_and_each_sentence_comes_once(lab):
    path = lab.resources / 'train/bitext/xx-en.parquet'
    path.parent.mkdir(parents=True)
    rows = [('aab', 'aab', 'tatoeba-test'), ('aab', 'zzz', 'tatoeba-test'), ('qqx', 'aab', 'tatoeba-test'),
            ('ccd', 'ccd', 'tatoeba'), ('eef', 'eef', 'news')]
    pd.DataFrame(rows, columns=['source', 'reference', 'corpus']).astype({'corpus': 'category'}).to_parquet(path)
    found = evaluate(SYSTEM, ['translation retrieval'], s=lab)
    assert found.dataset.tolist() == ['xx-en from the source', 'xx-en from English'] and set(found.n) == {2}
    assert (found.value == 1).all() and (found.low < 1).all()
