"""Corpora as files for others: columns keep their names, nothing is overwritten, the ending decides the format."""
import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.exchange.files import export_corpus
from paranmt_lab.exchange.paranmt import export_tsv, import_paranmt
from paranmt_lab.ground.settings import DataWarning, settings


@pytest.fixture
def lab(tmp_path): return replace(settings(), workspace=tmp_path / 'workspace')


def pairs(lab, name='pairs', measures=('paraphrase_score@one', 'trigram_overlap'), n=50):
    "Two shards with scores of all kinds, every tenth pair without any, every eleventh without a translation."
    corpus, rng = Corpus.create(name, lab), np.random.default_rng(0)
    for shard in range(2):
        scores = lambda low: [None if i % 10 == 3 else x
                              for i, x in enumerate(rng.uniform(low, 0, n).astype(np.float32))]
        corpus.write_pairs(shard,
                           dict(reference=[f'Sentence {shard} {i}.' for i in range(n)], translation_score=scores(-3),
                                translation=[None if i % 11 == 0 else f'Phrase {shard} {i}.' for i in range(n)]))
        for m in measures: corpus.write_measure(m, shard, [None if x is None else x + 1 for x in scores(-1)])
    return corpus


def expected(corpus, column): return corpus.frame(['reference', 'translation', column]).dropna().reset_index(drop=True)


# ---- the third column of the published format

def test_the_third_column_is_the_paraphrase_score(lab, tmp_path):
    corpus = pairs(lab)
    done = export_tsv(corpus, tmp_path / 'out.tsv')
    written = pd.read_csv(tmp_path / 'out.tsv', sep='\t', header=None, names=['reference', 'translation', 'score'])
    wanted = expected(corpus, 'paraphrase_score@one')
    assert written.score.astype(np.float32).tolist() == wanted['paraphrase_score@one'].tolist()
    assert written.reference.tolist() == wanted.reference.tolist()
    assert done == dict(column='paraphrase_score@one', written=len(wanted), left_out=100 - len(wanted))
    beside = json.loads((tmp_path / 'out.tsv.json').read_text())
    assert (beside['column'], beside['corpus'], beside['rows']) == ('paraphrase_score@one', 'pairs', len(wanted))
    assert beside['checksum'] and beside['commit']


@pytest.mark.parametrize('measures, why', [
    ((), 'no paraphrase score.*--score'),
    (('paraphrase_score@one', 'paraphrase_score@two'), 'paraphrase_score@one, paraphrase_score@two')])
def test_without_one_paraphrase_score_the_column_is_asked_for(lab, tmp_path, measures, why):
    corpus = pairs(lab, measures=measures)
    with pytest.raises(ValueError, match=why): export_tsv(corpus, tmp_path / 'out.tsv')
    assert not list(tmp_path.glob('out*'))
    assert export_tsv(corpus, tmp_path / 'out.tsv', 'translation_score')['column'] == 'translation_score'


@pytest.mark.parametrize('column', ['paraphrase_score@one', 'trigram_overlap', 'translation_score'])
@pytest.mark.parametrize('ending', ['tsv', 'tsv.gz'])
def test_a_round_trip_gives_the_same_column_back(lab, tmp_path, column, ending):
    corpus = pairs(lab)
    export_tsv(corpus, tmp_path / f'out.{ending}', column)
    back = import_paranmt([tmp_path / f'out.{ending}'], 'back', shard_rows=30, s=lab)
    pd.testing.assert_frame_equal(back.frame(['reference', 'translation', column]), expected(corpus, column))
    assert back.measures() == ([] if column == 'translation_score' else [column])


def test_no_other_column_becomes_a_paraphrase_score(lab, tmp_path):
    corpus, out = pairs(lab), tmp_path / 'out.tsv'
    export_tsv(corpus, out, 'translation_score')
    with pytest.raises(ValueError, match="holds 'translation_score'"):
        import_paranmt([out], 'named', 'paraphrase_score@published', s=lab)
    export_tsv(corpus, other := tmp_path / 'other.tsv', 'trigram_overlap')
    with pytest.raises(ValueError, match='translation_score.*trigram_overlap'):
        import_paranmt([out, other], 'mixed', s=lab)
    out.write_text(out.read_text() + 'One.\tTwo.\t-0.5\n')
    with pytest.raises(ValueError, match='out.tsv.json.*other content'): import_paranmt([out], 'changed', s=lab)
    (tmp_path / 'out.tsv.json').unlink()
    with pytest.raises(ValueError, match='out.tsv.*--score paraphrase_score@published'):
        import_paranmt([out], 'unknown', s=lab)
    with pytest.raises(ValueError, match='outside -1 to 1|at most 0'):
        import_paranmt([out], 'log', 'paraphrase_score@published', s=lab)
    assert not list(lab.corpora.glob('*/measures/paraphrase_score@published')) and Corpus.open('pairs', lab)


def test_the_published_file_is_named_by_the_one_who_imports_it(lab, tmp_path):
    out = tmp_path / 'published.txt'
    out.write_text('so, what?\twhat?\t0.5\nthe end.\tthis is the end.\t0.9\nthe end.\tit goes on.\t7\n')
    back = import_paranmt([out], 'published', 'paraphrase_score@published', s=lab)
    assert (back.frame(['paraphrase_score@published'])['paraphrase_score@published'].tolist()
            == [np.float32(.5), np.float32(.9)])
    assert back.rejects().reason.tolist() == ['score 7 is outside -1 to 1, so it is no paraphrase score']


def test_the_released_training_set_has_two_columns_and_no_score(lab, tmp_path):
    rows = 'The cat sat.\tA cat was sitting.\nIt rains.\tIt is raining.\n'
    (out := tmp_path / 'two.txt').write_text(rows + 'One.\tTwo.\t0.5\n')
    with pytest.warns(DataWarning, match='two.txt has two columns.*no score to import as paraphrase_score@published'):
        corpus = import_paranmt([out], 'two', 'paraphrase_score@published', s=lab)
    assert (corpus.rows, corpus.measures(), corpus.manifest('import')['score']) == (2, [], '')
    assert corpus.rejects().reason.tolist() == ['expected 2 fields (reference, translation), found 3']
    (three := tmp_path / 'three.txt').write_text('One.\tTwo.\t0.5\n')
    with pytest.raises(ValueError, match='different columns: two.txt 2, three.txt 3; import them one by one'):
        import_paranmt([out, three], 'both', s=lab)
    done = paranmt(['import', out, 'again', '--format', 'paranmt'], PARANMT_WORKSPACE=str(lab.workspace), COLUMNS='300')
    assert done.returncode == 0 and '2 columns: reference, translation' in done.stdout, done.stderr


# ---- files for others

ENDINGS = ['tsv', 'tsv.gz', 'jsonl', 'jsonl.gz', 'csv', 'csv.gz', 'parquet', '']

def read(path):
    "An export, read by other libraries."
    open_, kind = (gzip.open if path.name.endswith('.gz') else open), path.name.removesuffix('.gz').rpartition('.')[2]
    if path.is_dir():
        return pd.concat([pd.read_parquet(p) for p in sorted(path.glob('data/*.parquet'))], ignore_index=True)
    if kind == 'parquet': return pd.read_parquet(path)
    with open_(path, 'rt', encoding='utf-8', newline='') as file:
        if kind == 'csv': return pd.read_csv(file, keep_default_na=False, na_values={'trigram_overlap': ['']})
        if kind == 'tsv':
            return pd.read_csv(file, sep='\t', header=None, quoting=3,
                               names=['reference', 'translation', 'trigram_overlap'])
        return pd.DataFrame([json.loads(line) for line in file])


@pytest.mark.parametrize('ending', ENDINGS)
def test_a_file_is_what_its_ending_says(lab, tmp_path, ending):
    corpus = pairs(lab, n=20)
    corpus.write_pairs(2, dict(reference=['She said: "No,\nnever."'], translation=['"No", she said, "never"; NA']))
    corpus.write_measure('trigram_overlap', 2, [.125])
    out = tmp_path / f'out.{ending}' if ending else tmp_path / 'out'
    tsv = ending.startswith('tsv')
    done = export_corpus(corpus, out, None if tsv else ['reference', 'translation', 'trigram_overlap'],
                         'trigram_overlap' if tsv else '')
    assert out.is_dir() == (ending == '')
    wanted, found = corpus.frame(['reference', 'translation', 'trigram_overlap']), read(out)
    if tsv:
        wanted = wanted.dropna().reset_index(drop=True)
        wanted.reference = wanted.reference.str.split().str.join(' ')
    assert done['written'] == len(found) == len(wanted)
    assert found.reference.tolist() == wanted.reference.tolist()
    assert found.translation.fillna('').tolist() == wanted.translation.fillna('').tolist()
    np.testing.assert_array_equal(found.trigram_overlap.to_numpy(np.float32),
                                  wanted.trigram_overlap.to_numpy(np.float32))


@pytest.mark.parametrize('name', ['out.xlsx', 'out.txt', 'out.arrow', 'out.parquet.gz', 'out.json'])
def test_an_unknown_format_is_refused_with_the_list(lab, tmp_path, name):
    with pytest.raises(ValueError, match=r"no format.*\.tsv, .*\.csv, .*\.parquet"):
        export_corpus(pairs(lab), tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize('ending', ENDINGS)
def test_an_export_overwrites_nothing(lab, tmp_path, ending):
    corpus, out = pairs(lab), tmp_path / (f'out.{ending}' if ending else 'out')
    export_corpus(corpus, out)
    content = lambda: {p: p.read_bytes() for p in tmp_path.glob('out*')
                       for p in ([p] if p.is_file() else sorted(p.rglob('*.*')))}
    before = content()
    with pytest.raises(FileExistsError, match='--force'): export_corpus(corpus, out)
    assert content() == before
    export_corpus(pairs(lab, 'more', n=60), out, force=True)
    assert content() != before


def test_an_export_without_a_row_is_refused(lab, tmp_path):
    corpus = Corpus.create('unscored', lab)
    with pytest.raises(ValueError, match='empty'): export_corpus(corpus, tmp_path / 'out.csv')
    corpus.write_pairs(0, dict(reference=['One.'], translation=['Uno.']))
    with pytest.raises(ValueError, match='no pair has both'):
        export_corpus(corpus, tmp_path / 'out.tsv', score='translation_score')
    assert not list(tmp_path.glob('out*'))


def test_force_keeps_what_people_put_into_a_folder(lab, tmp_path):
    corpus = pairs(lab)
    export_corpus(corpus, tmp_path / 'out')
    (tmp_path / 'out/notes.md').write_text('mine')
    with pytest.raises(ValueError, match='something else'): export_corpus(corpus, tmp_path / 'out', force=True)
    assert (tmp_path / 'out/notes.md').read_text() == 'mine'


def test_the_command_exports_and_imports_under_the_same_name(lab, tmp_path):
    pairs(lab)
    def run(*words):
        done = paranmt([*words], PARANMT_WORKSPACE=str(lab.workspace), COLUMNS='300')
        return done.returncode, done.stdout + done.stderr
    out = tmp_path / 'out.tsv'
    assert run('corpus', 'export', 'pairs', out)[0] == 0
    code, said = run('corpus', 'export', 'pairs', out)
    assert code == 1 and '--force' in said and len(said.strip().splitlines()) == 1
    assert run('corpus', 'export', 'pairs', out, '--force', '--score', 'trigram_overlap')[0] == 0
    code, said = run('import', out, 'back', '--format', 'paranmt')
    assert code == 0 and Corpus.open('back', lab).measures() == ['trigram_overlap'], said
    code, said = run('corpus', 'export', 'pairs', tmp_path / 'out.csv')
    assert code == 0 and (tmp_path / 'out.csv').is_file(), said
