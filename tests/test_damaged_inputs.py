"""Files that somebody damaged or edited, and conditions that somebody mistyped: the error names the file, never a
library."""
import os
import random
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.selection import Selection, read_selection, select, selected_ids

PLAIN = (ValueError, OSError, FileNotFoundError, IsADirectoryError, PermissionError)


@pytest.fixture(scope='session')
def whole(tmp_path_factory):
    "A corpus of two shards with a measure, a manifest, a selection and rejects."
    corpus = Corpus.create('whole', replace(settings(), workspace=tmp_path_factory.mktemp('whole')))
    for k in range(2):
        rows = range(200 * k, 200 * k + 200)
        corpus.write_pairs(k, {'reference': [f'Sentence {i * 7919 % 997}.' for i in rows],
                               'translation': [f'Phrase {i * 31 % 977}.' for i in rows], 'rank': [1] * 200})
        corpus.write_measure('score', k, np.linspace(0, 1, 200))
    corpus.write_manifest('derive', dict(status='finished', operation=dict(merge=['a']),
                                         inputs={'a': '0'}, pairs=400, checksums=corpus.checksums))
    corpus.write_rejects({'file': ['talk.tsv'], 'line': [17], 'reason': ['empty side'], 'text': ['Ahoj.']})
    select(corpus, Selection('good', ranges=(('score', .5, 1.),), n=50))
    return corpus


@pytest.fixture
def twin(whole, tmp_path):
    "A copy to damage, without the derived files."
    shutil.copytree(whole.folder, tmp_path / 'whole', ignore=shutil.ignore_patterns('cache'))
    return Corpus(tmp_path / 'whole')


def changed(change):
    "Damage by a function of the table in a Parquet file."
    def act(path):
        table = change(pq.read_table(path))
        path.unlink()
        pq.write_table(table, path)
    return act


def cast(column, type):
    def act(table): return table.set_column(table.column_names.index(column), column, pa.nulls(len(table), type))
    return changed(act)


def written(content): return lambda path: path.write_bytes(content)
def cut(path): path.write_bytes(path.read_bytes()[:-20])
def folder(path): path.unlink(), path.mkdir()


def edited(**values):
    "Damage to a JSON object; a value of None takes the key away, a dotted key reaches into an inner object."
    def act(path):
        record = read_json(path)
        for key, value in values.items():
            place = record['selection'] if key in ('n', 'seed') else record
            if value is None: del place[key]
            else: place[key] = value
        write_json(path, record)
    return act


SHARD, MEASURE = 'pairs/part-00001.parquet', 'measures/score/part-00001.parquet'
ANY_PARQUET = {'cut': cut, 'empty': written(b''), 'noise': written(os.urandom(5000)),
               'magic alone': written(b'PAR1PAR1'), 'text': written(b'reference,translation\na,b\n'),
               'a folder': folder, 'another table': changed(lambda t: pa.table({'a': [1, 2]}))}
DAMAGE = {
    SHARD: ANY_PARQUET | {
        'no rank': changed(lambda t: t.drop_columns(['rank'])),
        'one more column': changed(lambda t: t.append_column('more', pa.nulls(len(t), pa.string()))),
        'columns in another order': changed(lambda t: t.select(t.column_names[::-1])),
        'ids of another shard': lambda path: shutil.copy(path.with_name('part-00000.parquet'), path),
        'fewer rows at the front': changed(lambda t: t.slice(5)),
        'ids as text': cast('pair_id', pa.string()), 'segments as text': cast('segment', pa.string()),
        'ranks as text': cast('rank', pa.string()), 'ranks of 64 bits': cast('rank', pa.int64()),
        'texts as numbers': cast('translation', pa.int64()),
        'references as lists': cast('reference', pa.list_(pa.string())),
        'scores as text': cast('translation_score', pa.string()), 'flags as numbers': cast('flags', pa.int32())},
    MEASURE: ANY_PARQUET | {
        'text': cast('score', pa.string()), 'float64': cast('score', pa.float64()),
        'whole numbers': cast('score', pa.int32()), 'lists': cast('score', pa.list_(pa.float32())),
        'another name': changed(lambda t: t.rename_columns(['other'])),
        'two columns': changed(lambda t: t.append_column('more', t['score'])),
        'fewer rows': changed(lambda t: t.slice(5)),
        'of other pairs': lambda path: shutil.copy(path.with_name('part-00000.parquet'), path)},
    'rejects.parquet': ANY_PARQUET | {'lines as text': cast('line', pa.string()),
                                      'no reason': changed(lambda t: t.drop_columns(['reason']))},
    'manifests/derive.json': {
        'a list': written(b'[1]'), 'a number': written(b'1'), 'null': written(b'null'),
        'torn': written(b'{"status": "fin'), 'no UTF-8': written(b'\xff\xfe{}'),
        'status as a number': edited(status=1), 'pairs as text': edited(pairs='many'),
        'checksums as a list': edited(checksums=[1]), 'inputs as text': edited(inputs='a'),
        'operation as text': edited(operation='merge')},
    'selections/good.json': {
        'a list': written(b'[1]'), 'text': written(b'"good"'), 'null': written(b'null'),
        'torn': written(b'{"where": "tr'), 'no UTF-8': written(b'\xff\xfe{}'),
        'no condition': edited(where=None), 'no ids': edited(ids=None),
        'no selection': edited(selection=None), 'no steps': edited(steps=None), 'no pairs': edited(pairs=None),
        'no date': edited(made=None), 'selection as a list': edited(selection=[1]),
        'condition as a number': edited(where=1), 'condition without sense': edited(where='score >'),
        'condition of another column': edited(where='scores > 0.5'), 'condition that writes': edited(
            where='true; DROP VIEW pairs'), 'another condition': edited(where='score > 0.9'),
        'n as text': edited(n='50'), 'n below 0': edited(n=-1), 'no n': edited(n=None),
        'another n': edited(n=49), 'seed as text': edited(seed='0'), 'seed 1.5': edited(seed=1.5),
        'steps as text': edited(steps='all'), 'steps of numbers': edited(steps=[1, 2]),
        'another checksum of ids': edited(ids='0123')}}
READERS = {
    'rows': lambda c: c.rows, 'frame': lambda c: c.frame(), 'frame of a measure': lambda c: c.frame(['score']),
    'count': lambda c: c.count('score', 0, 1), 'sample': lambda c: c.sample(400),
    'histogram': lambda c: c.histogram('score'), 'batches': lambda c: list(c.batches(['reference', 'score'])),
    'pairs by id': lambda c: c.pairs_by_id([1_000_000_001], ['rank', 'score']),
    'rejects': lambda c: c.rejects(), 'manifests': lambda c: c.manifests(), 'maker': lambda c: c.maker(),
    'record': lambda c: read_selection(c, 'good'), 'ids': lambda c: selected_ids(c, 'good')}


def errors_of(corpus):
    "Errors of all readers, each with a fresh view of the corpus."
    found = {}
    for name, read in READERS.items():
        try: read(Corpus(corpus.folder))
        except Exception as e: found[name] = e
    return found


def test_a_whole_corpus_is_read(twin): assert errors_of(twin) == {} and twin.problems() == []


@pytest.mark.parametrize(('file', 'damage'), [(file, damage) for file, kinds in DAMAGE.items() for damage in kinds])
def test_damaged_and_edited_files(twin, file, damage):
    DAMAGE[file][damage](twin.folder / file)
    found = errors_of(twin)
    assert found, 'no reader noticed'
    assert {name: e for name, e in found.items() if type(e) not in PLAIN} == {}
    name = file.rpartition('/')[2]
    assert any(name in str(e) for e in found.values()), found
    if file != 'rejects.parquet' and 'selections' not in file: assert any(name in text for text in twin.problems())


@pytest.mark.parametrize('seed', range(30))
@pytest.mark.parametrize('file', [SHARD, MEASURE])
def test_flipped_bits(twin, file, seed):
    """Not every flipped bit makes a file unreadable; then the checksum of the shard still tells. A measure has none."""
    path, chance = twin.folder / file, random.Random(seed)
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    found = errors_of(twin)
    assert {name: e for name, e in found.items() if type(e) not in PLAIN} == {}
    if file == SHARD: assert any(path.name in text for text in twin.problems())


MISTAKES = ['scores > 0.5', 'score >', "'open", '"open', 'score > 0.5 AND',
            'longness(reference) > 3', "regexp_matches(reference, '(')", 'score = ?', 'sum(score) > 1', 'reference',
            '(SELECT 1, 2)', 'rank = 1; DROP VIEW pairs', 'rank IN (SELECT x FROM nowhere)',
            'CAST(reference AS INT) > 1', 'score > 0.5 LIMIT 3', "error('x')", '/* open']


@pytest.mark.parametrize('ask', [lambda c, w: c.frame(where=w), lambda c, w: c.count(where=w),
                                 lambda c, w: c.sample(3, where=w)], ids=['frame', 'count', 'sample'])
@pytest.mark.parametrize('where', MISTAKES)
def test_mistyped_conditions(twin, ask, where):
    with pytest.raises(ValueError, match='whole: .*columns are pair_id.*score') as e: ask(twin, where)
    assert len(str(e.value).splitlines()) == 1


def test_text_columns_have_no_range(twin):
    for ask in (lambda: twin.count('reference', 0, 1), lambda: twin.histogram('flags'),
                lambda: twin.summary('system'), lambda: select(twin, Selection('s', ranges=(('source', 0., 1.),))),
                lambda: select(twin, Selection('s', fold_measure='corpus', folds=(1,)))):
        with pytest.raises(ValueError, match='holds text, which has no range'): ask()
