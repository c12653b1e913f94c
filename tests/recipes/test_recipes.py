"Recipes: every table's trial run, kills and lost outcomes, and the published corpus from its file to a table."
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paranmt_lab.cli.commands import COMMANDS
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.comparison import published_figures
from paranmt_lab.evaluation.tables import joined_table, measured, measured_tables
from paranmt_lab.ground.fields import alter
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import DataWarning, settings
from paranmt_lab.neighbours.vectors import unit_rows
from paranmt_lab.recipes.encoders import SIZES, Recipe, model_trial, sts_by_year
from paranmt_lab.recipes.examples import EXAMPLES, negatives_by_size
from paranmt_lab.recipes.generation import APART, PAIRS
from paranmt_lab.recipes.outcomes import outcome_of, take
from paranmt_lab.recipes.reproduce import RECIPES, plan, recipe_of, reproduce, steps_of, table_rows
from paranmt_lab.recipes.rows import Measured, each_trial, last_development, over_seeds
from paranmt_lab.recipes.sources import PARAPHRASES, PUBLIC_FILE, SCORER, make_smoke, need_corpus, only_letters
from paranmt_lab.recipes.trials import NO_PAIRS
from paranmt_lab.selection import select


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    "A workspace with the corpus of trial runs, which has no evaluation sets but those of the sample."
    s = replace(settings(), workspace=tmp_path_factory.mktemp('workspace'), resources=Path('/nowhere'), device='cpu',
                workers=1)
    make_smoke('smoke', s)
    return s


# Their steps are those of other tables with other conditions
LIKE_OTHERS = {f'backtranslation.{n}' for n in (4, 5, 6, 7, 13)} | {'paranmt.4', 'paranmt-preprint.5'}
# Words and systems that the paper does not have
OTHER_SYSTEMS = {'paranmt-arxiv.12', 'paranmt-arxiv.15', 'backtranslation.3'}
MARKS = dict.fromkeys(LIKE_OTHERS, pytest.mark.soak)
NEEDS_LINK = pytest.mark.skipif(not shutil.which('link-parser'), reason="needs Debian's link-grammar")
MARKS |= {'paranmt.1': NEEDS_LINK, 'paranmt.11': NEEDS_LINK}
TRIALS = [pytest.param(table, marks=MARKS.get(table, ())) for table in RECIPES]


@pytest.mark.parametrize('table', TRIALS)
def test_a_trial_run_does_every_step_and_names_rows_of_the_paper(table, lab):
    figures = reproduce(table, 'smoke', lab, show=False)
    assert figures.attrs['finished'] and set(plan(table, 'smoke', lab).state) == {'done'}
    ours = table_rows(table, 'smoke', lab)
    assert len(ours) and (ours.config.str.contains('pairs of `smoke`') | ~ours.config.str.contains('pairs of')).all()
    if table.startswith('opusparcus') or table in OTHER_SYSTEMS: return
    if not (published_figures().run == table).any(): return  # the paper's figures of this table are not kept
    both = joined_table(table, lab.workspace / 'tables/smoke')
    names = set(both.system[both.paper.notna()]) & set(both.system[both.config != ''])
    assert names, 'no system is called as the paper calls it'


@pytest.mark.parametrize('table', measured_tables())
def test_a_stored_figure_has_its_n_and_a_command_that_exists(table):
    rows, root = measured(table), Path(__file__).parents[2]
    rows = rows[rows.value.notna()]
    of_many = ~rows.metric.isin(['cosine', 'rank'])  # these are of two sentences, and of a word
    assert rows.n[of_many].notna().all()
    for command in rows.command.unique():
        if command.startswith('git checkout '): continue  # of an earlier version
        program, *words = command.split()
        if program == 'python': assert (root / words[0]).is_file(), command
        else: assert program == 'paranmt' and {words[0], ' '.join(words[:2])} & set(COMMANDS), command


def test_printed_negatives_are_the_most_similar_sentences_of_other_segments(lab):
    corpus, encoder = Corpus.open('smoke', lab), open_model(SCORER, lab, 'Encoder')
    pairs = corpus.sample(60, columns=['segment', 'reference', 'translation'])
    texts = [*pairs.reference, *pairs.translation]
    vectors = unit_rows(encoder.encode(texts))
    segments = np.tile(pairs.segment, 2)
    rows = negatives_by_size(corpus, lab, SCORER, (1, 3), 20, 5)
    assert [row['M'] for row in rows] == [1, 3] * 5
    for row in rows:
        i = texts.index(row['sentence'])
        may = (segments != segments[i]) & (np.tile(np.arange(60), 2) < 20 * row['M'])
        assert row['cosine'] == pytest.approx((vectors @ vectors[i])[may].max(), abs=.006)


def test_texts_of_a_table_are_kept_in_the_workspace_alone(lab):
    shown = reproduce('paranmt.2', 'smoke', lab, show=False)
    kept = pd.read_csv(lab.workspace / 'tables/smoke/paranmt.2.csv')
    assert kept.reference.tolist() == shown.reference.tolist() and (kept.reference != kept.translation).all()
    assert not {*measured_tables()} & {*EXAMPLES}
    assert {*EXAMPLES} == {table for table in RECIPES if recipe_of(table, 'laptop').prints}


def test_a_stopped_table_of_texts_keeps_what_was_there(lab, monkeypatch):
    before = reproduce('paranmt.2', 'smoke', lab, show=False)
    monkeypatch.setattr('paranmt_lab.recipes.reproduce.do_steps', lambda *_: False)
    monkeypatch.setattr('paranmt_lab.recipes.reproduce.table_rows', lambda *_: pd.DataFrame())
    stopped = reproduce('paranmt.2', 'smoke', lab, show=False)
    assert not len(stopped) and not stopped.attrs['finished']
    assert len(pd.read_csv(lab.workspace / 'tables/smoke/paranmt.2.csv')) == len(before)


@pytest.mark.parametrize('table', RECIPES)
@pytest.mark.parametrize('scale', ['laptop', 'paper'])
def test_trainings_have_names_of_their_own_and_cells_too(table, scale):
    recipe = recipe_of(table, scale)
    cells = [json.dumps(trial.cell | dict(group=trial.group, choice=getattr(trial.selection, 'name', ''),
                                          steps=sorted(step.name for step in trial.steps().values())),
                        sort_keys=True) for trial in recipe.trials]
    assert len(set(cells)) == len(cells)
    names = [step.name for step in steps_of(recipe)]
    assert len(set(names)) == len(names) and recipe.reduced


def test_the_models_are_the_papers(lab):
    paper = published_figures().query("run == 'paranmt.8' and training == 'ParaNMT'")
    cells = {(trial.cell['system'], trial.cell['dim']) for trial in sts_by_year('paper').trials
             if trial.cell['training'] == 'ParaNMT'}
    assert cells == set(zip(paper.system, paper.dim))


def test_a_plan_counts_what_is_left(lab):
    s = replace(lab, workspace=lab.workspace / 'none')
    steps = plan('paranmt.8', 'laptop', s)
    assert set(steps.state) == {'to do'} and steps.hours.notna().all()
    assert any('wmt21-23' in file for file in steps.attrs['lacking'])
    with pytest.raises(FileNotFoundError, match='wmt21-23'): reproduce('paranmt.8', 'laptop', s, show=False)
    assert not (s.workspace / 'runs').exists()


def test_an_absent_model_ends_a_reproduction_before_its_trainings(lab, tmp_path):
    s = replace(lab, workspace=tmp_path)
    with pytest.raises(FileNotFoundError, match='no file of vectors.*glove'):
        reproduce('paranmt-arxiv.15', 'laptop', s, show=False)
    assert not s.corpora.exists() and not s.runs.exists()


def test_another_model_of_one_name_is_another_step():
    plain = model_trial('WORD', 300, 'laptop')
    names = {step.name for trial in (plain, replace(plain, config=alter(plain.config, margin=.5)),
                                     replace(plain, selection=SIZES['paper'].selection))
             for step in trial.steps().values()}
    assert len(names) == 9


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from paranmt_lab.ground.settings import DataWarning, settings
from paranmt_lab.recipes.reproduce import reproduce
s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path('/nowhere'), device='cpu', workers=int(sys.argv[2]))
reproduce('paranmt.6', 'smoke', s, show=False)
"""


def resumed(table, s):
    "Reproduce after a kill; the killed process's workers hold locks until they notice, a minute at most."
    for _ in range(60):
        try: return reproduce(table, 'smoke', s, show=False)
        except RuntimeError as e: assert 'another process is working' in str(e)
        time.sleep(1)
    raise TimeoutError('workers outlive their parent')


@pytest.mark.soak
@pytest.mark.parametrize('table', ['backtranslation.10', 'paranmt-arxiv.13'])
def test_steps_that_share_a_model_wait_for_each_other(table, lab, tmp_path):
    "Two processes need one classifier, or one lexicon: one makes it, and the other waits."
    shutil.copytree(lab.workspace / 'corpora', tmp_path / 'corpora')
    s = replace(lab, workspace=tmp_path, workers=2)
    assert reproduce(table, 'smoke', s, show=False).attrs['finished']


def test_killed_reproductions_resume(lab, tmp_path):
    s = replace(lab, workspace=tmp_path)
    for name in ('smoke', 'smoke-bitext'):
        shutil.copytree(lab.workspace / 'corpora' / name, tmp_path / 'corpora' / name)
    recipes = tmp_path / 'recipes'
    job = subprocess.Popen([sys.executable, '-c', KILLED, str(tmp_path), '2'], stderr=subprocess.DEVNULL)
    while job.poll() is None and len(list(recipes.glob('*.json'))) < 2: time.sleep(.05)
    job.send_signal(signal.SIGKILL)
    job.wait()
    done = {path.name: path.read_bytes() for path in recipes.glob('*.json')}
    figures = resumed('paranmt.6', s)
    assert figures.attrs['finished'] and figures.ours.notna().sum() == 9
    assert all((recipes / name).read_bytes() == text for name, text in done.items())  # none is made twice
    reproduce('paranmt.6', 'smoke', lab, show=False)  # without a kill
    pd.testing.assert_series_equal(table_rows('paranmt.6', 'smoke', lab).value,
                                   table_rows('paranmt.6', 'smoke', s).value)


def lines_of_the_published_form(n, s, rng):
    "Lines with a reference, a translation that shares more words the higher its score, and the score."
    words = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference.str.lower().str.findall(r'\w+')
    words = [text for text in words if len(text) > 3]
    for k in range(n):
        text, score = [*words[k % len(words)], f'w{k // len(words)}'], rng.uniform(-.1, 1)
        other = [word if rng.random() < score else 'something' for word in text]
        long = ['very'] * 30 if k % 50 == 0 else []  # more than 30 tokens
        yield f"{' '.join(text + long)}\t{' '.join(other)}\t{score:.4f}\n"


def test_from_the_published_corpus_to_sts(lab, tmp_path):
    s = replace(lab, workspace=tmp_path / 'workspace', resources=tmp_path)
    file = tmp_path / PUBLIC_FILE
    file.parent.mkdir(parents=True)
    file.write_text(''.join(lines_of_the_published_form(30_000, s, np.random.default_rng(0))))
    corpus = need_corpus('para-nmt-50m', s)
    assert corpus.rows == 30_000
    record = select(corpus, replace(SIZES['paper'].selection, name='check'))
    chosen = Corpus.open('para-nmt-50m', s).frame(['reference', 'paraphrase_score@published'])
    best = chosen.sort_values('paraphrase_score@published').tail(6_000)
    assert record['pairs'] == (best.reference.str.split().str.len() <= 30).sum() < 6_000
    trial = model_trial('WORD', 300, 'paper')
    trial = replace(trial, config=alter(trial.config, vectors='', dim=20, epochs=1))
    step = trial.steps()[0]
    facts = take(step, s)
    assert facts['pairs'] == record['pairs'] and outcome_of(step, s) == facts
    rows = over_seeds(Measured(trial, {0: facts}), lambda outcome: outcome['rows'])
    assert {row['system'] for row in rows} == {'WORD'} and 'chosen by `paper`' in rows[0]['config']


def test_a_training_without_figures_is_named_and_the_rest_goes_on(lab, monkeypatch, tmp_path):
    s = replace(lab, workspace=tmp_path)
    shutil.copytree(lab.workspace / 'corpora/smoke', tmp_path / 'corpora/smoke')
    good, bad = (replace(model_trial(name, 300, 'laptop').small(), cell=dict(system=name, megabatch=1))
                 for name in ('WORD', 'TRIGRAM'))
    bad = replace(bad, selection=replace(bad.selection, min_length=500))
    recipe = Recipe([bad, good], each_trial(last_development), reduced='all')
    monkeypatch.setattr('paranmt_lab.recipes.reproduce.recipe_of', lambda table, scale: recipe)
    figures = reproduce('paranmt.6', 'smoke', s, show=False)
    assert figures[figures.ours.notna()].system.tolist() == ['WORD'] and figures.attrs['finished']
    [(name, reason)] = figures.attrs['failures'].items()
    assert name.startswith('trigram-') and reason == NO_PAIRS


def test_figures_of_other_pairs_are_refused(lab, tmp_path):
    s = replace(lab, workspace=tmp_path)
    shutil.copytree(lab.workspace / 'corpora/smoke', tmp_path / 'corpora/smoke')
    step = model_trial('WORD', 300, 'laptop').small().steps()[0]
    take(step, s)
    file = tmp_path / 'corpora/smoke/pairs/part-00000.parquet'
    pairs = pd.read_parquet(file)
    shutil.rmtree(tmp_path / 'corpora/smoke')
    Corpus.create('smoke', s).write_pairs(0, pairs[:100].drop(columns='pair_id'))
    with pytest.raises(ValueError, match='other pairs than corpus .smoke. holds now; restore the corpus'): take(step, s)


def test_ctrl_c_stops_after_a_checkpoint_and_the_command_resumes(lab, tmp_path):
    shutil.copytree(lab.workspace / 'corpora', tmp_path / 'corpora')
    command = [sys.executable, '-m', 'paranmt_lab', 'results', 'reproduce', 'paranmt.6', '--scale', 'smoke']
    where = os.environ | dict(PARANMT_WORKSPACE=str(tmp_path), PARANMT_RESOURCES='/nowhere', PARANMT_WORKERS='1',
                              PARANMT_DEVICE='cpu')
    job = subprocess.Popen(command, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while job.poll() is None and not list((tmp_path / 'recipes').glob('*.json')): time.sleep(.02)
    job.send_signal(signal.SIGINT)
    text = job.communicate(timeout=120)[0]
    assert job.returncode == 130 and 'the same command resumes' in text, text
    done = subprocess.run(command, env=where, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and len(list((tmp_path / 'recipes').glob('*.json'))) == 6


def small_resources(folder):
    "Files of paraphrases with a few made-up pairs each; two files simplify the same sentences, in other tokens."
    place = folder / 'train/paraphrase'
    place.mkdir(parents=True)
    sides = lambda texts: dict(sentence1=texts, sentence2=[text.replace('was', 'is').upper() for text in texts])
    for file in PARAPHRASES[1:]:
        texts = [f'{file} number {k} was here .' for k in range(40)]
        if file in ('asset', 'turkcorpus'): texts = [f'the old house ( {k} ) was red .' for k in range(40)]
        if file == 'turkcorpus': texts = [text.replace('(', '-lrb-').replace(')', '-rrb-') for text in texts]
        segments = [f'{file} {k}' for k in range(40)]
        pd.DataFrame(sides(texts) | dict(segment=segments)).to_parquet(place / f'{file}.parquet')
    pd.DataFrame(dict(segment=['1'] * 2 + ['2'] * 2, source_lang='cs', source='?', reference='it was a good day .',
                      system=['A', 'B'] * 2, hypothesis=['it is a good day .', 'a good day it was .'] * 2)
                 ).to_parquet(place / 'wmt21-23.parquet')


def test_no_held_out_sentence_of_a_generator_is_trained_on(lab, tmp_path, monkeypatch):
    small_resources(tmp_path)
    s = replace(lab, workspace=tmp_path / 'workspace', resources=tmp_path)
    few = replace(PAIRS['canonical'], held_out=dict(news=1, captions=5, tatoeba=5, simplified=10))
    monkeypatch.setitem(PAIRS, 'canonical', few)
    monkeypatch.setattr('paranmt_lab.recipes.generation.LEAST', -1.)
    pairs = need_corpus('canonical', s).frame(['reference', 'translation', 'corpus'])
    apart = pairs.corpus.str.endswith(APART)
    letters = only_letters(pairs.reference)
    assert pairs.corpus[apart].nunique() == 4 and not set(letters[apart]) & set(letters[~apart])
    simplified = pairs[pairs.corpus == f'simplified{APART}']
    assert simplified.reference.str.contains('-lrb-').any() and simplified.reference.str.contains(r'\(').any()


def test_a_generator_of_other_pairs_is_another_run(lab, tmp_path):
    s = replace(lab, workspace=tmp_path)
    measure = recipe_of('paranmt.12', 'smoke').trials[0]
    for n in (240, 120):
        shutil.rmtree(tmp_path / 'corpora/smoke', ignore_errors=True)
        Corpus.create('smoke', s).write_pairs(0, Corpus.open('smoke', lab).frame(
            ['reference', 'translation', 'corpus', 'segment'])[:n])
        rows = measure.measure(Corpus.open('smoke', s), s, **measure.options)
        assert {row['system'] for row in rows} == {'canonicaliser', 'copy of the input'}
    assert len(list(s.runs.glob('generator-*'))) == 2


def test_fewer_clean_pairs_than_promised_are_reported(lab, tmp_path):
    small_resources(tmp_path)
    s = replace(lab, workspace=tmp_path / 'workspace', resources=tmp_path)
    with pytest.warns(DataWarning, match=r'more-0.4: \d+ clean pairs, expected 100,000'):
        corpus = need_corpus('more-0.4', s)
    clean = corpus.frame(['reference', 'translation']).pipe(lambda f: f.translation == f.reference.str.replace(
        'was', 'is').str.upper())
    assert .5 < clean.mean() < .7
