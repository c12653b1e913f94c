"A machine rates a campaign beside its people: killed and resumed, it doubles nothing, and no figure of theirs changes."
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import chat_server
from command import paranmt
from paranmt_lab.annotation.agreement import agreement_table
from paranmt_lab.annotation.campaigns import Campaign, Gold, keep_campaign
from paranmt_lab.annotation.exports import export
from paranmt_lab.annotation.machine import MACHINE, compared, machine_ratings
from paranmt_lab.annotation.raters import bias, campaign_status
from paranmt_lab.annotation.simulation import simulate
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.annotation.table3 import paper_table
from paranmt_lab.annotation.views import label_patterns, progress, rater_names, ratings
from paranmt_lab.engines.chat import ChatModel
from paranmt_lab.ground.settings import settings

N = 120
RATE = """
from paranmt_lab.cli.main import main
import sys
sys.argv = ['paranmt', 'annotate', 'machine', 'talk', '--model', 'chat:rule']
main()
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    "A campaign that three people have rated, and a server."
    server = chat_server.ChatServer()
    monkeypatch.setenv('PARANMT_CHAT_URL', server.url)
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path / 'lab'))
    (tmp_path / 'lab').mkdir()
    log = EventLog(settings().annotations)
    pairs = pd.DataFrame(dict(reference=[f'We met {k} friends.' for k in range(N)],
                              translation=[f'We met {k} {"people" if k % 2 else "friends"}.' for k in range(N)]))
    gold = (Gold('Tea?', 'Tea.', 1, 3, 'A question, and none.'),)
    plan = Campaign('talk', overlap=3, repeats=.1, gap=2, gold=gold, guidelines='Compare the two sentences.')
    keep_campaign(log, plan, pairs.assign(stratum='all', weight=2.))
    simulate(log, 'talk', {item: 1 + item % 3 for item in range(1, 2 * N)}, dict(ada=.1, ben=.2, cleo=.3))
    log.chat = server
    yield log
    server.shutdown()
    server.server_close()


def figures_of_people(log, folder):
    "All that is said of people."
    tables = [ratings(log, 'talk'), bias(ratings(log, 'talk')), paper_table(log, 'talk'), label_patterns(log, 'talk'),
              agreement_table(label_patterns(log, 'talk'))]
    return [table.to_csv() for table in tables] + [progress(log, 'talk'), rater_names(log, 'talk'),
                                                   campaign_status(log, 'talk'),
                                                   export(log, 'talk', folder / f'{time.time_ns()}.csv').read_bytes()]


def test_a_machine_is_killed_and_resumed_and_changes_no_figure_of_people(log, tmp_path):
    before = figures_of_people(log, tmp_path)
    log.chat.pause, log.chat.faults[:] = .05, ['429', '', 'cut', 'refusal', '500', 'chatter']
    for answers in (20, 70):  # within a transaction's pairs, and after some
        process = subprocess.Popen([sys.executable, '-c', RATE])
        while process.poll() is None and len(log.chat.answered) < answers: time.sleep(.01)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    result = paranmt('annotate machine talk --model chat:rule')
    assert result.returncode == 0 and 'machines beside people' in result.stdout, result.stderr
    marks, events = machine_ratings(log, 'talk'), log.events(MACHINE)
    assert len(marks) == len(events) == events['item'].nunique() == N
    assert marks.strength.isna().sum() == 2 == compared(log, 'talk', 'strength').no_answer[1]
    assert figures_of_people(log, tmp_path) == before
    said = paranmt(f'annotate export talk {tmp_path}/people.csv')
    assert f'Without {N} answers of machines' in said.stdout + said.stderr


def test_guidelines_and_gold_of_the_campaign_are_the_prompt(log, monkeypatch):
    conversations, ask = [], ChatModel.ask
    def asking(self, prompts, *rest):
        conversations.extend(prompts)
        return ask(self, prompts, *rest)
    monkeypatch.setattr(ChatModel, 'ask', asking)
    assert paranmt('annotate machine talk --model chat:rule').returncode == 0
    first = conversations[0]
    assert first[0].startswith('Compare the two sentences.') and 'Reference: Tea?' in first[0]
    assert first[1] == '{"strength": 1, "fluency": 3}' and len(first) == 3
