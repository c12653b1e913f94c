"Sweeps: grids of configs, their table, means over seeds, and the command."
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.fields import flat
from paranmt_lab.ground.settings import settings
from paranmt_lab.selection import Selection, select
from paranmt_lab.training.config import train_config
from paranmt_lab.training.sweep import grid, interval, over_seeds


def test_a_grid_is_every_combination_and_no_name_twice():
    base = train_config('g', 'pairs')
    configs = grid(base, dict(model=['WORD', 'WORD+TRIGRAM', 'WORD,TRIGRAM'], margin=[.2, .4], seed=[1, 2]))
    combinations = {(v['model'], v['margin'], v['seed']) for v in map(flat, configs)}
    assert len(configs) == len(combinations) == len({c.run.name for c in configs}) == 12
    assert grid(base, {})[0].run.name == 'g'
    with pytest.raises(ValueError, match='margin'): grid(base, dict(margin=[3.]))  # a field refuses its value
    with pytest.raises(ValueError, match='seed: no value'): grid(base, dict(seed=[]))


def test_an_interval_is_students():
    from scipy import stats
    values = np.random.default_rng(0).normal(70, 1, 5)
    mean, low, high = interval(values)
    expected = stats.t.interval(.95, 4, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose([mean, low, high], [values.mean(), *expected])
    assert np.isnan(interval([70.])[1]) and np.isnan(interval([])[0])
    assert interval([70., np.nan, 72.])[0] == 71


def test_means_over_seeds_leave_out_what_is_not_there():
    table = pd.DataFrame(dict(run=list('abcdef'), model=['W', 'W', 'W', 'T', 'T', 'T'], seed=[1, 2, 3] * 2,
                              status=['finished'] * 4 + ['waiting'] * 2,
                              best=[70., 71, 72, 60, np.nan, np.nan], **{'STS 2012': np.nan}))
    means = over_seeds(table).set_index('model')
    assert means.seeds.to_dict() == dict(W=3, T=1) and means.best.to_dict() == dict(W=71, T=60)
    assert means['best low'].isna().to_dict() == dict(W=False, T=True) and 'STS 2012' not in means


@pytest.fixture
def workspace(tmp_path):
    s = replace(settings(), workspace=tmp_path)
    corpus = Corpus.create('pairs', s)
    things = [f'{a} {b} {c}' for a in ('red', 'green', 'old', 'new') for b in ('tall', 'wide', 'small')
              for c in ('house', 'car', 'tree', 'bird', 'boat')]
    corpus.write_pairs(0, dict(reference=[f'We saw a {x}.' for x in things],
                               translation=[f'There was one {x}, we noticed.' for x in things]))
    for name, n in (('many', 0), ('few', 20)): select(corpus, Selection(name, n=n))
    return tmp_path


def variables(workspace):
    return dict(PARANMT_WORKSPACE=str(workspace), PARANMT_RESOURCES='/nowhere', COLUMNS='250')


def run_command(workspace, line): return paranmt(line, **variables(workspace))


def start(workspace, line):
    environment = os.environ | variables(workspace)
    return subprocess.Popen([sys.executable, '-m', 'paranmt_lab', *shlex.split(line)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


LINE = ('train pairs s --vary selection=many,few --vary seed=1,2 --dim 20 --batch-size 10 --epochs 2 --megabatch 1 '
        '--set probes=0')


def test_the_command_trains_every_run_and_shows_the_means(workspace):
    done = run_command(workspace, LINE)
    assert done.returncode == 0, done.stderr
    table = pd.read_parquet(workspace / 'sweeps/s.parquet')
    assert table.status.eq('finished').all() and table.selection.tolist() == ['many', 'many', 'few', 'few']
    assert table.pairs.tolist() == [60, 60, 20, 20]
    assert {p.name for p in (workspace / 'runs').iterdir() if p.is_dir()} == set(table.run)
    assert 'Means over seeds' in done.stdout
    marks = {p: p.stat().st_mtime_ns for p in (workspace / 'runs').rglob('*.safetensors')}
    assert marks and run_command(workspace, LINE).returncode == 0  # given again, it trains nothing
    assert {p: p.stat().st_mtime_ns for p in (workspace / 'runs').rglob('*.safetensors')} == marks


def test_a_stopped_sweep_says_so_and_goes_on(workspace):
    line = LINE.replace('--epochs 2', '--epochs 3000')
    process = start(workspace, line)
    progress = workspace / 'runs/s-selection-many-seed-1/metrics.jsonl'
    end = time.time() + 120
    while not progress.exists() and time.time() < end and process.poll() is None: time.sleep(.2)
    process.send_signal(signal.SIGINT)
    said, wrong = process.communicate(timeout=120)
    assert process.returncode == 130 and '4 of 4 runs are not finished: the same command resumes' in said, wrong
    assert not (workspace / 'runs/s-selection-many-seed-2').exists()


@pytest.mark.parametrize('words, why', [('--vary seed=one', 'expected int'), ('--vary seed=1.5', 'seed'),
                                        ('--vary margin=big', 'margin'), ('--vary flagged=perhaps', 'flagged'),
                                        ('--vary name=x', 'is an argument'), ('--vary seeds=1', "no field 'seeds'"),
                                        ('--vary seed', 'FIELD=VALUE'), ('--vary seed=1,1', 'one name'),
                                        ('--vary seed=1 --seed 2', 'given as an option')])
def test_a_wrong_sweep_is_refused_before_it_begins(workspace, words, why):
    done = run_command(workspace, f'train pairs s {words}')
    assert done.returncode in (1, 2) and why in ' '.join(done.stderr.split()), done.stderr
    assert not (workspace / 'runs').exists()
