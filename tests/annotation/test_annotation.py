"""The annotation database as people will treat it: eight at once and killed at random, against a plain model, with
hostile text, on full, closed, old and broken disks; on SQLite and on a real PostgreSQL."""
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings as hypothesis_settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typer.testing import CliRunner

from command import paranmt
from paranmt_lab.annotation import store
from paranmt_lab.annotation.adjudication import adjudicate, adjudicated, disputes
from paranmt_lab.annotation.answers import comment, discard, retract, revise, skip, submit, undo
from paranmt_lab.annotation.campaigns import (
    SCALES,
    Campaign,
    CampaignThere,
    Gold,
    campaign_items,
    create_campaign,
    draw,
    keep_campaign,
)
from paranmt_lab.annotation.exports import answer_table, export, import_answers, read_answers
from paranmt_lab.annotation.queue import campaign_state, has_begun, next_item, set_state, take_up
from paranmt_lab.annotation.raters import campaign_status
from paranmt_lab.annotation.replay import derived_rows, rebuild
from paranmt_lab.annotation.store import (
    Damaged,
    EventLog,
    NewerSchema,
    ReadOnly,
    StoreError,
    Unreachable,
    add_rows,
    false_negatives,
    flag,
    run,
)
from paranmt_lab.annotation.table3 import paper_table, strong_pairs
from paranmt_lab.annotation.turn import HOLDING, REASONS, Empty, Refused, Task, begin_turn
from paranmt_lab.annotation.views import label_patterns, own_answers, progress, rater_names, ratings
from paranmt_lab.cli.main import app as program
from paranmt_lab.components.rating import Chair, Desk, card_data, dispute_data
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.jobs.run import Run
from paranmt_lab.selection import Selection, select

store.SILENCE = 0 # a test that somebody pauses is no client that fell silent; the one about silence sets its own
START = datetime(2026, 3, 1, 9, tzinfo=timezone.utc)
NOBODY = 65534
GOLD = (Gold('The shop opens at nine.', 'The shop does not open at nine.', 1, 3, 'The opposite.'),)


def pairs(n, strata=3):
    return pd.DataFrame({'reference': [f'Reference {i}.' for i in range(n)], 'translation': [
        f'Translation {i}.' for i in range(n)], 'stratum': [f's{i % strata}' for i in range(n)],
                         'weight': [1. + i % strata for i in range(n)], 'pair_id': range(n)})


class Server:
    "A PostgreSQL of our own in a temporary folder, reached by a socket there."
    def __init__(self, folder, bin, fsync='off'):
        self.folder, self.made, self.fsync = folder, 0, fsync
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('PG')}
        self.wrap = []
        if os.getuid() == 0:
            shutil.chown(folder, 'postgres')
            self.wrap = ['setpriv', '--reuid', 'postgres', '--regid', 'postgres', '--init-groups', '--pdeathsig', 'INT']
        subprocess.run([*self.wrap, bin / 'initdb', '-D', folder / 'data', '-A', 'trust', '-U', 'postgres',
                        '-E', 'UTF8', '--no-locale', '-N'], check=True, capture_output=True, env=self.env, cwd=folder)
        self.bin = bin
        self.start()

    def start(self):
        command = [*self.wrap, self.bin / 'postgres', '-D', self.folder / 'data',
                   '-k', self.folder, '-c', 'listen_addresses=', '-c', f'fsync={self.fsync}']
        self.log = open(self.folder / 'log', 'a')
        self.process = subprocess.Popen(command, env=self.env, stdout=self.log,
                                        stderr=self.log, cwd=self.folder, start_new_session=True)
        end = time.monotonic() + 60
        while True:
            try:
                with self.admin() as db: return db.exec_driver_sql('SELECT 1')
            except sa.exc.OperationalError:
                assert time.monotonic() < end and self.process.poll() is None, self.said()
                time.sleep(.1)

    def stop(self, how=signal.SIGINT):
        self.process.send_signal(how)
        self.process.wait(60)
        self.log.close()

    def said(self): return (self.folder / 'log').read_text()
    def url(self, name): return f'postgresql://postgres@/{name}?host={self.folder}'
    def admin(self):
        return sa.create_engine(store.server_url(self.url('postgres')),
                                isolation_level='AUTOCOMMIT', poolclass=sa.pool.NullPool).connect()

    def new(self):
        self.made += 1
        with self.admin() as db: db.exec_driver_sql(f'CREATE DATABASE t{self.made}')
        return self.url(f't{self.made}')


@pytest.fixture(scope='session')
def server():
    found = sorted(Path('/usr/lib/postgresql').glob('*/bin/initdb'))
    if not found or os.getuid() == 0 and not shutil.which('setpriv'):
        pytest.skip('NO POSTGRESQL: its server is not installed (sudo apt-get install postgresql), '
                    'so half of the tests of the annotation database do not run')
    pytest.importorskip('psycopg', reason="NO PSYCOPG: pip install 'paranmt-lab[postgres]', "
                        "half of the tests of the annotation database do not run")
    folder = Path(tempfile.mkdtemp(prefix='paranmt-pg-'))
    server = Server(folder, found[-1].parent)
    yield server
    store._engine.cache_clear()
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=['sqlite', 'postgresql'])
def url(request, tmp_path):
    "A new database on each engine."
    return (f'sqlite:///{tmp_path}/annotations.sqlite' if request.param == 'sqlite'
            else request.getfixturevalue('server').new())


class Clock:
    "A clock that is wound by hand."
    def __init__(self): self.now = START
    def __call__(self): return self.now
    def wind(self, seconds): self.now += timedelta(seconds=seconds)


def rebuilt(log):
    "Assert that the derived tables say what the log says."
    kept = derived_rows(log)
    rebuild(log)
    assert derived_rows(log) == kept


# Eight processes, killed at random

def rater(url, name, ledger, seed):
    "A rater's process: notes what it will say, says it, notes that it was told 'saved'; a new one goes on from there."
    log, rng = EventLog(url), random.Random(f'{name} {seed}')
    said = ([json.loads(line) for line in ledger.read_text().splitlines() if line.endswith('}')]
            if ledger.exists() else [])
    told = {s['token'] for s in said if s['what'] == 'saved'}
    with open(ledger, 'a') as f:
        def tell(**what): f.write('\n' + json.dumps(what)); f.flush()
        def say(s):
            answer = submit(log, 'talk', name, s['item'], s['strength'], s['fluency'], s['token'])
            tell(what='saved', token=s['token'], event=answer.event, counted=answer.counted)
        for s in said:
            if s['what'] == 'intent' and s['token'] not in told: say(s)
        while not isinstance(task := next_item(log, 'talk', name), Empty) or task.why == 'leased':
            if isinstance(task, Empty): time.sleep(.02); continue
            intent = dict(what='intent', item=task.item, strength=rng.randint(1, 3),
                          fluency=rng.randint(1, 3), token=f'{rng.getrandbits(64):x}-{os.getpid()}')
            tell(**intent)
            say(intent)


def start(url, k, folder):
    "A process that rates; what it dies of is written down."
    if pid := os.fork(): return pid
    try: rater(url, f'rater {k}', folder / f'{k}.jsonl', os.getpid())
    except BaseException as e: (folder / f'{k}.error').write_text(f'{type(e).__name__}: {e}'); os._exit(1)
    os._exit(0)


def crowd(url, folder, kills, seed):
    "Eight raters at work; so many times one of them is killed and started again."
    rng, folder = random.Random(seed), Path(folder)
    running = {start(url, k, folder): k for k in range(8)}
    killed = 0
    while running:
        time.sleep(rng.uniform(.01, .08))
        if killed < kills:
            pid = rng.choice(list(running))
            os.kill(pid, signal.SIGKILL)
            killed += 1
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done: continue
            k = running.pop(pid)
            if os.WIFSIGNALED(status): running[start(url, k, folder)] = k
    print(killed)


if __name__ == '__main__':
    crowd(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    sys.exit()


def overlaps(log, limit):
    "The most people that ever had a place of one item, as the log tells it from its beginning."
    states, most = defaultdict(dict), 0
    for e in log.events(campaign='talk').itertuples():
        if e.kind == 'campaign': continue
        states[e.item][e.annotator] = e.kind
        most = max(most, sum(kind in ('assigned', 'rated') for kind in states[e.item].values()))
    return most


@pytest.mark.parametrize('items, overlap, kills', [(80, 2, 6), pytest.param(1000, 4, 150, marks=pytest.mark.soak)])
def test_eight_processes_killed_at_random_lose_and_double_nothing(url, tmp_path, items, overlap, kills):
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=overlap, guidelines=''), pairs(items))
    store._engine.cache_clear()
    done = subprocess.run([sys.executable, __file__, url, tmp_path, str(kills), '1'],
                          env=os.environ | {'OMP_NUM_THREADS': '1', 'PYTHONPATH': os.pathsep.join(sys.path)},
                          capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    # nothing was shown to anybody, 'locked' least of all
    assert [p.read_text() for p in tmp_path.glob('*.error')] == []
    lines = [(p.stem, json.loads(line)) for p in tmp_path.glob('*.jsonl')
             for line in p.read_text().splitlines() if line.endswith('}')]
    intents = {s['token']: (f'rater {k}', s) for k, s in lines if s['what'] == 'intent'}
    saved = {s['token']: s for _, s in lines if s['what'] == 'saved'}
    events = log.events('rated', campaign='talk')
    written = {e.token: e for e in events.itertuples()}
    assert len(events) == len(written) == items * overlap                                # all there, none doubled
    assert set(intents) == set(saved) == set(written)  # whatever was begun was finished
    for token, (who, s) in intents.items():                                              # none changed
        e = written[token]
        assert ((e.annotator, e.item, e.payload['strength'], e.payload['fluency'], e.id)
                == (who, s['item'], s['strength'], s['fluency'], saved[token]['event']))
    assert int(done.stdout) > kills / 2
    assert overlaps(log, overlap) == overlap
    assert not events.duplicated(['item', 'annotator']).any()
    found = ratings(log, 'talk')
    assert found.groupby('item').size().tolist() == [overlap] * items
    assert next_item(log, 'talk', 'another').why == 'done'
    rebuilt(log)


# A plain model

class Model:
    "The queue as a few dictionaries: what it should do, with no thought of speed or of anybody else."
    def __init__(self, items, overlap, minutes, gap):
        self.items, self.overlap, self.minutes, self.gap = items, overlap, minutes, gap     # item -> (gold, repeat_of)
        self.state, self.acts, self.comments, self.tick = {}, defaultdict(list), {}, 0

    def put(self, item, who, state, **more):
        self.tick += 1
        self.state[item, who] = dict(state=state, tick=self.tick, **more)
        return self.tick

    def free(self, item):
        return (self.items[item][0]
                or sum(s['state'] in HOLDING for (i, _), s in self.state.items() if i == item) < self.overlap)
    def lacking(self, item):
        return self.overlap - sum(s['state'] in HOLDING for (i, _), s in self.state.items() if i == item)
    def own(self, who, state):
        return sorted((i for (i, w), s in self.state.items() if w == who and s['state'] == state),
                      key=lambda i: -self.state[i, who]['tick'])

    def unless_refused(self, call, now):
        "What is refused leaves no trace, not even of the leases that ran out."
        state, tick = dict(self.state), self.tick
        self.sweep(now)
        if (done := call()) == 'refused': self.state, self.tick = state, tick
        return done

    def sweep(self, now):
        gone = sorted((s['until'], i, w)
                      for (i, w), s in self.state.items() if s['state'] == 'leased' and s['until'] <= now)
        for _, i, w in gone: self.put(i, w, 'expired')

    def lease(self, item, who, now): self.put(item, who, 'leased', until=now + timedelta(minutes=self.minutes))

    def next(self, who, now):
        self.sweep(now)
        if held := self.own(who, 'leased'):
            if now + timedelta(minutes=self.minutes / 2) > self.state[held[0], who]['until']:
                self.lease(held[0], who, now)
            return held[0]
        new = [i for i in self.items if (i, who) not in self.state]
        repeated = sorted((i for i in new if (of := self.items[i][1])
                           and self.free(i) and self.state.get((of, who), {}).get('state') == 'rated'),
                          key=lambda i: (self.state[self.items[i][1], who]['tick'], i))
        border = sorted(self.acts[who])[-self.gap - 1][0] if len(self.acts[who]) > self.gap else 0
        for choice in ([i for i in self.own(who, 'expired') if self.free(i)], [i for i in new if self.items[i][0]],
                       [i for i in repeated if self.state[self.items[i][1], who]['tick'] <= border],
                       sorted((i for i in new if self.items[i] == (False, None) and self.free(i)),
                              key=lambda i: (self.lacking(i), i)), repeated):
            if choice:
                self.lease(choice[0], who, now)
                return choice[0]
        if any(s['state'] == 'leased' and w != who and not self.items[i][0]
               and self.state.get((i, who), dict(state='expired'))['state'] == 'expired'
               and (not self.items[i][1] or self.state.get((self.items[i][1], who), {}).get('state') == 'rated')
               for (i, w), s in self.state.items()):
            return 'leased'
        return 'yours' if any(self.free(i) for i, (gold, _) in self.items.items() if not gold) else 'done'

    def reply(self, who, item, now, state, **said):
        return self.unless_refused(lambda: self._reply(who, item, state, **said), now)
    def skip(self, who, item, now): return self.unless_refused(lambda: self._skip(who, item), now)
    def change(self, who, item, now, kind, **said):
        return self.unless_refused(lambda: self._change(who, item, kind, **said), now)
    def take_up(self, who, item, now): return self.unless_refused(lambda: self._take_up(who, item, now), now)
    def undo(self, who, now): return self.unless_refused(lambda: self._undo(who, now), now)
    def known(self, who, item, now):
        return self.unless_refused(lambda: 'commented' if (item, who) in self.state else 'refused', now)

    def _reply(self, who, item, state, **said):
        if (before := self.state.get((item, who), {}).get('state')) not in ('leased', 'expired'): return 'refused'
        state = state if before == 'leased' or self.free(item) else 'late'
        self.acts[who].append((self.put(item, who, state, **(said if state != 'late' else {})), item, state, None))
        return state

    def _skip(self, who, item):
        if self.state.get((item, who), {}).get('state') not in ('leased', 'expired'): return 'refused'
        self.acts[who].append((self.put(item, who, 'skipped'), item, 'skipped', None))
        return 'skipped'

    def _change(self, who, item, kind, **said):
        if (before := self.state.get((item, who), {})).get('state') not in ('rated', 'discarded'): return 'refused'
        state = 'rated' if kind == 'revised' else 'discarded'
        former = {k: v for k, v in before.items() if k != 'tick'}
        self.acts[who].append((self.put(item, who, state, **said), item, kind, former))
        return kind

    def _take_up(self, who, item, now):
        before = self.state.get((item, who), {}).get('state')
        if before not in ('leased', 'skipped', 'late', 'expired'): return 'refused'
        if before != 'leased' and not self.free(item): return 'refused'
        self.lease(item, who, now)
        return item

    def _undo(self, who, now):
        if not self.acts[who]: return 'refused'
        _, item, kind, former = self.acts[who].pop()
        if former: self.put(item, who, **former)
        elif self.state[item, who]['state'] in HOLDING or self.free(item): self.lease(item, who, now)
        else: self.put(item, who, 'expired')
        return 'undone'

    def ratings(self): return sorted((i, w, *s['labels']) for (i, w), s in self.state.items() if s['state'] == 'rated')


PEOPLE = st.sampled_from(['ann', 'bob', 'cleo'])
MARK = st.integers(1, 3)


class Queue(RuleBasedStateMachine):
    "The queue and its model, told the same things."
    url, made = None, 0

    @initialize(n=st.integers(1, 4), overlap=st.integers(1, 3), repeats=st.sampled_from([0., .5]),
                gold=st.booleans(), gap=st.integers(0, 2))
    def begin(self, n, overlap, repeats, gold, gap):
        Queue.made += 1
        self.name, self.clock, self.sent, self.past = f'c{Queue.made}', Clock(), [], []
        self.log = EventLog(self.url, self.clock)
        keep_campaign(self.log, Campaign(self.name, overlap=overlap,
                                         lease=10, repeats=repeats, gap=gap, gold=GOLD * gold, guidelines=''), pairs(n))
        self.plan = campaign_items(self.log, self.name)
        self.model = Model({int(r.item): (isinstance(r.gold, str), None if pd.isna(r.repeat_of) else int(r.repeat_of))
                            for r in self.plan.itertuples()}, overlap, 10, gap)

    def told(self, call):
        try: return call().kind
        except Refused: return 'refused'

    def aim(self, who, which):
        "Mostly the item in hand, else any."
        held = self.model.own(who, 'leased')
        return held[0] if held and which < 8 else which % len(self.model.items) + 1

    @rule(who=PEOPLE)
    def assign(self, who):
        wanted, found = self.model.next(who, self.clock()), next_item(self.log, self.name, who)
        assert (found.item if isinstance(found, Task) else found.why) == wanted
        if isinstance(found, Task): assert found.comment == (self.model.comments.get((found.item, who)) or '')

    @rule(who=PEOPLE, which=st.integers(0, 11), strength=MARK, fluency=MARK)
    def rate(self, who, which, strength, fluency):
        item, token = self.aim(who, which), f'{self.name} {len(self.sent)}'
        wanted = self.model.reply(who, item, self.clock(), 'rated', labels=(strength, fluency))
        assert self.told(lambda: submit(self.log, self.name, who, item, strength, fluency, token)) == wanted
        if wanted != 'refused':
            self.sent.append((who, item, strength, fluency, token,
                              submit(self.log, self.name, who, item, strength, fluency, token)))

    @rule(who=PEOPLE, strength=MARK, fluency=MARK)
    def get_and_rate(self, who, strength, fluency):
        wanted, found = self.model.next(who, self.clock()), next_item(self.log, self.name, who)
        assert (found.item if isinstance(found, Task) else found.why) == wanted
        if isinstance(found, Task): self.rate(who, 0, strength, fluency)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def resubmit(self, data):
        who, item, strength, fluency, token, answer = data.draw(st.sampled_from(self.sent))
        before = self.log.ask("SELECT count(*) FROM events WHERE campaign = :c AND kind <> 'expired'",
                              c=self.name).scalar()
        assert submit(self.log, self.name, who, item, strength, fluency, token) == answer
        with pytest.raises(Refused):
            submit(self.log, self.name, who, item, 4 - strength if strength != 2 else 1, fluency, token)
        assert (self.log.ask("SELECT count(*) FROM events WHERE campaign = :c AND kind <> 'expired'",
                             c=self.name).scalar() == before)
        self.model.sweep(self.clock())

    @rule(who=PEOPLE, which=st.integers(0, 11), strength=MARK, fluency=MARK)
    def revise(self, who, which, strength, fluency):
        item = which % len(self.model.items) + 1
        assert (self.told(lambda: revise(self.log, self.name, who, item, strength, fluency))
                == self.model.change(who, item, self.clock(), 'revised', labels=(strength, fluency)))

    @rule(who=PEOPLE, which=st.integers(0, 11), reason=st.sampled_from(REASONS))
    def retract(self, who, which, reason):
        item = which % len(self.model.items) + 1
        assert (self.told(lambda: retract(self.log, self.name, who, item, reason))
                == self.model.change(who, item, self.clock(), 'retracted'))

    @rule(who=PEOPLE, which=st.integers(0, 11))
    def take_up(self, who, which):
        item = which % len(self.model.items) + 1
        wanted = self.model.take_up(who, item, self.clock())
        try: assert take_up(self.log, self.name, who, item).item == wanted
        except Refused: assert wanted == 'refused'

    @rule(who=PEOPLE, which=st.integers(0, 11))
    def skip(self, who, which):
        item = self.aim(who, which)
        assert self.told(lambda: skip(self.log, self.name, who, item)) == self.model.skip(who, item, self.clock())

    @rule(who=PEOPLE, which=st.integers(0, 11), reason=st.sampled_from(REASONS))
    def discard(self, who, which, reason):
        item = self.aim(who, which)
        assert (self.told(lambda: discard(self.log, self.name, who, item, reason))
                == self.model.reply(who, item, self.clock(), 'discarded'))

    @rule(who=PEOPLE)
    def undo(self, who): assert self.told(lambda: undo(self.log, self.name, who)) == self.model.undo(who, self.clock())

    @rule(who=PEOPLE, which=st.integers(0, 11), text=st.sampled_from(['', 'hm', '=1']))
    def comment(self, who, which, text):
        item = self.aim(who, which)
        assert (self.told(lambda: comment(self.log, self.name, who, item, text))
                == (done := self.model.known(who, item, self.clock())))
        if done == 'commented': self.model.comments[item, who] = text

    @rule(seconds=st.sampled_from([1, 200, 301, 599, 600, 601]))
    def wait(self, seconds): self.clock.wind(seconds)

    @rule()
    def reload(self):
        "Another process, a restored table, and a moment to come back to."
        self.log = EventLog(self.url, self.clock)
        rebuild(self.log, self.name)
        self.past.append((self.log.ask('SELECT max(id) FROM events').scalar(), self.model.ratings()))

    @invariant()
    def same(self):
        if not hasattr(self, 'model'): return
        rows = self.log.ask('SELECT item, annotator, state, strength, fluency FROM assignments WHERE campaign = :c',
                            c=self.name).all()
        assert {(i, w): s for i, w, s, *_ in rows} == {k: s['state'] for k, s in self.model.state.items()}
        assert sorted((i, w, a, b) for i, w, s, a, b in rows if s == 'rated') == self.model.ratings()
        places = self.log.ask('SELECT item, "open" FROM places WHERE campaign = :c', c=self.name).all()
        assert all(n == self.model.lacking(i) >= 0 for i, n in places)

    def teardown(self):
        if not hasattr(self, 'model'): return
        kept = derived_rows(self.log)
        rebuild(self.log, self.name)
        assert derived_rows(self.log) == kept
        table = lambda at: sorted(map(tuple, ratings(self.log, self.name, at, gold=True, repeats=True)[
            ['item', 'annotator', 'strength', 'fluency']].values.tolist()))
        assert table(None) == self.model.ratings()
        for at, rows in self.past: assert table(at) == rows
        for who in ('ann', 'bob', 'cleo'):
            left = progress(self.log, self.name, who)
            assert (left.done == sum(s['state'] in ('rated', 'discarded')
                                     for (_, w), s in self.model.state.items() if w == who))
        labels = Counter(','.join(str(x) for x in sorted(v)) for v in self._labels().values())
        assert (dict(label_patterns(self.log, self.name).query("scale == 'strength'").groupby('pattern')['items'].sum())
                == labels)

    def _labels(self):
        found = defaultdict(list)
        for i, _, strength, _ in self.model.ratings():
            if self.model.items[i] == (False, None): found[i].append(strength)
        return found


@pytest.mark.parametrize('examples', [25, pytest.param(2000, marks=pytest.mark.soak)])
@pytest.mark.parametrize('engine', ['sqlite', 'postgresql'])
def test_the_queue_does_what_a_plain_model_does(engine, examples, tmp_path, request, monkeypatch):
    monkeypatch.setattr(store, 'PRAGMAS', (*store.PRAGMAS, 'synchronous=OFF'))              # no power is cut here
    Queue.url = (f'sqlite:///{tmp_path}/annotations.sqlite' if engine == 'sqlite'
                 else request.getfixturevalue('server').new())
    if engine == 'postgresql' and examples == 25: examples = 10 # a server's turn takes longer; `make soak` has more
    try:
        run_state_machine_as_test(
            Queue, settings=hypothesis_settings(max_examples=examples, stateful_step_count=20,
                                                deadline=None, database=None, suppress_health_check=list(HealthCheck)))
    except BaseException:
        if engine == 'postgresql': print(request.getfixturevalue('server').said()[-3000:])
        raise


# Text that means ill

HOSTILE = ['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', "'; DROP TABLE events; --", 'x' * 10_000,
           '\u202eabc\u202c שלום', '👩‍👩‍👧‍👦 🏳️‍🌈', '{{7*7}} ${7*7} %s %(a)s :a', '=HYPERLINK("http://x")', '+1', '-1',
           '@x', '\ttab', 'a,b;"c"\r\nd\u2028e', 'null', 'NaN', '\\x00 \\u0000', "'=quoted", '\ufeffbom', 'a\u0301']


def test_hostile_text_comes_back_letter_for_letter(url, tmp_path):
    log, texts = EventLog(url), HOSTILE
    frame = pairs(len(texts)).assign(reference=texts, translation=texts[::-1], source=texts, stratum=texts)
    frame.loc[0, 'source'] = 'a\0b'
    keep_campaign(log, Campaign('talk', overlap=1, guidelines='\n'.join(texts)), frame)
    who = "Robert'); DROP TABLE items;-- <b>"
    for k, text in enumerate(texts):
        task = next_item(log, 'talk', who)
        assert (task.reference, task.translation) == (text, texts[::-1][k])
        submit(log, 'talk', who, task.item, 1, 1, text[:200])
        comment(log, 'talk', who, task.item, text)
    assert task.source != 'a\0b' and campaign_items(log, 'talk').source[0] == 'a␀b'
    assert own_answers(log, 'talk', who).comment.tolist() == texts[::-1]
    for name in ('a.jsonl', 'a.csv', 'a.parquet', 'a'):
        export(log, 'talk', tmp_path / name)
        back = EventLog(f'sqlite:///{tmp_path}/{name}.sqlite')
        import_answers(back, Campaign('talk', guidelines=''), read_answers(tmp_path / name))
        assert answer_table(back, 'talk').equals(answer_table(log, 'talk')), name
    cells = (tmp_path / 'a.csv').read_bytes().decode()
    assert ",=" not in cells and ',"=' not in cells and '\n=' not in cells


@pytest.mark.parametrize('name', ['', ' ', '\u200b', 'a\0b', '\ud800', 'x' * 101, 'a\nb', None])
def test_names_that_are_none_are_refused(tmp_path, name):
    log = EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(1))
    before = len(log)
    with pytest.raises(ValueError): next_item(log, 'talk', name)
    with pytest.raises(ValueError): log.append('a\0b', 'ann', {})
    assert len(log) == before


def test_one_person_is_one_rater_however_the_name_is_typed(url, tmp_path):
    """White space, case and invisible characters; otherwise one person fills both places of a pair."""
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=2, guidelines=''), pairs(1))
    item = next_item(log, 'talk', 'Ada L').item
    submit(log, 'talk', 'Ada L', item, 3, 3, 't')
    for name in ('ada l', ' Ada  L ', 'Ada\u00a0L', 'A\u200bda L', '\u202eADA L'):
        assert isinstance(next_item(log, 'talk', name), Empty) and has_begun(log, 'talk', name)
        assert own_answers(log, 'talk', name).strength.tolist() == [3]
        assert progress(log, 'talk', name).done == 1
        with pytest.raises(Refused, match='Ada L has rated'): adjudicate(log, 'talk', name, item, 1, 1)
    revise(log, 'talk', 'ADA L', item, 2, 2)
    assert rater_names(log, 'talk') == ['Ada L'] and isinstance(next_item(log, 'talk', 'Bea'), Task)
    with pytest.raises(ValueError, match="'talk' is there already"):
        keep_campaign(log, Campaign('Talk', guidelines=''), pairs(1))
    names = 'reference', 'translation', 'annotator', *SCALES
    (tmp_path / 'two.csv').write_text(','.join(names) + '\na,b,Ada L,3,3\nc,d,ada l,3,3\n')
    import_answers(log, Campaign('file', guidelines=''), read_answers(tmp_path / 'two.csv', dict(zip(names, names))))
    assert rater_names(log, 'file') == ['Ada L']


def test_corpora_and_runs_have_one_name_however_it_is_typed(tmp_path):
    lab = replace(settings(), workspace=tmp_path)
    folder = Corpus.create('Sample', lab).folder
    assert folder == Corpus.create('sample', lab).folder == Corpus.open('SAMPLE', lab).folder
    run = Run.create(lab.runs, 'First', dict(seed=1))
    assert Run.create(lab.runs, 'first', dict(seed=1)).name == Run.open(lab.runs, 'FIRST').name == run.name == 'First'
    with pytest.raises(ValueError, match='exists with another config'): Run.create(lab.runs, 'first', dict(seed=2))


def test_nobody_reads_or_writes_for_somebody_else(url):
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=2, guidelines=''), pairs(2))
    item = next_item(log, 'talk', 'ann').item
    submit(log, 'talk', 'ann', item, 3, 3, 't')
    before = len(log)
    for call in (lambda: revise(log, 'talk', 'eve', item, 1, 1), lambda: submit(log, 'talk', 'eve', item, 1, 1, 't'),
                 lambda: discard(log, 'talk', 'eve', item, 'OCR', 't'), lambda: undo(log, 'talk', 'eve', 't'),
                 lambda: skip(log, 'talk', 'eve', item), lambda: comment(log, 'talk', 'eve', item, 'x')):
        with pytest.raises(Refused): call()
    assert len(log) == before and len(own_answers(log, 'talk', 'eve')) == 0
    shown = json.dumps(vars(next_item(log, 'talk', 'eve')))
    assert 'stratum' not in shown and 'weight' not in shown and 's0' not in shown


# Disks and servers

FILLS = '''
import resource, sys
from paranmt_lab.annotation.answers import submit
from paranmt_lab.annotation.queue import next_item, take_up
from paranmt_lab.annotation.store import EventLog, StoreError
log = EventLog(sys.argv[1])
next_item(log, 'talk', 'ann')
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    while True:
        item = next_item(log, 'talk', 'ann').item
        print('saved', submit(log, 'talk', 'ann', item, 3, 2, f'token {item}').event, flush=True)
except StoreError as e: print(type(e).__name__, e)
'''


def test_on_a_full_disk_what_was_called_saved_is_there(tmp_path):
    url = f'sqlite:///{tmp_path}/a.sqlite'
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(2000))
    rebuild(log)
    store._engine.cache_clear(); del log
    done = subprocess.run([sys.executable, '-c', FILLS, url,
                           str(max(p.stat().st_size for p in tmp_path.iterdir()) + 1_000_000)],
                          capture_output=True, text=True, timeout=300)
    *saved, last = done.stdout.splitlines()
    assert (last.startswith('Full') and 'nothing was saved, make room and send it again' in last
            and len(saved) > 3), done.stdout[-500:] + done.stderr
    log = EventLog(url)
    assert log.events('rated').id.tolist() == [int(line.split()[1]) for line in saved]
    rebuilt(log)
    # with room again, work goes on
    assert submit(log, 'talk', 'ann', next_item(log, 'talk', 'ann').item, 1, 1, 'again').counted


CLOSED = '''
import os, sys
from pathlib import Path
from paranmt_lab.annotation.queue import next_item, take_up
from paranmt_lab.annotation.views import ratings
from paranmt_lab.annotation.store import EventLog
EventLog(f'sqlite:///{sys.argv[2]}/warm.sqlite').append('x', 'ann', {})
if os.getuid() == 0: os.setgid(65534), os.setuid(65534)
try: print(len(EventLog(sys.argv[1])), len(ratings(EventLog(sys.argv[1]), 'talk')))
except OSError as e: print(type(e).__name__, e)
try: next_item(EventLog(sys.argv[1]), 'talk', 'ann')
except OSError as e: print(type(e).__name__, e)
'''


@pytest.mark.parametrize('rights, error', [(0o444, 'ReadOnly'), (0o000, 'Unreachable')])
def test_a_file_that_may_not_be_written(tmp_path, rights, error):
    folder = Path(tempfile.mkdtemp(prefix='paranmt-closed-'))
    try:
        url = f'sqlite:///{folder}/a.sqlite'
        log = EventLog(url)
        keep_campaign(log, Campaign('talk', guidelines=''), pairs(2))
        store._engine.cache_clear(); del log
        for p in folder.glob('a.sqlite*'): p.chmod(rights)
        folder.chmod(0o755 if os.getuid() == 0 else 0o555)
        done = subprocess.run([sys.executable, '-c', CLOSED, url, tmp_path],
                              capture_output=True, text=True, timeout=120)
        *first, last = done.stdout.splitlines()
        assert (last.startswith(error)
                and ('nothing was saved' in last or 'check that it is there' in last)), done.stdout + done.stderr
    finally: folder.chmod(0o755), shutil.rmtree(folder)


def test_a_server_that_may_only_be_read(server):
    url = server.new()
    log = EventLog(url)
    log.append('x', 'ann', {})
    with server.admin() as db:
        db.exec_driver_sql(f'ALTER DATABASE {url.split("/")[3].split("?")[0]} SET default_transaction_read_only = on')
    log.engine.dispose()
    with pytest.raises(ReadOnly, match='may only be read; nothing was saved'): log.append('x', 'ann', {})
    assert len(log) == 1


def page(name, **address):
    "A page of the app in Streamlit's harness, until nothing of it is being computed any more."
    from paranmt_lab.pages.harness import AppTest
    at = AppTest.from_string(f'from paranmt_lab.pages.{name} import page\npage()', default_timeout=300)
    for k, v in address.items(): at.query_params[k] = v
    while any('…' in c.value for c in at.run().caption): time.sleep(.2)
    return at


def test_pages_and_command_line_on_either_engine(url, tmp_path, monkeypatch):
    pytest.importorskip('streamlit')
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', guidelines='Rate.'), pairs(6),
                  pd.DataFrame(dict(stratum=['s0', 's1', 's2'], pairs=[20, 40, 60], drawn=2, weight=[10., 20., 30.])))
    for who, marks in (('ann', (3, 3, 2, 1, 1, 3)), ('bob', (3, 2, 2, 1, 1, 1))):
        for k, mark in enumerate(marks):
            submit(log, 'talk', who, next_item(log, 'talk', who).item, mark, 3, f'{who}{k}')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path)), monkeypatch.setenv('PARANMT_ANNOTATIONS', url)
    at = page('annotate', campaign='talk', annotator='cleo')
    assert 'Desk' not in at.session_state                            # a new name is asked about first
    at.button(key='admit').click().run()
    assert not at.exception and not at.error and at.session_state['Desk'].annotator == 'cleo'
    for view in ('agreement', 'raters', 'in dispute', 'table 3', 'decide', 'next pairs'):
        at = page('agreement', campaign='talk', annotator='dana', view=view)
        assert not at.exception and not at.error, view
    for line in ('status', 'status talk', f'export talk {tmp_path}/out.jsonl',
                 f'export talk {tmp_path}/out.md', 'adjudicate talk', 'adjudicate talk --by dana --item 2 --strength 3',
                 f'import {tmp_path}/out.jsonl again'):
        done = paranmt(f'annotate {line}')
        assert done.returncode == 0, done.stdout + done.stderr
    assert adjudicated(log, 'talk')['item'].tolist() == [2] and len(ratings(log, 'again')) == 12


def test_the_command_line_shows_invisible_characters_of_disputes(tmp_path, monkeypatch):
    "A turned line or a zero-width space may not sway a judge, in the list of disputes and in each pair."
    log = EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    texts = pairs(1).assign(reference='It\u200b rains.', translation='It rains.\u202e')
    keep_campaign(log, Campaign('talk', guidelines=''), texts)
    for who, mark in (('ann', 3), ('bob', 1)): submit(log, 'talk', who, next_item(log, 'talk', who).item, mark, 3, who)
    monkeypatch.setenv('PARANMT_ANNOTATIONS', log.url)
    for options in ([], ['--by', 'eva']):
        output = CliRunner().invoke(program, ['annotate', 'adjudicate', 'talk', *options], input='q\n').output
        assert not {'\u200b', '\u202e'} & set(output)
        assert r'\u200b' in output and r'\u202e' in output


def test_rows_that_a_table_does_not_take_leave_nothing_behind(url):
    "The engine's own way of adding many rows ends in our error, and the transaction in nothing."
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(2))
    places = lambda db: run(db, 'SELECT count(*) FROM places').scalar()
    with log.reading() as db: before = places(db)
    with pytest.raises(StoreError, match='(?i)unique'), log.writing() as db:
        rows = [dict(campaign='talk', item=i, open=2, repeat_of=None) for i in range(1, before + 1)]
        run(db, 'DELETE FROM places')
        add_rows(db, 'places', rows[:1])
        assert places(db) == 1
        add_rows(db, 'places', rows)
    with log.reading() as db: assert places(db) == before
    rebuild(log, 'talk')
    with log.reading() as db: assert places(db) == before


def test_a_discussion_is_written_down_on_the_page(url, tmp_path, monkeypatch):
    pytest.importorskip('streamlit')
    from paranmt_lab.components import access
    from paranmt_lab.pages.harness import AppTest
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(3))
    for who, mark in (('ann', 3), ('<b>bob</b>', 1)):
        for k in range(3): submit(log, 'talk', who, next_item(log, 'talk', who).item, mark, 3, f'{k}')
    marks = ratings(log, 'talk')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path)), monkeypatch.setenv('PARANMT_ANNOTATIONS', url)
    script = f"""from paranmt_lab.components import access
from paranmt_lab.pages import agreement_people as agreement_common, agreement_items as agreement_disputes
agreement_common.show_outcome()
agreement_disputes.show_item(access.open_log({url!r}), 'talk', 2, access.signed_in(must=False))"""
    at = AppTest.from_string(script, default_timeout=60)
    at.query_params['annotator'] = 'dana'
    at.run()
    assert at.multiselect[0].value == ['<b>bob</b>', 'ann']
    assert {c for c in at.dataframe[0].value.annotator} == {'ann', '<b>bob</b>'}
    at.multiselect[0].set_value(['ann', '<b>bob</b>'])
    at.button_group(key='joint_strength_2').set_value(2)
    at.text_area[0].set_value('=because')
    for _ in range(2): at.button[0].click().run()
    assert not at.exception and not at.error and len(log.events('adjudicated')) == 1
    event = log.events('adjudicated').iloc[0]
    assert (event.annotator, event['item']) == ('dana', 2)
    assert (event.payload == dict(strength=2, fluency=None, how='discussion',
                                  together=['ann', '<b>bob</b>'], comment='=because', of=['<b>bob</b>', 'ann']))
    at.button_group(key='joint_fluency_2').set_value(1)
    at.button[0].click().run()
    assert adjudicated(log, 'talk')[['strength', 'fluency']].values.tolist() == [[2, 1]]
    assert len(log.events('adjudicated')) == 2
    assert ratings(log, 'talk').equals(marks)
    now = export(log, 'talk', tmp_path / 'now.csv')
    back = EventLog(f'sqlite:///{tmp_path}/back.sqlite')
    import_answers(back, Campaign('talk', guidelines=''), read_answers(now))
    assert adjudicated(back, 'talk').equals(adjudicated(log, 'talk'))
    assert export(back, 'talk', tmp_path / 'again.csv').read_bytes() == now.read_bytes()
    monkeypatch.setattr(access, 'user', lambda: dict(email='eve@example.org', email_verified=True))   # no researcher
    assert not AppTest.from_string(script, default_timeout=60).run().button


def test_pages_for_an_account_that_may_only_read(server, tmp_path, monkeypatch):
    pytest.importorskip('streamlit')
    url = server.new()
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(2))
    for who in ('ann', 'bob'): submit(log, 'talk', who, next_item(log, 'talk', who).item, 3, 3, who)
    with log.writing() as db:
        for sql in ('CREATE ROLE reader LOGIN', 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader'): run(db, sql)
    url = url.replace('postgres@', 'reader@')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path)), monkeypatch.setenv('PARANMT_ANNOTATIONS', url)
    seen = page('agreement', campaign='talk', view='agreement')
    assert not seen.exception and not seen.error and len(seen.dataframe)
    at = page('annotate', campaign='talk', annotator='ann')  # a name that is known, so nothing is asked first
    assert not at.exception and 'may only be read' in at.error[0].value


def test_a_server_that_goes_away_and_comes_back(server):
    log = EventLog(server.new())
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(3))
    item = next_item(log, 'talk', 'ann').item
    server.stop()
    with pytest.raises(Unreachable, match='cannot be reached; check that it is there') as said:
        submit(log, 'talk', 'ann', item, 3, 3, 't')
    assert 'SQLSTATE' not in str(said.value)
    server.start()
    assert submit(log, 'talk', 'ann', item, 3, 3, 't').counted
    assert len(ratings(log, 'talk')) == 1
    with pytest.raises(Unreachable): EventLog('postgresql://ann:secret@127.0.0.1:1/x')


def test_a_writer_that_falls_silent_keeps_nobody_waiting(server, monkeypatch):
    log = EventLog(server.new())
    monkeypatch.setattr(store, 'SILENCE', 1)
    with pytest.raises(Unreachable, match='fell silent .* nothing was saved, send it again'), log.writing() as db:
        store.note(db, START, 'x', 'ann', {})
        time.sleep(1.6)
        log.append('y', 'bob', {})                                                       # the lock is free again
        store.note(db, START, 'x', 'ann', {})
    with log.writing(silence=30) as db:
        store.note(db, START, 'z', 'ann', {})
        time.sleep(1.6)
    with log.reading() as db:
        seen = run(db, 'SELECT count(*) FROM events').scalar()
        time.sleep(1.6)
        assert run(db, 'SELECT count(*) FROM events').scalar() == seen == 2
    assert log.events().kind.tolist() == ['y', 'z']


def test_a_password_is_never_shown():
    with pytest.raises(Unreachable) as said: EventLog('postgresql://ann:secret@127.0.0.1:1/x?connect_timeout=2')
    assert 'secret' not in str(said.value)


def test_a_damaged_file_is_named_and_not_touched(tmp_path):
    url, file = f'sqlite:///{tmp_path}/a.sqlite', tmp_path / 'a.sqlite'
    log = EventLog(url)
    for _ in range(20): log.append('x', 'ann', *[{'text': 'y' * 500}] * 20)
    with closing(sqlite3.connect(file)) as db: db.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    log.engine.dispose(); store._engine.cache_clear(); del log
    data = bytearray(file.read_bytes())
    data[4096 * 3:4096 * 20] = b'\xa5' * (4096 * 17)
    file.write_bytes(data)
    with pytest.raises(Damaged, match='restore a backup'):
        log = EventLog(url)
        log.events()
    assert file.read_bytes() == bytes(data)


OLD = """CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL,
 annotator TEXT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind, id);
CREATE TRIGGER IF NOT EXISTS events_stay BEFORE UPDATE ON events
 BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER IF NOT EXISTS events_remain BEFORE DELETE ON events
 BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;"""


def old_database(file):
    rows = [(f'2025-11-02T10:00:{k % 60:02}.000+00:00', f'rater {k % 3}', 'false negative',
             json.dumps(dict(corpus='talk', pair_id=k, side='reference', negative_pair_id=k + 1,
                             negative_side='translation', flagged=k % 5 > 0, sentence='ž\0'))) for k in range(500)]
    with closing(sqlite3.connect(file)) as db:
        db.executescript('PRAGMA journal_mode=WAL;' + OLD)
        db.executemany('INSERT INTO events (time, annotator, kind, payload) VALUES (?, ?, ?, ?)', rows)
        db.commit()
    return rows


def test_an_older_database_is_brought_up_to_date_with_nothing_lost(tmp_path):
    rows = old_database(tmp_path / 'a.sqlite')
    # several at once
    opened = [threading.Thread(target=EventLog, args=(f'sqlite:///{tmp_path}/a.sqlite',)) for _ in range(4)]
    for t in opened: t.start()
    for t in opened: t.join()
    log = EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    assert log.ask('SELECT time, annotator, kind, payload FROM events ORDER BY id').all() == rows
    assert len(false_negatives(log, 'talk')) == 400
    assert log.ask('SELECT version FROM schema').scalars().all() == [1, 2]
    assert flag(log, 'ann', 'talk', (1, 'reference'), (2, 'translation'), False) == 501
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(2))
    for sql in ('DELETE FROM events', "UPDATE events SET annotator = 'eve'",
                'DELETE FROM items', 'UPDATE items SET weight = 0',
                "REPLACE INTO events (id, time, annotator, kind, payload) VALUES (1, '', '', '', '')"):
        with pytest.raises(StoreError, match='never'), log.writing() as db: run(db, sql)
    with (closing(sqlite3.connect(tmp_path / 'a.sqlite')) as db,
          pytest.raises(sqlite3.IntegrityError, match='never replaced')):
        db.execute("REPLACE INTO events (id, time, annotator, kind, payload) VALUES (1, '', '', '', '')")


def test_a_campaign_of_version_1_goes_on(url, monkeypatch):
    "A revision of version 1 is still undone; the campaign is open; raters who had pairs are not asked to read again."
    monkeypatch.setattr(store, 'MIGRATIONS', store.MIGRATIONS[:1])
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=1, guidelines='Rate.'), pairs(3))
    submit(log, 'talk', 'ann', next_item(log, 'talk', 'ann').item, 3, 3, 't')
    with begin_turn(log, 'talk', 'ann') as turn:
        turn.record('revised', 1, dict(strength=1, fluency=2, seconds=.1, before=[3, 3]))
    monkeypatch.undo()
    log = EventLog(url)
    assert log.ask('SELECT version FROM schema ORDER BY version').scalars().all() == [1, 2]
    rebuilt(log)
    assert campaign_state(log, 'talk').is_open and has_begun(log, 'talk', 'ann') and not has_begun(log, 'talk', 'bob')
    assert ratings(log, 'talk')[['strength', 'fluency']].values.tolist() == [[1, 2]]
    undo(log, 'talk', 'ann')
    assert ratings(log, 'talk')[['strength', 'fluency']].values.tolist() == [[3, 3]]


def haste(log, who):
    "Answer until the campaign is closed."
    while True:
        task = next_item(log, 'talk', who)
        if isinstance(task, Empty):
            if task.why == 'closed': return
            time.sleep(.005)
            continue
        try: submit(log, 'talk', who, task.item, 1, 1, f'{task.item}')
        except Refused as e: assert 'paused' in str(e) or 'closed' in str(e)
        time.sleep(.002)  # or four raters without a pause may keep SQLite's lock from the researcher


def stopping(url):
    "A process that pauses, opens and closes a campaign at work."
    if pid := os.fork(): return pid
    try:
        log = EventLog(url)
        while len(log.events('rated')) < 20: time.sleep(.01)
        for state in ('paused', 'open', 'closed'):
            set_state(log, 'talk', state, 'researcher')
            time.sleep(.05)
        os._exit(0)
    finally: os._exit(1)


def test_no_answer_is_after_a_pause_or_the_end(url):
    "Raters at full speed, a researcher in another process: the log has no answer between a pause and its end."
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=3, guidelines=''), pairs(400))
    pid = stopping(url)
    threads = [threading.Thread(target=haste, args=(log, f'{k}')) for k in range(4)]
    for t in threads: t.start()
    for t in threads: t.join(60)
    assert os.waitpid(pid, 0)[1] == 0 and not any(t.is_alive() for t in threads)
    state, against = 'open', []
    for e in log.events(campaign='talk').itertuples():
        state = e.payload['state'] if e.kind == 'campaign state' else state
        if state != 'open' and e.kind in ('rated', 'assigned'): against.append(e)
    assert state == 'closed' and not against and 20 <= len(ratings(log, 'talk')) < 1200
    for call in (lambda: revise(log, 'talk', '0', 1, 2, 2), lambda: undo(log, 'talk', '0'),
                 lambda: comment(log, 'talk', '0', 1, 'x'), lambda: retract(log, 'talk', '0', 1, 'OCR'),
                 lambda: take_up(log, 'talk', '0', 1), lambda: skip(log, 'talk', '0', 1)):
        with pytest.raises(Refused, match='closed'): call()
    rebuilt(log)


def test_a_migration_that_dies_half_way_never_began(tmp_path, monkeypatch):
    rows = old_database(tmp_path / 'a.sqlite')
    whole = store.MIGRATIONS[0]
    monkeypatch.setattr(store, 'MIGRATIONS', [lambda engine: whole(engine)[:6] + ['SELECT no_such_column FROM events']])
    with pytest.raises(StoreError, match='no_such_column'): EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    with closing(sqlite3.connect(tmp_path / 'a.sqlite')) as db:
        assert [r[1] for r in db.execute('PRAGMA table_info(events)')] == ['id', 'time', 'annotator', 'kind', 'payload']
    monkeypatch.undo()
    assert len(EventLog(f'sqlite:///{tmp_path}/a.sqlite')) == len(rows)


def test_a_newer_database_is_refused_and_left_alone(url):
    log = EventLog(url)
    log.append('x', 'ann', {})
    with log.writing() as db: run(db, "INSERT INTO schema (version, time) VALUES (7, '2031')")
    with pytest.raises(NewerSchema, match='schema 7, this version of ParaNMT Lab knows up to 2: '
                       'nothing was changed; update the workbench'):
        EventLog(url)
    assert len(log) == 1


def test_rows_of_the_log_stay_on_a_server(server):
    log = EventLog(server.new())
    keep_campaign(log, Campaign('talk', guidelines=''), pairs(2))
    for sql in ('DELETE FROM events', "UPDATE events SET annotator = 'eve'",
                'TRUNCATE events', 'DELETE FROM items', 'UPDATE items SET weight = 0', 'TRUNCATE items CASCADE'):
        with pytest.raises(StoreError, match='never'), log.writing() as db: run(db, sql)


def test_threads_and_a_forked_child_share_a_log(url):
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', overlap=1, guidelines=''), pairs(40))
    met, failed = [], []
    def work(who):
        try:
            while isinstance(task := next_item(log, 'talk', who), Task):
                met.append(submit(log, 'talk', who, task.item, 1, 1, f'{task.item}').item)
        except Exception as e: failed.append(e)
    if not (pid := os.fork()):
        try: work('child')
        finally: os._exit(bool(failed))
    threads = [threading.Thread(target=work, args=(f'{k}',)) for k in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert os.waitpid(pid, 0)[1] == 0 and not failed
    assert len(met) == len(set(met)) and ratings(log, 'talk').item.tolist() == list(range(1, 41))


# Exports

def history(url, n=12):
    "A campaign with a past: the log, its clock, and the events at which something was exported."
    clock = Clock()
    log, rng = EventLog(url, clock), random.Random(3)
    keep_campaign(log, Campaign('talk', overlap=2, repeats=.25, gap=2, gold=GOLD, guidelines='Rate.'), pairs(n))
    moments = []
    for k in range(120):
        clock.wind(rng.expovariate(1 / 30))
        who = rng.choice(['ann', 'bob', 'cleo'])
        task = next_item(log, 'talk', who)
        try:
            if isinstance(task, Task):
                rng.choice([lambda: submit(log, 'talk', who, task.item, rng.randint(1, 3), rng.randint(1, 3), f'{k}'),
                            lambda: undo(log, 'talk', who), lambda: discard(log, 'talk', who, task.item, 'OCR'),
                            lambda: comment(log, 'talk', who, task.item, f'=remark {k}')])()
        except Refused: pass
        if k % 40 == 20: moments.append(len(log))
    return log, clock, moments


FILES = ['a.jsonl', 'a.csv', 'a.parquet', 'a/data/train.parquet', 'a/README.md']


def files(log, folder, at=None):
    for name in ('a.jsonl', 'a.csv', 'a.parquet', 'a'): export(log, 'talk', folder / name, at)
    return {name: (folder / name).read_bytes() for name in FILES}


def test_an_export_is_a_function_of_the_log_and_the_moment(url, tmp_path):
    log, clock, moments = history(url)
    then = [files(log, tmp_path / f'{m}', m) for m in moments]
    now = files(log, tmp_path / 'now')
    when = clock()
    clock.wind(100_000)
    other = EventLog(url, clock)
    keep_campaign(other, Campaign('other', guidelines=''), pairs(3))                          # other work goes on
    assert files(other, tmp_path / 'again') == now == files(other, tmp_path / 'at', when)
    undo(other, 'talk', 'ann')
    rebuild(other)
    assert [files(other, tmp_path / f'{m} again', m) for m in moments] == then
    assert files(other, tmp_path / 'before', when) == now != files(other, tmp_path / 'after')
    assert [p.name for p in tmp_path.rglob('*.part')] == []
    assert [t['a.csv'] for t in then] != [now['a.csv']] * len(then)


def test_both_engines_export_the_same_bytes(server, tmp_path):
    logs = [history(u)[0] for u in (f'sqlite:///{tmp_path}/a.sqlite', server.new())]
    assert files(logs[0], tmp_path / 'one') == files(logs[1], tmp_path / 'two')


@pytest.mark.parametrize('name', ['a.jsonl', 'a.csv', 'a.parquet', 'a'])
def test_there_and_back(url, tmp_path, name):
    log, *_ = history(f'sqlite:///{tmp_path}/first.sqlite')
    now = files(log, tmp_path / 'now')
    back = EventLog(url)
    import_answers(back, Campaign('talk', repeats=.25, gap=2, guidelines='Rate.'),
                   read_answers(tmp_path / 'now' / name))
    again = files(back, tmp_path / 'back')
    for file in FILES[:4]: assert again[file] == now[file], file
    assert label_patterns(back, 'talk').equals(label_patterns(log, 'talk'))
    columns = ['item', 'pair_id', 'stratum', 'weight', 'annotator', 'strength', 'fluency', 'time', 'seconds']
    assert ratings(back, 'talk')[columns].equals(ratings(log, 'talk')[columns])
    rebuilt(back)
    assert campaign_state(back, 'talk').state == 'closed' and not progress(back, 'talk').left
    set_state(back, 'talk', 'open')
    with pytest.raises(Refused, match='nothing to undo'):
        undo(back, 'talk', 'ann')  # what was imported is not undone by a key


def test_decisions_go_out_and_come_back(url, tmp_path):
    log, clock, moments = history(url)
    before = files(log, tmp_path / 'before')
    item = disputes(log, 'talk').item[0]
    adjudicate(log, 'talk', 'eva', item, 2, None, 'blind')
    adjudicate(log, 'talk', ratings(log, 'talk').query('item == @item').annotator.iloc[0], item, 3, 3, 'discussion')
    now = files(log, tmp_path / 'now')
    assert files(log, tmp_path / 'then', len(log) - 2) == before and now != before
    assert [r['reason'] for r in answer_table(log, 'talk').to_pylist() if r['state'] == 'adjudicated'] == ['discussion']
    for name in ('a.jsonl', 'a.csv', 'a.parquet', 'a'):
        back = EventLog(f'sqlite:///{tmp_path}/{name}.sqlite')
        import_answers(back, Campaign('talk', repeats=.25, gap=2, guidelines='Rate.'),
                       read_answers(tmp_path / 'now' / name))
        assert ({f: b for f, b in files(back, tmp_path / f'back {name}').items() if 'README' not in f}
                == {f: b for f, b in now.items() if 'README' not in f})
        assert adjudicated(back, 'talk').equals(adjudicated(log, 'talk'))
        assert len(ratings(back, 'talk')) == len(ratings(log, 'talk'))
        rebuilt(back)


def test_an_export_that_cannot_be_finished_leaves_the_older_one(tmp_path):
    log, *_ = history(f'sqlite:///{tmp_path}/a.sqlite')
    path = export(log, 'talk', tmp_path / 'a.csv', 5)
    before = path.read_bytes()
    code = (f"import resource, sys; from paranmt_lab.annotation.exports import export; "
            f"from paranmt_lab.annotation.store import EventLog; log = EventLog('sqlite:///{tmp_path}/a.sqlite'); "
            f"resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); export(log, 'talk', '{path}', force=True)")
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=120)
    assert 'make room and run the same again' in done.stderr, done.stderr
    assert path.read_bytes() == before and not list(tmp_path.glob('.*part'))


@pytest.mark.parametrize('name', ['a.jsonl', 'a.csv', 'a.parquet', 'a.md', 'a'])
def test_an_export_replaces_nothing_unless_it_is_told_to(tmp_path, monkeypatch, name):
    log, *_ = history(f'sqlite:///{tmp_path}/a.sqlite')
    monkeypatch.setenv('PARANMT_ANNOTATIONS', log.url)
    path = tmp_path / name
    if '.' in name: path.write_text('a thesis')
    else:
        path.mkdir()
        (path / 'README.md').write_text('a thesis')
        (path / 'notes.txt').write_text('by hand')
    held = lambda: {p: p.read_bytes() for p in sorted(tmp_path.rglob('*'))
                    if p.is_file() and p.suffix not in ('.sqlite', '.lock') and 'sqlite' not in p.name}
    words = ['annotate', 'export', 'talk', str(path)]
    before, export_it = held(), lambda *more: CliRunner().invoke(program, [*words, *more])
    refused = export_it()
    assert isinstance(refused.exception, FileExistsError) and '--force' in str(refused.exception) and held() == before
    assert export_it('--force').exit_code == 0
    assert b'a thesis' not in held().values() and ('.' in name or (path / 'notes.txt').read_text() == 'by hand')


def test_a_dataset_loads(tmp_path):
    datasets = pytest.importorskip('datasets')
    log, *_ = history(f'sqlite:///{tmp_path}/a.sqlite')
    loaded = datasets.load_dataset(str(export(log, 'talk', tmp_path / 'talk')),
                                   split='train', cache_dir=str(tmp_path / 'cache'))
    assert loaded.to_pandas().item.tolist() == answer_table(log, 'talk')['item'].to_pylist()


# Drawing

def test_a_draw_is_of_the_selection_and_its_weights_add_up(tmp_path):
    s, rng = replace(settings(), workspace=tmp_path), np.random.default_rng(0)
    corpus = Corpus.create('toy', s)
    for shard in range(3):
        corpus.write_pairs(shard, {'reference': [f'R {shard} {i}' for i in range(500)],
                                   'translation': [None if i % 100 == 0 else f'T {i}' for i in range(500)]})
        for m in ('a', 'b'):
            corpus.write_measure(m, shard, np.where(rng.random(500) < .1, np.nan, rng.integers(0, 20, 500) / 20))
    select(corpus, Selection('some', n=600, seed=4))
    frame = corpus.frame(['pair_id', 'translation', 'a', 'b']).query('translation.notna()')
    items, table = draw(corpus, Campaign('x', measure='a', ranges=((None, .3), (.3, .6), (.6, None)), n=40))
    for row, (low, high) in zip(table.itertuples(), ((-1, .3), (.3, .6), (.6, 2))):
        members = frame[(frame.a.astype('float32') > np.float32(low))
                        & (frame.a.astype('float32') <= np.float32(high))].pair_id
        own = items[items.stratum == row.stratum]
        assert row.pairs == len(members) and set(own.pair_id) <= set(members)
        assert own.weight.sum() == pytest.approx(row.pairs)
    chosen, whole = draw(corpus, Campaign('x', selection='some', n=50))
    assert whole.pairs.tolist() == [600] and len(chosen) == 50
    assert (create_campaign(EventLog(f'sqlite:///{tmp_path}/a.sqlite'),
                            Campaign('talk', 'toy', disagreement=('a', 'b'), n=30, guidelines=''),
                            s).drawn.tolist() == [30])
    both = frame.dropna()
    ranks = (both.a.rank() - both.b.rank()).abs()
    found = draw(corpus, Campaign('x', disagreement=('a', 'b'), n=30))[0]
    assert ranks[both.pair_id.isin(found.pair_id)].min() >= ranks[~both.pair_id.isin(found.pair_id)].max()


@pytest.mark.soak
def test_several_who_create_a_campaign_at_once_find_the_same_one(url, tmp_path):
    s = replace(settings(), workspace=tmp_path)
    Corpus.create('toy', s).write_pairs(
        0, {'reference': [f'R {i}' for i in range(400)], 'translation': [f'T {i}' for i in range(400)]})
    plan, store_ = Campaign('talk', 'toy', n=50, guidelines=''), EventLog(url)
    code = f'''
import sys, time
from dataclasses import replace
from paranmt_lab.annotation.campaigns import Campaign, create_campaign
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.ground.settings import settings
s, log = replace(settings(), workspace=type(settings().workspace)({str(tmp_path)!r})), EventLog({url!r})
print('ready', flush=True), sys.stdin.readline()
try: print(create_campaign(log, Campaign('talk', 'toy', n=int(sys.argv[1]), guidelines=''), s).drawn.sum())
except ValueError as e: print(e)
'''
    people = [subprocess.Popen([sys.executable, '-c', code, n], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True) for n in ('50', '50', '50', '20')]
    for p in people: assert p.stdout.readline() == 'ready\n'
    for p in people: p.stdin.write('go\n'), p.stdin.flush()
    said = [p.communicate(timeout=120)[0].strip() for p in people]
    refused = [x for x in said if 'is there already with other settings' in x and 'give this one another name' in x]
    assert said[:3] == ['50'] * 3 and refused == said[3:] or said[3] == '20' and refused == said[:3], said
    assert len(store_.events('campaign')) == 1 and len(campaign_items(store_, 'talk')) in (20, 50)
    if said[3] != '20':
        with pytest.raises(CampaignThere, match='already'): keep_campaign(store_, plan, pairs(3))


# Decisions

def test_a_decision_is_one_event_that_moves_no_rating(url):
    log = EventLog(url)
    keep_campaign(log, Campaign('talk', repeats=.5), pairs(6, strata=2),
                  pd.DataFrame(dict(stratum=['s0', 's1'], pairs=[3, 6], drawn=[3, 3], weight=[1., 2.])))
    for who, mark in (('ada', 3), ('ben', 1)):
        while not isinstance(task := next_item(log, 'talk', who), Empty):
            submit(log, 'talk', who, task.item, mark, 3, f'{task.item}')
    before, made = ratings(log, 'talk'), []
    # repeated items are about their raters, not about the pair
    assert disputes(log, 'talk').item.tolist() == [1, 2, 3, 4, 5, 6]
    threads = [threading.Thread(target=lambda: made.append(adjudicate(log, 'talk', 'eva', 2, 2, None, 'blind', 'once')))
               for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(made) == 8 and len(set(made)) == 1 and len(log.events('adjudicated')) == 1
    with pytest.raises(Refused, match='used before'): adjudicate(log, 'talk', 'eva', 3, 2, None, 'blind', 'once')
    with pytest.raises(Refused, match='cannot decide it blind'): adjudicate(log, 'talk', 'ben', 3, 2, 2)
    last = adjudicate(log, 'talk', 'eva', 2, 3, 3, 'discussion')
    assert adjudicated(log, 'talk')[['item', 'strength', 'fluency', 'how']].values.tolist() == [[2, 3, 3, 'discussion']]
    assert adjudicated(log, 'talk', last - 1).strength.tolist() == [2]
    assert disputes(log, 'talk').item.tolist() == [1, 3, 4, 5, 6]
    pd.testing.assert_frame_equal(ratings(log, 'talk'), before)
    rebuilt(log)
    table = paper_table(log, 'talk')
    # the median of 1 and 3, but for the one decided
    assert table[['range', 'n', 'strength_2', 'strength_3']].values.tolist() == [['s0', 3, 3, 0], ['s1', 3, 2, 1]]
    assert table.pairs.tolist() == [3, 6] and campaign_status(log, 'talk')['people'] == 2


def test_table_3_counts_what_people_discarded(url, tmp_path, monkeypatch):
    "Ten pairs of a range of 1,000, five rated 3, five discarded: half of the range, in table, status and file."
    log = EventLog(url)
    keep_campaign(log, Campaign('half', overlap=1), pairs(10, strata=1),
                  pd.DataFrame(dict(stratum=['s0'], pairs=[1000], drawn=[10], weight=[100.])))
    for k in range(10):
        item = next_item(log, 'half', 'ada').item
        if k % 2: discard(log, 'half', 'ada', item, REASONS[0])
        else: submit(log, 'half', 'ada', item, 3, 3, f'{k}')
    for at in (None, len(log)):
        assert (paper_table(log, 'half', at)[['n', 'discarded', 'strength_3', 'strength_share']].values.tolist()
                == [[10, 5, 5, .5]])
    assert strong_pairs(paper_table(log, 'half')).pairs == 500
    monkeypatch.setenv('PARANMT_ANNOTATIONS', url)
    run_cli = lambda *words: CliRunner().invoke(program, ['annotate', *words], env={'COLUMNS': '120'}).output
    for of, phrase in (('all', '500 [238, 762] of 1,000 pairs'),
                       ('fit', '500 [284, 500] of 500 pairs fit to be rated')):
        assert phrase in run_cli('status', 'half', '--of', of)
        run_cli('export', 'half', str(tmp_path / f'{of}.md'), '--of', of)
        assert phrase in (tmp_path / f'{of}.md').read_text()


@pytest.mark.parametrize('ranges, problem', [
    (((0., 1.), (.5, 2.)), r'\(0.0, 1.0\] and \(0.5, 2.0\] overlap'),
    (((.5, 1.), (None, .6)), r'\(None, 0.6\] and \(0.5, 1.0\] overlap'),
    (((0., 1.), (0., 1.)), 'overlap'),
    (((0., None), (2., 3.)), 'overlap'),
    (((1., 0.),), r'\(1.0, 0.0\] is empty'),
    ((), 'no range'),
])
def test_strata_that_overlap_are_refused(tmp_path, ranges, problem):
    s = replace(settings(), workspace=tmp_path)
    corpus = Corpus.create('talk', s)
    corpus.write_pairs(0, {'reference': ['It rains.'] * 9, 'translation': ['Rain falls.'] * 9})
    corpus.write_measure('trigram_overlap', 0, np.linspace(0, 2, 9).astype(np.float32))
    log = EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    with pytest.raises(ValueError, match=problem):
        create_campaign(log, Campaign('talk', 'talk', measure='trigram_overlap', ranges=ranges), s)
    assert not len(log.events())
    create_campaign(log,
                    Campaign('talk', 'talk', measure='trigram_overlap', ranges=((.5, 1.), (None, .5), (1., None))), s)


def test_overlapping_strata_are_refused_on_the_command_line(tmp_path):
    s = replace(settings(), workspace=tmp_path)
    corpus = Corpus.create('talk', s)
    corpus.write_pairs(0, {'reference': ['It rains.'] * 9, 'translation': ['Rain falls.'] * 9})
    corpus.write_measure('m', 0, np.linspace(0, 2, 9).astype(np.float32))
    words = ['annotate', 'new', 'talk', 'two', '--measure', 'm', '--range', '0:1', '--range', '0.5:2']
    env = os.environ | dict(PARANMT_WORKSPACE=str(tmp_path), PARANMT_ANNOTATIONS=f'sqlite:///{tmp_path}/a.sqlite')
    done = subprocess.run([sys.executable, '-c', 'from paranmt_lab.cli.main import main; main()', *words],
                          env=env, capture_output=True, text=True)
    said = ' '.join((done.stdout + done.stderr).split())
    assert done.returncode and 'strata (0.0, 1.0] and (0.5, 2.0] overlap' in said and 'Traceback' not in said, said


def test_the_card_shows_what_cannot_be_seen(tmp_path):
    "Page and widget get the same texts, without invisible characters, and with letters of any script as they are."
    log = EventLog(f'sqlite:///{tmp_path}/a.sqlite')
    texts = ('abc \u202etxt.exe\u202c', 'pass\u200bword \u0645\u0631\u062d\u0628\u0627',
             '\ufeff\u05e9\u05dc\u05d5\u05dd\n\u0645\u06cc\u200c\u062e')
    row = dict(zip(('reference', 'translation', 'source'), texts), stratum='all', weight=1., pair_id=0)
    keep_campaign(log, Campaign('odd', guidelines=''), pd.DataFrame([row]))
    for k, who in enumerate(('ada', 'ben')):
        shown = card_data(Desk(log, 'odd', who))
        submit(log, 'odd', who, 1, 3, 1 + 2 * k, f'{k}')
    for data in (shown, dispute_data(Chair(log, 'odd', 'eva'))):
        side = [''.join(text for text, _ in data[name]) for name in ('reference', 'translation')]
        assert side == ['abc \\u202etxt.exe\\u202c', 'pass\\u200bword \u0645\u0631\u062d\u0628\u0627']
        assert data['source'] == '\\ufeff\u05e9\u05dc\u05d5\u05dd\n\u0645\u06cc\u200c\u062e'


def test_the_form_of_a_new_campaign_follows_the_corpus(tmp_path, monkeypatch):
    "It opens on a corpus with translations; where that is scored strata are ranges; a draw is in the list at once."
    pytest.importorskip('streamlit')
    monkeypatch.setenv('PARANMT_WORKSPACE',
                       str(tmp_path)), monkeypatch.setenv('PARANMT_ANNOTATIONS', f'sqlite:///{tmp_path}/a.sqlite')
    sides = {name: {'reference': [f'It rains {i}.' for i in range(9)], 'source': ['Prší.'] * 9}
             for name in ('a-bitext', 'b-plain', 'c-scored')}
    for name in ('b-plain', 'c-scored'): sides[name]['translation'] = [f'Rain falls {i}.' for i in range(9)]
    for name, texts in sides.items(): Corpus.create(name, settings()).write_pairs(0, texts)
    Corpus.open('c-scored').write_measure('paraphrase_score@x', 0, np.linspace(0, .9, 9).astype(np.float32))
    at = page('annotate', annotator='ada')
    assert at.selectbox(key='new_corpus').options == ['c-scored', 'b-plain', 'a-bitext']
    at.selectbox(key='new_corpus').set_value('b-plain').run()
    assert at.selectbox(key='new_division_b-plain').value == 'no strata'
    at.selectbox(key='new_corpus').set_value('c-scored').run()
    assert at.selectbox(key='new_division_c-scored').value == 'the five ranges of Table 3 of ParaNMT-50M'
    at.text_input(key='new_name').set_value('fresh').run()
    next(b for b in at.button if b.label == 'Draw it').click().run()
    assert not at.exception and at.success[0].value.startswith('**fresh** has 9 pairs')
    assert at.sidebar.selectbox(key='campaign').options == ['fresh']
