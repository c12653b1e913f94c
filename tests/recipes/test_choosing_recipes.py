"""Recipes of the tables that compare training pairs: names of trainings, cells of tables, and a trial run."""
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from paranmt_lab.evaluation.tables import joined_table, keep_measured
from paranmt_lab.ground.settings import safe_name, settings
from paranmt_lab.recipes.choosing import DIFFERENCE
from paranmt_lab.recipes.reproduce import RECIPES, plan, recipe_of, reproduce, table_rows
from paranmt_lab.recipes.rows import Measured
from paranmt_lab.recipes.sources import SOURCES
from paranmt_lab.recipes.trials import NO_PAIRS
from paranmt_lab.selection import Range

TABLES = [f'backtranslation.{n}' for n in (4, 5, 6, 7, 12, 13)] + ['paranmt.4', 'paranmt.5']


@pytest.fixture(scope='module')
def s(tmp_path_factory):
    "A workspace of its own, and no resources."
    return replace(settings(), workspace=tmp_path_factory.mktemp('workspace'), resources=Path('/nowhere'),
                   device='cpu', workers=1)


def made_up(seed):
    "An outcome of a training; the figures grow with the seed."
    rows = [dict(task='STS12', dataset='MSRpar', metric='pearson', value=.6 + seed / 100, n=750,
                 protocol='one data set', status='ok')]
    return dict(pairs=24_000, development=[70., 71. + seed], rows=rows)


@pytest.mark.parametrize('scale', ['laptop', 'paper'])
@pytest.mark.parametrize('table', TABLES)
def test_trials_have_names_of_their_own_and_corpora_that_can_be_made(table, scale):
    recipe = recipe_of(table, scale)
    names = Counter(step.name for trial in recipe.trials for step in trial.steps().values())
    assert [name for name, n in names.items() if n > 1] == []
    assert {trial.seeds for trial in recipe.trials} == {(0, 1, 2)}
    assert {trial.config.data.corpus for trial in recipe.trials} <= set(SOURCES) - {'smoke'}
    assert all(safe_name(trial.selection.name) for trial in recipe.trials)
    assert not recipe.keeps and recipe.reduced


@pytest.mark.parametrize('table', TABLES)
def test_cells_join_with_the_published_table(table, tmp_path):
    recipe = recipe_of(table, 'laptop')
    every = [Measured(trial, {seed: made_up(seed) for seed in trial.seeds}) for trial in recipe.trials]
    rows = pd.DataFrame(recipe.rows(every))
    keep_measured(table, rows, tmp_path)
    joined = joined_table(table, tmp_path)
    assert (joined.ours.notna() & joined.paper.notna()).any()
    assert len(rows) == joined.ours.notna().sum()
    differences = rows[rows.metric == DIFFERENCE]
    assert differences.value.tolist() == pytest.approx([0] * len(differences))
    of_bounds = table in ('backtranslation.5', 'backtranslation.6', 'backtranslation.7', 'backtranslation.12')
    assert len(differences) == of_bounds * (len(rows) - 2) / 2  # all but random pairs, by AVG and GRAN


def test_development_chooses_the_bounds_of_each_encoder():
    recipe = recipe_of('backtranslation.6', 'laptop')
    def outcome(trial):
        best = {'AVG': 'translation_length-0-10', 'GRAN': 'translation_length-10-20'}[trial.cell['system']]
        return made_up(0) | dict(development=[90. if trial.selection.name == best else 70.])
    rows = pd.DataFrame(recipe.rows([Measured(trial, {0: outcome(trial)}) for trial in recipe.trials]))
    tuned = rows[(rows.dataset == 'length') & (rows.metric == 'pearson')].set_index('system')
    assert 'translation_length-0-10`' in tuned.config.AVG and 'translation_length-10-20`' in tuned.config.GRAN
    assert tuned.protocol.str.contains('chosen by development').all()


def test_absent_files_are_named(s):
    lacking = plan('backtranslation.7', 'laptop', s).attrs['lacking']
    assert set(lacking) == {'train/bitext/cs-en.parquet', 'train/vectors/glove-6b-100d-60k.txt.gz',
                            'eval/sts17/en-en.tsv'}
    assert 'train/vectors/glove.6B.300d.txt' in plan('backtranslation.5', 'paper', s).attrs['lacking']


@pytest.mark.parametrize('table', ['backtranslation.6', 'backtranslation.12'])
def test_a_trial_run_takes_the_first_bounds_of_each_group(table):
    groups = Counter(trial.group for trial in recipe_of(table, 'smoke').trials if trial.group)
    assert set(groups.values()) == {2}


def test_bounds_that_leave_no_pair_have_no_row(s, monkeypatch):
    "No translation of the sample has 900 tokens, whatever a processor makes of it."
    recipe = recipe_of('backtranslation.5', 'laptop')
    trials = {trial.cell['dataset']: trial for trial in recipe.trials if trial.cell['system'] == 'AVG'}
    without = trials['30-100']
    choice = replace(without.selection, ranges=(Range('translation_length', 900, 1_000, closed=True),))
    trials['30-100'] = replace(without, selection=choice)
    monkeypatch.setitem(RECIPES, 'backtranslation.5', lambda scale: replace(recipe, trials=list(trials.values())))
    [small] = [t for t in recipe_of('backtranslation.5', 'smoke').trials if t.cell['dataset'] == '30-100']
    [step] = small.steps(keeps=False).values()
    assert step.make(s)['status'] == NO_PAIRS
    assert reproduce('backtranslation.5', 'smoke', s, show=False).attrs['finished']
    sets = set(table_rows('backtranslation.5', 'smoke', s).dataset)
    assert sets and '30-100' not in sets
