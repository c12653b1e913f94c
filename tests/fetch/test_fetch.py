"""Fetching from a local server that cuts connections, lies about lengths and sends wrong bytes; hostile archives."""
import hashlib
import io
import os
import random
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paranmt_lab.fetch import download as fetching, sets
from paranmt_lab.fetch.archives import Archive, ArchiveError
from paranmt_lab.fetch.download import SETS, DownloadError, Wanted, choose_sources, download, read_sources
from paranmt_lab.fetch.layout import (
    ROWS,
    LayoutError,
    glove_300d_files,
    pit_tables,
    senteval_tables,
    sts_tables,
    tatoeba_files,
    turku_tables,
    write_table,
)
from paranmt_lab.fetch.sets import FILES, TABLES, downloads_folder, fetch
from paranmt_lab.tokens.text import read_vectors

CONTENT = random.Random(0).randbytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(BaseHTTPRequestHandler):
    """A file under several names, each with a fault of its own."""
    def log_message(self, *args): pass

    def begin_of(self):
        span = re.fullmatch(r'bytes=(\d+)-', self.headers.get('Range', ''))
        return int(span[1]) if span else 0

    def answer(self, content, begin=0, length=None, status=None, **headers):
        self.send_response(status or (206 if begin else 200))
        if begin: self.send_header('Content-Range', f'bytes {begin}-{len(content) - 1}/{len(content)}')
        if length != '': self.send_header('Content-Length', str(len(content) - begin if length is None else length))
        for name, value in headers.items(): self.send_header(name.replace('_', '-'), value)
        self.end_headers()

    def do_GET(self):
        begin, name = self.begin_of(), self.path.strip('/')
        self.server.asked.append((name, begin, self.headers.get('If-Range')))
        getattr(self, f'do_{name}')(begin)

    def do_good(self, begin):
        self.answer(CONTENT, begin, ETag='"one"')
        self.wfile.write(CONTENT[begin:])

    def do_cut(self, begin):  # the connection ends after 40,000 bytes
        self.answer(CONTENT, begin, ETag='"one"')
        self.wfile.write(CONTENT[begin:begin + 40_000])

    def do_whole(self, begin):  # knows no ranges, and ends early at first
        self.answer(CONTENT)
        self.wfile.write(CONTENT[:100_000] if len(self.server.asked) < 3 else CONTENT)

    def do_changed(self, begin):  # another version after the first request
        first = len(self.server.asked) == 1
        content, tag = (CONTENT[::-1], '"old"') if first else (CONTENT, '"new"')
        begin = begin if self.headers.get('If-Range') == tag else 0
        self.answer(content, begin, ETag=tag)
        self.wfile.write(content[begin:begin + 50_000] if first else content[begin:])

    def do_short(self, begin):  # says that it is shorter than it is
        self.answer(CONTENT, begin, length=1000, ETag='"one"')
        self.wfile.write(CONTENT[begin:])

    def do_endless(self, begin):
        self.answer(CONTENT, begin, length='')
        try:
            while True: self.wfile.write(b'x' * 65536)
        except OSError: pass

    def do_wrong(self, begin):
        self.answer(CONTENT[::-1], begin)
        self.wfile.write(CONTENT[::-1][begin:])

    def do_elsewhere(self, begin):  # answers with another range than was asked for
        self.send_response(206 if begin else 200)
        self.send_header('Content-Range', f'bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}')
        self.send_header('Content-Length', str(len(CONTENT) - 7))
        self.end_headers()
        self.wfile.write(CONTENT[7:60_000])

    def do_page(self, begin):
        self.answer(b'<html>Do you agree?</html>', Content_Type='text/html; charset=utf-8')
        self.wfile.write(b'<html>Do you agree?</html>')

    def do_gone(self, begin): self.send_error(404)
    def do_busy(self, begin): self.send_error(503)
    def do_complete(self, begin): self.send_error(416) if begin else self.do_good(0)

    def do_file(self, begin):
        self.send_response(302)
        self.send_header('Location', 'file:///etc/passwd')
        self.end_headers()


@pytest.fixture
def server():
    with ThreadingHTTPServer(('127.0.0.1', 0), Server) as server:
        server.daemon_threads, server.asked = True, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f'http://127.0.0.1:{server.server_port}'
        yield server
        server.shutdown()


@pytest.fixture
def wanted(server, tmp_path):
    return lambda name, size=300_000, sha=SHA: Wanted(f'{server.url}/{name}', tmp_path / f'{name}.bin', size, sha)


def left(tmp_path): return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize('name', ['good', 'cut', 'whole', 'changed'])
def test_what_comes_in_pieces_is_whole_in_the_end(name, wanted, server, tmp_path):
    assert download(wanted(name), wait=0) == SHA
    assert (tmp_path / f'{name}.bin').read_bytes() == CONTENT and left(tmp_path) == [f'{name}.bin']
    if name == 'cut': assert [begin for _, begin, _ in server.asked] == list(range(0, 300_000, 40_000))
    if name == 'changed': assert server.asked[1] == ('changed', 50_000, '"old"')
    before = len(server.asked)
    assert download(wanted(name), wait=0) == SHA and len(server.asked) == before  # it is there


def test_without_known_size_and_checksum_the_servers_length_counts(wanted, tmp_path):
    assert download(wanted('cut', 0, ''), wait=0) == SHA
    with pytest.raises(DownloadError, match='more than the expected'):
        fetching.MOST, most = 10_000_000, fetching.MOST
        try: download(wanted('endless', 0, ''), wait=0)
        finally: fetching.MOST = most
    assert left(tmp_path) == ['cut.bin', 'endless.bin.part.json']


@pytest.mark.parametrize('name, why', [
    ('short', 'bytes, expected 300,000'), ('wrong', f'expected {SHA}'), ('endless', 'more than the expected 300,000'),
    ('page', 'web page instead of the file'), ('gone', '404'), ('busy', '503'),
    ('file', 'could not be downloaded|302')])
def test_what_is_wrong_never_gets_its_name_and_the_error_says_what_to_do(name, why, wanted, tmp_path):
    with pytest.raises(DownloadError, match=why) as error: download(wanted(name), wait=0)
    assert not (tmp_path / f'{name}.bin').exists() and not (tmp_path / f'{name}.bin.part').exists()
    assert 'again' in str(error.value)
    if name in ('gone', 'page', 'busy'): assert str(tmp_path / f'{name}.bin') in str(error.value)


def test_an_answer_from_another_place_is_not_joined(wanted, tmp_path):
    with pytest.raises(DownloadError): download(wanted('elsewhere'), wait=0)
    assert not (tmp_path / 'elsewhere.bin').exists()


def test_a_part_that_is_complete_is_taken(wanted, server, tmp_path):
    (tmp_path / 'complete.bin.part').write_bytes(CONTENT)
    (tmp_path / 'complete.bin.part.json').write_text(f'{{"url": "{server.url}/complete", "version": ""}}')
    assert download(wanted('complete'), wait=0) == SHA


def test_a_killed_download_continues(wanted, server, tmp_path):
    program = f'''
from pathlib import Path
from paranmt_lab.fetch.download import *
import os, signal
def advance(here, total):
    if here >= 60_000: os.kill(os.getpid(), signal.SIGKILL)
download(Wanted({server.url + '/cut'!r}, Path({str(tmp_path / 'cut.bin')!r}), {len(CONTENT)}, {SHA!r}), advance, 0)'''
    assert subprocess.run([sys.executable, '-c', program]).returncode == -9
    assert (tmp_path / 'cut.bin.part').stat().st_size >= 40_000
    before = len(server.asked)
    assert download(wanted('cut'), wait=0) == SHA and server.asked[before][1] >= 40_000


def test_without_a_network_the_error_says_which_file_to_put_where(tmp_path):
    with pytest.raises(DownloadError) as error:
        download(Wanted('http://127.0.0.1:1/x.zip', tmp_path / 'x.zip', 7), wait=0)
    assert f'7 bytes and put it at {tmp_path}/x.zip' in str(error.value)
    (tmp_path / 'x.zip').write_bytes(b'1234567')
    assert download(Wanted('http://127.0.0.1:1/x.zip', tmp_path / 'x.zip', 7)) == hashlib.sha256(b'1234567').hexdigest()
    (tmp_path / 'x.zip').write_bytes(b'12345678')
    with pytest.raises(DownloadError, match='8 bytes, expected 7'):
        download(Wanted('http://127.0.0.1:1/x.zip', tmp_path / 'x.zip', 7))


def zipped(path, members, **options):
    with zipfile.ZipFile(path, 'w', **options) as z:
        for name, data in members.items(): z.writestr(name, data)
    return path


@pytest.mark.parametrize('name', ['../out.txt', '/tmp/out.txt', 'a/../../out.txt', '..\\out.txt', 'C:\\out.txt'])
def test_archives_with_paths_that_leave_their_folder_are_refused(name, tmp_path):
    with pytest.raises(ArchiveError, match='leads out of its folder'): Archive(zipped(tmp_path / 'a.zip', {name: 'x'}))
    with tarfile.open(tmp_path / 'a.tar', 'w') as t: t.addfile(tarfile.TarInfo(name))
    with pytest.raises(ArchiveError, match='leads out of its folder'): Archive(tmp_path / 'a.tar')


@pytest.mark.parametrize('kind', [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_members_that_are_no_files_are_refused(kind, tmp_path):
    with tarfile.open(tmp_path / 'a.tar', 'w') as t:
        member = tarfile.TarInfo('pairs.txt')
        member.type, member.linkname = kind, '/etc/passwd'
        t.addfile(member)
    with pytest.raises(ArchiveError, match='link or no file'): Archive(tmp_path / 'a.tar').text('pairs.txt')


def test_bombs_are_refused_whatever_they_say_of_themselves(tmp_path):
    path = zipped(tmp_path / 'a.zip', {'pairs.txt': b'0' * 30_000_000}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ArchiveError, match='30,000,000 bytes, at most'): Archive(path).text('pairs.txt')
    lying = bytearray(path.read_bytes())
    true = (30_000_000).to_bytes(4, 'little')
    while (at := lying.find(true)) >= 0: lying[at:at + 4] = (500).to_bytes(4, 'little')  # says it is small
    (tmp_path / 'b.zip').write_bytes(lying)
    with pytest.raises(ArchiveError): Archive(tmp_path / 'b.zip').text('pairs.txt')
    import gzip
    (tmp_path / 'c.gz').write_bytes(gzip.compress(b'0' * 30_000_000))
    with pytest.raises(ArchiveError, match='unpacks to more'): Archive(tmp_path / 'c.gz').text()


def test_damaged_archives_say_so(tmp_path):
    import gzip
    (tmp_path / 'a.gz').write_bytes(gzip.compress(CONTENT)[:1000])
    with pytest.raises(ArchiveError, match='damaged'): Archive(tmp_path / 'a.gz').text()
    with pytest.raises(ArchiveError, match='0 members end with'):
        Archive(zipped(tmp_path / 'a.zip', {'b': ''})).find('a')
    with pytest.raises(ArchiveError, match='2 members end with'):
        Archive(zipped(tmp_path / 'c.zip', {'x/a': '', 'y/a': '', '__MACOSX/a': ''})).find('a')


def packed(kind):
    "Bytes of an archive of one member."
    file = io.BytesIO()
    if kind == 'zip':
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('a.txt', CONTENT)
        return file.getvalue()
    with tarfile.open(fileobj=file, mode=f'w:{kind}') as t:
        member = tarfile.TarInfo('a.txt')
        member.size = len(CONTENT)
        t.addfile(member, io.BytesIO(CONTENT))
    return file.getvalue()


@pytest.mark.parametrize(('kind', 'damage'), [ # tar files have no checksum, so wrong bytes in a gz may go unnoticed
    *((kind, damage) for kind in ('zip', 'gz', 'bz2', 'xz') for damage in ('empty', 'half')),
    *((kind, 'wrong') for kind in ('zip', 'bz2', 'xz'))])
def test_damaged_archives_of_every_kind_raise_one_kind_of_error(kind, damage, tmp_path):
    whole = packed(kind)
    half = len(whole) // 2
    wrong = whole[:half] + bytes(b ^ 0x55 for b in whole[half:half + 30]) + whole[half + 30:]
    (tmp_path / 'a').write_bytes({'empty': b'', 'half': whole[:half], 'wrong': wrong}[damage])
    with pytest.raises(ArchiveError, match='damaged'): Archive(tmp_path / 'a').text('a.txt')


def test_errors_of_the_disk_are_no_damage(tmp_path):
    archive = Archive(zipped(tmp_path / 'a.zip', {'a': 'text'}))
    with pytest.raises(OSError, match='full'), archive.open('a') as file:
        file.read()
        raise OSError(28, 'the disk is full')


def test_every_set_has_a_reader_and_every_source_is_complete():
    assert set(SETS) == TABLES.keys() | FILES.keys()
    for source in read_sources():
        assert source.licence and source.about and source.target.startswith(('eval/', 'train/')), source
        assert not source.sha256 or re.fullmatch('[0-9a-f]{64}', source.sha256)
        assert '/' not in source.file and not source.file.startswith('.')


def test_sts_2012_to_2016_with_surprises_and_pairs_without_a_score(tmp_path):
    def archive(year):
        begin, members = 'STS2016' if year == '2016' else 'STS', {}
        for path, rows in ROWS.items():
            if not path.startswith(f'eval/sts/{year}/'): continue
            name = Path(path).stem
            name = f'surprise.{name}' if year == '2012' and name in ('OnWN', 'SMTnews') else name
            extra = 5 if year in ('2015', '2016') else 0
            members[f'x/{begin}.input.{name}.txt'] = ''.join(f'A "{i}\tB {i}\turl\tid\r\n' for i in range(rows + extra))
            members[f'x/{begin}.gs.{name}.txt'] = '3.5\n' * rows + '\n' * extra
        return Archive(zipped(tmp_path / f'{year}.zip', members))
    years = '2012 2013 2014 2015 2016'.split()
    written = [write_table(table, tmp_path) for table in sts_tables({year: archive(year) for year in years})]
    assert len(written) == 5 + 3 + 6 + 5 + 5
    assert (tmp_path / 'eval/sts/2016/plagiarism.tsv').read_text().split('\n')[1] == 'A "0\tB 0\t3.5'


def test_the_tracks_of_sts_2017(tmp_path):
    ends = 'track1.ar-ar track2.ar-en track3.es-es track4a.es-en track4b.es-en track5.en-en track6.tr-en'.split()
    kinds = dict(input='One.\tUno.\n' * 250, gs='2.4\n' * 250)
    archives = {part: Archive(zipped(tmp_path / f'{kind}.zip', {f'x/STS.{kind}.{end}.txt': text for end in ends}))
                for part, (kind, text) in zip(('2017', '2017-scores'), kinds.items())}
    written = {write_table(table, tmp_path).stem for table in sts_tables(archives)}
    assert written == {'ar-ar', 'ar-en', 'es-es', 'es-en', 'es-en-WMT', 'en-en', 'tr-en'}


def test_senteval_labels(tmp_path):
    stems = {'rt10662/rt-polarity': 'pos neg', 'customerr/custrev': 'pos neg', 'subj/subj': 'objective subjective',
             'mpqa/mpqa': 'pos neg'}
    members = {f'data/{stem}.{end}': f'a {end} text \nlatin \xe9\n'.encode('latin-1')
               for stem, ends in stems.items() for end in ends.split()}
    tables = {t.path: t.rows for t in senteval_tables(dict(binary=Archive(zipped(tmp_path / 'a.zip', members))))}
    assert tables['eval/senteval/subj/subj.tsv'][0] == ('a objective text ', '1', 'objective')
    assert tables['eval/senteval/mr/mr.tsv'][2:] == [('a neg text ', '0', 'negative'), ('latin é', '0', 'negative')]


@pytest.mark.parametrize(('line', 'why'), [
    ('1\tt\ta\tb\n', 'line 1 has 4 fields'), ('1\tt\ta\tb\tmany\n', "votes 'many'"), ('1\tt\ta\tb\t\n', "votes ''")])
def test_votes_of_another_form_are_an_error(line, why, tmp_path):
    archive = Archive(zipped(tmp_path / 'a.zip', {'data/dev.data': line, 'data/test.data': ''}))
    with pytest.raises(LayoutError, match=why): list(pit_tables({'': archive}))


def test_pairs_without_a_label_are_an_error(tmp_path):
    (tmp_path / 'a.json').write_text('[{"txt1": "a", "txt2": "b", "label": "4"}, {"txt1": "a", "txt2": "b"}]')
    with pytest.raises(LayoutError, match="turku/fi/dev.tsv: pair 2 has no 'label'"):
        list(turku_tables({'fi-dev': Archive(tmp_path / 'a.json')}))


@pytest.mark.parametrize(('name', 'line', 'why'), [
    ('cs-en-links', '1\n', 'expected number, number'), ('cs-en-links', '1\tx\n', 'expected number, number'),
    ('cs-sentences', '1\tces\n', 'expected number, text, text'), ('en-sentences', 'x\teng\ta\n', 'line 2 is')])
def test_lines_of_tatoeba_of_another_form_are_an_error(name, line, why, tmp_path):
    good = {'cs-sentences': '1\tces\ta\n', 'en-sentences': '7\teng\tb\n', 'cs-en-links': '1\t7\n'}
    for part, text in good.items(): (tmp_path / part).write_text(text + line * (part == name))
    with pytest.raises(LayoutError, match=why):
        list(tatoeba_files({part: Archive(tmp_path / part) for part in good}, tmp_path))


def test_a_source_that_changed_its_rows_is_an_error_and_nothing_is_written(tmp_path):
    downloads_folder(tmp_path).mkdir()
    zipped(downloads_folder(tmp_path) / 'SimLex-999.zip', {'SimLex-999/SimLex-999.txt': 'word1\tword2\na\tb\n'})
    with pytest.raises(LayoutError, match='1 rows, the published set has 999'): list(fetch(['simlex'], tmp_path))
    assert not (tmp_path / 'eval').exists()


def test_fetching_over_the_network_keeps_a_record_and_refuses_another_file(server, tmp_path, monkeypatch):
    rows = 'word1\tword2\tPOS\tSimLex999\n' + ''.join(f'a{i}\tb{i}\tN\t1\n' for i in range(999))
    data = zipped(tmp_path / 'made.zip', {'SimLex-999/SimLex-999.txt': rows}).read_bytes()
    def do_simlex(self, begin):
        self.answer(data, begin)
        self.wfile.write(data[begin:])
    monkeypatch.setattr(Server, 'do_simlex', do_simlex, raising=False)
    [source] = choose_sources(['simlex'])
    monkeypatch.setattr(sets, 'choose_sources', lambda names, only: [replace(source, url=f'{server.url}/simlex')])
    resources, seen = tmp_path / 'resources', []
    found = list(fetch(['simlex'], resources, advance=lambda source, here, total: seen.append((here, total))))
    assert found[1][1].read_text() == rows and seen[-1] == (len(data), len(data)) and not found[0][1]['known']
    asked = len(server.asked)
    assert list(fetch(['simlex'], resources))[0][1] == found[0][1] and len(server.asked) == asked
    (downloads_folder(resources) / source.file).write_bytes(data + b' ')
    with pytest.raises(DownloadError, match='the first download had'): list(fetch(['simlex'], resources))
    assert list(fetch(['simlex'], resources, renew=True))[0][1]['sha256'] == hashlib.sha256(data).hexdigest()
    outside = {path.name for path in tmp_path.iterdir()}
    assert outside == {'made.zip', 'resources'}


def test_glove_in_300_dimensions_stays_as_it_is(server, tmp_path, monkeypatch):
    """Another number of words is an error, and the words are read without a header."""
    lines = [f'{word} ' + ' '.join(f'{k}.5' for k in range(300)) for word in ('the', ',', 'naïve')]
    members = {f'glove.6B.{d}d.txt': '\n'.join(lines) + '\n' for d in (100, 300)}
    data = zipped(tmp_path / 'made.zip', members).read_bytes()
    def do_glove(self, begin):
        self.answer(data, begin)
        self.wfile.write(data[begin:])
    monkeypatch.setattr(Server, 'do_glove', do_glove, raising=False)
    [source] = choose_sources(['glove-300d'])
    assert (source.file, source.sha256) == (choose_sources(['glove'])[0].file, choose_sources(['glove'])[0].sha256)
    served = replace(source, url=f'{server.url}/glove', size=0, sha256='')
    monkeypatch.setattr(sets, 'choose_sources', lambda names, only: [served])
    with pytest.raises(LayoutError, match='glove.6B.300d.txt has 3 lines, expected 400,000'):
        list(fetch(['glove-300d'], tmp_path / 'resources'))
    path = tmp_path / 'resources/train/vectors/glove.6B.300d.txt'
    assert not path.exists()
    monkeypatch.setitem(sets.FILES, 'glove-300d', partial(glove_300d_files, words=3))
    assert list(fetch(['glove-300d'], tmp_path / 'resources'))[-1] == (None, path)
    words, vectors = read_vectors(path)
    assert words == ['the', ',', 'naïve'] and vectors.shape == (3, 300) and vectors[0, 299] == 299.5
    assert read_vectors(path, limit=2)[0] == words[:2]


@pytest.mark.skipif(os.environ.get('PARANMT_RESOURCES', '') == '', reason='no folder of resources is named')
def test_the_layout_is_that_of_the_files_at_hand():
    """Headers and numbers of rows of files that are there are those that fetching writes."""
    folder = Path(os.environ['PARANMT_RESOURCES'])
    there = [path for path in ROWS if (folder / path).is_file()]
    for path in there:
        lines = io.open(folder / path, encoding='utf-8', newline='\n').read().split('\n')
        assert len(lines) - 2 == ROWS[path], path
