"""A large campaign on both engines: how long a rater waits, and how long an export takes.

    python tests/benchmarks/annotation.py [items] [ratings] [sqlite|postgresql ...]
        # 100,000 items, 1,000,000 ratings, both engines unless told

Forty people have rated; the campaign asks for two more ratings of each item. `next item` and `submit` are those of a
person who has rated a quarter of the items, `next item, nearly through` of one who has rated the first nine tenths of
them one after the other, so that all of these are in the way. Medians and the slowest of 100 calls, in milliseconds;
fill, rebuild and exports once, in seconds. PostgreSQL is started in a temporary folder, with `fsync` as in earnest."""
import json
import shutil
import statistics
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / 'annotation'))
from test_annotation import Server

from paranmt_lab.annotation.answers import submit
from paranmt_lab.annotation.campaigns import Campaign, keep_campaign
from paranmt_lab.annotation.exports import export
from paranmt_lab.annotation.queue import next_item
from paranmt_lab.annotation.replay import rebuild
from paranmt_lab.annotation.store import EventLog, run, stamp
from paranmt_lab.annotation.views import label_patterns, progress, ratings

PEOPLE, STEADY, CALLS = 40, 'steady', 100
WHEN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def fill(log, items, each):
    "A campaign and its ratings, written as events and nothing else."
    frame = pd.DataFrame({'reference': [f'This is the reference sentence of pair {i}.' for i in range(items)],
                          'translation': [f'And this is how pair {i} was translated.' for i in range(items)],
                          'stratum': [f'{i % 5}' for i in range(items)], 'weight': 500., 'pair_id': range(items)})
    keep_campaign(log, Campaign('large', overlap=each + 2), frame)
    rng, rows = np.random.default_rng(0), []
    insert = ("INSERT INTO events (time, annotator, kind, campaign, "
              "item, token, payload) VALUES (:time, :annotator, 'rated', 'large', :item, :token, :payload)")
    with log.writing() as db:
        for item in range(1, items + 1):
            people = ([f'rater {k}' for k in rng.choice(PEOPLE, each - (item <= items * .9), replace=False)]
                      + [STEADY] * (item <= items * .9))
            for who, a, b in zip(people, rng.integers(1, 4, each).tolist(), rng.integers(1, 4, each).tolist()):
                rows.append(dict(time=stamp(WHEN + timedelta(seconds=item)), annotator=who, item=item,
                                 token=f'{who} {item}', payload=json.dumps(dict(strength=a, fluency=b, seconds=9.5))))
            if len(rows) > 50_000 or item == items: run(db, insert, *rows); rows = []


def once(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(log, folder, items, each):
    "(what, median or only, slowest, unit)"
    yield 'fill the log', once(lambda: fill(log, items, each)), None, 's'
    yield 'rebuild from the log', once(lambda: rebuild(log)), None, 's'
    if log.server:
        with log.engine.connect().execution_options(isolation_level='AUTOCOMMIT') as db:
            db.exec_driver_sql('ANALYZE')  # as autovacuum would have
    held = {}
    def ask(who): held[who] = next_item(log, 'large', who).item
    def send(who): submit(log, 'large', who, held[who], 3, 3, f'again {who} {held[who]}')
    def turns(who, *acts):
        times = {act: [] for act in acts}
        for _ in range(CALLS):
            for act in acts: times[act].append(once(lambda: act(who)))
        return times.values()
    for name, times in zip(('next item', 'submit'), turns('rater 1', ask, send)):
        yield name, statistics.median(times) * 1e3, max(times) * 1e3, 'ms'
    for name, times in zip(('next item, nearly through', 'submit, nearly through'), turns(STEADY, ask, send)):
        yield name, statistics.median(times) * 1e3, max(times) * 1e3, 'ms'
    for name, call in (('next item, held already', lambda who: next_item(log, 'large', who)),
                       ('progress of one person', lambda who: progress(log, 'large', who)),
                       ('progress, nearly through', lambda who: progress(log, 'large', STEADY)),
                       ('progress of all', lambda who: progress(log, 'large')),
                       ('label patterns', lambda who: label_patterns(log, 'large'))):
        times, = turns('rater 2', call)
        yield name, statistics.median(times) * 1e3, max(times) * 1e3, 'ms'
    yield 'ratings as a frame', once(lambda: ratings(log, 'large')), None, 's'
    for name in ('large.jsonl', 'large.csv', 'large.parquet', 'dataset'):
        yield f'export {name}', once(lambda: export(log, 'large', folder / name)), None, 's'
    yield 'export of half the log, CSV', once(
        lambda: export(log, 'large', folder / 'half.csv', items * each // 2)), None, 's'


def main(items=100_000, total=1_000_000, *engines):
    table = {}
    for engine in engines or ('sqlite', 'postgresql'):
        folder = Path(tempfile.mkdtemp(prefix='paranmt-bench-'))
        if engine == 'postgresql':
            (folder / 'pg').mkdir(), folder.chmod(0o755)
            server = Server(folder / 'pg', sorted(Path('/usr/lib/postgresql').glob('*/bin'))[-1], fsync='on')
        log = EventLog(server.new() if engine == 'postgresql' else f'sqlite:///{folder}/annotations.sqlite')
        for what, value, most, unit in measure(log, folder, int(items), int(total) // int(items)):
            table[what, engine] = f'{value:,.1f}' + (f' ({most:,.0f})' if most else '') + f' {unit}'
            print(f'{engine:12}{what:32}{table[what, engine]}', flush=True)
        if engine == 'postgresql': log.engine.dispose(), server.stop()
        shutil.rmtree(folder)
    print(pd.Series(table).unstack(sort=False).to_markdown() if 'tabulate' in sys.modules
          else pd.Series(table).unstack(sort=False).to_string())


if __name__ == '__main__': main(*sys.argv[1:])
