"""What the notebooks on evaluation cannot show: the formula's figures, real files, odd files, earlier files."""
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings as hypothesis_settings, strategies as st

from paranmt_lab.evaluation.comparison import (
    THREE_YEARS,
    chart_names,
    compare_results,
    published,
    side_by_side,
    unavailable,
)
from paranmt_lab.evaluation.graded import GradedFileError, correlate, read_graded, token_overlap
from paranmt_lab.evaluation.results import (
    COLUMNS,
    STALE,
    current_results,
    main_figures,
    merge_results,
    pivot_results,
    read_results,
    record_results,
    results_frame,
)
from paranmt_lab.evaluation.sts import SETS, YEARLY, of_datasets, sts_sets, yearly_means
from paranmt_lab.evaluation.tasks import BASELINES, Baseline, evaluate
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.jobs.run import Run

SIZES = {'STS12': [750, 750, 459, 750, 399], 'STS13': [750, 561, 189, 750], 'STS14': [450, 300, 750, 750, 750, 750],
         'STS15': [375, 750, 375, 750, 750], 'STS16': [254, 249, 230, 244, 209], 'STS17': [250],
         'STS-B': [5749, 1500, 1379], 'SICK': [4500, 500, 4927], 'PIT-2015': [4727, 972]}
OVERLAP = BASELINES['token-overlap']


def measure(similarity, resources, tasks=None, graded=None):
    "Results of a function."
    return evaluate(Baseline(similarity_pairwise=similarity), tasks, graded, replace(settings(), resources=resources))


def pearsons(results):
    "The rows of Pearson's correlations."
    return results[results.metric == 'pearson']


def by_formula(x, y):
    "Pearson's correlation term by term."
    x, y = x - x.mean(), y - y.mean()
    return (x @ y) / np.sqrt((x @ x) * (y @ y))


@hypothesis_settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-1, 1, width=32)), min_size=3, max_size=50))
def test_correlations_are_those_of_the_formula(pairs):
    grades, similar = (np.array(side, float) for side in zip(*pairs))
    assume(np.ptp(grades) > 0 and np.ptp(similar) > 1e-3)
    found = correlate(grades, similar)
    ranks = (pd.Series(side).rank().to_numpy() for side in (grades, similar))
    assert found['pearson'] == pytest.approx(by_formula(grades, similar), abs=1e-9)
    assert found['spearman'] == pytest.approx(by_formula(*ranks), abs=1e-9)


def test_values_that_hardly_vary_give_no_warning():
    grades = np.arange(5.)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert correlate(grades, 1e9 + grades / 1e3)['status'] == 'ok'
        assert correlate(grades, np.full(5, .1))['status'] == 'undefined: all similarities are equal'
        assert correlate(np.full(5, .1), grades)['status'] == 'undefined: all grades are equal'
        assert correlate(grades[:1], grades[:1])['status'] == 'undefined: fewer than two pairs'


@pytest.mark.parametrize('task', SETS)
def test_the_real_sets_have_their_published_sizes(task):
    sets = sts_sets(settings().resources, [task])
    if not sets.available.any(): pytest.skip(f'no {task} below {settings().resources}')
    for row, size in zip(sets.itertuples(), SIZES[task], strict=True):
        if not row.available: continue
        pairs = read_graded(row.path)
        assert len(pairs) == size, row.dataset
        assert pairs.score.between(1 if task == 'SICK' else 0, 5).all() and pairs.sentence1.str.len().gt(0).all()


def test_the_sample_is_read(tmp_path):
    sample = settings().sample / 'graded.tsv'
    pairs = read_graded(sample)
    assert len(pairs) >= 150 and pairs.score.between(0, 5).all()
    row = pearsons(measure(token_overlap, tmp_path, graded=sample)).iloc[-1]
    assert (row.task, row.dataset, row.status) == ('graded', 'graded', 'ok') and 0.3 < row.value < 0.9


HEADER = 'sentence1\tsentence2\tscore\n'


@pytest.mark.parametrize('content, expected', [
    (HEADER + 'a\tb\t1', [('a', 'b', 1)]),
    (HEADER + '"a\tb" ""\t0.5\n', [('"a', 'b" ""', .5)]),
    (HEADER + ' a \t\x12b\ufffd\x85\u2028\x0b\x0c\x1c\t5\n', [(' a ', '\x12b\ufffd\x85\u2028\x0b\x0c\x1c', 5)]),
    (HEADER + '\t\t0\n', [('', '', 0)]),
    (HEADER.replace('\n', '\r\n') + 'a\tb\t1\r\nc\td\t2\r\n', [('a', 'b', 1), ('c', 'd', 2)]),
    ('\ufeff' + HEADER + 'NA\tnull\t1e0\n', [('NA', 'null', 1)]),
    ('genre\tsource\tyear\tscore\tsentence1\tsentence2\tid\ng\ts\t2012\t2.5\ta\tb\t7\n', [('a', 'b', 2.5)]),
    ('sentence1\tsentence2\tscore\tentailment\tpair_id\na\tb\t4.1\tNEUTRAL\t3\n', [('a', 'b', 4.1)]),
    (HEADER, []),
])
def test_fields_end_at_tab_and_lines_at_newline_only(tmp_path, content, expected):
    (tmp_path / 'x.tsv').write_bytes(content.encode())
    assert list(read_graded(tmp_path / 'x.tsv').itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize('content, message', [
    (b'', 'x.tsv:1: the file is empty'),
    (b'a\tb\t1\n', 'x.tsv:1: no column sentence1, sentence2, score'),
    (HEADER.encode() + b'a\tb\t1\n\n', 'x.tsv:3: 1 fields, the header has 3'),
    (HEADER.encode() + b'a\tb\tc\t1\n', 'x.tsv:2: 4 fields'),
    (HEADER.encode() + b'a\tb\tnan\n', "x.tsv:2: score 'nan'"),
    (HEADER.encode() + b'a\tb\t3,5\n', "x.tsv:2: score '3,5'"),
    (HEADER.encode() + b'a\tb\t1\n\xe9\tb\t1\n', 'x.tsv:3: not UTF-8'),
])
def test_files_that_cannot_be_read_name_file_and_line(tmp_path, content, message):
    (tmp_path / 'x.tsv').write_bytes(content)
    with pytest.raises(GradedFileError, match=message): read_graded(tmp_path / 'x.tsv')


@pytest.fixture
def everything(tmp_path):
    "All sets, with a few invented pairs each."
    rng = np.random.default_rng(0)
    for path in sts_sets(tmp_path).path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER
                        + ''.join(f'{"a " * n}b\t{"a " * n}c\t{g}\n' for n, g in zip(range(9), rng.uniform(0, 5, 9))))
    return tmp_path


def test_a_year_is_the_plain_mean_of_its_sets(everything):
    results = measure(lambda a, b: np.array([len(s) for s in a], float), everything, list(SETS))
    assert (results.status == 'ok').all() and results.task.drop_duplicates().tolist() == list(SETS)
    means = yearly_means(results).set_index('task').value
    assert list(means.index) == YEARLY
    for task, rows in of_datasets(pearsons(results[results.task.isin(YEARLY)])).groupby('task'):
        assert means[task] == pytest.approx(rows.value.mean())
    side = side_by_side(compare_results({'length': results}))
    assert side['2013'].notna()[0] and side['2013 without SMT'].isna().all()
    assert {'STS17', 'STS-B dev', 'STS-B test', 'SICK trial'} <= set(side.columns)
    assert side[THREE_YEARS][0] == pytest.approx(100 * means[['STS12', 'STS14', 'STS15']].mean())


def test_absent_sets_keep_their_rows(everything):
    for gone in ('2013/SMT', '2016/headlines'): (everything / f'eval/sts/{gone}.tsv').unlink()
    results = measure(token_overlap, everything)
    assert results.task.unique().tolist() == YEARLY
    absent = results[results.status == 'not available']
    assert pearsons(absent).dataset.tolist() == ['SMT', 'headlines'] and len(absent) == 4
    means = yearly_means(results).set_index('year')
    assert means.protocol[2013] == 'plain mean without SMT' and means.status[2013] == 'ok'
    assert means.status[2016] == 'lacks headlines' and np.isnan(means.value[2016])
    side = side_by_side(compare_results({'overlap': results}))
    assert np.isnan(side['2013'][0]) and side['2013 without SMT'].notna().sum() == 1 and np.isnan(side['2016'][0])


def test_results_survive_parquet(everything, tmp_path):
    results = measure(token_overlap, everything, ['STS12', 'STS-B'])
    results.to_parquet(tmp_path / 'results.parquet')
    again = read_results(tmp_path / 'results.parquet')
    pd.testing.assert_frame_equal(again, results)
    assert list(results) == list(COLUMNS)


def in_the_earlier_form(results):
    "Results as earlier versions stored them: a row a data set, a column a correlation."
    facts = ['task', 'dataset', 'n', 'status', 'system', 'run', 'date', 'commit']
    wide = results.pivot(index=facts, columns='metric', values='value').reset_index()
    order = results.drop_duplicates(['task', 'dataset'])[['task', 'dataset']]
    years = {task: year for task, (year, *_) in SETS.items()}
    frame = order.merge(wide, on=['task', 'dataset']).assign(source='', year=lambda f: f.task.map(years))
    columns = ['task', 'year', 'dataset', 'n', 'pearson', 'spearman', 'status', 'source', *facts[4:]]
    return frame[columns].astype({'n': 'int64', 'year': 'Int64'})


def test_results_of_an_earlier_version_are_read_shown_and_merged(everything, tmp_path):
    "One file in the old form, one in the new: the same tables; a new evaluation replaces its own tasks only."
    (everything / 'eval/sts/2013/SMT.tsv').unlink()
    run = Run.create(tmp_path / 'runs', 'x', {})
    path = run.folder / 'results.parquet'
    new = record_results(run, 'x', measure(token_overlap, everything, graded=settings().sample / 'graded.tsv'))
    stored = of_datasets(read_results(path)).assign(low=np.nan, high=np.nan).reset_index(drop=True)
    in_the_earlier_form(of_datasets(new)).to_parquet(path)
    old = read_results(path)
    pd.testing.assert_frame_equal(old, stored)
    pd.testing.assert_frame_equal(side_by_side(compare_results({'x': old})), side_by_side(compare_results({'x': new})))
    record_results(run, 'x', measure(lambda a, b: -token_overlap(a, b), everything, ['STS12', 'SICK']))
    merged = read_results(path)
    assert not merged.duplicated(['task', 'dataset', 'metric']).any()
    signs = (merged.merge(old, on=['task', 'dataset', 'metric']).assign(sign=lambda f: f.value_x / f.value_y)
             .dropna(subset='sign').groupby('task').sign.mean())
    assert signs['STS12'] == pytest.approx(-1) and (signs.drop('STS12') == 1).all()
    assert set(merged.task) == {*YEARLY, 'graded', 'SICK'}


def test_graded_files_stand_beside_each_other(tmp_path):
    """Figures of one file replace earlier ones of that file, and no others."""
    row = dict(task='graded', metric='pearson')
    before = results_frame([row | dict(dataset='graded', value=.5), row | dict(dataset='own', value=.3)])
    merged = merge_results(before, results_frame([row | dict(dataset='own', value=.4)]))
    assert dict(zip(merged.dataset, merged.value)) == {'own': .4, 'graded': .5}
    side = side_by_side(compare_results({'x': merged}))
    assert (side['graded graded'][0], side['graded own'][0]) == (50, 40)


def test_a_task_that_a_system_cannot_do_has_a_row():
    """Its reason stands in the results, and tables of other systems are not disturbed."""
    from paranmt_lab.evaluation.tasks import TASKS, Task
    def count(system, s): return [dict(task='count', dataset='two', metric='accuracy', value=.5, n=2)]
    TASKS['count'] = Task('count', 'made up', ('encode',), count)
    try: results = [evaluate(x, ['count']) for x in (OVERLAP, Baseline(encode=len))]
    finally: del TASKS['count']
    assert results[0].status.tolist() == ['not possible: the system has no encode']
    side = side_by_side(compare_results(dict(zip('ab', results)))).set_index('system')
    assert np.isnan(side['count']['a']) and side['count']['b'] == 50
    every = pd.concat([r.assign(system=name) for name, r in zip('ab', results)])
    assert pivot_results(main_figures(every).query("dataset != ''"), ['task', 'dataset'], 'system').b.item() == 50


def test_a_similarity_that_fails_names_the_file(everything):
    with pytest.raises(ValueError, match='MSRpar.tsv: .*expected one for each pair'):
        measure(lambda a, b: np.ones(3), everything)
    with pytest.raises(ValueError, match='MSRpar.tsv: .*pair 0 is not a finite'):
        measure(lambda a, b: np.full(len(a), np.nan), everything)
    with pytest.raises(ValueError, match='unknown tasks'): measure(token_overlap, everything, ['STS2012'])


def test_the_papers_rows():
    table_8, table_6 = published('paranmt.8'), published('paranmt.6')
    system = ['system', 'training', 'dim']
    assert len(table_8.drop_duplicates(system)) == 22 and len(table_6) == 9
    assert len(table_8) == 17 * 5 + 5  # five rows of related work have 2014 only
    assert not table_8.duplicated([*system, 'task']).any() and not table_6.duplicated(['system', 'megabatch']).any()
    best = table_8[(table_8.system == 'WORD,TRIGRAM') & (table_8.training == 'ParaNMT') & (table_8.task != 'STS13')]
    assert round(100 * best.value.mean(), 1) == 75.9
    for rows in (table_8, table_6):
        assert list(rows)[:len(COLUMNS)] == list(COLUMNS) and rows.value.between(0, 1).all()
        pd.testing.assert_frame_equal(rows[list(COLUMNS)][['task', 'value']],
                                      results_frame(rows.to_dict('records'))[['task', 'value']])
    assert not chart_names(compare_results({})).duplicated(['column', 'system', 'source']).any()


def test_what_is_not_available_is_named_where_it_was_asked_for(tmp_path, capsys):
    """A folder of resources that holds one data set of SemEval 2012, and none of the STS benchmark."""
    from paranmt_lab.cli.measure import show_results
    sets = sts_sets(tmp_path, ['STS12'])
    sets.path[0].parent.mkdir(parents=True)
    sets.path[0].write_bytes((settings().sample / 'graded.tsv').read_bytes())
    results = {'overlap': measure(token_overlap, tmp_path, ['STS12', 'STS-B'])}
    absent = unavailable(results)
    assert absent == [*(f'STS12 {name}' for name in sets.dataset[1:]), 'STS-B']
    show_results(results, paper=False)
    said = ' '.join(capsys.readouterr().out.split())
    assert f"Not available here: {', '.join(absent)}." in said and '2014' not in said
    assert unavailable({'overlap': measure(token_overlap, tmp_path)})[-4:] == ['STS14', 'STS15', 'STS16', 'STS17']
    assert unavailable({}) == []


def test_a_task_with_a_metric_of_its_own_has_a_table_of_its_own(capsys):
    from paranmt_lab.cli.measure import show_results
    rows = [dict(task='STS17', dataset='en-en', metric='pearson', value=.8, n=250, system='a'),
            dict(task='made-up', dataset='sample', metric='auc', value=.7, n=160, system='a'),
            dict(task='vectors', status='not possible: the system has no encode', system='a')]
    own, reason = 'made-up: figures x 100', 'a, vectors: not possible'
    for n, titles in ((1, []), (2, [own]), (3, [own, reason])):
        show_results({'a': results_frame(rows[:n])}, paper=False)
        said = ' '.join(capsys.readouterr().out.split())
        assert 'STS17' in said and '80.0' in said and ('auc' in said) == (n > 1)
        assert all(title in said for title in titles)


def run_evaluate(line, resources, tmp_path, monkeypatch):
    "The command `paranmt evaluate` in a workspace of its own."
    from typer.testing import CliRunner

    from paranmt_lab.cli.main import app
    for name, folder in (('WORKSPACE', tmp_path / 'lab'), ('RESOURCES', resources)):
        monkeypatch.setenv(f'PARANMT_{name}', str(folder))
    monkeypatch.setenv('COLUMNS', '200')
    return CliRunner().invoke(app, ['evaluate', *line.split()])


def test_a_suite_of_several_systems_goes_to_the_screen_and_into_a_file(everything, tmp_path, monkeypatch):
    file, shown = tmp_path / 'f.csv', '--datasets --spearman --protocols'
    line = f'token-overlap organisers-overlap --suite sts {shown} --output {file}'
    done = run_evaluate(line, everything, tmp_path, monkeypatch)
    assert done.exit_code == 0, done.exception
    assert pd.read_csv(file).groupby('system').task.nunique().tolist() == [10, 10]
    said = ' '.join(done.stdout.split())
    for part in ("Spearman's rho x 100", 'with 95 % intervals', 'SentEval, by size', 'MTEB', 'PIT-2015', 'f.csv'):
        assert part in said, part
    assert 'Contamination' not in said  # a baseline was not trained


@pytest.mark.parametrize('line, expected', [
    ('token-overlap --suite sst', 'known are sts'), ('token-overlap --output f.xlsx', 'ends in .json'),
    ('token-overlap --tasks STS12,STS2012', 'unknown tasks'), ('no-such-system --tasks STS12', 'no model')])
def test_a_mistake_is_answered_before_anything_is_measured(everything, tmp_path, monkeypatch, line, expected):
    done = run_evaluate(line, everything, tmp_path, monkeypatch)
    assert done.exit_code == 1 and expected in str(done.exception)
    assert not (tmp_path / 'lab/runs').exists()


def test_a_row_of_the_table_may_name_its_function_by_its_place():
    from paranmt_lab.evaluation.tasks import GROUPS, SUITES, TASKS, Imported, Task, choose_tasks
    named = Task('named', 'detection', ('similarity_pairwise',), 'evaluation.graded.token_overlap')
    assert isinstance(named.run, Imported) and named.run(['a b'], ['a b']).tolist() == pytest.approx([1])
    with pytest.raises(ModuleNotFoundError): Task('x', 'detection', (), 'evaluation.nowhere.f').run(None, None)
    assert {group for groups in SUITES.values() for group in groups} == set(GROUPS)
    assert {task.name for task in choose_tasks(suites=['all'])} == set(TASKS)


def test_no_figure_of_a_replaced_encoder_stays(everything, tmp_path, monkeypatch):
    encoder, lab = open_model('paraphrase-scorer'), replace(settings(), workspace=tmp_path / 'lab')
    encoder.save(lab.models / 'mine')
    path = lab.runs / 'mine/results.parquet'
    for task in ('STS17', 'STS12'): run_evaluate(f'mine --tasks {task}', everything, tmp_path, monkeypatch)
    assert set(current_results(path, lab).task) == {'STS17', 'STS12'}
    encoder.remodelled('WORD').save(lab.models / 'mine')
    assert set(current_results(path, lab).status) == {STALE}
    assert current_results(path, lab).value.isna().all()
    run_evaluate('mine --tasks STS17', everything, tmp_path, monkeypatch)
    assert current_results(path, lab).task.unique().tolist() == ['STS17']
    assert (current_results(path, lab).status != STALE).all()


def test_an_undefined_figure_says_why_and_the_paper_is_shown_where_it_compares(everything, tmp_path, monkeypatch):
    graded = tmp_path / 'own.tsv'
    graded.write_text('sentence1\tsentence2\tscore\nIt rains.\tRain.\t3\nA dog.\tA cat.\t3\nWe go.\tGo!\t3\n')
    said = run_evaluate(f'token-overlap --tasks PIT-2015 --graded {graded}', everything, tmp_path, monkeypatch).stdout
    assert 'token-overlap, graded own: undefined: all grades are equal.' in said and 'paranmt.8' not in said
    assert 'paranmt.8' in run_evaluate('token-overlap --tasks STS12', everything, tmp_path, monkeypatch).stdout
