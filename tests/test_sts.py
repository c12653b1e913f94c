"""What the notebook on STS cannot show: other implementations' figures, real files, odd files."""
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings as hypothesis_settings, strategies as st
from scipy import stats

from paranmt_lab.evaluation.sts import (PAPER_6, PAPER_8, SETS, THREE_YEARS, YEARLY, YEARS, GradedFileError, by_year, correlate, evaluate_sts,
                                        long_form, read_graded, side_by_side, sts_sets, token_overlap)
from paranmt_lab.settings import settings

SIZES = {'STS12': [750, 750, 459, 750, 399], 'STS13': [750, 561, 189, 750], 'STS14': [450, 300, 750, 750, 750, 750],
         'STS15': [375, 750, 375, 750, 750], 'STS16': [254, 249, 230, 244, 209], 'STS17': [250], 'STS-B': [5749, 1500, 1379], 'SICK': [4500, 500, 4927]}


@hypothesis_settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-1, 1, width=32)), min_size=3, max_size=50))
def test_correlations_are_those_of_scipy(pairs):
    grades, similar = map(np.array, zip(*pairs))
    assume(np.ptp(grades) > 0 and np.ptp(similar) > 1e-3)
    found = correlate(grades, similar)
    assert found['pearson'] == pytest.approx(stats.pearsonr(grades, similar).statistic, abs=1e-9)
    assert found['spearman'] == pytest.approx(stats.spearmanr(grades, similar).statistic, abs=1e-9)


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
    results = evaluate_sts(token_overlap, tmp_path, graded=sample)
    row = results.iloc[-1]
    assert (row.task, row.dataset, row.status) == ('graded', 'graded', 'ok') and 0.3 < row.pearson < 0.9


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
        path.write_text(HEADER + ''.join(f'{"a " * n}b\t{"a " * n}c\t{g}\n' for n, g in zip(range(9), rng.uniform(0, 5, 9))))
    return tmp_path


def test_a_year_is_the_plain_mean_of_its_sets(everything):
    results = evaluate_sts(lambda a, b: np.array([len(s) for s in a], float), everything, list(SETS))
    assert (results.status == 'ok').all() and results.task.drop_duplicates().tolist() == list(SETS)
    for year, rows in results.groupby('year'):
        assert by_year(results).pearson[year] == pytest.approx(100 * rows.pearson.mean())
    side = side_by_side({'length': results})
    assert side['2013'].notna()[0] and side['2013 without SMT'].isna().all()
    assert {'STS17', 'STS-B dev', 'STS-B test', 'SICK trial'} <= set(side.columns)
    assert side[THREE_YEARS][0] == pytest.approx(by_year(results).pearson[[2012, 2014, 2015]].mean())


def test_absent_sets_keep_their_rows(everything):
    for gone in ('2013/SMT', '2016/headlines'): (everything / f'eval/sts/{gone}.tsv').unlink()
    results = evaluate_sts(token_overlap, everything)
    assert results.task.unique().tolist() == YEARLY
    assert results[results.status == 'not available'].dataset.tolist() == ['SMT', 'headlines']
    table = by_year(results)
    assert table.note[[2013, 2016]].tolist() == ['without SMT', 'lacks headlines'] and np.isnan(table.pearson[2016])
    side = side_by_side({'overlap': results})
    assert np.isnan(side['2013'][0]) and side['2013 without SMT'].notna().sum() == 1 and np.isnan(side['2016'][0])


def test_results_survive_parquet(everything, tmp_path):
    results = evaluate_sts(token_overlap, everything, ['STS12', 'STS-B'])
    results.to_parquet(tmp_path / 'results.parquet')
    again = pd.read_parquet(tmp_path / 'results.parquet')
    pd.testing.assert_frame_equal(side_by_side({'x': again}), side_by_side({'x': results}))


def test_a_similarity_that_fails_names_the_file(everything):
    with pytest.raises(ValueError, match='MSRpar.tsv: .*expected one for each pair'): evaluate_sts(lambda a, b: np.ones(3), everything)
    with pytest.raises(ValueError, match='MSRpar.tsv: .*pair 0 is not a finite'): evaluate_sts(lambda a, b: np.full(len(a), np.nan), everything)
    with pytest.raises(ValueError, match='unknown tasks'): evaluate_sts(token_overlap, everything, ['STS2012'])


def test_the_papers_rows():
    assert len(PAPER_8) == 22 and len(PAPER_6) == 9
    assert PAPER_8[list(YEARS)].notna().sum().sum() == 17 * 5 + 5  # five rows of related work have 2014 only
    best = PAPER_8[(PAPER_8.system == 'WORD,TRIGRAM') & (PAPER_8.training == 'ParaNMT')]
    assert best[['2012', '2014', '2015', '2016']].mean(axis=1).round(1).tolist() == [75.9]
    longest = long_form(side_by_side({}))
    assert not longest.duplicated(['group', 'system', 'source']).any()
