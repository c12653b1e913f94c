"""The back-translation driver as real processes: killed, stopped, refused, out of room, and byte for byte the same in
the end."""
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import duckdb
import pandas as pd
import psutil
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding, Hypothesis
from paranmt_lab.ground.settings import read_json, settings
from paranmt_lab.translate.driver import translate_corpus

MODEL, BEAM, PART = 'ct2:marian-cs-en-tiny', 12, 12
# The driver with two accidents to order: death just before the rename to DIE_BEFORE, and no file longer than
# LONGEST_FILE.
DRIVER = '''
import os, resource, signal, sys
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.translate.driver import translate_corpus
from paranmt_lab.engines.protocol import Decoding
if die := os.environ.get('DIE_BEFORE'):
    rename = os.replace
    os.replace = lambda a, b: os.kill(os.getpid(), signal.SIGKILL) if str(b).endswith(die) else rename(a, b)
def one_line(kind, error, trace): print(f'{kind.__name__}: {error}', file=sys.stderr)
if longest := os.environ.get('LONGEST_FILE'):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(longest), int(longest)))
    sys.excepthook = one_line # the limit holds for the log too
bitext, name, engine, beam, part = sys.argv[1:]
decoding = Decoding(int(beam), int(beam))
target = translate_corpus(Corpus.open(bitext), name, engine, decoding=decoding, part_size=int(part))
sys.exit(0 if 'finished' in target.manifest('translate') else 130)
'''


class Job:
    "One corpus of pairs, and the processes that work on it."
    def __init__(self, lab, name, part=PART, command=None):
        self.lab, self.name, self.part, self.folder = lab, name, part, lab.corpora / name
        self.command = command or [sys.executable, '-c', DRIVER, 'talk', name, MODEL, str(BEAM), str(part)]
        self.cache = self.folder / 'cache' / 'translate'

    def start(self, workers=1, **env):
        env = {k: v for k, v in os.environ.items() if not k.startswith('PARANMT_')} | dict(
            PARANMT_WORKSPACE=str(self.lab.workspace), PARANMT_WORKERS=str(workers), OMP_NUM_THREADS='1') | env
        with open(self.lab.workspace / f'{self.name}.log', 'w') as log:
            return subprocess.Popen(self.command, env=env, stdout=log, stderr=log,
                                    start_new_session=True, cwd=self.lab.workspace)

    def run(self, workers=1, **env): return self.start(workers, **env).wait(900)
    def log(self): return (self.lab.workspace / f'{self.name}.log').read_text()
    def whole(self): return len(list(self.cache.glob('translations/part-*.parquet')))
    def progress(self): return read_json(self.folder / 'progress.json')
    def shards(self): return {p.name: p.read_bytes() for p in sorted(self.folder.glob('pairs/part-*.parquet'))}
    def left_over(self): return [p.name for p in self.folder.rglob('.*') if p.name != '.lock']

    def working(self, process):
        "Whether this process has begun to translate."
        return (self.folder / 'progress.json').exists() and self.progress()['pid'] == process.pid

    def until(self, process, condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            assert process.poll() is None, f'ended with {process.returncode} before the moment came:\n{self.log()}'
            assert time.monotonic() < end, f'still not there after {seconds} seconds:\n{self.log()}'
            time.sleep(.002)


def talk(domains, n=None):
    rows = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)
    return rows[rows.corpus.isin(domains) & (rows.source.str.len() < 300)].head(n).assign(source_lang='cs')


def make_lab(folder, rows, shard_rows):
    "A workspace with the corpus `talk`."
    lab = replace(settings(), workspace=folder, workers=1)
    corpus = Corpus.create('talk', lab)
    for shard, start in enumerate(range(0, len(rows), shard_rows)):
        corpus.write_pairs(shard, rows.iloc[start:start + shard_rows])
    return lab


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    "Five shards: short sentences, some that come again in a later shard, and one that is nothing but white space."
    rows = talk(['talk'])
    rows = rows[rows.source.str.len() < 60].head(170)
    rows = pd.concat([rows, rows.iloc[5:30], rows.iloc[:1].assign(source='\u3000')], ignore_index=True)
    return make_lab(tmp_path_factory.mktemp('driver'), rows, 40)


@pytest.fixture(scope='module')
def calm(lab):
    "Shards of an undisturbed run."
    job = Job(lab, 'calm')
    assert job.run() == 0, job.log()
    assert job.whole() >= 10 and len(job.shards()) == 5 and not job.left_over()
    return job.shards()


def check_rows(job):
    "No row lost, none doubled: every row of the bitext with exactly the hypotheses of its source, ranks 1 to k."
    bitext = Corpus.open('talk', job.lab)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{job.cache}/sources.duckdb' AS numbered (READ_ONLY)")
        con.execute(f"CREATE VIEW hypotheses AS FROM read_parquet('{job.cache}/translations/part-*.parquet')")
        con.execute(f'''CREATE VIEW wanted AS
            SELECT b.pair_id AS row, b.segment, source, b.reference, h.rank, h.translation, h.log_probability
            FROM read_parquet('{bitext.folder}/pairs/part-*.parquet') AS b
            JOIN numbered.sources USING (source) JOIN hypotheses AS h USING (source_id)''')
        con.execute(f'''CREATE VIEW found AS
            SELECT shard * 1000000000 + count(*) FILTER (rank = 1) OVER beside - 1 AS row,
                segment, source, reference, rank, translation, log_probability
            FROM (SELECT *, pair_id // 1000000000 AS shard FROM read_parquet('{job.folder}/pairs/part-*.parquet'))
            WINDOW beside AS (PARTITION BY shard ORDER BY pair_id)''')
        assert con.sql('FROM wanted EXCEPT ALL FROM found').fetchall() == []
        assert con.sql('FROM found EXCEPT ALL FROM wanted').fetchall() == []
        beams = con.sql('SELECT row, trim(any_value(source)) AS source, '
                        'list(rank ORDER BY rank) AS ranks FROM found GROUP BY row ORDER BY row').fetchall()
    assert [row for row, _, _ in beams] == bitext.frame(['pair_id']).pair_id.tolist()
    assert all(ranks == (list(range(1, BEAM + 1)) if source else [1]) for _, source, ranks in beams)


def kill_often(job, workers, moments):
    "Kill as soon as so many parts are whole, and a moment later; None: while sources are being numbered."
    chance = random.Random(0)
    total = -(-len(Corpus.open('talk', job.lab).frame(['source']).source.unique()) // job.part)
    for kill, moment in enumerate(moments):
        before, process = job.whole(), job.start(workers[kill % len(workers)])
        if moment is None: job.until(process, lambda: (job.folder / '.lock').exists())
        else:
            job.until(process, lambda: job.working(process))
            seen = job.progress()
            assert (job.part * before - job.part < seen['done'] <= job.part * job.whole()
                    + job.part * workers[kill % len(workers)]), 'a resumed job counts what is there'
            job.until(process, lambda: job.whole() >= max(moment * total // 100, before))
            time.sleep(chance.uniform(0, .15))
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert process.wait() == -signal.SIGKILL, 'alive until it was killed'
        # workers that were being started end at their first line
        assert not psutil.wait_procs(family, timeout=60)[1], 'a killed driver leaves no worker behind'
    assert not job.shards() and job.whole() < total


MOMENTS = (None, 0, 5, 15, 25, 35, 45, 55, 70, 80) # ten, percent of the parts; `make soak` has twenty-five and more


@pytest.mark.soak
def test_killed_ten_times_and_between_file_and_rename(lab, calm):
    job = Job(lab, 'killed')
    kill_often(job, (1, 1, 2), MOMENTS)
    assert job.run(DIE_BEFORE='pairs/part-00002.parquet') == -signal.SIGKILL
    assert list(job.shards()) == ['part-00000.parquet', 'part-00001.parquet']
    assert [n for n in job.left_over() if n.startswith('.part-00002.parquet')]
    assert job.run() == 0, job.log()
    assert job.shards() == calm
    assert not job.left_over()
    assert (job.progress()['done'], job.progress()['status']) == (job.progress()['total'], 'finished')
    check_rows(job)


@pytest.mark.parametrize('workers, cli', [(1, True), pytest.param(2, False, marks=pytest.mark.soak)])
def test_ctrl_c_stops_after_the_part_at_hand(lab, calm, workers, cli):
    options = ['--beam-size', BEAM, '--n-best', BEAM, '--part-size', PART]
    job = Job(lab, f'stopped-{workers}', command=[sys.executable, '-m', 'paranmt_lab', 'translate',
                                                  'talk', 'stopped-1', *map(str, options)] if cli else None)
    process = job.start(workers)
    job.until(process, lambda: job.working(process) and job.whole() >= 2)
    with pytest.raises(RuntimeError, match='another process is working in'):
        translate_corpus(Corpus.open('talk', lab), job.name, MODEL, lab, Decoding(BEAM, BEAM), PART)
    os.killpg(process.pid, signal.SIGINT) # as a terminal does: to the driver and to all of its workers
    assert process.wait(120) == 130, job.log()
    assert 'Traceback' not in job.log() and not job.left_over()
    assert 2 <= job.whole() < 10 and not job.shards()
    assert (job.progress()['status'], job.progress()['done']) == ('stopped', PART * job.whole())
    if cli: refuse_changes(lab, job)
    assert Job(lab, job.name).run(workers) == 0
    assert job.shards() == calm


def refuse_changes(lab, job):
    "Whatever decides the result must be as it was."
    bitext, before = Corpus.open('talk', lab), job.whole()
    for beam, best, part, named in ((4, 4, PART, 'beam_size: 12 there, 4 here'),
                                    (BEAM, 1, PART, 'n_best: 12 there, 1 here'),
                                    (BEAM, BEAM, 50, 'part_size: 12 there, 50 here')):
        with pytest.raises(ValueError, match=named):
            translate_corpus(bitext, job.name, MODEL, lab, Decoding(beam, best), part)
    model = lab.workspace / 'other' / 'marian-cs-en-tiny'
    shutil.copytree(settings().shipped / 'models' / 'marian-cs-en-tiny', model)
    with (model / 'config.json').open('a') as f: f.write('\n')
    with pytest.raises(ValueError, match=r'engine\.files\.config\.json: .* there, .* here'):
        translate_corpus(bitext, job.name, f'ct2:{model}', lab, Decoding(BEAM, BEAM), PART)
    for decoding, named in ((Decoding(BEAM, BEAM, 'alternatives'), "method: None there, 'alternatives' here"),
                            (Decoding(n_best=BEAM, method='sample'), "beam_size: 12 there, None here")):
        with pytest.raises(ValueError, match=named): translate_corpus(bitext, job.name, MODEL, lab, decoding, PART)
    with pytest.raises(ValueError, match="compute_type: 'int8_float32' there, 'float32' here"):
        translate_corpus(bitext, job.name, f'{MODEL}:float32', lab, Decoding(BEAM, BEAM), PART)
    assert job.whole() == before


def test_no_room(lab, calm):
    "At each stage a full disk is named, what is finished stays, and with room again the job comes to its end."
    job = Job(lab, 'full')
    assert job.run(LONGEST_FILE='100000') == 1 and 'sources.duckdb' in job.log() and 'too large' in job.log()
    assert job.run(DIE_BEFORE='translations/part-00004.parquet') == -signal.SIGKILL and job.whole() == 4
    assert job.run(LONGEST_FILE='1500') == 1 and 'make room' in job.log()
    assert 'translations/part-00004.parquet' in job.log()
    assert job.whole() == 4 and job.progress()['status'] in ('failed', 'running')
    assert job.run(DIE_BEFORE='pairs/part-00002.parquet') == -signal.SIGKILL
    done = job.shards()
    assert job.run(LONGEST_FILE='5000') == 1 and 'make room' in job.log() and 'pairs/part-00002.parquet' in job.log()
    assert job.shards() == done and len(done) == 2
    assert job.run(2) == 0 and job.shards() == calm and not job.left_over()


@pytest.mark.soak
def test_full_file_system(lab, calm, tmp_path):
    small = replace(lab, workspace=tmp_path)
    small.corpora.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=700k', 'none', small.corpora],
                      capture_output=True).returncode:
        pytest.skip('mounting a small file system needs root: sudo')
    try:
        # what can be derived would fill it
        shutil.copytree(lab.corpora / 'talk', small.corpora / 'talk',
                        ignore=shutil.ignore_patterns('cache'))
        job = Job(small, 'full')
        assert job.run() == 1 and 'No space left on device' in job.log(), job.log()
        before = job.shards()
        subprocess.run(['mount', '-o', 'remount,size=64m', small.corpora], check=True)
        assert job.run() == 0, job.log()
        assert job.shards() == calm and before.items() <= calm.items() and not job.left_over()
    finally: subprocess.run(['umount', small.corpora], check=True)


class Backwards:
    "An engine that needs no model."
    identity, methods = {'engine': 'backwards'}, ('beam',)
    def translate(self, sources, decoding=Decoding(), advance=None):
        if advance: advance(len(sources), sum(map(len, sources)), 0)
        return [[Hypothesis(f'{s[::-1]} {i}', -1. - i, len(s) + 1) for i in range(decoding.n_best)] for s in sources]


def damage(path, kind):
    whole = path.read_bytes()
    middle = slice(len(whole) // 3, len(whole) // 3 + 500)
    path.write_bytes({'cut': whole[:-20], 'empty': b'', 'text': b'not Parquet at all\n' * 9,
                      'zeroed': whole[:middle.start] + bytes(500) + whole[middle.stop:]}[kind])
    return whole


@pytest.mark.parametrize('kind', ['zeroed', *(pytest.param(kind, marks=pytest.mark.soak)
                                            for kind in ('cut', 'empty', 'text'))])
def test_damaged_shard_is_named_and_the_others_go_on(tmp_path, kind):
    "And when it is restored, the same command takes it in."
    lab = make_lab(tmp_path, talk(['talk', 'news'], 200), 50)
    def again(name, engine=None):
        return translate_corpus(Corpus.open('talk', lab), name, engine or Backwards(), lab, Decoding(3, 3), 40)

    calm, path = again('calm'), lab.corpora / 'talk/pairs/part-00002.parquet'
    whole = damage(path, kind)
    for _ in range(2):
        with pytest.raises(ValueError,
                           match='all but 1 of 4 shards are translated; damaged: .*pairs/part-00002.parquet.*restore'):
            again(kind)
        half = Corpus.open(kind, lab)
        assert [p.name for p in half.shards] == ['part-00000.parquet', 'part-00001.parquet', 'part-00003.parquet']
        assert list(half.manifest('translate')['damaged']) == ['2'] and 'finished' not in half.manifest('translate')
        assert read_json(half.folder / 'progress.json')['status'] == 'failed'
        assert 'part-00002' in read_json(half.folder / 'progress.json')['error']
    path.write_bytes(whole)
    assert again(kind).checksums == calm.checksums and 'finished' in Corpus.open(kind, lab).manifest('translate')


@pytest.mark.soak
def test_damaged_shard_on_the_command_line(tmp_path):
    lab = make_lab(tmp_path, talk(['talk'], 60), 20)
    whole = damage(lab.corpora / 'talk/pairs/part-00001.parquet', 'zeroed')
    job = Job(lab, 'pairs', command=[sys.executable, '-m', 'paranmt_lab', *'translate '
                                     'talk pairs --beam-size 2 --part-size 20 --engine-workers 2'.split()])
    assert job.run() == 1 and 'part-00001.parquet' in job.log().replace('\n', '') and 'Traceback' not in job.log()
    assert list(job.shards()) == ['part-00000.parquet', 'part-00002.parquet']
    (lab.corpora / 'talk/pairs/part-00001.parquet').write_bytes(whole)
    assert job.run() == 0 and len(job.shards()) == 3 and not job.left_over()


def test_shard_damaged_on_the_way(tmp_path):
    "Numbered and translated, and then unreadable."
    lab = make_lab(tmp_path, talk(['talk'], 100), 50)
    path = lab.corpora / 'talk/pairs/part-00000.parquet'
    whole = path.read_bytes()
    class Unlucky(Backwards):
        def translate(self, *args):
            damage(path, 'cut') if path.read_bytes() == whole else None
            return super().translate(*args)
    with pytest.raises(ValueError, match='all but 1 of 2 shards.*part-00000'):
        translate_corpus(Corpus.open('talk', lab), 'pairs', Unlucky(), lab, Decoding(3, 3), 200)
    path.write_bytes(whole)
    pairs = translate_corpus(Corpus.open('talk', lab), 'pairs', Backwards(), lab, Decoding(3, 3), 200)
    assert (pairs.checksums
            == translate_corpus(Corpus.open('talk', lab), 'calm', Backwards(), lab, Decoding(3, 3), 200).checksums)


@pytest.mark.soak
def test_sampled_shards_are_the_same_after_a_kill(lab):
    "Draws depend on the part alone: one worker or two, killed or not."
    code = DRIVER.replace('Decoding(int(beam), int(beam))', "Decoding(n_best=3, method='sample', seed=7)")
    calm, killed = (Job(lab, f'sampled-{name}',
                        command=[sys.executable, '-c', code, 'talk', f'sampled-{name}', MODEL, '3', str(PART)])
                    for name in ('calm', 'killed'))
    assert calm.run() == 0, calm.log()
    process = killed.start(2)
    killed.until(process, lambda: killed.whole() >= 3)
    process.kill(); process.wait()
    assert killed.run(2) == 0 and killed.shards() == calm.shards()
    texts = Corpus.open('sampled-calm', lab).frame(['source', 'translation'])
    assert texts.translation.nunique() > texts.source.nunique(), 'draws differ'


def test_damaged_or_lost_cache(tmp_path):
    "A damaged part is named and done again once it is deleted; a lost cache costs time and nothing else."
    lab = make_lab(tmp_path, talk(['talk', 'news'], 200), 50)
    again = lambda: translate_corpus(Corpus.open('talk', lab), 'pairs', Backwards(), lab, Decoding(3, 3), 40)
    target = again()
    before, part = target.checksums, target.folder / 'cache/translate/translations/part-00003.parquet'
    damage(part, 'zeroed')
    assert again().checksums == before, 'a finished corpus does not need its cache'
    for shard in target.shards[1:]: shard.unlink()
    with pytest.raises(ValueError, match='part-00003.parquet is damaged.*delete it'): again()
    part.unlink()
    assert again().checksums == before
    target.shards[2].unlink()
    shutil.rmtree(target.folder / 'cache')
    assert again().checksums == before


def test_changed_bitext_is_refused(tmp_path):
    lab = make_lab(tmp_path, talk(['talk'], 100), 50)
    translate_corpus(Corpus.open('talk', lab), 'pairs', Backwards(), lab)
    Corpus.open('talk', lab).write_pairs(2, talk(['news'], 10))
    with pytest.raises(ValueError, match='shards.2: None there'):
        translate_corpus(Corpus.open('talk', lab), 'pairs', Backwards(), lab)


def test_ready_pairs_and_nothing_at_all(tmp_path):
    lab = make_lab(tmp_path, talk(['talk'], 10).assign(source=None), 50)
    with pytest.raises(ValueError, match='10 rows of corpus .* have no source'):
        translate_corpus(Corpus.open('talk', lab), 'pairs', Backwards(), lab)
    with pytest.raises(ValueError, match='is empty; import'):
        translate_corpus(Corpus.create('nothing', lab), 'pairs-2', Backwards(), lab)


@pytest.mark.soak
@pytest.mark.parametrize('workers', [1, 2])
def test_soak(tmp_path, workers):
    "The sample through `paranmt translate`, killed at twenty-five moments and before three renames."
    lab = make_lab(tmp_path, talk(['talk', 'news', 'stories', 'notices']), 200)
    command = lambda name: [sys.executable, '-m', 'paranmt_lab', 'translate',
                            'talk', name, *f'--beam-size {BEAM} --n-best {BEAM} --part-size 25'.split()]
    whole, job = Job(lab, 'whole', 25, command('whole')), Job(lab, 'killed', 25, command('killed'))
    assert whole.run(workers) == 0
    kill_often(job, (workers,), (None, None, *range(0, 90, 4)))
    plain = Job(lab, 'killed', 25)
    for name in ('pairs/part-00000.parquet', 'pairs/part-00004.parquet', 'manifests/translate.json'):
        assert plain.run(DIE_BEFORE=name) == -signal.SIGKILL, name
    assert job.run(workers) == 0 and job.shards() == whole.shards() and not job.left_over()
    check_rows(job)
