"""`paranmt annotate`: the commands of version 0.1, arguments in the wrong order, settings files, backups."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from command import paranmt as run_command
from paranmt_lab.annotation.campaigns import campaign_items, read_campaign
from paranmt_lab.annotation.queue import campaign_states
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings


@pytest.fixture
def paranmt(tmp_path, monkeypatch):
    """Runs a command in a workspace of its own, which has the corpus `talk`, and `m` of its pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('PARANMT_ANNOTATIONS', raising=False)
    def run(line, code=0):
        done = run_command(line, PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='200')
        assert done.returncode == code, done.stdout + done.stderr
        return done
    pairs = dict(reference=[f'Tram {k} is late.' for k in range(8)], translation=[f'Tram {k} came.' for k in range(8)])
    pd.DataFrame(pairs).to_csv('talk.tsv', sep='\t', index=False)
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path / 'data'))
    corpus.write_pairs(0, pairs)
    corpus.write_measure('m', 0, np.linspace(.1, 1, 8, dtype=np.float32))
    return run


@pytest.fixture
def log(tmp_path, paranmt):
    """The database of that workspace, with the campaign `first`."""
    paranmt('annotate new talk first --measure m --range 0:1 --n 3')
    return EventLog(f"sqlite:///{tmp_path}/data/annotations.sqlite")


def one_line(done, new):
    """Checks that standard error says the new words in a single line."""
    [line] = done.stderr.splitlines()
    assert f'paranmt {new}' in line
    return done.stdout


def test_commands_of_the_earlier_version_work_with_a_line_on_standard_error(paranmt, log, tmp_path):
    pause = paranmt('annotate pause first --message "Back on Monday."')
    said = one_line(pause, "annotate status first paused --message 'Back on Monday.'")
    assert said == 'Campaign first is paused. Back on Monday.\n'
    assert 'closed' in one_line(paranmt('annotate close first'), 'annotate status first closed')
    assert campaign_states(log) == dict(first='closed')
    assert 'open' in one_line(paranmt('annotate open first'), 'annotate status first open')
    assert 'bytes' in one_line(paranmt('annotate backup ratings.sqlite'), 'annotate export all ratings.sqlite')
    log.path.unlink()
    said = one_line(paranmt('annotate restore ratings.sqlite first'), 'annotate import ratings.sqlite first')
    assert said == 'Campaign first: 0 answers, 6 to come\n'
    assert len(campaign_items(EventLog(log.url), 'first')) == 3


@pytest.mark.parametrize('line, why', [
    ('new second talk --measure none', 'the source comes first and the new name last (talk second)'),
    ('import theirs theirs.csv', 'the file comes first and the new name last (theirs.csv theirs)'),
    ('status paused first', 'the campaign comes first: first paused'),
])
def test_an_exchanged_order_is_recognised(paranmt, log, tmp_path, line, why):
    (tmp_path / 'theirs.csv').write_text('annotator,reference,translation,strength\n')
    before = len(log)
    assert why in ' '.join(paranmt(f'annotate {line}', code=2).stderr.replace('│', ' ').split())
    assert len(log) == before


def test_settings_come_from_a_file_and_options(paranmt, log, tmp_path):
    (tmp_path / 'campaign.toml').write_text('measure = "m"\nranges = ["0:0.5", "0.5:1"]\nn = 2\nlease = 5.0\n')
    paranmt('annotate new talk file --config campaign.toml --overlap 1 --set gap=3')
    plan = read_campaign(log, 'file')
    assert (plan.measure, plan.ranges, plan.n, plan.lease) == ('m', ((0., .5), (.5, 1.)), 2, 5.)
    assert (plan.overlap, plan.gap, plan.seed) == (1, 3, 0)


def test_a_backup_is_recognised_by_its_content_and_holds_every_campaign(paranmt, log, tmp_path):
    paranmt('annotate new talk second --measure none --n 2')
    paranmt('annotate export all ratings.sqlite')
    (tmp_path / 'ratings.sqlite').rename(tmp_path / 'ratings.db')
    paranmt('annotate import ratings.db again --campaign second')
    assert len(campaign_items(log, 'again')) == 2


@pytest.mark.parametrize('line, code, why', [
    ('export first new.sqlite', 2, 'annotate export all new.sqlite'),
    ('export all new.sqlite --pseudonyms', 2, 'a backup has the names'),
    ('export all new.sqlite --at 1', 2, 'is of now'),
    ('export all new.csv', 2, 'all campaigns go into a backup'),
    ('import nowhere.sqlite first', 1, 'is no file'),
    ('import talk.tsv x --campaign first', 2, 'is no backup'),
    ('status first --message Monday', 2, 'a message goes with a new state'),
])
def test_options_that_would_be_ignored_are_refused(paranmt, log, tmp_path, line, code, why):
    assert why in ' '.join(paranmt(f'annotate {line}', code).stderr.replace('│', ' ').split())
    assert not list(tmp_path.glob('new.*'))
