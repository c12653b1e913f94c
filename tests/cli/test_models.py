"""Vectors of a file from the command line: lines and rows, refused files, and a stop that leaves nothing."""
import io
import json
import os
import signal
import sys
from functools import partial

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from command import paranmt as run_command
from paranmt_lab.cli import models
from paranmt_lab.encoders import files


class Numbers:
    "Encodes a sentence by its length; may press Ctrl-C at the second batch."
    dim, identity = 2, dict(name='numbers', checksum='1')
    def __init__(self, stops): self.stops, self.batches = stops, 0
    def encode(self, sentences):
        self.batches += 1
        if self.stops and self.batches == 2: os.kill(os.getpid(), signal.SIGINT)
        return np.array([[len(text), len(text.split())] for text in sentences], np.float32)


@pytest.fixture
def paranmt(tmp_path, monkeypatch):
    "Runs a command with `Numbers`, in batches of two sentences."
    def run(line, stops=False, stdin=b''):
        monkeypatch.setattr(files, 'encode_file', partial(files.encode_file, batch=2))
        monkeypatch.setattr(models, 'open_model', lambda name, s, gives: Numbers(stops))
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(stdin)))
        return run_command(line, PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='200')
    return run


TEXT = '\ufeffThe tram is late.\r\nCafé\u2028Central\n a \nIt rains.\nHome'.encode()
ROWS = [[17, 4], [12, 2], [3, 1], [9, 2], [4, 1]]


def test_a_row_for_each_line_in_their_order(paranmt, tmp_path):
    (tmp_path / 'in.txt').write_bytes(TEXT)
    done = paranmt(['encode', tmp_path / 'in.txt', tmp_path / 'out.npy'])
    assert done.returncode == 0 and '5 vectors of 2 numbers' in done.stdout
    vectors = np.load(tmp_path / 'out.npy')
    assert vectors.dtype == np.float32 and vectors.tolist() == ROWS
    assert paranmt(['encode', '-', tmp_path / 'out.parquet'], stdin=TEXT).returncode == 0
    frame = pd.read_parquet(tmp_path / 'out.parquet')
    assert np.stack(frame.vector).tolist() == ROWS
    assert frame.sentence[1:].tolist() == ['Café\u2028Central', ' a ', 'It rains.', 'Home']
    facts = json.loads(pq.read_schema(tmp_path / 'out.parquet').metadata[b'paranmt_lab'])
    assert facts['encoder'] == Numbers.identity


@pytest.mark.parametrize('text, message', [
    (b'One.\nCaf\xe9\n', 'standard-input:2: not in UTF-8'), (b'', 'standard-input: no sentence in it')])
def test_a_file_that_is_no_text_is_refused(paranmt, tmp_path, text, message):
    done = paranmt(['encode', '-', tmp_path / 'out.npy'], stdin=text)
    assert done.returncode == 1 and message in done.stderr and not (tmp_path / 'out.npy').exists()


def test_a_file_in_the_wrong_place_is_a_usage_error(paranmt, tmp_path):
    (tmp_path / 'in.txt').write_bytes(TEXT)
    done = paranmt(['encode', tmp_path / 'out.npy', tmp_path / 'in.txt'])
    assert done.returncode == 2 and 'the text comes first' in done.stderr
    assert (tmp_path / 'in.txt').read_bytes() == TEXT


def test_an_existing_file_is_replaced_on_request(paranmt, tmp_path):
    (tmp_path / 'out.npy').write_text('of another program')
    line = ['encode', '-', tmp_path / 'out.npy']
    refused = paranmt(line, stdin=TEXT)
    assert refused.returncode == 1 and '--force' in refused.stderr
    assert (tmp_path / 'out.npy').read_text() == 'of another program'
    assert paranmt([*line, '--force'], stdin=TEXT).returncode == 0 and len(np.load(tmp_path / 'out.npy')) == 5


@pytest.mark.parametrize('ending', ['.npy', '.parquet'])
def test_a_stop_leaves_no_file(paranmt, tmp_path, ending):
    done = paranmt(['encode', '-', tmp_path / f'out{ending}'], stops=True, stdin=TEXT)
    assert done.returncode == 130 and 'is not written' in done.stdout
    assert not list(tmp_path.glob('*out*'))
