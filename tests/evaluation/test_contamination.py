"""Test pairs in training sets: odd texts against the definition, searches that stop, records that go stale."""
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation import contamination
from paranmt_lab.evaluation.comparison import compare_results, side_by_side
from paranmt_lab.evaluation.contamination import (
    NOT_CHECKED,
    all_test_pairs,
    check_contamination,
    clean_figures,
    clean_rows,
    contaminated,
    contamination_badge,
    find_overlap,
    read_contamination,
)
from paranmt_lab.evaluation.graded import token_overlap
from paranmt_lab.evaluation.overlap import look_up, overlap_index
from paranmt_lab.evaluation.results import MEAN, merge_results, results_frame
from paranmt_lab.ground.settings import settings
from paranmt_lab.jobs.run import Run
from paranmt_lab.selection import Selection, select, selected_batches
from references import references

SLOW = references('evaluation.overlap')
TEXT = st.text('aAbé .,!?_1\u0301東İß\u2028', max_size=14)


@hypothesis_settings(deadline=None, max_examples=150)
@given(st.lists(TEXT, max_size=6), st.lists(st.none() | TEXT, max_size=6), st.sampled_from([.2, .5, .8, 1.]))
def test_the_index_finds_what_the_definition_says(tests, texts, threshold):
    found = look_up(overlap_index(tests), texts, threshold)
    expected = {(i, j): SLOW.jaccard_slowly(a, b) for i, a in enumerate(texts) if a and SLOW.plain_slowly(a)
                for j, b in enumerate(tests) if SLOW.jaccard_slowly(a, b) >= threshold}
    assert dict(zip(zip(found.row, found.sentence), found.jaccard)) == pytest.approx(expected)


@pytest.fixture
def lab(tmp_path):
    "Two test sets of our own sentences, and a corpus of three shards that holds some of them."
    s = replace(settings(), workspace=tmp_path / 'lab', resources=tmp_path)
    sample = pd.read_csv(s.sample / 'graded.tsv', sep='\t', quoting=3)
    for place, rows in (('sts17/en-en', sample[:60]), ('sick/trial', sample[60:100])):
        path = tmp_path / f'eval/{place}.tsv'
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_csv(path, sep='\t', index=False, quoting=3)
    corpus = Corpus.create('talk', s)
    for shard in range(3):
        seen = sample[10 * shard:10 * shard + 4]
        corpus.write_pairs(shard, pd.DataFrame(dict(reference=[f'{text}!!' for text in seen.sentence1],
                                                    translation=['It is something else.'] * 4)))
    return s, corpus


def test_a_search_that_was_stopped_goes_on_with_the_next_shard(lab, monkeypatch):
    s, corpus = lab
    calls, search = [], contamination._of_batch
    def stops(index, batch, threshold):
        calls.append(len(batch))
        if len(calls) == 2: raise KeyboardInterrupt
        return search(index, batch, threshold)
    monkeypatch.setattr(contamination, '_of_batch', stops)
    with pytest.raises(KeyboardInterrupt): check_contamination(corpus, s, show=False)
    assert read_contamination(corpus, s) is None
    whole = check_contamination(corpus, s, show=False)
    assert len(calls) == 4  # the first shard is not searched again
    monkeypatch.undo()
    pd.testing.assert_frame_equal(whole, find_overlap(selected_batches(corpus), all_test_pairs(s)))
    assert contaminated(whole).sum() >= 12 and whole.exact1.sum() >= 12


def test_a_record_is_void_once_pairs_selection_or_tests_change(lab):
    s, corpus = lab
    run = Run.create(s.runs, 'first', dict(name='first', corpus='talk', selection=''))
    assert contamination_badge(run, s) == NOT_CHECKED
    check_contamination(corpus, s, show=False)
    assert 'of 100 test pairs' in contamination_badge(run, s)
    assert read_contamination(corpus, s, '') is not None
    corpus.write_pairs(3, pd.DataFrame(dict(reference=['It rains.'], translation=['Rain falls.'])))
    corpus = Corpus.open('talk', s)
    assert read_contamination(corpus, s) is None and contamination_badge(run, s) == NOT_CHECKED
    (s.resources / 'eval/sick/trial.tsv').unlink()
    assert len(check_contamination(corpus, s, show=False)) == 60


def test_a_selection_is_searched_alone(lab):
    s, corpus = lab
    select(corpus, Selection('few', n=1, seed=0))
    few, every = (check_contamination(corpus, s, name, show=False) for name in ('few', ''))
    assert 0 < contaminated(few).sum() < contaminated(every).sum()
    assert read_contamination(corpus, s, 'few').equals(few) and read_contamination(corpus, s).equals(every)


def test_figures_without_contaminated_pairs_are_those_of_the_rest(lab):
    s, corpus = lab
    overlap = check_contamination(corpus, s, show=False)
    rows = results_frame(clean_figures(token_overlap, overlap, s)).query("metric == 'pearson'")
    left = {task: sum(~contaminated(part)) for task, part in overlap.groupby('task')}
    clean = rows[rows.protocol == contamination.WITHOUT_SEEN]
    assert dict(zip(clean.task, clean.n)) == {task: left[task] for task in clean.task}
    assert clean_figures(token_overlap, overlap[~contaminated(overlap)], s) == []


def test_a_run_keeps_figures_without_contaminated_pairs_as_tasks_of_their_own(tmp_path):
    "A task of two sets, one of them contaminated: both are measured, and their mean; nothing else is replaced."
    s = replace(settings(), workspace=tmp_path / 'lab', resources=tmp_path)
    sample = pd.read_csv(s.sample / 'graded.tsv', sep='\t', quoting=3)
    for name, rows in (('images', sample[:50]), ('headlines', sample[50:100])):
        path = tmp_path / f'eval/sts/2014/{name}.tsv'
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_csv(path, sep='\t', index=False, quoting=3)
    training = pd.DataFrame(dict(reference=sample.sentence1[:5], translation='It is something else.'))
    overlap = find_overlap([pa.Table.from_pandas(training)], all_test_pairs(s))
    rows = results_frame(clean_rows(token_overlap, overlap, s, 'talk')).query("metric == 'pearson'")
    n, value = (dict(zip(rows.dataset, rows[column])) for column in ('n', 'value'))
    assert set(rows.task) == {'STS14 clean'} and n['images'] < 50 == n['headlines']
    assert n[MEAN] == n['images'] + 50 and value[MEAN] == pytest.approx((value['images'] + value['headlines']) / 2)
    before = results_frame([dict(task='STS14', dataset='images', metric='pearson', value=.5, n=50)])
    merged = merge_results(before, rows)
    assert len(merged) == 4 and merged.task.tolist().count('STS14') == 1
    assert 'STS14 clean mean' in side_by_side(compare_results({'overlap': merged}))


def test_the_command_knows_its_systems_before_it_searches(lab):
    s, corpus = lab
    places = dict(PARANMT_WORKSPACE=str(s.workspace), PARANMT_RESOURCES=str(s.resources), COLUMNS='150')
    wrong = paranmt('results contamination talk token-overlp', **places)
    assert wrong.returncode == 1 and 'the baselines are token-overlap' in wrong.stderr
    assert read_contamination(corpus, s) is None
    done = paranmt('results contamination talk token-overlap', **places)
    assert done.returncode == 0 and 'of 100 test pairs in 2 sets' in done.stdout
    assert 'without contaminated pairs' in done.stdout and read_contamination(corpus, s) is not None
