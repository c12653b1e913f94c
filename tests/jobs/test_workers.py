"""Errors of worker processes and of actors reach the caller as they were raised; nothing but a killed process is called
killed."""
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from paranmt_lab.jobs.workers import in_processes


class TwoArguments(Exception):
    "An error that cannot be sent to another process: it is made of other arguments than it keeps."
    def __init__(self, file, line): super().__init__(f'{file}, line {line}')


def fail(error, *args): raise error(*args)
def end(signum): os.kill(os.getpid(), signum)


@pytest.mark.parametrize('error, args, expected, message', [
    (ValueError, ('weights are damaged',), ValueError, '^weights are damaged$'),
    (FileNotFoundError, ('no such model',), FileNotFoundError, 'no such model'),
    (TwoArguments, ('encoder.json', 3), RuntimeError, '^TwoArguments: encoder.json, line 3$')])
@pytest.mark.parametrize('at', ['start', 'task'])
def test_the_error_of_a_worker_is_the_callers(error, args, expected, message, at, capfd):
    start, work = (fail, int) if at == 'start' else (int, fail)
    with pytest.raises(expected, match=message):
        list(in_processes(2, start, (error, *args) if at == 'start' else (), work, [(error, *args)] * 4))
    assert 'Traceback' not in capfd.readouterr().err


def test_memory_is_blamed_for_a_killed_process_only():
    with pytest.raises(RuntimeError, match='was killed, perhaps for lack of memory'):
        list(in_processes(2, int, (), end, [(signal.SIGKILL,)] * 2))
    for work, args, why in ((end, (signal.SIGSEGV,), 'signal SIGSEGV'), (os._exit, (3,), 'exit code 3')):
        with pytest.raises(RuntimeError, match=f'worker process ended with {why}') as error:
            list(in_processes(2, int, (), work, [args] * 2))
        assert 'memory' not in str(error.value)


@pytest.mark.soak
def test_a_damaged_encoder_is_named_in_one_line(tmp_path):
    # imported here, since each worker of the tests above imports this module
    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.ground.settings import settings
    lab = replace(settings(), workspace=tmp_path)
    shutil.copytree(settings().shipped / 'models/paraphrase-scorer', lab.models / 'damaged')
    weights = lab.models / 'damaged/weights.safetensors'
    weights.write_bytes(weights.read_bytes()[:5000])
    corpus = Corpus.create('pairs', lab)
    for shard in range(3): corpus.write_pairs(shard, dict(reference=['One.'], translation=['Two.']))
    command = [sys.executable, '-m', 'paranmt_lab', 'score', 'pairs', 'paraphrase_score', '--encoder', 'damaged']
    said = {}
    for workers in ('1', '2'):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ
                              | dict(PARANMT_WORKSPACE=str(tmp_path), PARANMT_WORKERS=workers, COLUMNS='300'))
        assert done.returncode == 1 and 'weights.safetensors' in done.stderr and 'memory' not in done.stderr
        said[workers] = done.stderr.strip().splitlines()
        assert len(said[workers]) == 1, done.stderr
    assert said['1'] == said['2']
