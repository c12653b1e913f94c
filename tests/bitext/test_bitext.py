"""Hostile, damaged, huge and real files through the import; kills in the middle of it."""
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from paranmt_lab import bitext
from paranmt_lab.bitext import import_summary, tmx as memories
from paranmt_lab.bitext.base import LINE, BitextError, Fault, Input, Options, Record, Reject, excerpt, fault_of, tidy
from paranmt_lab.bitext.columns import csv_rows
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.ground.settings import DataWarning, settings

RESOURCES = settings().resources
# what these tests write is Czech
import_bitext, read_bitext = (partial(f, source_lang='cs') for f in (bitext.import_bitext, bitext.read_bitext))
GOOD = ('Prší.', 'It is raining.')


@pytest.fixture
def lab(tmp_path):
    return replace(settings(), workspace=tmp_path / 'lab')


@pytest.fixture
def write(tmp_path):
    def writer(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name
    return writer


def split(items):
    items = list(items)
    return [i for i in items if isinstance(i, Record)], [i for i in items if isinstance(i, Reject)]


# --- bad lines: good rows in, each bad row listed with its reason --------------------------------------------------

HOSTILE = {  # line of a TSV with three columns -> part of the reason, None where the line is good
    'Prší.\tIt is raining.\ttalk'.encode(): None,
    b'na\xefve\tnaive\ttalk': 'invalid UTF-8',
    b'caf\xc3\tcut in a character\ttalk': 'invalid UTF-8',
    b'\xed\xa0\xbd\thalf a character in bytes\ttalk': 'invalid UTF-8',
    b'\xc0\xaf\tan overlong slash\ttalk': 'invalid UTF-8',
    'Jen jedno pole'.encode(): 'expected 3 fields, found 1',
    b'one\ttwo\tthree\tfour': 'expected 3 fields, found 4',
    b'': 'expected 3 fields, found 1',
    b'Kniha\t' + b'x' * (1 << 20) + b'\ttalk': 'line over 65,536 bytes',
    b'Odstavec\t' + b'x' * 5000 + b'\ttalk': 'reference: over 4,000 characters',
    b'\tNothing on the left.\ttalk': 'source: empty',
    'Nic vpravo.\t \xa0\ttalk'.encode(): 'reference: empty',
    b'nul\x00\tzero\ttalk': 'source: NUL',
    b'bell\x07\tbell\ttalk': 'source: control character',
    b'escape\x1b[2J\tclears the screen\ttalk': 'source: control character',
    'ztracené \ufffd\tlost\ttalk'.encode(): 'source: replacement character',
    b'talk\ttalk\tdom\x00ain': 'corpus: NUL',
    'Dvě\u2028věty\tTwo\u2028sentences\ttalk'.encode(): None,
    'NEL\x85uvnitř\tform\x0cfeed\ttalk'.encode(): None,
    '„Ano\t"Yes, he said\ttalk'.encode(): None,
    'Konec řádku\tCRLF\ttalk\r'.encode(): None,
}


@pytest.mark.parametrize('bom', [b'', b'\xef\xbb\xbf'])
@pytest.mark.parametrize('packed', [False, True])
def test_hostile_tsv(write, lab, bom, packed):
    content = bom + b'source\treference\tdomain\n' + b'\n'.join(HOSTILE)
    path = write('hostile.tsv.gz' if packed else 'hostile.tsv', gzip.compress(content) if packed else content)
    corpus = import_bitext(path, 'hostile', lab)
    bad = {n: why for n, why in enumerate(HOSTILE.values(), 2) if why}
    rejects = corpus.rejects()
    assert rejects.line.tolist() == list(bad)
    assert all(why in reason for why, reason in zip(bad.values(), rejects.reason)), rejects.reason.tolist()
    assert set(rejects.file) == {str(path)} and rejects.text.str.len().max() <= 200
    assert corpus.frame(['reference'], order='pair_id').reference.tolist() == [
        'It is raining.', 'Two\u2028sentences', 'form feed', '"Yes, he said', 'CRLF']
    manifest = corpus.manifest('import')
    assert manifest['pairs'] == 5 and sum(manifest['rejects'].values()) == len(bad) == len(rejects)
    assert import_summary(corpus).rows.sum() == len(HOSTILE)
    assert rejects.text.map(lambda t: t.isprintable()
                            or set(t) <= set('\t') | set(filter(str.isprintable, t)) | {'\u2028', '\xa0', '\x85'}).all()


def test_moses(write, lab):
    cs = write('talk.cs', b'\xef\xbb\xbfPr\xc5\xa1\xc3\xad.\r\n\n'
               b'na\xefve\n' + b'x' * (1 << 20) + 'Nevím.\nDvě\u2028věty.\n"Ano\n'.encode())
    lines = cs.read_bytes().count(b'\n')
    en = write('talk.en', b'It is raining.\nnothing there\nnaive\nlong\nTwo\xe2\x80\xa8sentences.\n"Yes\n')
    assert lines == 6
    good, bad = split(read_bitext([cs, en]))
    assert ([(r.source, r.reference) for r in good]
            == [GOOD, ('Dvě\u2028věty.', 'Two\u2028sentences.'), ('"Ano', '"Yes')])
    assert ([(r.line, r.reason) for r in bad]
            == [(2, 'source: empty'), (3, 'source: invalid UTF-8'), (4, 'line over 65,536 bytes')])
    with pytest.raises(BitextError, match='talk.en goes on at line 7'):
        import_bitext([cs, write('talk.en', en.read_bytes() + b'one too many\n')], 'slipped', lab)
    assert not (lab.corpora / 'slipped').exists()
    # mended, it goes through
    assert import_bitext([cs, write('talk.en', b'a\nb\nc\nd\ne\nf\n')], 'slipped', lab).rows == 3


def test_lone_surrogates_and_other_json(write):
    rows = [r'{"source": "Prší.", "reference": "It is raining."}',
            r'{"source": "P\ud83d", "reference": "Half"}', r'{"source": "\udc80", "reference": "x"}',
            r'{"source": "P\u0000", "reference": "x"}',
            r'{"source": "\ud83d\ude00", "reference": "whole"}', '{"source": null, "reference": "x"}',
            '{"source": ["a"], "reference": "x"}', '{"reference": "x"}',
            '{"source": "a", "reference": NaN}', '"just a text"', '[' * 60_000, '{' * 5,
            '{"source": "a", "reference": ' + '9' * 5000 + '}', '',
            r'{"source": "dva\nřádky", "reference": "two\r\nlines"}']
    good, bad = split(read_bitext(write('x.jsonl', '\n'.join(rows))))
    assert [(r.line, r.source) for r in good] == [(1, 'Prší.'), (5, '😀'), (15, 'dva řádky')]
    assert [r.line for r in bad] == [2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert Counter(re.sub(r'.*: ', '', r.reason) for r in bad)['no JSON object'] == 5


def test_csv_quotes(write):
    text = ('source,reference\n"Řekl ""ano"", a šel","He said ""yes"", and left"\n'
            '"Dva\nřádky","Two\nlines"\n5" disk,5" disk\na "b" c,d\n"x"y,z\n"otevřené,open\nPrší.,It is raining.\n')
    good, bad = split(read_bitext(write('q.csv', text)))
    assert [r.line for r in good] == [2, 3, 6, 7, 10] and good[1].reference == 'Two lines'
    assert good[-1].source == 'Prší.'
    assert ([(r.line, r.reason) for r in bad]
            == [(8, "unclosed or misplaced quotation mark"), (9, 'unclosed or misplaced quotation mark')])


def test_a_quote_does_not_swallow_the_file(write):
    text = 'source,reference\n"never closed,oops\n' + 'Prší.,It is raining.\n' * 20_000
    good, bad = split(read_bitext(write('q.csv', text)))
    assert (len(good), [r.line for r in bad]) == (20_000, [2])


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0\r')),
                         min_size=2, max_size=2), min_size=1, max_size=8))
def test_csv_round_trip(rows):
    text = ''.join(','.join('"' + f.replace('"', '""') + '"' for f in row) + '\n' for row in rows)
    items = csv_rows(iter(list(enumerate(text.split('\n')[:-1], 1))), ',', 2)
    assert [i[1] for i in items] == rows


@given(st.text() | st.binary().map(lambda b: b.decode('utf-8', 'surrogateescape')))
def test_what_passes_can_be_stored_and_what_is_shown_too(text):
    excerpt(text).encode()
    clean = tidy(text)
    if fault_of(clean) is None:
        clean.encode()
        assert clean and '\0' not in clean and '\n' not in clean and '\t' not in clean and tidy(clean) == clean


# --- damaged files: an error that names the file -------------------------------------------------------------------

def tmx(body, head='<?xml version="1.0" encoding="UTF-8"?>'):
    return f'{head}<tmx version="1.4"><header/><body>{body}</body></tmx>'


UNIT = '<tu><tuv xml:lang="cs-CZ"><seg>Prší.</seg></tuv><tuv xml:lang="en"><seg>It is raining.</seg></tuv></tu>'
LAUGHS = ('<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY l0 "ha">'
          + ''.join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10)) + ']>')
FILES = {
    'laughs.tmx': (tmx('<tu><tuv xml:lang="cs"><seg>&l9;</seg></tuv></tu>', LAUGHS), 'declares XML entities'),
    'external.tmx': (tmx('&x;', '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), 'declares XML entities'),
    'parameter.tmx': (tmx('', '<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>'),
                      'declares XML entities'),
    'deep.tmx': ('<tmx>' + '<a>' * 100_000, 'nested deeper than 64'),
    'tag.tmx': ('<tmx ' + 'a' * (3 << 20), 'tag longer than a megabyte'),
    'cut.tmx': (tmx(UNIT)[:-20], 'cut-off XML'),
    'cut.tsv.gz': (gzip.compress(b'a\tb\n' * 10_000)[:-30], 'damaged or cut off'),
    'head.tsv.gz': (b'\x1f\x8b\x08', 'damaged'),
    'cut.parquet': (None, 'not a whole Parquet file'),
    'flipped.parquet': (None, 'not a whole Parquet file'),
    'picture.png': (b'\x89PNG\r\n\x1a\n\0\0\0', 'unknown format'),
    'utf16.tsv': ('a\tb\n'.encode('utf-16'), 'UTF-16'),
    'four.tsv': ('1\tPrší.\t2\tIt rains.\n', 'no header'),
    'nothing.tsv': ('Jen jedno pole\n', 'fields in most lines'),
    'alone.cs': ('Prší.\n', 'two files'),
    'columns.parquet': (None, 'hold no pair')}


def damaged(path):
    table = pa.table({'source': ['Prší.'] * 50_000, 'reference': [f'It is raining {i}.' for i in range(50_000)]})
    pq.write_table(table.rename_columns(['a', 'b']) if path.name == 'columns.parquet' else table, path)
    data = bytearray(path.read_bytes())
    if path.name == 'cut.parquet': del data[len(data) // 2:]
    if path.name == 'flipped.parquet': data[100:len(data) // 2] = bytes(len(data) // 2 - 100)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize('name', FILES)
def test_damaged_file_is_an_error_that_names_it(write, lab, tmp_path, name):
    content, why = FILES[name]
    path = damaged(tmp_path / name) if content is None else write(name, content)
    with pytest.raises(BitextError, match=f'(?s){re.escape(name)}.*{why}'):
        import_bitext(path, 'damaged', lab)
    assert not list_corpora(lab), 'a failed import leaves no corpus'


def test_laughs_cost_nothing(write):
    tracemalloc.start()
    with pytest.raises(BitextError):
        list(read_bitext(write('laughs.tmx', FILES['laughs.tmx'][0])))
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


def test_tmx_bad_units(write):
    body = (UNIT + UNIT.replace('Prší.', '') + UNIT.replace('cs-CZ', 'de')
            + UNIT.replace('Prší', 'x' * 70_000) + UNIT.replace('Prší', 'na\x01ve'))
    path = write('bad.tmx', tmx(body + UNIT).encode().replace(b'It is raining', b'It is r\xe1ining', 1))
    good, bad = split(read_bitext(path))
    assert [(r.source, r.reference) for r in good] == [GOOD]
    assert ([r.reason for r in bad] == ['reference: replacement character U+FFFD',
                                        'source: empty', 'no segment in cs', 'source: over 4,000 characters',
                                        'source: replacement character U+FFFD'])
    assert ([r.reference for r in split(read_bitext(
        write('16.tmx', tmx(UNIT, '<?xml version="1.0" encoding="UTF-16"?>').encode('utf-16')))) [0]] == [GOOD[1]])


DAMAGE = {
    'less': UNIT.replace('It is', 'x < y'), 'ampersand': UNIT.replace('It is', 'R & D'),
    'no-entity': UNIT.replace('It is', '&nbsp;'), 'crossed': UNIT.replace('</seg></tuv>', '</tuv></seg>', 1),
    'open-unit': UNIT.removesuffix('</tu>'), 'open-segment': UNIT.replace('</seg></tuv></tu>', ''),
    'open-tag': UNIT.replace('<tu>', '<tu id=7>'), 'nul-tag': UNIT.replace('<seg>', '<\0>', 1)}


@pytest.mark.parametrize('damage', DAMAGE)
@pytest.mark.parametrize('place', ['first', 'middle', 'last', 'twice', 'every other', 'alone'])
@pytest.mark.parametrize('cut', [1 << 20, 7])
def test_a_unit_that_is_no_xml_is_set_aside_alone(write, monkeypatch, damage, place, cut):
    """Its line is named, and all others are read, wherever it is and however the file comes in."""
    good = [UNIT.replace('It is', f'It {i} is') for i in range(4)]
    bad = DAMAGE[damage]
    units = {'first': [bad, *good], 'middle': [*good[:2], bad, *good[2:]], 'last': [*good, bad], 'alone': [bad],
             'twice': [good[0], bad, bad, *good[1:]], 'every other': [u for g in good for u in (g, bad)]}[place]
    text = tmx(''.join(f'\n{unit}' for unit in units))
    whole = [text[i:i + cut] for i in range(0, len(text), cut)]
    monkeypatch.setattr(memories, '_decoded', lambda stream, file: iter(whole))
    found = list(memories.read_tmx(Input(write('damaged.tmx', text)), Options('cs')))
    assert [item[0] for item in found] == list(range(2, 2 + len(units)))
    faults = [item for item in found if isinstance(item, Fault)]
    assert [fault.line - 2 for fault in faults] == [i for i, unit in enumerate(units) if unit == bad]
    assert [r['reference'] for _, r in (item for item in found if not isinstance(item, Fault))] == [
        f'It {i} is raining.' for i in range(4 if place != 'alone' else 0)]


def test_the_example_of_an_unescaped_sign_gives_its_other_units(write, lab):
    path = write('shop.tmx', tmx(UNIT + UNIT.replace('It is', 'x < y') + UNIT.replace('Prší', 'Sněží')))
    corpus = import_bitext(path, 'shop', lab)
    assert corpus.rows == 2
    [reject] = pd.read_parquet(corpus.folder / 'rejects.parquet').to_dict('records')
    assert reject['line'] == 1 and reject['reason'] == 'damaged XML: not well-formed (invalid token)'


def test_a_header_among_columns_by_position_is_noted(write, lab):
    pairs = [('It rains.', 'It is raining.'), ('The cat sat.', 'A cat was sitting.')]
    path = write('headed.tsv', ''.join(f'{a}\t{b}\n' for a, b in [('reference', 'translation'), *pairs]))
    with pytest.warns(DataWarning, match='headed.tsv: the first row looks like names .* reference=reference,transl'):
        corpus = import_bitext(path, 'headed', lab, columns=dict(reference=0, translation=1))
    assert corpus.rows == 3
    path = write('plain.tsv', ''.join(f'{a}\t{b}\n' for a, b in pairs))
    with warnings.catch_warnings():
        warnings.simplefilter('error', DataWarning)
        import_bitext(path, 'plain', lab, columns=dict(reference=0, translation=1))


@given(data=st.binary(max_size=300), name=st.sampled_from(['x.tsv', 'x.csv', 'x.jsonl', 'x.tmx', 'x.parquet']))
def test_any_bytes_as_any_format(tmp_path_factory, data, name):
    path = tmp_path_factory.mktemp('any') / name
    path.write_bytes(data)
    try: items = list(read_bitext(path))
    except BitextError: return
    for i in items: ''.join(t for t in i if isinstance(t, str)).encode()


# --- memory does not grow with the file ----------------------------------------------------------------------------

def lines_of(kind, size):
    czech = 'Prší a je {0} hodin, takže zůstaneme doma.'
    english = "It is raining and it is {0} o'clock, so we stay at home."
    row = {'tsv': f'{czech}\t{english}\n',
           'csv': f'"{czech}","{english}"\n',
           'jsonl': f'{{{{"cs": "{czech}", "en": "{english}"}}}}\n',
           'tmx': UNIT.replace('.', ' {0}.') + '\n', 'bad.tsv': 'jen jedno pole {0} a nic dalšího ' * 9 + '\n'}[kind]
    head, tail = {'tmx': ('<tmx>', '</tmx>'), 'bad.tsv': ('cs\ten\nPrší.\tIt rains.\n', '')}.get(kind, ('', ''))
    yield head
    written = n = 0
    while written < size:
        text = row.format(n)
        yield text
        written, n = written + len(text.encode()), n + 1
    yield tail


def peak(lab, path, name):
    tracemalloc.start()
    corpus = import_bitext(path, name, lab, shard_rows=10_000)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return corpus, highest


SOAK = [pytest.param(kind, 50 << 20, marks=pytest.mark.soak)
        for kind in ('tsv', 'csv', 'jsonl', 'tmx', 'bad.tsv')]


@pytest.mark.parametrize('kind,size', [('tsv', 5 << 20), *SOAK])
def test_memory_does_not_grow(tmp_path, lab, kind, size):
    for name, wanted in (('small', 1 << 20), ('large', size)):
        with open(tmp_path / f'{name}.{kind}', 'w') as f: f.writelines(lines_of(kind, wanted))
    peaks = [peak(lab, tmp_path / f'{name}.{kind}', name)[1] for name in ('small', 'large')]
    assert peaks[1] < 16 << 20 and peaks[1] < peaks[0] + (8 << 20), peaks


def test_a_line_without_end(tmp_path):
    with gzip.open(tmp_path / 'zeros.tsv.gz', 'wb', compresslevel=1) as f:
        f.write(b'cs\ten\nPr\xc5\xa1\xc3\xad.\tIt is raining.\n')
        for _ in range(64): f.write(bytes(1 << 20))
    tracemalloc.start()
    good, bad = split(read_bitext(tmp_path / 'zeros.tsv.gz'))
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert len(good) == 1 and [r.reason for r in bad] == [f'line over {LINE:,} bytes']


# --- killed, stopped, repeated -------------------------------------------------------------------------------------

SLOW = """
import sys, time
from dataclasses import replace
from functools import partial
from pathlib import Path
import paranmt_lab.bitext.importing as imp
from paranmt_lab.ground.settings import DataWarning, settings
pour = imp._stream
def slowly(readings, options):
    for n, item in enumerate(pour(readings, options)):
        if n % 100 == 0: time.sleep(.01)
        yield item
imp._stream = slowly
lab = replace(settings(), workspace=Path(sys.argv[2]))
imp.import_bitext(sys.argv[1], 'killed', lab, source_lang='cs', shard_rows=500)
"""


@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGINT])
def test_killed_import_begins_again(tmp_path, lab, how):
    path = tmp_path / 'x.tsv'
    with open(path, 'w') as f: f.writelines(lines_of('tsv', 1 << 20))
    process = subprocess.Popen([sys.executable, '-c', SLOW, path, lab.workspace], stderr=subprocess.PIPE)
    folder = lab.corpora / 'killed'
    deadline = time.time() + 60
    while len(list(folder.glob('pairs/part-*'))) < 2 and time.time() < deadline: time.sleep(.02)
    with pytest.raises(ValueError, match=f'being imported by process {process.pid}'):
        import_bitext(path, 'killed', lab, shard_rows=500)
    process.send_signal(how)
    assert process.wait(30) != 0
    if how == signal.SIGKILL:
        assert json.loads((folder / 'manifests/import.json').read_text())['status'] == 'running'
        assert len(list(folder.glob('pairs/part-*'))) >= 2
    else: assert not folder.exists(), 'a stopped import takes away what it wrote'
    again = import_bitext(path, 'killed', lab, shard_rows=500)
    undisturbed = import_bitext(path, 'whole', lab, shard_rows=500)
    assert again.checksums == undisturbed.checksums and again.rows == undisturbed.rows
    assert not list(folder.rglob('*.part'))


def test_once_only(write, lab):
    path = write('x.tsv', 'Prší.\tIt is raining.\nJen jedno\n')
    first = import_bitext(path, 'once', lab, columns=dict(source=0, reference=1))
    stamps = {p: p.stat().st_mtime_ns for p in first.folder.rglob('*.parquet')}
    import_bitext(path, 'once', lab, columns=dict(source=0, reference=1))
    assert stamps == {p: p.stat().st_mtime_ns for p in first.folder.rglob('*.parquet')}
    for changed in (dict(columns=dict(source=1, reference=0)), dict(licence='CC0'), dict(limit=1)):
        with pytest.raises(ValueError, match='take another name'):
            import_bitext(path, 'once', lab, **dict(dict(columns=dict(source=0, reference=1)), **changed))
    write('x.tsv', 'Sněží.\tIt is snowing.\n')
    with pytest.raises(ValueError, match='take another name'):
        import_bitext(path, 'once', lab, columns=dict(source=0, reference=1))
    for name in ('../out', 'a/b', '.x', ''):
        with pytest.raises(ValueError, match='cannot name a corpus'): import_bitext(path, name, lab)


# --- what is read, in which language, and by which column ------------------------------------------------------------

def test_a_text_pair_beside_a_table_is_read_and_what_is_not_is_named(write, lab, tmp_path, capsys):
    folder = tmp_path / 'mixed'
    (folder / 'sub').mkdir(parents=True)
    (folder / '.git').mkdir()
    for name, text in {'a.cs-en.tsv': 'Prší.\tIt is raining.\n', 'talk.cs': 'Ahoj.\nAno.\n',
                       'talk.en': 'Hello.\nYes.\n', 'sub/more.ces': 'Ne.\n', 'sub/more.eng': 'No.\n',
                       'NOTES.md': 'read me', 'alone.cs': 'Sám.\n', '.git/config': 'x'}.items():
        (folder / name).write_text(text)
    corpus = bitext.import_bitext(folder, 'mixed', lab)
    assert sorted(corpus.frame(['reference']).reference) == ['Hello.', 'It is raining.', 'No.', 'Yes.']
    assert set(corpus.frame(['source_lang']).source_lang) == {'cs'}
    said = capsys.readouterr().err
    assert f'not read, since no reader knows their names: {folder}/NOTES.md, {folder}/alone.cs\n' in said
    (folder / 'talk.de').write_text('Hallo.\nJa.\n')
    with pytest.raises(BitextError, match=r'talk.en has several counterparts \(talk.cs, talk.de\)'):
        bitext.import_bitext(folder, 'several', lab)


SAYS = {  # name of a file and its content -> language of the corpus
    'de-en.tsv': ('Es regnet.\tIt is raining.\n', 'de'),
    'de-en.csv': ('source,reference\nEs regnet.,It is raining.\n', 'de'),
    'wetter.tsv': ('de\ten\nEs regnet.\tIt is raining.\n', 'de'),
    'wetter.csv': ('id,de,en\n1,Es regnet.,It is raining.\n', 'de'),
    'wetter.jsonl': ('{"translation": {"de": "Es regnet.", "en": "It is raining."}}\n', 'de'),
    'wetter.tmx': (tmx(UNIT.replace('cs-CZ', 'de-AT')), 'de'),
    'each.tsv': ('lang\tsource\treference\nfr\tIl pleut.\tIt is raining.\n', 'fr')}


@pytest.mark.parametrize('name', SAYS)
def test_the_language_is_taken_from_name_or_data(write, lab, name):
    content, language = SAYS[name]
    assert set(bitext.import_bitext(write(name, content), 'said', lab).frame(['source_lang']).source_lang) == {language}


def test_the_language_of_a_text_pair_and_of_parquet(write, lab, tmp_path):
    texts = [write('wetter.de', 'Es regnet.\n'), write('wetter.en', 'It is raining.\n')]
    pq.write_table(pa.table(dict(source=['Es regnet.'], reference=['It is raining.'])), tmp_path / 'de-en.parquet')
    for name, paths in dict(texts=texts, parquet=tmp_path / 'de-en.parquet').items():
        assert bitext.import_bitext(paths, name, lab).frame(['source_lang']).source_lang.tolist() == ['de']
    with pytest.raises(BitextError,
                       match=r'several languages: cs .*a.cs-en.tsv\), de .*wetter.de\); import each language'):
        bitext.import_bitext([*texts, write('a.cs-en.tsv', 'Prší.\tIt rains.\n')], 'both', lab)


def test_a_language_that_is_not_said_is_asked_for(write, lab):
    path = write('corpus.tsv', 'Es regnet.\tIt is raining.\n')
    for paths, options, why in ((path, {}, 'corpus.tsv: neither its name nor its data say .*--source-lang de'),
                                (path, dict(source_lang='german'), "'german' is no language code"),
                                (path, dict(source_lang='xx'), "'xx' is no language code"),
                                (write('de-en.tsv', 'cs\ten\nPrší.\tIt rains.\n'), {},
                                 r'different languages \(cs, de\)')):
        with pytest.raises(ValueError, match=why): bitext.import_bitext(paths, 'asked', lab, **options)
    assert not list_corpora(lab)
    assert (bitext.import_bitext(path, 'asked', lab, source_lang='de')
            .frame(['source_lang']).source_lang.tolist() == ['de'])
    ready = bitext.import_bitext(write('ready.tsv', 'reference\ttranslation\nHi.\tHello.\n'), 'ready', lab)
    assert ready.frame(['source_lang']).source_lang.isna().all(), 'no source, no language, no question'


def test_an_older_import_of_what_says_its_language_by_row_is_done_already(write, lab, capsys):
    path = write('each.tsv', 'lang\tsource\treference\nfr\tIl pleut.\tIt is raining.\n')
    corpus = bitext.import_bitext(path, 'each', lab)
    older = corpus.manifest('import')
    older['options']['source_lang'] = 'cs'  # the default of that time
    corpus.write_manifest('import', older)
    capsys.readouterr()
    bitext.import_bitext(path, 'each', lab)
    assert 'imported already' in capsys.readouterr().err


@pytest.mark.parametrize('content', ['czech,english\n', 'cs_text,en_text\n', 'left,right\n', 'Source text,English\n'])
def test_a_header_of_unknown_names_is_no_pair(write, lab, content):
    path = write('x.csv', content + 'Dnes prší.,It is raining.\nDnes sněží.,It is snowing.\n')
    first, second = content.strip().split(',')
    with pytest.raises(BitextError,
                       match=f'looks like a header of unknown names .*--columns source={first},reference={second}'):
        import_bitext(path, 'x', lab)
    assert import_bitext(path, 'x', lab, columns=dict(source=first, reference=second)).rows == 2


def test_a_quoted_tsv_is_pointed_out(write, lab, capsys):
    path = write('x.tsv', '"Dnes prší."\t"It is raining."\n"Ano."\t"Yes."\n')
    import_bitext(path, 'quoted', lab)
    assert f'{path}: most rows are in quotation marks' in capsys.readouterr().err
    assert (import_bitext(path, 'unquoted', lab, format='csv').frame(['reference']).reference.tolist()
            == ['It is raining.', 'Yes.'])
    assert 'quotation marks' not in capsys.readouterr().err


def test_columns_are_said_on_the_command_line(write, lab):
    path = write('four.tsv', '1\tPrší.\t2\tIt rains.\n')
    def run(name, *options):
        done = subprocess.run([sys.executable, '-m', 'paranmt_lab', 'import',
                               str(path), name, '--source-lang', 'cs', *options], capture_output=True, text=True,
                              env=os.environ | dict(PARANMT_WORKSPACE=str(lab.workspace)))
        return done.returncode, ' '.join((done.stdout + done.stderr).split())
    code, said = run('asked')
    assert code == 1 and "--columns source=0,reference=1" in said and "3 'It rains.'" in said
    assert run('said', '--columns', 'source=1,reference=3')[0] == 0
    assert (bitext.import_bitext(path, 'said', lab, source_lang='cs', columns=dict(source=1, reference=3))
            .frame(['source', 'reference']).values.tolist() == [['Prší.', 'It rains.']])
    code, said = run('wrong', '--columns', 'sauce=1,reference=3')
    assert code == 1 and "unknown roles ['sauce']" in said
    assert run('wrong', '--columns', 'source')[0] != 0


# --- the real files ------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not (RESOURCES / 'train').is_dir(), reason=f'no {RESOURCES}/train; set PARANMT_RESOURCES')


@real
def test_czech_bitext_whole(lab):
    corpus = import_bitext(RESOURCES / 'train/bitext/cs-en.parquet', 'cs-en', lab, licence='various')
    domains = corpus.manifest('import')['domains']
    assert corpus.rows == sum(domains.values()) == 157_626 and len(corpus.rejects()) == 0
    assert ([domains[d] for d in ('multi30k-train', 'multi30k-val',
                                  'tatoeba-test-v2021', 'wesnoth', 'libreoffice-help', 'libreoffice-l10n-cs')] == [
                                      28_675, 1_001, 11_932, 19_892, 31_071, 9_747])
    assert len(corpus.check()) == 0
    there = pq.read_table(RESOURCES / 'train/bitext/cs-en.parquet', columns=['source', 'reference'])
    here = pa.concat_tables(pq.read_table(p, columns=['source', 'reference']) for p in corpus.shards)
    assert here.equals(there.cast(here.schema))


@real
def test_wmt_pairs(lab):
    corpus = import_bitext(RESOURCES / 'train/paraphrase/wmt21-23.parquet', 'wmt', lab, limit=20_000)
    there = pq.read_table(RESOURCES / 'train/paraphrase/wmt21-23.parquet').slice(0, 20_000).to_pandas()
    frame = corpus.frame(['segment', 'source', 'source_lang', 'reference', 'translation', 'system'])
    assert frame.notna().all().all() and frame.system.tolist() == there.system.tolist()
    assert frame.translation.tolist() == there.hypothesis.map(tidy).tolist()
    assert frame.source_lang.tolist() == there.source_lang.tolist()
    assert frame.segment.nunique() == there.segment.nunique()
    assert frame.segment[0] == segment_of('wmt21-23', str(there.segment[0]))


@real
def test_captions(lab):
    corpus = import_bitext(RESOURCES / 'train/paraphrase/tatoeba-pivot.parquet', 'pivot', lab)
    frame = corpus.frame(['source', 'source_lang', 'reference', 'translation', 'corpus'])
    assert len(frame) == 5_154 and frame.source.isna().all()
    assert frame.source_lang.isna().all() and set(frame.corpus) == {'tatoeba-pivot'}


# ---- numbers that come along as measures

SCORED = [('It is raining.', 'It rains.', .5), ('Go on.', 'Continue.', None), ('Why?', 'What for?', -3),
          ('Yes.', 'Yes!', 1e-30)]


def scored_files(folder):
    "The same four pairs and numbers in every format that has columns."
    texts = ['' if x is None else repr(x) for *_, x in SCORED]
    names = 'reference', 'translation', 'adequacy'
    rows = [names, *((*pair, text) for (*pair, _), text in zip(SCORED, texts))]
    (folder / 'a.tsv').write_text('\n'.join(map('\t'.join, rows)) + '\n')
    (folder / 'b.csv').write_text('\n'.join(','.join(f'"{x}"' for x in row) for row in rows) + '\n')
    (folder / 'c.jsonl').write_text('\n'.join(json.dumps(dict(zip(names, row))) for row in SCORED))
    pq.write_table(pa.table(dict(zip(names, zip(*SCORED)))), folder / 'd.parquet')
    return [folder / name for name in ('a.tsv', 'b.csv', 'c.jsonl', 'd.parquet')]


def test_numbers_come_along_from_every_format_with_columns(tmp_path, lab):
    for path in scored_files(tmp_path):
        corpus = import_bitext(path, f'from-{path.suffix[1:]}', lab, shard_rows=3,
                               measures={'adequacy@people': 'adequacy'})
        found = corpus.frame(['adequacy@people'])['adequacy@people']
        np.testing.assert_array_equal(found, np.array([x for *_, x in SCORED], np.float32), str(path))
        assert len(corpus.shards) == 2 and corpus.problems() == [] and len(corpus.rejects()) == 0
        assert ('values', 'adequacy@people', 3) in list(import_summary(corpus).itertuples(index=False, name=None))
        assert corpus.count('adequacy@people', -10) == 3  # what is no value passes no range


def test_what_is_no_finite_number_is_a_reject_with_its_line(write, lab):
    values = ['0.5', 'inf', '-Infinity', '1e39', 'good', '1_000', 'NaN', ' ', '0x10', '3,5']
    path = write('bad.tsv', 'reference\ttranslation\tq\n' + ''.join(f'Line {i}.\tRow {i}.\t{x}\n'
                                                                   for i, x in enumerate(values, 2)))
    corpus = import_bitext(path, 'bad', lab, measures={'q': 'q'})
    rejects = corpus.rejects()
    assert rejects.line.tolist() == [3, 4, 5, 6, 7, 10, 11] and set(rejects.reason) == {'column q: no finite number'}
    assert rejects.text[0] == 'Line 3.\tRow 3.\tinf'
    assert corpus.frame(['q']).q.isna().tolist() == [False, True, True]
    values = [1, True, [2], None, float('nan'), 'x', '7', 10**400]
    objects = write('bad.jsonl', '\n'.join(json.dumps(dict(reference=f'Line {i}.', translation=f'Row {i}.', q=x))
                                           for i, x in enumerate(values, 1)))
    corpus = import_bitext(objects, 'objects', lab, measures={'q': 'q'})
    assert corpus.rejects().line.tolist() == [2, 3, 6, 8]


@pytest.mark.parametrize('measures, why', [
    ({'q': 'quality'}, "no column 'quality' for a measure"), ({'rank': 'q'}, "'rank' is a column of the pairs"),
    ({'../q': 'q'}, 'cannot name'), ({'empty': 'empty'}, "column 'empty' has a number in no row")])
def test_a_measure_that_cannot_be_read_is_refused_and_leaves_nothing(write, lab, measures, why):
    path = write('q.tsv', 'reference\ttranslation\tq\tempty\nOne.\tUno.\t1\t\n')
    with pytest.raises(ValueError, match=why): import_bitext(path, 'q', lab, measures=measures)
    assert list_corpora(lab) == []


def test_a_format_without_columns_has_no_measures(write, lab):
    a, b = write('x.cs', 'Prší.\n'), write('x.en', 'It rains.\n')
    with pytest.raises(BitextError, match='moses has no column'): import_bitext([a, b], 'x', lab, measures={'q': 'q'})


def test_numbered_columns_and_columns_of_the_pairs(write, lab):
    path = write('raw.tsv', ''.join(f'One {i}.\tUno {i}.\t-0.{i}\t{i}\n' for i in range(1, 5)))
    corpus = import_bitext(path, 'raw', lab, columns=dict(reference=0, translation=1),
                           measures={'translation_score': 2, 'm': 3})
    f = corpus.frame(['translation_score', 'm'])
    assert np.allclose(f.translation_score, [-.1, -.2, -.3, -.4]) and f.m.tolist() == [1, 2, 3, 4]
    assert corpus.measures() == ['m'] and len(corpus.rejects()) == 0


def test_measures_are_part_of_what_was_imported_and_earlier_imports_are_the_same(write, lab):
    path = write('q.tsv', 'reference\ttranslation\tq\nOne.\tUno.\t1\n')
    corpus = import_bitext(path, 'q', lab)
    manifest = corpus.manifest('import')
    del manifest['options']['measures']  # as versions before wrote it
    corpus.write_manifest('import', manifest)
    assert import_bitext(path, 'q', lab).measures() == []
    with pytest.raises(ValueError, match='with other options'): import_bitext(path, 'q', lab, measures={'q': 'q'})


def test_a_killed_import_leaves_no_measure_behind(write, lab):
    path = write('q.tsv', 'reference\ttranslation\tq\nOne.\tUno.\t1\n')
    corpus = import_bitext(path, 'q', lab, measures={'q': 'q'})
    corpus.write_manifest('import', corpus.manifest('import') | dict(status='running', pid=2**22 + 1))
    again = import_bitext(path, 'q', lab)
    assert again.measures() == [] and not (again.folder / 'measures').exists()


PPDB = '''[NN] ||| the tram ||| the streetcar ||| PPDB2.0Score=5.1 PPDB1.0Score=4.0 ||| 0-0 1-1 ||| Equivalence
[VP] ||| was late ||| arrived late ||| PPDB2.0Score=3.9 PPDB1.0Score=2.7 ||| 0-0 1-1 ||| ForwardEntailment
[NP] ||| the [NN,1] of ||| the [NN,1] from ||| PPDB2.0Score=2.0 ||| 0-0 ||| Equivalence
the tram ||| the streetcar
[X] ||| of course ||| certainly ||| PPDB2.0Score=high ||| 0-0 ||| Equivalence

[X] ||| of course ||| certainly ||| PPDB1.0Score=1.0 ||| 0-0 ||| Equivalence
'''


@pytest.mark.parametrize('format', ['ppdb', None])
@pytest.mark.parametrize('packed', [False, True])
def test_phrases_of_ppdb(write, lab, packed, format):
    path = write('phrases.gz' if packed else 'phrases', gzip.compress(PPDB.encode()) if packed else PPDB.encode())
    corpus = import_bitext(path, 'phrases', lab, format=format)
    frame = corpus.frame(['reference', 'translation', 'source', 'ppdb_score'], order='pair_id')
    assert frame[['reference', 'translation']].values.tolist() == [
        ['the tram', 'the streetcar'], ['was late', 'arrived late'], ['of course', 'certainly']]
    assert frame.ppdb_score[:2].tolist() == pytest.approx([5.1, 3.9]) and np.isnan(frame.ppdb_score[2])
    assert frame.source.isna().all()
    rejects = corpus.rejects().set_index('line').reason
    assert rejects.index.tolist() == [3, 4, 5, 6] and rejects[3] == 'a gap such as [NP,1]'
    assert '2 fields' in rejects[4] and 'no finite number' in rejects[5] and '1 fields' in rejects[6]


def test_features_of_ppdb_are_measures_by_name(write, lab):
    corpus = import_bitext(write('phrases', PPDB.encode()), 'phrases', lab, measures={'first': 'PPDB1.0Score'})
    assert corpus.measures() == ['first'] and corpus.rows == 4
    older = write('ppdb-1.0', b'[X] ||| of course ||| certainly ||| Abstract=0 ||| 0-0\n')
    assert import_bitext(older, 'older', lab).measures() == []
    lexical = write('ppdb-1.0-words', b'[X] ||| of course ||| certainly ||| Abstract=0 ||| 0-0\n')
    with pytest.raises(BitextError, match='has a number in no row'):
        import_bitext(lexical, 'none', lab, measures={'score': 'PPDB2.0Score'})
