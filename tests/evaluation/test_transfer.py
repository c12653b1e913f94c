"""Transfer tasks: the fast regressions beside scikit-learn's, folds that do not leak, real and damaged files."""
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from paranmt_lab.evaluation.results import read_results
from paranmt_lab.evaluation.sts import sts_sets
from paranmt_lab.evaluation.tasks import TASKS, Baseline, evaluate
from paranmt_lab.evaluation.transfer import (
    TRANSFER,
    TransferFileError,
    choices,
    fit_regressions,
    measure_transfer,
    predict_transfer,
    predictions,
    principal_axes,
    read_examples,
    stratified_folds,
    targets,
    usable_files,
    wilson,
)
from paranmt_lab.ground.settings import settings

REAL = settings().resources / 'eval'
SIZES = {'MR': 10662, 'CR': 3775, 'SUBJ': 10000, 'MPQA': 10606}


def cloud(n, d, k, seed=0):
    "Points of k classes that overlap, on very different scales."
    rng = np.random.default_rng(seed)
    label_n = rng.integers(0, k, n)
    return (rng.normal(size=(n, d)) + rng.normal(size=(k, d))[label_n]) * np.geomspace(.05, 5, d), label_n


@pytest.mark.parametrize('k', [2, 4])
def test_regressions_are_those_of_scikit_learn(k):
    linear = pytest.importorskip('sklearn.linear_model')
    x_nd, label_n = cloud(400, 12, k)
    rng = np.random.default_rng(1)
    grid = np.array([.25, 2, 32])
    mask_nf = np.column_stack([rng.random(400) < share for share in (1, .9, .5)])
    logits_nfk = fit_regressions(principal_axes(x_nd), targets(label_n), mask_nf, grid, 1e-5)
    usual_nfk = fit_regressions(principal_axes(x_nd), targets(label_n), mask_nf, grid)
    for f, c in enumerate(grid):
        rows = mask_nf[:, f]
        slow = linear.LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x_nd[rows], label_n[rows])
        expected = slow.decision_function(x_nd)
        found = logits_nfk[:, f, 0] if k == 2 else logits_nfk[:, f] - logits_nfk[:, f].mean(1, keepdims=True)
        if k > 2: expected = expected - expected.mean(1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=.02 * np.abs(expected).max())
        assert (predictions(usual_nfk[:, f]) == slow.predict(x_nd)).mean() > .995


def test_features_without_any_variance_and_classes_without_overlap():
    x_nd = np.zeros((40, 3), np.float32)
    x_nd[20:, 0] = 100
    label_n = np.repeat([0, 1], 20)
    logits = fit_regressions(principal_axes(x_nd), targets(label_n), np.ones((40, 2), bool), np.array([.25, 8.]))
    assert np.isfinite(logits).all() and (predictions(logits[:, 1]) == label_n).all()


@hypothesis_settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=20, max_size=90), st.integers(0, 9))
def test_folds_are_stratified_and_choices_do_not_leak(labels, seed):
    label_n = np.array(labels)
    fold_n = stratified_folds(label_n, 10, seed)
    for c in np.unique(label_n): assert np.ptp(np.bincount(fold_n[label_n == c], minlength=10)) <= 1
    tested = np.zeros(len(labels), int)
    for choice in choices(label_n, np.zeros(len(labels), int), seed):
        assert not (choice.final_n & choice.tests_n).any() and not choice.trains_np[choice.tests_n].any()
        assert not (choice.trains_np & choice.validates_np).any() and not choice.validates_np[choice.tests_n].any()
        tested += choice.tests_n
    assert (tested == 1).all()


def test_labels_that_are_shuffled_cannot_be_predicted(tmp_path):
    rng = np.random.default_rng(0)
    vectors = {f'text {i}': rng.normal(size=8) for i in range(300)}
    folder = tmp_path / 'eval/senteval/cr'
    folder.mkdir(parents=True)
    lines = [f'{text}\t{rng.integers(0, 2)}' for text in vectors]
    (folder / 'cr.tsv').write_text('\n'.join(['text\tlabel', *lines]))
    [row] = measure_transfer(lambda texts: [vectors[t] for t in texts], tmp_path, 'CR')
    assert .4 < row['value'] < .6 and row['low'] < row['value'] < row['high'] and row['n'] == 300


def test_wilson_covers():
    rng, n, p = np.random.default_rng(0), 200, .87
    ends = np.array([wilson(k, n) for k in rng.binomial(n, p, 4000)])
    assert .93 < ((ends[:, 0] <= p) & (p <= ends[:, 1])).mean() < .97
    assert wilson(5, 5)[1] == pytest.approx(1) and wilson(0, 5)[0] == pytest.approx(0)


def test_a_grade_is_a_distribution_and_comes_back():
    grades = np.array([1, 1.3, 2.5, 4.9, 5])
    y_nk = targets(grades, ordinal=True)
    np.testing.assert_allclose(y_nk.sum(1), 1)
    np.testing.assert_allclose(y_nk @ np.arange(1, 6), grades)


@pytest.mark.parametrize('content, message', [
    (b'text\n', 'mr.tsv:1: no column label'),
    (b'text\tlabel\nx\t1\ny\n', 'mr.tsv:3: 1 fields, the header has 2'),
    (b'text\tlabel\n\xff\t1\n', 'mr.tsv: not UTF-8'),
    (b'', 'mr.tsv:1: no column text, label'),
])
def test_a_damaged_file_is_named(tmp_path, content, message):
    (tmp_path / 'mr.tsv').write_bytes(content)
    with pytest.raises(TransferFileError, match=message): read_examples(tmp_path / 'mr.tsv', ['text', 'label'])


def test_the_tasks_are_rows_of_the_table(tmp_path):
    s = replace(settings(), resources=tmp_path)
    rows = evaluate(Baseline(encode=lambda texts: np.zeros((len(texts), 2))), list(TRANSFER), s=s)
    assert set(rows.status) == {'not available'} and set(rows.task) == set(TRANSFER)
    assert {TASKS[name].group for name in TRANSFER} == {'transfer'}
    lacking = evaluate(Baseline(similarity_pairwise=len), ['MR'], s=s)
    assert lacking.status[0] == 'not possible: the system has no encode'


@pytest.mark.skipif(not REAL.exists(), reason='the evaluation sets are not here')
def test_real_files_are_read():
    for name, task in TRANSFER.items():
        files = usable_files(task, REAL)
        if name in SIZES: assert len(read_examples(REAL / files[0], ['text', 'label'])) == SIZES[name]
    assert (read_examples(REAL / TRANSFER['CR'].files[0], ['text']).text == '').any()


@pytest.mark.soak
@pytest.mark.skipif(not REAL.exists(), reason='the evaluation sets are not here')
@pytest.mark.parametrize('name', ['CR', 'TREC'])
def test_a_task_is_that_of_scikit_learn(name):
    "The whole procedure on real data, fold by fold, with scikit-learn's regression in the place of ours."
    linear = pytest.importorskip('sklearn.linear_model')
    from paranmt_lab.evaluation import transfer
    rng = np.random.default_rng(0)
    hashed = {}
    def encode(texts):
        for t in texts:
            for w in t.split(): hashed.setdefault(w, rng.normal(size=20))
        return np.array([np.mean([hashed[w] for w in t.split()] or [np.zeros(20)], 0) for t in texts])
    files = usable_files(TRANSFER[name], REAL)
    fast = predict_transfer(encode, TRANSFER[name], files, REAL)
    def slowly(axes, y_nk, mask_nf, c_f, tolerance=None):
        label_n = y_nk[:, 0] if y_nk.shape[1] == 1 else y_nk.argmax(1)
        fits = [linear.LogisticRegression(C=c, tol=1e-6, max_iter=2000).fit(axes.z_nd[m].numpy(), label_n[m])
                for m, c in zip(mask_nf.T, c_f)]
        return np.stack([f.decision_function(axes.z_nd.numpy()).reshape(len(mask_nf), -1) for f in fits], 1)
    original, transfer.fit_regressions = transfer.fit_regressions, slowly
    try: slow = predict_transfer(encode, TRANSFER[name], files, REAL)
    finally: transfer.fit_regressions = original
    assert (fast.predicted_n == slow.predicted_n).mean() > .995
    assert abs((fast.predicted_n == fast.truth_n).mean() - (slow.predicted_n == slow.truth_n).mean()) < .003


def test_the_command_measures_what_is_pending(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from paranmt_lab.cli.main import app
    folder = tmp_path / 'resources/eval/senteval/cr'
    folder.mkdir(parents=True)
    lines = [f'{start} {word}\t{label}' for label, words in enumerate(('late early soon', 'soup bread tea'))
             for word in words.split() for start in ('now', 'we like', 'who said', 'not', 'perhaps')]
    (folder / 'cr.tsv').write_text('\n'.join(['text\tlabel', *lines]))
    s = replace(settings(), workspace=tmp_path, resources=tmp_path / 'resources', workers=1)
    monkeypatch.setattr('paranmt_lab.cli.measure.settings', lambda: s)
    calls, run = [], TASKS['CR'].run
    monkeypatch.setitem(TASKS, 'CR', replace(TASKS['CR'], run=lambda *of: calls.append(of) or run(*of)))
    for words in ('--tasks CR', '--tasks CR,TREC', '--tasks CR'):
        done = CliRunner().invoke(app, ['evaluate', 'paraphrase-scorer', *words.split(), '--pending'])
        assert done.exit_code == 0, (done.output, done.exception)
    assert len(calls) == 1 and 'CR' in done.stdout
    refused = CliRunner().invoke(app, ['evaluate', 'paraphrase-scorer', '--pending', '--graded', 'x.tsv'])
    assert refused.exit_code == 2


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from paranmt_lab.evaluation.pending import measure_pending
from paranmt_lab.ground.settings import settings
if __name__ == '__main__':
    s = replace(settings(), workspace=Path(sys.argv[1]), resources=Path(sys.argv[2]))
    print('ready', flush=True)
    measure_pending('paraphrase-scorer', sys.argv[3].split(','), s, int(sys.argv[4]))
"""


def small_sets(resources):
    "STS sets from our sample, and two transfer tasks of made-up examples; the names of the tasks."
    sample = pd.read_csv(settings().sample / 'graded.tsv', sep='\t', quoting=3)
    sets = sts_sets(resources, ['STS12', 'STS14', 'STS15', 'STS17', 'STS-B'])
    for k, path in enumerate(sets.path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sample.sample(60, random_state=k).to_csv(path, sep='\t', index=False, quoting=3)
    for name in ('cr', 'mr'):
        lines = [f'{start} {word} {end}\t{label}' for label, words in enumerate(('late early soon', 'soup bread tea'))
                 for word in words.split() for start in ('now', 'we like', 'who said', 'not', 'perhaps')
                 for end in ('again', 'here', 'there', 'twice', 'today', 'then', 'too')]
        (folder := resources / f'eval/senteval/{name}').mkdir(parents=True)
        (folder / f'{name}.tsv').write_text('\n'.join(['text\tlabel', *lines]))
    return ['STS12', 'STS14', 'STS15', 'STS17', 'STS-B', 'CR', 'MR']


@pytest.mark.soak
@pytest.mark.parametrize('workers', [1, 2])
def test_an_evaluation_killed_at_random_moments_ends_with_the_same_figures(tmp_path, workers):
    "Twelve kills at moments spread over a run; each task is measured in one piece, and none twice."
    program, resources, rng = tmp_path / 'killed.py', tmp_path / 'resources', random.Random(workers)
    program.write_text(KILLED)
    tasks = small_sets(resources)

    def begin(workspace):
        command = [sys.executable, program, tmp_path / workspace, resources, ','.join(tasks), str(workers)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True,
                                 env=os.environ | dict(PYTHONPATH=str(Path(__file__).parents[2])))
        assert child.stdout.readline() == 'ready\n'
        return child

    started = time.perf_counter()
    assert begin('whole').wait() == 0
    whole, kills = time.perf_counter() - started, 0
    for _ in range(12):
        child = begin('killed')
        time.sleep(rng.uniform(0, whole / 3))
        kills += child.poll() is None
        if child.poll() is None: os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert begin('killed').wait() == 0 and kills >= 3
    columns = ['task', 'dataset', 'metric']
    one, other = (read_results(tmp_path / name / 'runs/paraphrase-scorer/results.parquet').sort_values(columns)
                  .drop(columns=['date', 'commit']).reset_index(drop=True) for name in ('whole', 'killed'))
    assert set(one.task) == set(tasks) and (one.status == 'ok').any()
    pd.testing.assert_frame_equal(one, other)
