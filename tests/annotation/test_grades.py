"The rule of Opusparcus against a slow definition, and its figures from a campaign."
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from command import paranmt
from paranmt_lab.annotation.adjudication import disputes
from paranmt_lab.annotation.answers import discard, submit
from paranmt_lab.annotation.campaigns import Campaign, keep_campaign
from paranmt_lab.annotation.grades import campaign_answers, campaign_grades, discard_types, grade_rows, graded_pairs
from paranmt_lab.annotation.queue import next_item
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.annotation.table3 import labels_of
from paranmt_lab.annotation.turn import REASONS
from paranmt_lab.evaluation.comparison import published
from paranmt_lab.evaluation.results import results_frame

COLUMNS = ['item', 'annotator', 'state', 'grade', 'reason']
MARKS = st.one_of(st.integers(1, 4), st.sampled_from(REASONS))


def answers_of(grid):
    rows = [(i, f'p{k}', 'rated', mark, None) if isinstance(mark, int) else (i, f'p{k}', 'discarded', None, mark)
            for i, marks in enumerate(grid) for k, mark in enumerate(marks)]
    return pd.DataFrame(rows, columns=COLUMNS)


def outcome_of(marks):
    if any(isinstance(mark, str) for mark in marks): return 'discarded'
    if len(marks) < 2: return 'unfinished'
    return 'kept' if max(marks) - min(marks) <= 1 else 'apart'


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(MARKS, min_size=1, max_size=2), min_size=1, max_size=12))
def test_the_rule_is_the_slow_one(grid):
    pairs = graded_pairs(answers_of(grid))
    assert pairs.outcome.tolist() == [outcome_of(marks) for marks in grid]
    kept = [sum(marks) / 2 for marks in grid if outcome_of(marks) == 'kept']
    assert pairs.score.dropna().tolist() == kept and all(score * 2 % 1 == 0 for score in kept)
    thrown = [next(m for m in marks if isinstance(m, str)) for marks in grid if outcome_of(marks) == 'discarded']
    types = discard_types(answers_of(grid))
    assert types.sum() == len(thrown) and types['OCR error'] == thrown.count('OCR')
    assert types['not grammatical'] == thrown.count('not a sentence') + thrown.count('bad segmentation')


def test_the_figures_are_those_of_the_published_table():
    "Answers that have the counts of the English column give its shares."
    english = published('opusparcus.1').query("dataset == 'en'")
    reasons = dict(zip(('not a sentence', 'OCR', 'wrong language'), english.n))
    grid = [[reason] for reason, n in reasons.items() for _ in range(n)] + [['OCR']] * 14
    rows = results_frame(grade_rows(answers_of(grid), 'en', range(105, 119)))
    ours = rows.iloc[:4]
    assert ours.metric.tolist() == english.metric.tolist() and ours.n.tolist() == english.n.tolist()
    np.testing.assert_allclose(ours.value, english.value, atol=.006)
    assert rows.iloc[4].metric == 'trash rate' and rows.iloc[4].value == 1


def test_without_an_answer_nothing_is_defined():
    rows = results_frame(grade_rows(pd.DataFrame(columns=COLUMNS), 'empty'))
    assert rows.value.isna().all() and set(rows.status) == {
        'undefined: no pair is discarded', 'undefined: no pair is judged'}


def test_a_campaign_and_its_command(tmp_path):
    log = EventLog(f'sqlite:///{tmp_path}/annotations.sqlite')
    texts = [(f'Tram {k} is late.', f'Tram {k} came.') for k in range(3)]
    items = pd.DataFrame(texts, columns=['reference', 'translation']).assign(stratum='all', weight=1.)
    keep_campaign(log, Campaign('talk', repeats=.4, gap=0), items)
    for who, marks in dict(ada=(1, 2, 3), ben=(3, 3, 'OCR')).items():
        while item := getattr(next_item(log, 'talk', who), 'item', None):
            mark = marks[(item - 1) % 3]
            if isinstance(mark, str): discard(log, 'talk', who, item, mark)
            else: submit(log, 'talk', who, item, mark, 3, f'{who}{item}')
    assert campaign_answers(log, 'talk')['item'].tolist() == [1, 1, 2, 2, 3, 3]  # no repeated item
    pairs, rows = campaign_grades(log, 'talk')
    assert pairs.outcome.tolist() == ['apart', 'kept', 'discarded'] and pairs.score.dropna().tolist() == [2.5]
    assert next(row for row in rows if row['metric'] == 'trash rate')['value'] == pytest.approx(1 / 3)
    done = paranmt('annotate status talk --opusparcus', PARANMT_WORKSPACE=str(tmp_path), COLUMNS='200')
    assert 'trash rate' in done.stdout and 'opusparcus.1' in done.stdout, done.stdout + done.stderr
    plain = paranmt('annotate status talk', PARANMT_WORKSPACE=str(tmp_path), COLUMNS='200')
    assert 'opusparcus' not in plain.stdout
    assert paranmt('annotate status --opusparcus', PARANMT_WORKSPACE=str(tmp_path)).returncode == 2


def test_four_grades_survive_a_file(tmp_path):
    "A campaign of Opusparcus by its commands: status, the figures as Markdown, an export, and its import."
    log = EventLog(f'sqlite:///{tmp_path}/annotations.sqlite')
    items = pd.DataFrame(dict(reference=['It rains.', 'We left.', 'Come in.'], translation=['Rain.', 'We go.', 'Ho!']))
    keep_campaign(log, Campaign('four', scheme='opusparcus'), items.assign(stratum='all', weight=1.))
    for who, marks in dict(ada=(4, 4, 4), ben=(4, 3, 1)).items():
        for k, mark in enumerate(marks):
            submit(log, 'four', who, next_item(log, 'four', who).item, mark, None, f'{who}{k}')
    run = lambda line: paranmt(f'annotate {line}', PARANMT_WORKSPACE=str(tmp_path), COLUMNS='200')
    assert disputes(log, 'four')['item'].tolist() == [3]
    status = run('status four')
    assert 'trash rate' in status.stdout and 'strength 3' not in status.stdout, status.stdout + status.stderr
    figures, answers = tmp_path / 'four.md', tmp_path / 'four.csv'
    for file in (figures, answers): assert run(f'export four {file}').returncode == 0
    assert '| 2 | 1 | 0 | 0 | 3.75 |' in figures.read_text()
    refused = run(f'import {answers} three')
    assert refused.returncode == 1 and "strength '4': expected 1, 2 or 3" in refused.stderr.replace('\n', ' ')
    assert run(f'import {answers} again --scheme opusparcus').returncode == 0
    assert campaign_grades(log, 'again')[0].equals(campaign_grades(log, 'four')[0])
    with pytest.raises(ValueError, match='needs a campaign of the scheme paranmt'): labels_of(log, ['four'])
